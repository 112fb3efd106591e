package keyhold

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func registerWith(t *testing.T, in declared, stored eventstore.Registered, events ...string) (registration, error) {
	t.Helper()
	types := testTypes(t)
	p, err := resolve(in, types, everything)
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, e := range events {
		has[e] = true
	}
	return p.register(types, stored, "store-1", has, time.Unix(1e9, 0).UTC())
}

func TestStoreRefusesDeclarationsThatContradictItsEvents(t *testing.T) {
	t.Parallel()
	in := declared{
		behaviors:  []actors.Definition{order("order"), handler("a", "client_id", "order")},
		categories: []Category{{Name: "price", Events: []EventType{EventOf[priced]()}}},
	}
	cases := map[string]struct {
		stored eventstore.Registered
		want   string
	}{
		"another key": {
			eventstore.Registered{Categories: []eventstore.Category{{Name: "order", KeyField: "total"}}},
			`category "order": the store has it with the key "total", this program declares the key "client_id" (by handler "a"), and it has events: keep the key`,
		},
		"no key": {
			eventstore.Registered{Categories: []eventstore.Category{{Name: "order", Buckets: 64}}},
			`this program declares the key "client_id" (by handler "a"), and it has events: drop SequentialBy and the Key, or begin with an empty store ` +
				`and keyhold.Category{Name: "order", Key: "client_id"}, declared before the first event`,
		},
		"a key that nothing declares": {
			eventstore.Registered{Categories: []eventstore.Category{{Name: "price", KeyField: "sku"}}},
			`this program declares no key, and it has events: register keyhold.Category{Name: "price", Key: "sku"}`,
		},
		"another number of buckets": {
			eventstore.Registered{Categories: []eventstore.Category{{Name: "price", Buckets: 8}}},
			`category "price": the store has it in 8 buckets, this program declares 64`,
		},
		"another store": {
			eventstore.Registered{Categories: []eventstore.Category{{Name: "order", KeyField: "client_id", StoreID: "store-2"}}},
			`its events come from store store-2, this program's store is store-1`,
		},
		"another encoding": {
			eventstore.Registered{Types: []eventstore.Type{{Name: "order.placed", Version: 1, Encoding: event.Proto, Category: "order"}}},
			`type "order.placed": its events are encoded as proto`,
		},
		"another category of a type": {
			eventstore.Registered{Types: []eventstore.Type{{Name: "order.placed", Version: 1, Encoding: event.JSON, Category: "price"}}},
			`type "order.placed": its events are in category "price", this program puts it into "order"`,
		},
		"another kind of subscriber": {
			eventstore.Registered{Handlers: []eventstore.Handler{{Name: "a", Kind: eventstore.EntityKind, Categories: []string{"order"}}}},
			`handler "a": the store knows "a" as entity`,
		},
		"no StartFrom": {
			eventstore.Registered{},
			`handler "a": StartFrom is not set, and category "order", new to it, has events: set Oldest, Now or Since(time)`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := registerWith(t, in, c.stored, "order", "price")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error does not say %q:\n%v", c.want, err)
			}
			if name == "no StartFrom" {
				return
			}
			if _, err := registerWith(t, in, c.stored); err != nil && name != "another kind of subscriber" {
				t.Errorf("refused although the categories have no events: %v", err)
			}
		})
	}
}

func TestRegistrationStartsNewSubscriptionsWhereTheyAsk(t *testing.T) {
	t.Parallel()
	at := time.Unix(1234, 0).UTC()
	from := func(name string, s Start) actors.Definition {
		return with(handler(name, "client_id", "order"), func(h *Handler[*book]) { h.StartFrom = s })
	}
	in := declared{behaviors: []actors.Definition{order("order"), from("oldest", Oldest), from("now", Now), from("since", Since(at)), handler("known", "", "order")}}
	stored := eventstore.Registered{Revision: 7, Handlers: []eventstore.Handler{
		{Name: "known", Kind: eventstore.EventHandler, Categories: []string{"order"}, Types: []string{"order.gone"}},
	}}
	got, err := registerWith(t, in, stored, "order")
	if err != nil {
		t.Fatal(err)
	}
	want := []eventstore.Start{
		{Handler: "oldest", Category: "order"}, {Handler: "now", Category: "order", Now: true}, {Handler: "since", Category: "order", From: at},
	}
	if d := cmp.Diff(want, got.starts); d != "" {
		t.Error(d)
	}
	if got.save.Revision != 7 {
		t.Errorf("revision is %d, want the one loaded", got.save.Revision)
	}
	if d := cmp.Diff([]string{"order.gone", "order.placed"}, listed(got.save)["known"]); d != "" {
		t.Errorf("the list of types must only grow: %s", d)
	}
	if d := cmp.Diff([]string{"order.place"}, listed(got.save)["order"]); d != "" {
		t.Errorf("an entity lists its commands: %s", d)
	}
}

func TestRegistrationStartsNewSubscriptionsOfACategoryWhoseEventsAreGone(t *testing.T) {
	t.Parallel()
	in := declared{behaviors: []actors.Definition{
		order("order"), handler("anywhere", "client_id", "order"),
		with(handler("now", "client_id", "order"), func(h *Handler[*book]) { h.StartFrom = Now }),
	}}
	got, err := registerWith(t, in, eventstore.Registered{})
	if err != nil {
		t.Fatal(err)
	}
	want := []eventstore.Start{{Handler: "anywhere", Category: "order"}, {Handler: "now", Category: "order", Now: true}}
	if d := cmp.Diff(want, got.starts); d != "" {
		t.Error(d)
	}
}

func TestStartWarnsOfTypesThatAreNotWhatTheyWere(t *testing.T) {
	t.Parallel()
	in := declared{behaviors: []actors.Definition{order("order")}}
	stored := func(name string, version int, fields ...eventstore.Field) eventstore.Registered {
		return eventstore.Registered{Types: []eventstore.Type{{Name: name, Version: version, Encoding: event.JSON, Category: "order", Fields: fields}}}
	}
	for name, c := range map[string]struct {
		stored eventstore.Registered
		want   []string // each in a warning of its own
	}{
		"as it was":           {stored("order.placed", 1, eventstore.Field{Name: "client_id", Kind: "string"}, eventstore.Field{Name: "total", Kind: "int"}), nil},
		"a wider integer":     {stored("order.placed", 1, eventstore.Field{Name: "total", Kind: "uint8"}), nil},
		"a field that is new": {stored("order.placed", 1), nil},
		"another kind": {stored("order.placed", 1, eventstore.Field{Name: "total", Kind: "string"}),
			[]string{`type "order.placed" version 1: field "total" was string, is int now, and there may be events: declare version 2 beside it`}},
		"a fraction":      {stored("order.placed", 1, eventstore.Field{Name: "total", Kind: "float64"}), []string{`was float64, is int now`}},
		"another name":    {stored("order.cancelled", 1), []string{`type "order.cancelled" version 1: this program handles it nowhere`}},
		"another version": {stored("order.placed", 2), []string{`type "order.placed" version 2: this program handles it nowhere`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := registerWith(t, in, c.stored, "order")
			if err != nil {
				t.Fatal(err)
			}
			if len(got.warnings) != len(c.want) {
				t.Fatalf("warnings %q, want %q", got.warnings, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(got.warnings[i], want) {
					t.Errorf("warning %q does not say %q", got.warnings[i], want)
				}
			}
			if none, err := registerWith(t, in, c.stored); err != nil || len(none.warnings) > 0 {
				t.Errorf("without events: %v, %q", err, none.warnings)
			}
		})
	}
}

func TestFieldsReadWhatTheirEncodingCanTell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		now, was string
		enc      event.Encoding
		want     bool
	}{
		{"any", "string", event.JSON, true}, {"float64", "int", event.JSON, true}, {"int", "float64", event.JSON, false},
		{"uint64", "int8", event.JSON, true}, {"uuid", "string", event.JSON, false}, {"object", "array", event.JSON, false},
		{"int64", "int32", event.Proto, true}, {"bool", "enum", event.Proto, true}, {"sint32", "int32", event.Proto, false},
		{"bytes", "string", event.Proto, true}, {"string", "bytes", event.Proto, false}, {"double", "int64", event.Proto, false},
	} {
		if got := reads(c.now, c.was, c.enc); got != c.want {
			t.Errorf("%s: a %s reads a %s: %t", c.enc, c.now, c.was, got)
		}
	}
}

func TestStartTellsThatACategoryHasNoKeyWhileItMayStillHaveOne(t *testing.T) {
	t.Parallel()
	hints := func(in declared, events ...string) int {
		got, err := registerWith(t, in, eventstore.Registered{}, events...)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range got.hints {
			if want := `category "order" has no key: its events go into 64 buckets; `; !strings.HasPrefix(h, want) || !strings.Contains(h, `keyhold.Category{Name: "order",`) {
				t.Errorf("hint is %q", h)
			}
		}
		return len(got.hints)
	}
	orders := []actors.Definition{order("order")}
	if n := hints(declared{behaviors: orders}); n != 1 {
		t.Errorf("%d hints, want 1", n)
	}
	for name, n := range map[string]int{
		"it has events":          hints(declared{behaviors: orders}, "order"),
		"it has a key":           hints(declared{behaviors: append([]actors.Definition{handler("a", "client_id", "order")}, orders...)}),
		"buckets were asked for": hints(declared{behaviors: orders, categories: []Category{{Name: "order", Buckets: 8}}}),
	} {
		if n != 0 {
			t.Errorf("%s: %d hints", name, n)
		}
	}
}
