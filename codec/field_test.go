package codec_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/codec"
	testprotov1 "github.com/keyhold/keyhold/codec/internal/testproto/v1"
	"github.com/keyhold/keyhold/event"
)

type (
	clientID string
	orderNo  uint64
	bareID   [16]byte

	base struct {
		Inherited string `json:"inherited"`
	}

	fields struct {
		base

		Text    string   `json:"text"`
		Named   clientID `json:"named,omitempty"`
		Plain   string
		Int     int        `json:"int"`
		Int8    int8       `json:"int8"`
		Int16   int16      `json:"int16"`
		Int32   int32      `json:"int32"`
		Int64   int64      `json:"int64,string"`
		Uint    uint       `json:"uint"`
		Uint8   uint8      `json:"uint8"`
		Uint16  uint16     `json:"uint16"`
		Uint32  uint32     `json:"uint32"`
		Uint64  uint64     `json:"uint64"`
		Number  orderNo    `json:"number"`
		UUID    uuid.UUID  `json:"uuid"`
		Bare    bareID     `json:"bare"`
		TextPtr *string    `json:"text_ptr"`
		IntPtr  *int64     `json:"int_ptr"`
		UUIDPtr *uuid.UUID `json:"uuid_ptr"`

		Flag    bool              `json:"flag"`
		Ratio   float64           `json:"ratio"`
		At      time.Time         `json:"at"`
		Raw     []byte            `json:"raw"`
		Short   [15]byte          `json:"short"`
		Names   []string          `json:"names"`
		Labels  map[string]string `json:"labels"`
		Line    line              `json:"line"`
		Any     any               `json:"any"`
		PtrPtr  **string          `json:"ptr_ptr"`
		Address uintptr           `json:"address"`

		Left string `json:"-"`
	}
)

var someID = uuid.MustParse("2f1c5a0e-9f0b-7c1e-8a55-0d7c2f1b9e11")

func TestKeyIsTheExactValueOfItsField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		field string
		v     any
		want  string
	}{
		{"text", fields{Text: "client-123"}, "client-123"},
		{"text", fields{Text: " ü:\x00 "}, " ü:\x00 "}, // whether that is legal is not decided here
		{"named", fields{Named: "c-3"}, "c-3"},
		{"Plain", fields{Plain: "p"}, "p"},
		{"int", fields{Int: -1}, "-1"},
		{"int8", fields{Int8: math.MinInt8}, "-128"},
		{"int16", fields{Int16: math.MaxInt16}, "32767"},
		{"int32", fields{Int32: math.MinInt32}, "-2147483648"},
		{"int64", fields{Int64: math.MaxInt64}, "9223372036854775807"},
		{"uint", fields{Uint: 7}, "7"},
		{"uint8", fields{Uint8: math.MaxUint8}, "255"},
		{"uint16", fields{Uint16: math.MaxUint16}, "65535"},
		{"uint32", fields{Uint32: math.MaxUint32}, "4294967295"},
		{"uint64", fields{Uint64: math.MaxUint64}, "18446744073709551615"},
		{"number", fields{Number: 10_000_000_000_000_000_001}, "10000000000000000001"},
		{"uuid", fields{UUID: someID}, someID.String()},
		{"bare", fields{Bare: bareID(someID)}, someID.String()},
		{"text_ptr", fields{TextPtr: new("c-3")}, "c-3"},
		{"int_ptr", fields{IntPtr: new(int64(0))}, "0"},
		{"int_ptr", fields{IntPtr: new(int64(-5))}, "-5"},
		{"uuid_ptr", fields{UUIDPtr: &someID}, someID.String()},

		{"text", &testprotov1.Kinds{Text: "c-3"}, "c-3"},
		{"int32", &testprotov1.Kinds{Int32: math.MinInt32}, "-2147483648"},
		{"int64", &testprotov1.Kinds{Int64: math.MaxInt64}, "9223372036854775807"},
		{"uint32", &testprotov1.Kinds{Uint32: math.MaxUint32}, "4294967295"},
		{"uint64", &testprotov1.Kinds{Uint64: math.MaxUint64}, "18446744073709551615"},
		{"sint32", &testprotov1.Kinds{Sint32: -1}, "-1"},
		{"sint64", &testprotov1.Kinds{Sint64: math.MinInt64}, "-9223372036854775808"},
		{"fixed32", &testprotov1.Kinds{Fixed32: math.MaxUint32}, "4294967295"},
		{"fixed64", &testprotov1.Kinds{Fixed64: math.MaxUint64}, "18446744073709551615"},
		{"sfixed32", &testprotov1.Kinds{Sfixed32: -1}, "-1"},
		{"sfixed64", &testprotov1.Kinds{Sfixed64: -1}, "-1"},
		{"uuid", &testprotov1.Kinds{Uuid: someID[:]}, someID.String()},
		{"optional_text", &testprotov1.Kinds{OptionalText: new("c-3")}, "c-3"},
		{"optional_int64", &testprotov1.Kinds{OptionalInt64: new(int64(0))}, "0"},
		{"optional_uuid", &testprotov1.Kinds{OptionalUuid: someID[:]}, someID.String()},
		{"choice_text", &testprotov1.Kinds{Choice: &testprotov1.Kinds_ChoiceText{ChoiceText: "c"}}, "c"},
		{"choice_uint64", &testprotov1.Kinds{Choice: &testprotov1.Kinds_ChoiceUint64{}}, "0"},
		{"id", &testprotov1.Legacy{Id: new("c-3")}, "c-3"},
		{"number", &testprotov1.Legacy{Number: new(int32(0))}, "0"},
		{"region", &testprotov1.Legacy{Region: new("us")}, "us"},
		{"explicit_number", &testprotov1.Editions{ExplicitNumber: new(int64(0))}, "0"},
		{"required_number", &testprotov1.Editions{RequiredNumber: new(int64(0))}, "0"},
		{"implicit_number", &testprotov1.Editions{ImplicitNumber: 5}, "5"},
		{"implicit_text", &testprotov1.Editions{ImplicitText: "c"}, "c"},
	} {
		extract, err := codec.Field(reflect.TypeOf(c.v), c.field)
		if err != nil {
			t.Errorf("%T %s: %v", c.v, c.field, err)
			continue
		}
		if got, err := extract(c.v); err != nil || got != c.want {
			t.Errorf("%T %s: got %q, %v, want %q", c.v, c.field, got, err, c.want)
		}
	}
}

func TestValueThatCannotBeToldFromNoneIsRefused(t *testing.T) {
	t.Parallel()
	const set, pointer, optional = "has no value; give it one", "or make it a *", "or make the field optional"
	for _, c := range []struct {
		field string
		v     any
		want  string
	}{
		{"text", fields{}, set},
		{"named", fields{}, set},
		{"int", fields{}, "is 0, which is also what it is without a value"},
		{"int64", fields{}, pointer + "int64 if 0 is a key"},
		{"number", fields{}, pointer + "codec_test.orderNo if 0 is a key"},
		{"uuid", fields{}, set},
		{"bare", fields{}, set},
		{"text_ptr", fields{}, set},
		{"text_ptr", fields{TextPtr: new("")}, set},
		{"int_ptr", fields{}, set},
		{"uuid_ptr", fields{}, set},
		{"uuid_ptr", fields{UUIDPtr: &uuid.Nil}, set},

		{"text", &testprotov1.Kinds{}, set},
		{"int32", &testprotov1.Kinds{}, "is 0, which is also what it is without a value"},
		{"fixed64", &testprotov1.Kinds{}, optional},
		{"uuid", &testprotov1.Kinds{}, set},
		{"uuid", &testprotov1.Kinds{Uuid: make([]byte, 16)}, set},
		{"optional_text", &testprotov1.Kinds{}, set},
		{"optional_text", &testprotov1.Kinds{OptionalText: new("")}, set},
		{"optional_int64", &testprotov1.Kinds{}, set},
		{"optional_uuid", &testprotov1.Kinds{OptionalUuid: []byte{}}, set},
		{"optional_uuid", &testprotov1.Kinds{OptionalUuid: make([]byte, 16)}, set},
		{"choice_text", &testprotov1.Kinds{}, set},
		{"choice_text", &testprotov1.Kinds{Choice: &testprotov1.Kinds_ChoiceUint64{ChoiceUint64: 1}}, set},
		{"number", &testprotov1.Legacy{}, set}, // a default is no value
		{"region", &testprotov1.Legacy{}, set},
		{"explicit_number", &testprotov1.Editions{}, set},
		{"required_number", &testprotov1.Editions{}, set},
		{"implicit_number", &testprotov1.Editions{}, optional},
		{"implicit_text", &testprotov1.Editions{}, set},
	} {
		extract, err := codec.Field(reflect.TypeOf(c.v), c.field)
		if err != nil {
			t.Errorf("%T %s: %v", c.v, c.field, err)
			continue
		}
		got, err := extract(c.v)
		if !errors.Is(err, event.ErrBadKey) || !strings.HasPrefix(err.Error(), "partition key is empty: field ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T %s: got %q, %v, want ErrBadKey that says %q", c.v, c.field, got, err, c.want)
		}
	}
}

func TestBytesThatAreNoUUIDAreRefused(t *testing.T) {
	t.Parallel()
	extract, err := codec.Field(reflect.TypeFor[testprotov1.Kinds](), "uuid")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 15, 17, 36} {
		got, err := extract(&testprotov1.Kinds{Uuid: make([]byte, n)})
		var key *event.KeyError
		if !errors.As(err, &key) || !strings.Contains(err.Error(), fmt.Sprintf("is %d bytes: a key of bytes has exactly 16", n)) {
			t.Errorf("%d bytes: got %q, %v, want a *KeyError", n, got, err)
		}
	}
}

func TestFieldsThatCannotBeKeysAreRefusedAtRegistration(t *testing.T) {
	t.Parallel()
	plain, message := reflect.TypeFor[fields](), reflect.TypeFor[*testprotov1.Kinds]()
	text := reflect.TypeFor[string]()
	odd := reflect.StructOf([]reflect.StructField{ // what go vet would not let pass as a type
		{Name: "First", Type: text, Tag: `json:"same"`},
		{Name: "Second", Type: text, Tag: `json:"same"`},
		{Name: "hidden", Type: text, Tag: `json:"secret"`, PkgPath: "codec_test"},
	})
	const allowed = "a key can be a string, an integer or 16 bytes (a UUID)"
	for _, c := range []struct {
		typ   reflect.Type
		field string
		want  string
	}{
		{plain, "flag", "it is a bool, and " + allowed},
		{plain, "ratio", "it is a float64, and " + allowed},
		{plain, "at", "it is a time.Time"},
		{plain, "raw", "it is a []uint8"},
		{plain, "short", "it is a [15]uint8"},
		{plain, "names", "it is a []string"},
		{plain, "labels", "it is a map[string]string"},
		{plain, "line", "it is a codec_test.line"},
		{plain, "any", "it is a interface {}"},
		{plain, "ptr_ptr", "it is a **string"},
		{plain, "address", "it is a uintptr"},
		{plain, "", "name one direct field"},
		{plain, "client", "there is no such field; there are text, named, Plain, "},
		{plain, "TEXT", "there is no such field"},
		{plain, "line.Article", "name one direct field"},
		{plain, "inherited", "it comes from the embedded codec_test.base: declare it in the struct itself"},
		{plain, "Text", `in JSON that field is "text": use that name`},
		{plain, "Left", "JSON does not have the field Left"},
		{plain, "-", "there is no such field"},
		{odd, "hidden", "JSON does not have the field hidden"},
		{odd, "secret", "JSON does not have the field hidden: export it"},
		{odd, "same", "2 fields have that JSON name"},
		{reflect.TypeFor[orderCancelled](), "id", "there is no such field; there are none"},
		{reflect.TypeFor[int](), "id", "it is no struct and no protobuf message"},
		{reflect.TypeFor[**fields](), "text", "it is no struct and no protobuf message"},

		{message, "flag", "it is a bool, and " + allowed},
		{message, "ratio", "it is a double"},
		{message, "share", "it is a float"},
		{message, "size", "it is a enum"},
		{message, "order", "it is a object"},
		{message, "names", "it is a array"},
		{message, "labels", "it is a object"},
		{message, "wrapped", "it is a object"},
		{message, "at", "it is a object"},
		{message, "choice", "there is no such field"},
		{message, "order.order_id", "paths are not supported"},
		{message, "optionalText", `its proto name is "optional_text": use that`},
		{message, "client_id", "there is no such field; there are text, int32, "},
		{reflect.TypeFor[testprotov1.Legacy](), "numbers", "it is a array"},
	} {
		extract, err := codec.Field(c.typ, c.field)
		switch {
		case err == nil || extract != nil:
			t.Errorf("%v %q is accepted", c.typ, c.field)
		case !strings.HasPrefix(err.Error(), fmt.Sprintf("field %q of ", c.field)) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%v %q: error is %q, want it to say %q", c.typ, c.field, err, c.want)
		}
	}
}

func TestExtractorTakesValuesAndPointersOfItsTypeOnly(t *testing.T) {
	t.Parallel()
	for _, typ := range []reflect.Type{reflect.TypeFor[orderPlaced](), reflect.TypeFor[*orderPlaced]()} {
		extract, err := codec.Field(typ, "client_id")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []any{orderPlaced{ClientID: "c-3"}, &orderPlaced{ClientID: "c-3"}} {
			if got, err := extract(v); err != nil || got != "c-3" {
				t.Errorf("%T: got %q, %v", v, got, err)
			}
		}
		for _, v := range []any{nil, (*orderPlaced)(nil), orderPlaced2{}, new(&orderPlaced{}), "c-3", &testprotov1.OrderPlaced{ClientId: "c-3"}} {
			if got, err := extract(v); err == nil || errors.Is(err, event.ErrBadKey) {
				t.Errorf("%T: got %q, %v, want an error that blames no key", v, got, err)
			}
		}
	}
	extract, err := codec.Field(reflect.TypeFor[testprotov1.OrderPlaced](), "client_id")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{nil, (*testprotov1.OrderPlaced)(nil), &testprotov1.Kinds{}, orderPlaced{ClientID: "c-3"}} {
		if got, err := extract(v); err == nil || errors.Is(err, event.ErrBadKey) {
			t.Errorf("%T: got %q, %v, want an error that blames no key", v, got, err)
		}
	}
}

// The key must not depend on whether it is taken before the event travels or after.
func TestKeySurvivesTheWire(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	plain, err := codec.Field(reflect.TypeFor[orderPlaced](), "total")
	if err != nil {
		t.Fatal(err)
	}
	message, err := codec.Field(reflect.TypeFor[testprotov1.OrderPlaced](), "total")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64().Filter(func(n int64) bool { return n != 0 }).Draw(t, "total")
		for _, c := range []struct {
			extract codec.Extractor
			v       any
		}{{plain, orderPlaced{Total: total}}, {message, proto.Message(&testprotov1.OrderPlaced{Total: total})}} {
			before, err := c.extract(c.v)
			if err != nil {
				t.Fatal(err)
			}
			e, err := r.Encode(c.v)
			if err != nil {
				t.Fatal(err)
			}
			v, err := r.Decode(e)
			if err != nil {
				t.Fatal(err)
			}
			if after, err := c.extract(v); err != nil || after != before || after != fmt.Sprint(total) {
				t.Fatalf("%T: key is %q before and %q after (%v), want %d", c.v, before, after, err, total)
			}
		}
	})
}

func TestExtractingAKeyStaysCheap(t *testing.T) {
	plain, err := codec.Field(reflect.TypeFor[orderPlaced](), "client_id")
	if err != nil {
		t.Fatal(err)
	}
	message, err := codec.Field(reflect.TypeFor[testprotov1.OrderPlaced](), "client_id")
	if err != nil {
		t.Fatal(err)
	}
	var v any = &orderPlaced{ClientID: "c-3"}
	var m any = &testprotov1.OrderPlaced{ClientId: "c-3"}
	if n := testing.AllocsPerRun(100, func() { _, _ = plain(v) }); n != 0 {
		t.Errorf("a string field of a struct takes %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = message(m) }); n != 0 {
		t.Errorf("a string field of a message takes %v allocations", n)
	}
}
