package codec

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
)

// Declaration gives a plain struct its wire name. It is made by [Declare] or [Of], and checked by [NewRegistry].
type Declaration struct {
	name    string
	version int
	typ     reflect.Type
	encode  func(v any) ([]byte, error)
	decode  func(data []byte) (any, error)
}

// Of declares that values of the struct T are stored under the wire name, at a version from 1. It does not touch the
// declarations of the process.
func Of[T any](name string, version int) Declaration {
	return Declaration{name: name, version: version, typ: reflect.TypeFor[T](), encode: encodeJSON[T], decode: decodeJSON[T]}
}

// declared are the declarations of the process. They are only ever added to, by package initialization as a rule.
var declared struct {
	sync.Mutex
	list []Declaration
}

// Declare is [Of] for the whole process, made to initialize a package variable. A declaration that is wrong, or contradicts
// another, is reported when a [Registry] is made of [Declarations].
func Declare[T any](name string, version int) Declaration {
	d := Of[T](name, version)
	declared.Lock()
	defer declared.Unlock()
	declared.list = append(declared.list, d)
	return d
}

// Declarations gives what the process declared so far, in order of names and versions.
func Declarations() []Declaration {
	declared.Lock()
	list := slices.Clone(declared.list)
	declared.Unlock()
	slices.SortStableFunc(list, func(a, b Declaration) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version), cmp.Compare(a.typ.String(), b.typ.String()))
	})
	return list
}
