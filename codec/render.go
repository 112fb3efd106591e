package codec

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/keyhold/keyhold/event"
)

// Rendering shows values of one type as JSON, without the program that has the type: from its [Description], or what a store kept
// of one. It is immutable and safe for concurrent use.
type Rendering struct {
	name    string
	message protoreflect.MessageDescriptor // nil for plain structs
	types   *dynamicpb.Types
}

// NewRendering makes a rendering of a type by its wire name. descriptor is [Description.Descriptor], nil for plain structs.
func NewRendering(name string, enc event.Encoding, descriptor []byte) (*Rendering, error) {
	r := &Rendering{name: name}
	switch enc {
	case event.JSON:
		return r, nil
	case event.Proto:
	default:
		return nil, fmt.Errorf("render %q: encoding %q is not known", name, enc)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(descriptor, set); err != nil {
		return nil, fmt.Errorf("render %q: its description is broken: %w", name, err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, fmt.Errorf("render %q: its description is broken: %w", name, err)
	}
	d, err := files.FindDescriptorByName(protoreflect.FullName(name))
	message, ok := d.(protoreflect.MessageDescriptor)
	if err != nil || !ok {
		return nil, fmt.Errorf("render %q: its description does not have it", name)
	}
	r.message, r.types = message, dynamicpb.NewTypes(files)
	return r, nil
}

// JSON gives the fields of a value under their wire names. Numbers of a protobuf message that JSON readers may round are strings, as
// protobuf's JSON has it. unnamed is how many bytes belong to fields of the message that the description does not name: a newer
// program wrote them, and they are left out.
func (r *Rendering) JSON(data []byte) (fields json.RawMessage, unnamed int, err error) {
	if r.message == nil {
		return compacted(r.name, data)
	}
	m := dynamicpb.NewMessage(r.message)
	if err := (proto.UnmarshalOptions{Resolver: r.types}).Unmarshal(data, m); err != nil {
		return nil, 0, fmt.Errorf("render %q: the data is no such message: %w", r.name, err)
	}
	out, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: r.types}.Marshal(m)
	if err != nil {
		return nil, 0, fmt.Errorf("render %q: %w", r.name, err)
	}
	fields, _, err = compacted(r.name, out) // protojson varies its spaces on purpose
	return fields, len(m.GetUnknown()), err
}

func compacted(name string, data []byte) (json.RawMessage, int, error) {
	if isNull(data) {
		return nil, 0, fmt.Errorf("render %q: the data is null", name)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, data); err != nil {
		return nil, 0, fmt.Errorf("render %q: the data is no JSON: %w", name, err)
	}
	return out.Bytes(), 0, nil
}
