package codec

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/keyhold/keyhold/event"
)

// ErrNewer is what an [*UnknownTypeError] is, and a [*VersionError] above what is known: a newer program may be able to
// decode it, so it is neither broken nor to be skipped.
var ErrNewer = errors.New("a newer program is needed")

// UndeclaredError: a struct has no wire name.
type UndeclaredError struct{ Type reflect.Type }

func (e *UndeclaredError) Error() string {
	name := e.Type.Name()
	return fmt.Sprintf("type %s has no wire name: declare it beside the type, var _ = keyhold.Type[%s](%q, 1)", e.Type, name, suggestion(name))
}

// suggestion makes a wire name of a Go name: OrderPlaced becomes order.placed.
func suggestion(name string) string {
	var b strings.Builder
	var last rune
	for _, r := range name {
		if unicode.IsUpper(r) && (unicode.IsLower(last) || unicode.IsDigit(last)) {
			b.WriteByte('.')
		}
		b.WriteRune(unicode.ToLower(r))
		last = r
	}
	return b.String()
}

// UnknownTypeError: this program has no Go type with that wire name.
type UnknownTypeError struct{ Name string }

func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("type %q is not known to this program: run one that declares it", e.Name)
}
func (e *UnknownTypeError) Is(target error) bool { return target == ErrNewer }

// VersionError: this program has Go types with that wire name, but not of that version.
type VersionError struct {
	Name    string
	Version int
	Known   []int // ascending, never empty
}

// Newer reports whether the version is above all that are known.
func (e *VersionError) Newer() bool { return e.Version > e.Known[len(e.Known)-1] }

func (e *VersionError) Error() string {
	known := strings.Trim(fmt.Sprint(e.Known), "[]")
	if e.Newer() {
		return fmt.Sprintf("version %d of type %q is newer than what this program knows (%s): run a newer program", e.Version, e.Name, known)
	}
	return fmt.Sprintf("version %d of type %q is not known to this program (%s is): keep the Go type that had it, declared with "+
		"keyhold.Type[...](%q, %d), and handle it too or add a keyhold.Upcast from it; or add a keyhold.UpcastJSON(%[2]q, %[1]d, ...)",
		e.Version, e.Name, known, e.Name, e.Version)
}
func (e *VersionError) Is(target error) bool { return target == ErrNewer && e.Newer() }

// DecodeError: bytes are not what their type and encoding say. Trying again will not help.
type DecodeError struct {
	Name     string
	Version  int
	Encoding event.Encoding
	Err      error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode %q version %d from %s: %v", e.Name, e.Version, e.Encoding, e.Err)
}
func (e *DecodeError) Unwrap() error { return e.Err }
