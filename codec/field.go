package codec

import (
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/keyhold/keyhold/event"
)

// Extractor gives the value of one field as a partition key, of a value of the type it was made for or a pointer to one.
// The error is an [*event.KeyError] where the value is none: empty, or bytes that are no UUID. Other rules of keys are not
// applied. It may be called concurrently and does not keep v.
type Extractor func(v any) (string, error)

// Field makes the extractor of a direct field of a struct, by its JSON name, or of a protobuf message, by its proto name.
// The error says what is wrong with the field and what would do: it is meant for whoever registers the type.
//
// Strings are keys as they are, integers in decimal with all digits, and 16 bytes ([16]byte, or a protobuf bytes field) as
// the text of a UUID, whatever methods their Go types have. A value that cannot be told from a field never set is empty:
// "", the zero UUID, a nil pointer, and 0 unless the field is a pointer or has presence.
func Field(t reflect.Type, name string) (Extractor, error) {
	s, message := messageOf(t)
	var extract Extractor
	var err error
	switch {
	case name == "" || strings.Contains(name, "."):
		err = errors.New("name one direct field, paths are not supported")
	case message:
		extract, err = messageField(descriptorOf(s), name)
	case s.Kind() == reflect.Struct:
		extract, err = structField(s, name)
	default:
		err = errors.New("it is no struct and no protobuf message")
	}
	if err != nil {
		return nil, fmt.Errorf("field %q of %s cannot be the key: %w", name, s, err)
	}
	return extract, nil
}

func noValue(field, of string) error {
	return &event.KeyError{Reason: fmt.Sprintf("is empty: field %q of %s has no value; give it one before the event is emitted", field, of)}
}

// isZero is noValue for an integer without presence.
func isZero(field, of, remedy string) error {
	return &event.KeyError{Reason: fmt.Sprintf("is empty: field %q of %s is 0, which is also what it is without a value; "+
		"give it one before the event is emitted, or %s if 0 is a key", field, of, remedy)}
}

const keyKinds = "a key can be a string, an integer or 16 bytes (a UUID)"

// directField is a field that JSON shows as one of the struct's own.
type directField struct {
	name  string // in JSON
	index int
	typ   reflect.Type
}

// fieldsOf gives the direct fields of a struct. Those of embedded structs are not among them.
func fieldsOf(t reflect.Type) []directField {
	var fields []directField
	for i := range t.NumField() {
		f := t.Field(i)
		if name, ok := jsonName(f); ok {
			fields = append(fields, directField{name, i, f.Type})
		}
	}
	return fields
}

// jsonName is the name under which JSON shows a field; false if it does not, or shows the fields of an embedded struct in
// its place.
func jsonName(f reflect.StructField) (string, bool) {
	tag := f.Tag.Get("json")
	name, _, _ := strings.Cut(tag, ",")
	switch {
	case !f.IsExported() || tag == "-" || name == "" && embedded(f):
		return "", false
	case name == "":
		return f.Name, true
	}
	return name, true
}

func embedded(f reflect.StructField) bool {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return f.Anonymous && t.Kind() == reflect.Struct
}

func embeds(t reflect.Type) bool {
	for f := range t.Fields() {
		if embedded(f) {
			return true
		}
	}
	return false
}

func structField(t reflect.Type, name string) (Extractor, error) {
	var found []directField
	for _, f := range fieldsOf(t) {
		if f.name == name {
			found = append(found, f)
		}
	}
	switch len(found) {
	case 0:
		return nil, noField(t, name)
	case 1:
	default:
		return nil, fmt.Errorf("%d fields have that JSON name: rename all but one", len(found))
	}
	index, elem, pointer := found[0].index, found[0].typ, false
	if elem.Kind() == reflect.Pointer {
		elem, pointer = elem.Elem(), true
	}
	text, zero := keyText(elem)
	if text == nil {
		return nil, fmt.Errorf("it is a %s, and %s", found[0].typ, keyKinds)
	}
	empty := noValue(name, t.String())
	if isInteger(elem.Kind()) && !pointer {
		empty = isZero(name, t.String(), fmt.Sprintf("make it a *%s", elem))
	}
	return func(v any) (string, error) {
		value := reflect.ValueOf(v)
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		if !value.IsValid() || value.Type() != t {
			return "", fmt.Errorf("read field %q of %s: the value is a %T", name, t, v)
		}
		field := value.Field(index)
		if pointer {
			field = field.Elem()
		}
		if !field.IsValid() || field.IsZero() && (zero || !pointer) {
			return "", empty
		}
		return text(field), nil
	}, nil
}

// keyText gives what turns a value of t into a key, nil if nothing does, and whether its zero value is empty even behind a
// pointer.
func keyText(t reflect.Type) (text func(reflect.Value) string, zero bool) {
	switch k := t.Kind(); {
	case k == reflect.String:
		return reflect.Value.String, true
	case isUUID(t):
		return func(v reflect.Value) string {
			var id uuid.UUID
			reflect.Copy(reflect.ValueOf(&id).Elem(), v)
			return id.String()
		}, true
	case !isInteger(k):
		return nil, false
	case k >= reflect.Uint:
		return func(v reflect.Value) string { return strconv.FormatUint(v.Uint(), 10) }, false
	}
	return func(v reflect.Value) string { return strconv.FormatInt(v.Int(), 10) }, false
}

func isInteger(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uint64 }

func isUUID(t reflect.Type) bool {
	return t.Kind() == reflect.Array && t.Len() == 16 && t.Elem() == reflect.TypeFor[byte]()
}

// noField says why a struct has no direct field of that JSON name.
func noField(t reflect.Type, name string) error {
	var names []string
	for _, f := range fieldsOf(t) {
		names = append(names, f.name)
	}
	for _, f := range reflect.VisibleFields(t) {
		tagged, shown := jsonName(f)
		switch direct := len(f.Index) == 1; {
		case !direct && shown && tagged == name:
			return fmt.Errorf("it comes from the embedded %s: declare it in the struct itself", t.Field(f.Index[0]).Type)
		case direct && f.Name == name && shown:
			return fmt.Errorf("in JSON that field is %q: use that name", tagged)
		case direct && f.Name == name || direct && !f.IsExported() && strings.Split(f.Tag.Get("json"), ",")[0] == name:
			return fmt.Errorf("JSON does not have the field %s: export it", f.Name)
		}
	}
	return fmt.Errorf("there is no such field; there are %s", list(names))
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func messageField(md protoreflect.MessageDescriptor, name string) (Extractor, error) {
	fd := md.Fields().ByName(protoreflect.Name(name))
	if fd == nil {
		return nil, noMessageField(md, name)
	}
	text := messageKeyText(fd)
	if text == nil {
		return nil, fmt.Errorf("it is a %s, and %s", messageKind(fd), keyKinds)
	}
	empty := noValue(name, string(md.FullName()))
	if !fd.HasPresence() && fd.Kind() != protoreflect.StringKind && fd.Kind() != protoreflect.BytesKind {
		empty = isZero(name, string(md.FullName()), "make the field optional")
	}
	return func(v any) (string, error) {
		m, ok := v.(proto.Message)
		if !ok || m.ProtoReflect().Descriptor() != md || !m.ProtoReflect().IsValid() {
			return "", fmt.Errorf("read field %q of %s: the value is a %T", name, md.FullName(), v)
		}
		r := m.ProtoReflect()
		if !r.Has(fd) { // without presence: is 0 or empty
			return "", empty
		}
		key, err := text(r.Get(fd))
		if err == nil && key == "" {
			err = empty
		}
		return key, err
	}, nil
}

// messageKeyText gives what turns the value of a field into a key, "" if it is empty; nil if nothing does.
func messageKeyText(fd protoreflect.FieldDescriptor) func(protoreflect.Value) (string, error) {
	if fd.Cardinality() == protoreflect.Repeated {
		return nil
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return func(v protoreflect.Value) (string, error) { return v.String(), nil }
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind,
		protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return func(v protoreflect.Value) (string, error) { return strconv.FormatInt(v.Int(), 10), nil }
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return func(v protoreflect.Value) (string, error) { return strconv.FormatUint(v.Uint(), 10), nil }
	case protoreflect.BytesKind:
		return bytesKey
	}
	return nil
}

func bytesKey(v protoreflect.Value) (string, error) {
	switch id, err := uuid.FromBytes(v.Bytes()); {
	case len(v.Bytes()) == 0 || err == nil && id == uuid.Nil:
		return "", nil
	case err != nil:
		return "", &event.KeyError{
			Key:    hex.EncodeToString(v.Bytes()),
			Reason: fmt.Sprintf("is %d bytes: a key of bytes has exactly 16, those of a UUID; use a string for others", len(v.Bytes())),
		}
	default:
		return id.String(), nil
	}
}

// noMessageField says why a message has no field of that name.
func noMessageField(md protoreflect.MessageDescriptor, name string) error {
	var names []string
	for i := range md.Fields().Len() {
		names = append(names, string(md.Fields().Get(i).Name()))
	}
	if fd := md.Fields().ByJSONName(name); fd != nil {
		return fmt.Errorf("its proto name is %q: use that", fd.Name())
	}
	return fmt.Errorf("there is no such field; there are %s", list(names))
}
