package codec

import (
	"fmt"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/keyhold/keyhold/event"
)

// Description is what a tool needs to show values of a type without the program that has the type.
type Description struct {
	Name     string // wire name
	Version  int
	Encoding event.Encoding
	Fields   []FieldDescription // direct fields in order of declaration
	// Descriptor is a serialized google.protobuf.FileDescriptorSet with the message's file and all that it imports, each
	// after what it needs itself; nil for plain structs.
	Descriptor []byte
}

// FieldDescription is a direct field of a type.
type FieldDescription struct {
	Name string // on the wire
	// Kind is a protobuf kind ("string", "sint32", ...) or a Go kind ("string", "int64", "float64", ...) of a value, or "uuid",
	// "bytes", "time", "enum", "array", "object", or "any".
	Kind string
}

// Describe describes a type; the error is that of [Registry.NameOf].
func (r *Registry) Describe(t reflect.Type) (Description, error) {
	name, version, err := r.NameOf(t)
	if err != nil {
		return Description{}, err
	}
	s, message := messageOf(t)
	if !message {
		d := Description{Name: name, Version: version, Encoding: event.JSON}
		for _, f := range fieldsOf(s) {
			d.Fields = append(d.Fields, FieldDescription{Name: f.name, Kind: structKind(f.typ)})
		}
		return d, nil
	}
	md := descriptorOf(s)
	d := Description{Name: name, Version: version, Encoding: event.Proto}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		d.Fields = append(d.Fields, FieldDescription{Name: string(fd.Name()), Kind: messageKind(fd)})
	}
	set := &descriptorpb.FileDescriptorSet{}
	collect(md.ParentFile(), set, map[string]bool{})
	d.Descriptor, err = proto.MarshalOptions{Deterministic: true}.Marshal(set)
	if err != nil {
		return Description{}, fmt.Errorf("describe %q: %w", name, err)
	}
	return d, nil
}

// collect adds a file after everything that it imports.
func collect(file protoreflect.FileDescriptor, set *descriptorpb.FileDescriptorSet, done map[string]bool) {
	if done[file.Path()] {
		return
	}
	done[file.Path()] = true
	for i := range file.Imports().Len() {
		collect(file.Imports().Get(i).FileDescriptor, set, done)
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
}

func structKind(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isUUID(t):
		return "uuid"
	case t == reflect.TypeFor[time.Time]():
		return "time"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !marshals(t):
		return "bytes"
	case marshals(t) || t.Kind() == reflect.Interface:
		return "any"
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	}
	return t.Kind().String()
}

func messageKind(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.IsList():
		return "array"
	case fd.IsMap(), fd.Message() != nil:
		return "object"
	}
	return fd.Kind().String()
}
