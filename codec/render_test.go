package codec_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/keyhold/keyhold/codec"
	testprotov1 "github.com/keyhold/keyhold/codec/internal/testproto/v1"
	"github.com/keyhold/keyhold/event"
)

// kinds gives what a store keeps of a message, and one as it is stored.
func kinds(t *testing.T, m *testprotov1.Kinds) (*codec.Rendering, []byte) {
	t.Helper()
	r := newRegistry(t)
	d, err := r.Describe(reflect.TypeFor[testprotov1.Kinds]())
	if err != nil {
		t.Fatal(err)
	}
	rendering, err := codec.NewRendering(d.Name, d.Encoding, d.Descriptor)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return rendering, e.Data
}

func TestMessageIsShownByItsDescriptionAlone(t *testing.T) {
	t.Parallel()
	r, data := kinds(t, &testprotov1.Kinds{
		Text: "c-3", Sfixed64: 9007199254740993, Order: &testprotov1.OrderPlaced{OrderId: "o-1"}, Names: []string{"a", "b"},
	})
	got, unnamed, err := r.JSON(data)
	want := `"order":{"order_id":"o-1"}`
	if err != nil || unnamed != 0 || !strings.Contains(string(got), want) || !strings.Contains(string(got), `"sfixed64":"9007199254740993"`) ||
		!strings.Contains(string(got), `"names":["a","b"]`) {
		t.Errorf("shown as %s (%d unnamed, %v)", got, unnamed, err)
	}
}

func TestFieldsOfANewerDescriptionAreCountedAndNotShown(t *testing.T) {
	t.Parallel()
	r, data := kinds(t, &testprotov1.Kinds{Text: "c-3"})
	newer := protowire.AppendVarint(protowire.AppendTag(data, 999, protowire.VarintType), 7)
	got, unnamed, err := r.JSON(newer)
	if err != nil || unnamed != len(newer)-len(data) || string(got) != `{"text":"c-3"}` {
		t.Errorf("shown as %s (%d unnamed, %v)", got, unnamed, err)
	}
}

func TestPlainStructIsShownAsItIsStored(t *testing.T) {
	t.Parallel()
	r, err := codec.NewRendering("described", event.JSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := r.JSON([]byte(" {\"n\": 9007199254740993,\n \"html\": \"<b>\"} "))
	if err != nil || string(got) != `{"n":9007199254740993,"html":"<b>"}` {
		t.Errorf("shown as %s (%v)", got, err)
	}
}

func TestWhatCannotBeShownSaysWhy(t *testing.T) {
	t.Parallel()
	d, err := newRegistry(t).Describe(reflect.TypeFor[testprotov1.Kinds]())
	if err != nil {
		t.Fatal(err)
	}
	other, err := anypb.New(&testprotov1.Kinds{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		name       string
		enc        event.Encoding
		descriptor []byte
		want       string
	}{
		"encoding":           {"x", "xml", nil, `render "x": encoding "xml" is not known`},
		"broken description": {d.Name, event.Proto, []byte{0xff}, "its description is broken"},
		"files that need others": {d.Name, event.Proto, []byte("\n\x0b\n\x05a.fil\x1a\x02b\x00"), // imports a file that is not there
			"its description is broken"},
		"another message": {"testproto.v1.Gone", event.Proto, d.Descriptor, `render "testproto.v1.Gone": its description does not have it`},
		"an enum":         {"testproto.v1", event.Proto, d.Descriptor, "its description does not have it"},
		"no description":  {d.Name, event.Proto, nil, "its description does not have it"},
	} {
		if _, err := codec.NewRendering(c.name, c.enc, c.descriptor); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		enc  event.Encoding
		data string
		want string
	}{
		"JSON":  {event.JSON, "{", "the data is no JSON"},
		"null":  {event.JSON, " null", "the data is null"},
		"proto": {event.Proto, string(other.GetValue()) + "\xff", "the data is no such message"},
	} {
		r, err := codec.NewRendering(d.Name, c.enc, d.Descriptor)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.JSON([]byte(c.data)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func FuzzRendering(f *testing.F) {
	d, err := newRegistry(f).Describe(reflect.TypeFor[testprotov1.Kinds]())
	if err != nil {
		f.Fatal(err)
	}
	proto, err := codec.NewRendering(d.Name, d.Encoding, d.Descriptor)
	if err != nil {
		f.Fatal(err)
	}
	plain, err := codec.NewRendering(d.Name, event.JSON, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"a":[1,null,"x"]}`))
	f.Add([]byte{0x0a, 0x03, 'c', '-', '3'})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, r := range []*codec.Rendering{proto, plain} {
			if got, _, err := r.JSON(data); err == nil && !json.Valid(got) {
				t.Errorf("%q is shown as %s, which is no JSON", data, got)
			}
		}
	})
}
