package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
)

// Version is one version of a wire name.
type Version struct {
	Name    string
	Version int
}

func (v Version) String() string { return fmt.Sprintf("%q version %d", v.Name, v.Version) }

// upcaster turns values of one version of a type into values of a later one. It has either up, between Go types, or edit, on JSON.
type upcaster struct {
	from, to reflect.Type               // of up, as its func has them
	up       func(v any) (any, error)   // takes what Decode gives of from, gives what it would give of to
	version  Version                    // of edit: what it starts from
	edit     func(map[string]any) error // on fields of its own
}

// UpcastOf declares that stored values of type Old are read as values of type New, a later version of the same wire name, or the type that
// took the place of Old under another. Both are structs that are declared, or pointers to protobuf messages. up must depend on nothing but its
// argument.
//
// Like [Of], it does not touch the declarations of the process.
func UpcastOf[Old, New any](up func(Old) (New, error)) Declaration {
	u := &upcaster{from: reflect.TypeFor[Old](), to: reflect.TypeFor[New]()}
	if up != nil {
		pointer := u.to.Kind() == reflect.Pointer
		u.up = func(v any) (any, error) {
			old, ok := v.(Old)
			if !ok {
				old = *v.(*Old)
			}
			made, err := up(old)
			switch {
			case err != nil:
				return nil, err
			case !pointer:
				return &made, nil
			case reflect.ValueOf(made).IsNil():
				return nil, errors.New("it gave nil")
			}
			return made, nil
		}
	}
	return Declaration{upcast: u}
}

// UpcastJSONOf is [UpcastOf] for a version whose Go type is gone: edit changes the fields of a stored value, by their JSON names, into those of
// the next version, which is the next one declared or edited itself. Numbers are of type [json.Number], so that none loses a digit.
func UpcastJSONOf(name string, version int, edit func(fields map[string]any) error) Declaration {
	return Declaration{upcast: &upcaster{version: Version{name, version}, edit: edit}}
}

// UpcastError: an upcaster failed, or panicked, at a stored value. Trying again will not help.
type UpcastError struct {
	Upcaster string // what it makes of what
	Err      error
}

func (e *UpcastError) Error() string { return fmt.Sprintf("upcaster of %s: %v", e.Upcaster, e.Err) }
func (e *UpcastError) Unwrap() error { return e.Err }

// step is one upcaster of a chain.
type step struct {
	*upcaster
	about string // what it makes of what
}

// chain is the way from an old version to the newest. It is there for old versions alone, so the newest costs nothing more.
type chain struct {
	edits []step       // on the fields of JSON
	read  *Declaration // what JSON is then decoded as; nil for protobuf
	steps []step       // on the value
	to    reflect.Type // the struct it ends at
}

// decode decodes JSON of the old version.
func (c *chain) decode(data []byte) (any, error) {
	data, err := c.editAll(data)
	if err != nil {
		return nil, err
	}
	v, err := c.read.decode(data)
	if err != nil {
		return nil, err
	}
	return c.up(v)
}

func (c *chain) editAll(data []byte) ([]byte, error) {
	if len(c.edits) == 0 {
		return data, nil
	}
	fields, err := fieldsFrom(data)
	if err != nil {
		return nil, err
	}
	for _, s := range c.edits {
		if err := s.guard(func() error { return s.edit(fields) }); err != nil {
			return nil, err
		}
	}
	edited, err := json.Marshal(fields)
	if err != nil {
		return nil, &UpcastError{Upcaster: c.edits[len(c.edits)-1].about, Err: err}
	}
	return edited, nil
}

func fieldsFrom(data []byte) (fields map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("the data is null")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the value")
	}
	return fields, nil
}

// up takes a decoded value to the end of the chain.
func (c *chain) up(v any) (any, error) {
	for _, s := range c.steps {
		err := s.guard(func() (err error) {
			v, err = s.up(v)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

// guard runs code of the application.
func (s step) guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it panicked at %s: %v", panickedAt(), p)
		}
		if err != nil {
			err = &UpcastError{Upcaster: s.about, Err: err}
		}
	}()
	return f()
}

// panickedAt gives the line of the panic that is being recovered.
func panickedAt() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for panicked := false; ; {
		f, more := frames.Next()
		own := strings.HasPrefix(f.Function, "runtime.")
		if panicked && !own {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		panicked = panicked || own
		if !more {
			return "a place unknown"
		}
	}
}
