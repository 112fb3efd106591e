package codec

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// encodeJSON encodes a T or a *T. Always through a pointer: encoding/json does not call methods with pointer receivers on
// what it cannot address, so a value and a pointer could come out differently.
func encodeJSON[T any](v any) ([]byte, error) {
	p, ok := v.(*T)
	if !ok {
		value := v.(T)
		p = &value
	}
	if p == nil {
		return nil, errors.New("the pointer is nil")
	}
	data, err := json.Marshal(p)
	if err == nil && isNull(data) {
		err = errors.New("it encodes itself as null, which stands for nothing")
	}
	return data, err
}

// decodeJSON gives a *T.
func decodeJSON[T any](data []byte) (any, error) {
	if isNull(data) { // which encoding/json would take for a T without any value
		return nil, errors.New("the data is null")
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		return nil, err
	}
	return v, nil
}

func isNull(data []byte) bool { return string(bytes.TrimSpace(data)) == "null" }

// checkJSON reports what a struct would lose as JSON, or could not be read from.
func checkJSON(t reflect.Type) error {
	if marshals(t) {
		return nil
	}
	if t.NumField() > 0 && len(fieldsOf(t)) == 0 && !embeds(t) {
		return errors.New("JSON has none of its fields: export them")
	}
	return checkJSONType(t, "", map[reflect.Type]bool{})
}

func checkJSONType(t reflect.Type, path string, seen map[reflect.Type]bool) error {
	if seen[t] || marshals(t) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("field %s is a %s, which JSON cannot hold: change it, or leave it out with the tag json:\"-\"", path, t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("field %s is the interface %s, which cannot be read back from JSON: use a type of its own", path, t)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return checkJSONType(t.Elem(), path, seen)
	case reflect.Map:
		if k := t.Key(); k.Kind() != reflect.String && !isInteger(k.Kind()) && !k.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			return fmt.Errorf("field %s has keys of type %s, which JSON cannot hold: use strings or integers", path, k)
		}
		return checkJSONType(t.Elem(), path, seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if err := checkJSONField(t, f, strings.TrimPrefix(path+"."+f.Name, "."), seen); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkJSONField(of reflect.Type, f reflect.StructField, path string, seen map[reflect.Type]bool) error {
	if f.Tag.Get("json") == "-" || f.Name == "_" {
		return nil
	}
	if !f.IsExported() && !embedded(f) {
		if _, message := messageOf(of); message {
			return nil // what it keeps there is not its content
		}
		return fmt.Errorf("field %s is not exported: it would not be stored: export it, or tag it json:\"-\"", path)
	}
	return checkJSONType(f.Type, path, seen)
}

// marshals reports whether values of t encode themselves.
func marshals(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}
