package codec

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
)

// Declaration gives a plain struct its wire name, or is an upcaster. It is made by [Declare], [Of], [UpcastOf] or [UpcastJSONOf], and checked by
// [NewRegistry].
type Declaration struct {
	name    string
	version int
	typ     reflect.Type // nil of a version that only an upcaster knows
	encode  func(v any) ([]byte, error)
	decode  func(data []byte) (any, error)
	chain   *chain // to the newest version; nil of the newest, and where there is no upcaster

	upcast *upcaster // of an upcaster, which has nothing else
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
func Declare[T any](name string, version int) Declaration { return Add(Of[T](name, version)) }

// Add makes a declaration one of the process.
func Add(d Declaration) Declaration {
	declared.Lock()
	defer declared.Unlock()
	declared.list = append(declared.list, d)
	return d
}

// Declarations gives what the process declared so far, in order of names and versions, upcasters among them.
func Declarations() []Declaration {
	declared.Lock()
	list := slices.Clone(declared.list)
	declared.Unlock()
	slices.SortStableFunc(list, func(a, b Declaration) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.version, b.version), cmp.Compare(typeName(a.typ), typeName(b.typ)))
	})
	return list
}

// typeName gives the name of a type; upcasters have none, and keep their order.
func typeName(t reflect.Type) string {
	if t == nil {
		return ""
	}
	return t.String()
}

func compareVersions(a, b Version) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
}
