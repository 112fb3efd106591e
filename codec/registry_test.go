package codec_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/codec"
	testprotov1 "github.com/keyhold/keyhold/codec/internal/testproto/v1"
	"github.com/keyhold/keyhold/event"
)

type orderPlaced struct {
	OrderID  string            `json:"order_id"`
	ClientID string            `json:"client_id"`
	Total    int64             `json:"total"`
	Lines    []line            `json:"lines,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Note     *string           `json:"note,omitempty"`
}

type line struct {
	Article string
	Count   int
}

// orderPlaced2 is the second version of orderPlaced.
type orderPlaced2 struct {
	OrderID string `json:"order_id"`
}

type orderCancelled struct{}

// celsius encodes itself, but only through a pointer.
type celsius struct{ degrees int }

func (c *celsius) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%d C"`, c.degrees), nil }
func (c *celsius) UnmarshalJSON(data []byte) error {
	_, err := fmt.Sscanf(string(data), `"%d C"`, &c.degrees)
	return err
}

type measured struct {
	At celsius `json:"at"`
}

// nothing encodes itself as null.
type nothing struct{ A int }

func (nothing) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

type ratio struct{ Value float64 }

// wrapper embeds a message without being one.
type wrapper struct{ *testprotov1.OrderPlaced }

var placedName = "testproto.v1.OrderPlaced" // full name of a message linked into this test

func newRegistry(t testing.TB) *codec.Registry {
	t.Helper()
	r, err := codec.NewRegistry([]codec.Declaration{
		codec.Of[orderPlaced]("order.placed", 1),
		codec.Of[orderPlaced2]("order.placed", 2),
		codec.Of[orderCancelled]("order.cancelled", 3),
		codec.Of[measured]("measured", 1),
		codec.Of[nothing]("nothing", 1),
		codec.Of[ratio]("ratio", 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestValuesComeBackAsPointersToTheirGoType(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	note := "fragile"
	for _, c := range []struct {
		in, want any
		wire     codec.Encoded // Data is not compared
	}{
		{
			orderPlaced{OrderID: "o-1", Total: math.MaxInt64, Lines: []line{{"a", 1}}, Note: &note},
			&orderPlaced{OrderID: "o-1", Total: math.MaxInt64, Lines: []line{{"a", 1}}, Note: &note},
			codec.Encoded{Type: "order.placed", Version: 1, Encoding: event.JSON},
		},
		{&orderPlaced{OrderID: "o-1"}, &orderPlaced{OrderID: "o-1"}, codec.Encoded{Type: "order.placed", Version: 1, Encoding: event.JSON}},
		{orderPlaced2{OrderID: "o-1"}, &orderPlaced2{OrderID: "o-1"}, codec.Encoded{Type: "order.placed", Version: 2, Encoding: event.JSON}},
		{orderCancelled{}, &orderCancelled{}, codec.Encoded{Type: "order.cancelled", Version: 3, Encoding: event.JSON}},
		{
			&testprotov1.OrderPlaced{OrderId: "o-1", Total: -1},
			&testprotov1.OrderPlaced{OrderId: "o-1", Total: -1},
			codec.Encoded{Type: placedName, Version: 1, Encoding: event.Proto},
		},
		{&testprotov1.OrderPlaced{}, &testprotov1.OrderPlaced{}, codec.Encoded{Type: placedName, Version: 1, Encoding: event.Proto}},
	} {
		e, err := r.Encode(c.in)
		if err != nil {
			t.Errorf("Encode(%+v): %v", c.in, err)
			continue
		}
		got, err := r.Decode(e)
		if err != nil {
			t.Errorf("Decode(%+v): %v", e, err)
			continue
		}
		if diff := cmp.Diff(c.want, got, protocmp.Transform(), cmp.AllowUnexported(orderPlaced{}, line{})); diff != "" {
			t.Errorf("%T came back (-want +got):\n%s", c.in, diff)
		}
		e.Data = nil
		if diff := cmp.Diff(c.wire, e); diff != "" {
			t.Errorf("%T on the wire (-want +got):\n%s", c.in, diff)
		}
	}
}

func TestAnyStructComesBackEqual(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.Make[orderPlaced]().Draw(t, "event")
		e, err := r.Encode(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Decode(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := r.Encode(got)
		if err != nil || string(again.Data) != string(e.Data) {
			t.Fatalf("%s came back as %s, %v", e.Data, again.Data, err)
		}
		out := got.(*orderPlaced)
		if out.OrderID != in.OrderID || out.Total != in.Total || !slices.Equal(out.Lines, in.Lines) || (out.Note == nil) != (in.Note == nil) {
			t.Fatalf("%+v came back as %+v", in, out)
		}
	})
}

func TestValueAndPointerHaveTheSameBytes(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	v := measured{At: celsius{21}}
	value, err := r.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	pointer, err := r.Encode(&v)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"at":"21 C"}`; string(value.Data) != want || string(pointer.Data) != want {
		t.Errorf("value is %s, pointer is %s, want %s", value.Data, pointer.Data, want)
	}
	got, err := r.Decode(value)
	if err != nil || *got.(*measured) != v {
		t.Errorf("comes back as %+v, %v", got, err)
	}
}

func TestProtobufBytesDoNotDependOnMapOrder(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	m := &testprotov1.Kinds{Labels: map[string]string{}}
	for i := range 50 {
		m.Labels[fmt.Sprint(i)] = "x"
	}
	first, err := r.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, err := r.Encode(m); err != nil || string(again.Data) != string(first.Data) {
			t.Fatalf("two encodings of one message differ (%v)", err)
		}
	}
}

func TestEncodeRefusesWhatCannotComeBack(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	kinds := (&testprotov1.Kinds{}).ProtoReflect().Descriptor()
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, "nil has no wire name"},
		{(*orderPlaced)(nil), `encode "order.placed" version 1: the pointer is nil`},
		{(*testprotov1.OrderPlaced)(nil), `encode "testproto.v1.OrderPlaced": the message is nil`},
		{"text", "string has no wire name: use a struct"},
		{[]orderPlaced{}, "[]codec_test.orderPlaced has no wire name: use a struct"},
		{struct{ A int }{}, "struct { A int } has no wire name: use a struct type of its own"},
		{new(new(orderPlaced)), "has no wire name: use a struct"},
		{nothing{}, "encodes itself as null"},
		{ratio{math.NaN()}, `encode "ratio" version 1: json: unsupported value: NaN`},
		{&testprotov1.Legacy{}, "required field testproto.v1.Legacy.id not set"},
		{&testprotov1.OrderPlaced{OrderId: "\xff"}, "invalid UTF-8"},
		{dynamicpb.NewMessage(kinds), "is not the Go type generated for it"},
		{wrapper{&testprotov1.OrderPlaced{}}, "codec_test.wrapper has no wire name: declare it"},
	} {
		e, err := r.Encode(c.v)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Encode(%T) = %+v, %v, want an error that says %q", c.v, e, err, c.want)
		}
	}
	if _, _, err := r.NameOf(reflect.TypeFor[testprotov1.OrderPlaced]()); err != nil {
		t.Errorf("a message is known by its struct too: %v", err)
	}
}

type ShipmentLeftV2Depot struct{ ID string }

func TestUndeclaredStructGetsTheLineToWrite(t *testing.T) {
	t.Parallel()
	for _, v := range []any{ShipmentLeftV2Depot{}, &ShipmentLeftV2Depot{}} {
		_, err := newRegistry(t).Encode(v)
		var undeclared *codec.UndeclaredError
		if !errors.As(err, &undeclared) || undeclared.Type != reflect.TypeFor[ShipmentLeftV2Depot]() {
			t.Fatalf("got %v, want an *UndeclaredError of the struct", err)
		}
		want := `type codec_test.ShipmentLeftV2Depot has no wire name: declare it beside the type, ` +
			`var _ = keyhold.Type[ShipmentLeftV2Depot]("shipment.left.v2.depot", 1)`
		if diff := cmp.Diff(want, err.Error()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestDecodeTellsUnknownFromBroken(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	wire := func(name string, version int, encoding event.Encoding, data string) codec.Encoded {
		return codec.Encoded{Type: name, Version: version, Encoding: encoding, Data: []byte(data)}
	}
	const unknown, version, broken = "unknown", "version", "broken"
	for _, c := range []struct {
		label string
		in    codec.Encoded
		class string
		newer bool
		want  string
	}{
		{"unknown name", wire("order.shipped", 1, event.JSON, `{}`), unknown, true, `type "order.shipped" is not known to this program`},
		{"no name", wire("", 0, event.JSON, `{}`), unknown, true, `type "" is not known`},
		{"name that protobuf would not parse", wire("a..b", 1, event.Proto, ``), unknown, true, `type "a..b" is not known`},
		{"newer version", wire("order.placed", 3, event.JSON, `{}`), version, true, `version 3 of type "order.placed" is newer than what this program knows (1 2)`},
		{"older version", wire("order.cancelled", 2, event.JSON, `{}`), version, false, `keep the Go type that had it, declared with keyhold.Type[...]("order.cancelled", 2)`},
		{"version 0", wire("order.placed", 0, event.JSON, `{}`), version, false, `version 0`},
		{"newer version of a message", wire(placedName, 2, event.Proto, ``), version, true, `newer than what this program knows (1)`},
		{"struct said to be protobuf", wire("order.placed", 1, event.Proto, ``), broken, false, `is a plain struct, which is encoded as json`},
		{"message said to be JSON", wire(placedName, 1, event.JSON, `{}`), broken, false, `is a protobuf message, which is encoded as proto`},
		{"no encoding", wire("order.placed", 1, "", `{}`), broken, false, `encoded as json`},
		{"no data", wire("order.placed", 1, event.JSON, ``), broken, false, `unexpected end of JSON input`},
		{"cut short", wire("order.placed", 1, event.JSON, `{"order_id":"o-1"`), broken, false, `unexpected end of JSON input`},
		{"trailing garbage", wire("order.placed", 1, event.JSON, `{}{}`), broken, false, `after top-level value`},
		{"null", wire("order.placed", 1, event.JSON, " null\n"), broken, false, `the data is null`},
		{"no object", wire("order.placed", 1, event.JSON, `[]`), broken, false, `cannot unmarshal array`},
		{"wrong kind", wire("order.placed", 1, event.JSON, `{"total":"much"}`), broken, false, `decode "order.placed" version 1 from json: json: cannot unmarshal string`},
		{"number too great", wire("order.placed", 1, event.JSON, `{"total":9223372036854775808}`), broken, false, `cannot unmarshal number`},
		{"protobuf cut short", wire(placedName, 1, event.Proto, "\x0a\x05o"), broken, false, `decode "testproto.v1.OrderPlaced" version 1 from proto`},
		{"required field missing", wire("testproto.v1.Legacy", 1, event.Proto, ""), broken, false, `required field`},
	} {
		v, err := r.Decode(c.in)
		var u *codec.UnknownTypeError
		var ve *codec.VersionError
		var de *codec.DecodeError
		class := map[string]bool{unknown: errors.As(err, &u), version: errors.As(err, &ve), broken: errors.As(err, &de)}
		if v != nil || !class[c.class] {
			t.Errorf("%s: got %v, %v, want class %s", c.label, v, err, c.class)
			continue
		}
		if got := errors.Is(err, codec.ErrNewer); got != c.newer {
			t.Errorf("%s: asks for a newer program: %v, want %v", c.label, got, c.newer)
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %q, want it to say %q", c.label, err, c.want)
		}
	}
}

func TestFieldsOfNewerProgramsAreTolerated(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	got, err := r.Decode(codec.Encoded{Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte(`{"order_id":"o-1","added_later":{"a":[1]}}`)})
	if err != nil || got.(*orderPlaced).OrderID != "o-1" {
		t.Errorf("JSON: got %+v, %v", got, err)
	}
	// Kinds has more fields than OrderPlaced; those that OrderPlaced does not know survive being encoded again.
	data, err := proto.Marshal(&testprotov1.Kinds{Text: "o-1", Size: testprotov1.Size_SIZE_LARGE})
	if err != nil {
		t.Fatal(err)
	}
	got, err = r.Decode(codec.Encoded{Type: placedName, Version: 1, Encoding: event.Proto, Data: data})
	if err != nil || got.(*testprotov1.OrderPlaced).GetOrderId() != "o-1" {
		t.Fatalf("protobuf: got %v, %v", got, err)
	}
	if again, err := r.Encode(got); err != nil || string(again.Data) != string(data) {
		t.Errorf("encoded again: %x, %v, want %x", again.Data, err, data)
	}
}

func TestRegistryKnowsNamesAndTypes(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	for _, c := range []struct {
		typ     reflect.Type
		name    string
		version int
	}{
		{reflect.TypeFor[orderPlaced](), "order.placed", 1},
		{reflect.TypeFor[orderPlaced2](), "order.placed", 2},
		{reflect.TypeFor[testprotov1.OrderPlaced](), placedName, 1},
	} {
		for _, typ := range []reflect.Type{c.typ, reflect.PointerTo(c.typ)} {
			if name, version, err := r.NameOf(typ); err != nil || name != c.name || version != c.version {
				t.Errorf("NameOf(%v) = %q, %d, %v, want %q, %d", typ, name, version, err, c.name, c.version)
			}
			if name, ok := r.Name(typ); !ok || name != c.name {
				t.Errorf("Name(%v) = %q, %v, want %q", typ, name, ok, c.name)
			}
		}
		if typ, err := r.TypeOf(c.name, c.version); err != nil || typ != c.typ {
			t.Errorf("TypeOf(%q, %d) = %v, %v, want %v", c.name, c.version, typ, err, c.typ)
		}
		if !r.Known(c.name) {
			t.Errorf("%q is not known", c.name)
		}
	}
	if r.Known("order.shipped") {
		t.Error("a name that nobody declared is known")
	}
	if typ, err := r.TypeOf("order.placed", 9); !errors.Is(err, codec.ErrNewer) {
		t.Errorf("TypeOf a later version = %v, %v, want ErrNewer", typ, err)
	}
	for _, typ := range []reflect.Type{nil, reflect.TypeFor[int](), reflect.TypeFor[ShipmentLeftV2Depot](), reflect.TypeFor[wrapper]()} {
		if name, ok := r.Name(typ); ok {
			t.Errorf("Name(%v) = %q, want none", typ, name)
		}
	}
}

// What only reflection looks at, below.
var _ = [...]any{secretive{}.total, &(&locked{}).mu, counted{}.count, open{}.cache}

// Types with something that JSON would lose.
type (
	hidden    struct{ _ string }
	channel   struct{ Done chan int }
	deep      struct{ Lines []map[string]*channel }
	face      struct{ Shape interface{ Area() int } }
	oddKeys   struct{ By map[line]int }
	secretive struct {
		Client string
		total  int
	}
	nested struct{ Lines []secretive }
	locked struct {
		A  int
		mu sync.Mutex
	}
	counted struct {
		A int
		count
	}
	count int
	part  struct{ A int }
	open  struct { // nothing of it is lost
		part
		_       [0]func()
		cache   string `json:"-"`
		At      time.Time
		Message *testprotov1.OrderPlaced
	}
	recursive struct {
		Next *recursive
		At   time.Time
		Any  any
		Skip func() `json:"-"`
	}
	other struct{ A int }
)

func TestFaultsOfDeclarationsAreReportedTogether(t *testing.T) {
	t.Parallel()
	faults := []struct {
		declaration codec.Declaration
		want        string
	}{
		{codec.Of[other]("order.placed", 1), "so is codec_test.orderPlaced: give one of them another name or version"},
		{codec.Of[orderPlaced]("order.placed.again", 1), `it is declared as "order.placed" version 1 too: keep one`},
		{codec.Of[*other]("pointer", 1), "it is a pointer: declare the struct, codec_test.other"},
		{codec.Of[int]("number", 1), "it is no struct"},
		{codec.Of[error]("interface", 1), "it is no struct"},
		{codec.Of[*testprotov1.OrderPlaced]("message", 1), "it is a protobuf message, which goes by its full name: remove the declaration"},
		{codec.Of[testprotov1.OrderPlaced]("message", 1), "it is a protobuf message"},
		{codec.Of[other](placedName, 1), "that is the full name of a protobuf message"},
		{codec.Of[other]("", 1), `name "" is empty`},
		{codec.Of[other]("order:placed", 1), `contains ':'`},
		{codec.Of[other]("zero", 0), "versions go from 1"},
		{codec.Of[other]("great", math.MaxInt32+1), "versions go from 1 to 2147483647"},
		{codec.Of[hidden]("hidden", 1), "JSON has none of its fields: export them"},
		{codec.Of[channel]("channel", 1), "field Done is a chan int, which JSON cannot hold"},
		{codec.Of[deep]("deep", 1), "field Lines.Done is a chan int"},
		{codec.Of[face]("face", 1), "cannot be read back from JSON"},
		{codec.Of[oddKeys]("keys", 1), "field By has keys of type codec_test.line"},
		{codec.Of[secretive]("secretive", 1), `field total is not exported: it would not be stored: export it, or tag it json:"-"`},
		{codec.Of[nested]("nested", 1), "field Lines.total is not exported"},
		{codec.Of[locked]("locked", 1), "field mu is not exported"},
		{codec.Of[counted]("counted", 1), "field count is not exported"},
		{codec.Declaration{}, "it is the zero Declaration"},
	}
	all := []codec.Declaration{codec.Of[orderPlaced]("order.placed", 1)}
	for _, f := range faults {
		all = append(all, f.declaration)
	}
	r, err := codec.NewRegistry(all)
	if err == nil || r != nil {
		t.Fatalf("got %v, %v, want an error alone", r, err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(faults) {
		t.Fatalf("%d faults, want %d:\n%v", len(lines), len(faults), err)
	}
	for i, f := range faults {
		if !strings.Contains(lines[i], f.want) {
			t.Errorf("fault is %q, want it to say %q", lines[i], f.want)
		}
	}
}

func TestDeclarationsThatCanHoldAreAccepted(t *testing.T) {
	t.Parallel()
	for label, declarations := range map[string][]codec.Declaration{
		"none":              nil,
		"nothing lost":      {codec.Of[open]("open", 1)},
		"the same twice":    {codec.Of[other]("other", 1), codec.Of[other]("other", 1)},
		"two versions":      {codec.Of[other]("other", 2), codec.Of[orderPlaced]("other", 1)},
		"recursive":         {codec.Of[recursive]("recursive", math.MaxInt32)},
		"encodes itself":    {codec.Of[celsius]("celsius", 1)},
		"without any field": {codec.Of[orderCancelled]("order.cancelled", 1)},
		"embeds":            {codec.Of[struct{ other }]("embeds", 1)},
	} {
		if _, err := codec.NewRegistry(declarations); err != nil {
			t.Errorf("%s: %v", label, err)
		}
	}
}

// Declared for the process, as applications do.
type (
	declaredFirst  struct{ A int }
	declaredSecond struct{ A int }
)

var (
	_ = codec.Declare[declaredSecond]("declare_test.second", 1)
	_ = codec.Declare[declaredFirst]("declare_test.first", 1)
)

func TestDeclarationsOfTheProcessReachRegistries(t *testing.T) {
	t.Parallel()
	r, err := codec.NewRegistry(codec.Declarations())
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Encode(declaredFirst{A: 1})
	if err != nil || e.Type != "declare_test.first" {
		t.Errorf("got %+v, %v", e, err)
	}
	if !r.Known("declare_test.second") {
		t.Error("the second declaration is lost")
	}
}

func TestDeclarationsMayBeMadeConcurrently(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				codec.Declare[declaredFirst]("declare_test.first", 1)
				codec.Declarations()
			}
		})
	}
	wg.Wait()
	if got := len(codec.Declarations()); got < 402 {
		t.Errorf("%d declarations, want 402 at least", got)
	}
}

func TestEncodingAndDecodingStayCheap(t *testing.T) {
	r := newRegistry(t)
	value := orderPlaced{OrderID: "o-1", ClientID: "c-3", Total: 4200}
	message := &testprotov1.OrderPlaced{OrderId: "o-1", ClientId: "c-3", Total: 4200}
	for _, c := range []struct {
		label          string
		v              any
		encode, decode float64 // allocations at most
	}{
		{"struct", value, 3, 8},
		{"pointer", &value, 2, 8},
		{"message", message, 1, 3},
	} {
		e, err := r.Encode(c.v)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(200, func() { _, _ = r.Encode(c.v) }); n > c.encode {
			t.Errorf("encoding a %s makes %v allocations, want %v at most", c.label, n, c.encode)
		}
		if n := testing.AllocsPerRun(200, func() { _, _ = r.Decode(e) }); n > c.decode {
			t.Errorf("decoding a %s makes %v allocations, want %v at most", c.label, n, c.decode)
		}
	}
}

// FuzzDecode holds that no bytes make Decode panic, that errors are typed, and that what was decoded keeps its meaning.
func FuzzDecode(f *testing.F) {
	r := newRegistry(f)
	for _, name := range []string{"order.placed", "measured", placedName, "testproto.v1.Kinds", "testproto.v1.Legacy", "unknown"} {
		for _, data := range []string{``, `null`, `{}`, `{"order_id":"o-1","total":1}`, `{"at":"21 C"}`, "\x0a\x03o-1\x18\x07", "\x62\x10"} {
			f.Add(name, 1, true, []byte(data))
			f.Add(name, 1, false, []byte(data))
		}
	}
	f.Fuzz(func(t *testing.T, name string, version int, isProto bool, data []byte) {
		in := codec.Encoded{Type: name, Version: version, Encoding: event.JSON, Data: data}
		if isProto {
			in.Encoding = event.Proto
		}
		v, err := r.Decode(in)
		if err != nil {
			var u *codec.UnknownTypeError
			var ve *codec.VersionError
			var de *codec.DecodeError
			if !errors.As(err, &u) && !errors.As(err, &ve) && !errors.As(err, &de) {
				t.Errorf("untyped error %v", err)
			}
			return
		}
		e, err := r.Encode(v)
		if err != nil {
			t.Fatalf("what was decoded from %q does not encode: %v", data, err)
		}
		again, err := r.Decode(e)
		if err != nil {
			t.Fatalf("%q was encoded as %q, which does not decode: %v", data, e.Data, err)
		}
		twice, err := r.Encode(again)
		if err != nil || string(twice.Data) != string(e.Data) || e.Type != name || e.Version != version || e.Encoding != in.Encoding {
			t.Errorf("%+v became %+v, then %+v (%v)", in, e, twice, err)
		}
	})
}
