package codec_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/keyhold/keyhold/codec"
	testprotov1 "github.com/keyhold/keyhold/codec/internal/testproto/v1"
	"github.com/keyhold/keyhold/event"
)

type described struct {
	base
	ID      uuid.UUID       `json:"id"`
	Client  *clientID       `json:"client,omitempty"`
	Count   int64           `json:"count"`
	Ratio   float32         `json:"ratio"`
	Flag    bool            `json:"flag"`
	At      time.Time       `json:"at"`
	Until   *time.Time      `json:"until"`
	Raw     []byte          `json:"raw"`
	Later   json.RawMessage `json:"later"`
	Names   []string        `json:"names"`
	Line    line            `json:"line"`
	Labels  map[string]any  `json:"labels"`
	Any     any             `json:"any"`
	Measure celsius         `json:"measure"`
	Left    string          `json:"-"`
}

func TestStructIsDescribedByItsDirectFields(t *testing.T) {
	t.Parallel()
	r, err := codec.NewRegistry([]codec.Declaration{codec.Of[described]("described", 4)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Describe(reflect.TypeFor[described]())
	if err != nil {
		t.Fatal(err)
	}
	want := codec.Description{Name: "described", Version: 4, Encoding: event.JSON, Fields: []codec.FieldDescription{
		{"id", "uuid"}, {"client", "string"}, {"count", "int64"}, {"ratio", "float32"}, {"flag", "bool"}, {"at", "time"}, {"until", "time"},
		{"raw", "bytes"}, {"later", "any"}, {"names", "array"}, {"line", "object"}, {"labels", "object"}, {"any", "any"}, {"measure", "any"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var undeclared *codec.UndeclaredError
	if _, err := r.Describe(reflect.TypeFor[other]()); !errors.As(err, &undeclared) {
		t.Errorf("undeclared struct: got %v", err)
	}
}

// A tool without the generated code reads a message with nothing but its description.
func TestMessageCanBeReadByItsDescriptionAlone(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	d, err := r.Describe(reflect.TypeFor[testprotov1.Kinds]())
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "testproto.v1.Kinds" || d.Version != 1 || d.Encoding != event.Proto {
		t.Errorf("described as %q, %d, %q", d.Name, d.Version, d.Encoding)
	}
	kinds := map[string]string{}
	for _, f := range d.Fields {
		kinds[f.Name] = f.Kind
	}
	for name, want := range map[string]string{"text": "string", "sfixed64": "sfixed64", "uuid": "bytes", "size": "enum", "order": "object", "names": "array", "labels": "object"} {
		if kinds[name] != want {
			t.Errorf("field %s is a %q, want %q", name, kinds[name], want)
		}
	}

	sent := &testprotov1.Kinds{Text: "c-3", Order: &testprotov1.OrderPlaced{OrderId: "o-1"}, Labels: map[string]string{"a": "b"}}
	e, err := r.Encode(sent)
	if err != nil {
		t.Fatal(err)
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(d.Descriptor, set); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, file := range set.File {
		for _, needed := range file.Dependency {
			if !known[needed] {
				t.Errorf("%s comes before %s, which it imports", file.GetName(), needed)
			}
		}
		known[file.GetName()] = true
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	found, err := files.FindDescriptorByName(protoreflect.FullName(d.Name))
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(found.(protoreflect.MessageDescriptor))
	if err := proto.Unmarshal(e.Data, m); err != nil {
		t.Fatal(err)
	}
	order := m.Get(m.Descriptor().Fields().ByName("order")).Message()
	if got := order.Get(order.Descriptor().Fields().ByName("order_id")).String(); got != "o-1" {
		t.Errorf("order_id is read as %q, want %q", got, "o-1")
	}
	if len(m.GetUnknown()) != 0 {
		t.Errorf("the description does not know %x", m.GetUnknown())
	}
}

func TestDescriptionOfAMessageIsTheSameEveryTime(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	first, err := r.Describe(reflect.TypeFor[testprotov1.Kinds]())
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Describe(reflect.TypeFor[*testprotov1.Kinds]())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("by struct and by pointer:\n%s", diff)
	}
}
