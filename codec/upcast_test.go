package codec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/keyhold/keyhold/codec"
	testprotov1 "github.com/keyhold/keyhold/codec/internal/testproto/v1"
	"github.com/keyhold/keyhold/event"
)

// A price in four versions: whole units; cents; cents and a currency; and one more.
type (
	price1 struct {
		Units int64 `json:"units"`
	}
	price2 struct {
		Cents int64 `json:"cents"`
	}
	price3 struct {
		Amount struct {
			Cents    int64  `json:"cents"`
			Currency string `json:"currency"`
		} `json:"amount"`
	}
	price4 struct{ A int }
	// tariff took the place of price3 under another name.
	tariff struct {
		Cents int64 `json:"cents"`
	}
)

var (
	prices = []codec.Declaration{
		codec.Of[price1]("price", 1), codec.Of[price2]("price", 2), codec.Of[price3]("price", 3), codec.Of[tariff]("tariff", 1),
	}
	price1to2 = codec.UpcastOf(func(p price1) (price2, error) {
		if p.Units < 0 {
			return price2{}, fmt.Errorf("%d units are no price", p.Units)
		}
		return price2{Cents: 100 * p.Units}, nil
	})
	price2to3 = codec.UpcastOf(func(p *price2) (*price3, error) {
		if p.Cents == 0 {
			return nil, nil
		}
		p.Cents++ // it is its own
		now := &price3{}
		now.Amount.Cents, now.Amount.Currency = p.Cents-1, []string{"EUR"}[p.Cents/1_000_000]
		return now, nil
	})
	price1edited = codec.UpcastJSONOf("price", 1, func(f map[string]any) error {
		units, err := f["units"].(json.Number).Int64()
		f["cents"] = 100 * units
		delete(f, "units")
		return err
	})
	price2edited = codec.UpcastJSONOf("price", 2, func(f map[string]any) error {
		f["amount"] = map[string]any{"cents": f["cents"], "currency": "EUR"}
		return nil
	})
)

func register(t testing.TB, declarations ...any) *codec.Registry {
	t.Helper()
	r, err := codec.NewRegistry(flat(declarations))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func flat(declarations []any) (all []codec.Declaration) {
	for _, d := range declarations {
		switch d := d.(type) {
		case codec.Declaration:
			all = append(all, d)
		case []codec.Declaration:
			all = append(all, d...)
		}
	}
	return all
}

func price(cents int64) *price3 {
	p := &price3{}
	p.Amount.Cents, p.Amount.Currency = cents, "EUR"
	return p
}

func stored(name string, version int, data string) codec.Encoded {
	return codec.Encoded{Type: name, Version: version, Encoding: event.JSON, Data: []byte(data)}
}

func TestOldVersionsAreReadAsTheNewest(t *testing.T) {
	t.Parallel()
	typed := register(t, prices, price1to2, price2to3, price2to3) // twice counts once
	jsonFirst := register(t, codec.Of[price2]("price", 2), codec.Of[price3]("price", 3), price1edited, price2to3)
	jsonAlone := register(t, codec.Of[price3]("price", 3), price1edited, price2edited)
	for name, r := range map[string]*codec.Registry{"Go types": typed, "JSON, then a Go type": jsonFirst, "JSON alone": jsonAlone} {
		for _, in := range []codec.Encoded{
			stored("price", 1, ` {"units":42, "more":1}`), stored("price", 2, `{"cents":4200}`), stored("price", 3, `{"amount":{"cents":4200,"currency":"EUR"}}`),
		} {
			before := string(in.Data)
			got, err := r.Decode(in)
			if err != nil {
				t.Errorf("%s: %+v: %v", name, in, err)
				continue
			}
			if d := cmp.Diff(price(4200), got); d != "" {
				t.Errorf("%s: version %d: %s", name, in.Version, d)
			}
			if string(in.Data) != before {
				t.Errorf("%s: the bytes stored became %q", name, in.Data)
			}
			if typ, err := r.TypeOf("price", in.Version); err != nil || typ != reflect.TypeFor[price3]() {
				t.Errorf("%s: TypeOf version %d is %v, %v", name, in.Version, typ, err)
			}
		}
		want := []codec.Version{{Name: "price", Version: 1}, {Name: "price", Version: 2}}
		for _, typ := range []reflect.Type{reflect.TypeFor[price3](), reflect.TypeFor[*price3]()} {
			if d := cmp.Diff(want, r.Older(typ)); d != "" {
				t.Errorf("%s: older versions: %s", name, d)
			}
		}
		if to, ok := r.Upcast(reflect.TypeFor[price3]()); ok {
			t.Errorf("%s: the newest is read as %v", name, to)
		}
		if _, err := r.Decode(stored("price", 4, `{}`)); !errors.Is(err, codec.ErrNewer) || !strings.Contains(err.Error(), "(1 2 3)") {
			t.Errorf("%s: a version to come: %v", name, err)
		}
	}
	if to, ok := typed.Upcast(reflect.TypeFor[price1]()); !ok || to != reflect.TypeFor[price3]() {
		t.Errorf("the first version is read as %v, %v", to, ok)
	}
	if _, ok := typed.Upcast(reflect.TypeFor[other]()); ok {
		t.Error("a type without a name is read as another")
	}
	if e, err := typed.Encode(price1{Units: 1}); err != nil || e.Version != 1 {
		t.Errorf("an old value is encoded as %+v, %v: only reading changes", e, err)
	}
}

func TestUpcastersInJSONLoseNoDigit(t *testing.T) {
	t.Parallel()
	type wide struct {
		N    uint64         `json:"n"`
		Deep map[string]any `json:"deep"`
		Text string         `json:"text"`
	}
	r := register(t, codec.Of[wide]("wide", 2), codec.UpcastJSONOf("wide", 1, func(map[string]any) error { return nil }))
	got, err := r.Decode(stored("wide", 1, `{"n":18446744073709551615,"deep":{"x":0.1},"text":"<é&"}`))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&wide{N: 18446744073709551615, Deep: map[string]any{"x": 0.1}, Text: "<é&"}, got); d != "" {
		t.Error(d)
	}
}

// A message that got another full name, a struct that became a message, and a message that became a struct.
func TestEventsAreRenamedByUpcasters(t *testing.T) {
	t.Parallel()
	r := register(t, prices, price1to2, price2to3,
		codec.UpcastOf(func(p price3) (tariff, error) { return tariff{p.Amount.Cents}, nil }),
		codec.UpcastOf(func(p *testprotov1.Legacy) (*testprotov1.OrderPlaced, error) {
			return &testprotov1.OrderPlaced{OrderId: p.GetId()}, nil
		}),
		codec.UpcastOf(func(k *testprotov1.Kinds) (orderPlaced2, error) { return orderPlaced2{OrderID: k.GetText()}, nil }),
		codec.Of[orderPlaced2]("order.placed", 2), codec.Of[ratio]("ratio", 1),
		codec.UpcastOf(func(ratio) (*testprotov1.OrderPlaced, error) {
			return &testprotov1.OrderPlaced{OrderId: "of a ratio"}, nil
		}),
	)
	encode := func(v any) codec.Encoded {
		e, err := r.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	id := "o-1"
	for _, c := range []struct {
		in   codec.Encoded
		want any
	}{
		{stored("price", 1, `{"units":3}`), &tariff{300}},
		{encode(&testprotov1.Legacy{Id: &id}), &testprotov1.OrderPlaced{OrderId: "o-1"}},
		{encode(&testprotov1.Kinds{Text: "o-2"}), &orderPlaced2{OrderID: "o-2"}},
		{encode(ratio{}), &testprotov1.OrderPlaced{OrderId: "of a ratio"}},
	} {
		got, err := r.Decode(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in.Type, err)
			continue
		}
		if d := cmp.Diff(c.want, got, protocmp.Transform()); d != "" {
			t.Errorf("%s: %s", c.in.Type, d)
		}
		if typ, err := r.TypeOf(c.in.Type, c.in.Version); err != nil || typ != reflect.TypeOf(c.want).Elem() {
			t.Errorf("%s: TypeOf is %v, %v", c.in.Type, typ, err)
		}
	}
	older := r.Older(reflect.TypeFor[testprotov1.OrderPlaced]())
	if d := cmp.Diff([]codec.Version{{Name: "ratio", Version: 1}, {Name: "testproto.v1.Legacy", Version: 1}}, older); d != "" {
		t.Error(d)
	}
}

func TestUpcasterThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	typed := register(t, prices, price1to2, price2to3)
	inJSON := register(t, codec.Of[price3]("price", 3), price1edited,
		codec.UpcastJSONOf("price", 2, func(f map[string]any) error {
			if f["cents"] == json.Number("13") {
				return errors.New("no thirteen")
			}
			f["odd"] = func() {}
			return nil
		}))
	dividing := register(t, codec.Of[price4]("price", 4), codec.Of[price3]("price", 3),
		codec.UpcastOf(func(p price3) (price4, error) { return price4{A: 1 / int(p.Amount.Cents)}, nil }))
	const one, two = `upcaster of "price" version 1 (codec_test.price1) to "price" version 2 (codec_test.price2): `,
		`upcaster of "price" version 2 (codec_test.price2) to "price" version 3 (codec_test.price3): `
	for name, c := range map[string]struct {
		r    *codec.Registry
		in   codec.Encoded
		want string
		by   bool // an upcaster
	}{
		"an error":                  {typed, stored("price", 1, `{"units":-1}`), `decode "price" version 1 from json: ` + one + `-1 units are no price`, true},
		"nil":                       {typed, stored("price", 1, `{}`), two + `it gave nil`, true},
		"a panic":                   {typed, stored("price", 2, `{"cents":2000000}`), two + `it panicked at upcast_test.go:`, true},
		"a panic by the processor":  {dividing, stored("price", 3, `{}`), `it panicked at upcast_test.go:`, true},
		"an error in JSON":          {inJSON, stored("price", 2, `{"cents":13}`), `upcaster of "price" version 2 to version 3: no thirteen`, true},
		"a panic in JSON":           {inJSON, stored("price", 1, `{}`), `upcaster of "price" version 1 to version 2: it panicked at upcast_test.go:`, true},
		"something that is no JSON": {inJSON, stored("price", 2, `{}`), `upcaster of "price" version 2 to version 3: json: unsupported type: func()`, true},
		"broken bytes":              {typed, stored("price", 1, `{"units":`), `decode "price" version 1 from json: unexpected end`, false},
		"broken bytes in JSON":      {inJSON, stored("price", 1, `{"units":`), `decode "price" version 1 from json: unexpected EOF`, false},
		"null in JSON":              {inJSON, stored("price", 1, ` null`), `the data is null`, false},
		"no object":                 {inJSON, stored("price", 1, `[]`), `cannot unmarshal array`, false},
		"trailing garbage":          {inJSON, stored("price", 1, `{"units":1}{}`), `there is something after the value`, false},
		"another encoding":          {inJSON, codec.Encoded{Type: "price", Version: 1, Encoding: event.Proto}, `codec_test.price3 is a plain struct, which is encoded as json`, false},
	} {
		v, err := c.r.Decode(c.in)
		var de *codec.DecodeError
		var ue *codec.UpcastError
		if v != nil || !errors.As(err, &de) || errors.As(err, &ue) != c.by || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want a DecodeError that says %q", name, v, err, c.want)
		}
	}
}

func TestFaultsOfUpcastersAreReportedTogether(t *testing.T) {
	t.Parallel()
	nothing := func(map[string]any) error { return nil }
	for name, c := range map[string]struct {
		with []any
		want []string // each in a line of its own
	}{
		"each by itself": {
			[]any{
				prices, price1to2,
				codec.UpcastOf(func(price1) (price3, error) { return price3{}, nil }),
				codec.UpcastOf(func(price3) (price1, error) { return price1{}, nil }),
				codec.UpcastOf(func(p price3) (price3, error) { return p, nil }),
				codec.UpcastOf[price2, price3](nil),
				codec.UpcastOf(func(price4) (price3, error) { return price3{}, nil }),
				codec.UpcastOf[testprotov1.Legacy, price3](nil),
				codec.UpcastJSONOf("price", 2, nothing),
				codec.UpcastJSONOf("tariff", 2, nothing),
				codec.UpcastJSONOf("gone", 1, nothing),
				codec.UpcastJSONOf("go:ne", 1, nothing),
				codec.UpcastJSONOf("tariff", 0, nothing),
				codec.UpcastJSONOf("price", 5, nil),
				codec.UpcastJSONOf(placedName, 1, nothing),
			},
			[]string{
				`upcaster of "price" version 1 (codec_test.price1) to "price" version 3 (codec_test.price3): there is another from "price" version 1, to "price" version 2: keep one`,
				`to "price" version 1 (codec_test.price1): it goes down`,
				`to "price" version 3 (codec_test.price3): it leads to where it starts`,
				`to "price" version 3 (codec_test.price3): it has no func`,
				`upcaster of codec_test.price4 to codec_test.price3: type codec_test.price4 has no wire name: declare it`,
				`testprotov1.Legacy is a protobuf message: use the pointer`,
				`upcaster of "price" version 2: that version is declared as codec_test.price2`,
				`upcaster of "tariff" version 2: it leads nowhere: declare a later version`,
				`upcaster of "gone" version 1: it leads nowhere`,
				`contains ':'`,
				`upcaster of "tariff" version 0: versions go from 1`,
				`upcaster of "price" version 5: it has no func`,
				`that is a protobuf message, which is no JSON`,
			},
		},
		"a chain that does not reach the newest": {
			[]any{prices, price1to2},
			[]string{`upcaster of "price" version 1 (codec_test.price1) to "price" version 2 (codec_test.price2): it leads to version 2, and version 3 is declared: add an upcaster from version 2`},
		},
		"a circle": {
			[]any{prices, price1to2, price2to3,
				codec.UpcastOf(func(price3) (tariff, error) { return tariff{}, nil }),
				codec.UpcastOf(func(tariff) (price1, error) { return price1{}, nil })},
			[]string{`they go round in a circle`},
		},
		"a type that is wrong itself": { // what follows from it is not said
			[]any{codec.Of[int]("price", 1), codec.Of[secretive]("secretive", 2),
				codec.UpcastOf(func(int) (secretive, error) { return secretive{}, nil }), codec.UpcastJSONOf("secretive", 1, nothing)},
			[]string{"it is no struct", "field total is not exported"},
		},
	} {
		r, err := codec.NewRegistry(flat(c.with))
		if err == nil || r != nil {
			t.Errorf("%s: got %v, %v, want an error alone", name, r, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%s: %d faults, want %d:\n%v", name, len(lines), len(c.want), err)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: fault is %q, want it to say %q", name, lines[i], want)
			}
		}
	}
}

func TestUpcastersCostTheNewestVersionNothing(t *testing.T) {
	with, without := register(t, prices, price1to2, price2to3), register(t, prices)
	in := stored("price", 3, `{"amount":{"cents":4200,"currency":"EUR"}}`)
	allocations := func(r *codec.Registry) float64 {
		return testing.AllocsPerRun(200, func() {
			if _, err := r.Decode(in); err != nil {
				t.Fatal(err)
			}
		})
	}
	if with, without := allocations(with), allocations(without); with != without {
		t.Errorf("decoding the newest version makes %v allocations with upcasters, %v without", with, without)
	}
}

// Declared for the process, as applications do.
type stockLeft struct {
	Count int `json:"count"`
}

var (
	_ = codec.Add(codec.UpcastJSONOf("stock.left", 1, func(f map[string]any) error {
		f["count"] = f["n"]
		return nil
	}))
	_ = codec.Declare[stockLeft]("stock.left", 2)
)

func TestUpcastersOfTheProcessReachRegistries(t *testing.T) {
	t.Parallel()
	r := register(t, codec.Declarations())
	got, err := r.Decode(stored("stock.left", 1, `{"n":7}`))
	if d := cmp.Diff(&stockLeft{7}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
}
