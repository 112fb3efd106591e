package keyhold

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/past"
	"github.com/keyhold/keyhold/transport"
)

type (
	placed struct {
		Client string `json:"client_id"`
		Total  int    `json:"total"`
	}
	shipped struct {
		Client string `json:"client_id"`
		Parts  []int  `json:"parts"`
	}
	priced struct {
		SKU string `json:"sku"`
	}
	noted struct { // published beside what the entity emits
		Client string `json:"client_id"`
	}
	stray   struct{ X int }
	unnamed struct {
		Client string `json:"client_id"`
	}
	place      struct{ Client string }
	placeReply struct{}
	book       struct{ client string }
)

func testTypes(t *testing.T) *codec.Registry {
	t.Helper()
	r, err := codec.NewRegistry([]codec.Declaration{
		codec.Of[placed]("order.placed", 1), codec.Of[shipped]("order.shipped", 1),
		codec.Of[priced]("price.changed", 1), codec.Of[stray]("stray", 1), codec.Of[place]("order.place", 1),
		codec.Of[noted]("order.noted", 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func order(kind string) Entity[int] {
	return Entity[int]{
		Kind: kind, Version: 1,
		Commands: Commands[int]{OnCommand(func(Command, int, *place) (*placeReply, error) { return nil, nil })},
		Fold: Fold[int]{
			OnEvent(func(s int, _ placed) int { return s }),
			OnEvent(func(s int, _ shipped) int { return s }),
		},
	}
}

func handler(name, by string, categories ...string) Handler[*book] {
	return Handler[*book]{
		Name: name, Categories: categories, SequentialBy: by, New: func(key string) *book { return &book{key} },
		On: Behavior[*book]{On(func(*book, Context, placed) error { return nil })},
	}
}

func with[T any](v T, change func(*T)) T {
	change(&v)
	return v
}

const everything = transport.Publish | transport.ConsumerGroups | transport.Ack | transport.Ordering | transport.Partitioning

func TestRegistrationRefusesWhatCannotHold(t *testing.T) {
	t.Parallel()
	type behaviors = []actors.Definition
	cases := map[string]struct {
		in   declared
		caps transport.Capabilities
		want []string // parts of messages, all of which must be reported at once
	}{
		"one name for a handler and an entity kind": {
			in:   declared{behaviors: behaviors{order("order"), handler("order", "client_id", "order")}},
			want: []string{`handler "order": the name is taken by the entity of that name`, "rename one"},
		},
		"two keys for one category": {
			in: declared{behaviors: behaviors{order("order"), handler("a", "client_id", "order"), handler("b", "total", "order")}},
			want: []string{`handler "b": SequentialBy is "total", but category "order" has the key "client_id", by handler "a"`,
				"one key per category"},
		},
		"a key other than the declared one": {
			in:   declared{behaviors: behaviors{order("order"), handler("a", "total", "order")}, categories: []Category{{Name: "order", Key: "client_id"}}},
			want: []string{`by its Category`},
		},
		"a key where buckets were declared": {
			in:   declared{behaviors: behaviors{order("order"), handler("a", "client_id", "order")}, categories: []Category{{Name: "order", Buckets: 8}}},
			want: []string{"declared without a key and with 8 Buckets"},
		},
		"a key field that one type of the category lacks": {
			in:   declared{behaviors: behaviors{order("order"), handler("a", "total", "order")}},
			want: []string{`category "order": key "total", by handler "a"`, "shipped", `"total"`},
		},
		"a key field of a kind that is no key": {
			in:   declared{behaviors: behaviors{order("order"), handler("a", "parts", "order")}},
			want: []string{`key "parts"`, "placed", "shipped"},
		},
		"an unknown category": {
			in:   declared{behaviors: behaviors{order("order"), handler("a", "client_id", "ordre")}},
			want: []string{`handler "a": category "ordre" is unknown`, `known: "order"`},
		},
		"a handler of an entity's commands": {
			in:   declared{behaviors: behaviors{order("order"), handler("a", "", "order.commands")}},
			want: []string{`"order.commands"`},
		},
		"a type that no category has": {
			in: declared{behaviors: behaviors{order("order"), with(handler("a", "client_id", "order"), func(h *Handler[*book]) {
				h.On = append(h.On, On(func(*book, Context, stray) error { return nil }))
			})}},
			want: []string{`handler "a": On: type keyhold.stray is in no category`},
		},
		"a type of a category not subscribed to": {
			in: declared{categories: []Category{{Name: "price", Events: []EventType{EventOf[priced]()}}}, behaviors: behaviors{order("order"),
				with(handler("a", "client_id", "order"), func(h *Handler[*book]) {
					h.On = append(h.On, On(func(*book, Context, priced) error { return nil }))
				})}},
			want: []string{`type keyhold.priced is in category "price", to which the handler does not subscribe`},
		},
		"a type in two categories": {
			in:   declared{behaviors: behaviors{order("order")}, categories: []Category{{Name: "price", Events: []EventType{EventOf[placed]()}}}},
			want: []string{`category "price": type keyhold.placed is in category "order" already`},
		},
		"a category declared twice": {
			in:   declared{categories: []Category{{Name: "price"}, {Name: "price"}}},
			want: []string{`category "price": declared twice`},
		},
		"a type without a wire name": {
			in:   declared{categories: []Category{{Name: "price", Events: []EventType{EventOf[unnamed]()}}}},
			want: []string{`keyhold.Type[unnamed]("unnamed", 1)`},
		},
		"a transport that cannot partition": {
			in: declared{behaviors: behaviors{order("order"), handler("a", "client_id", "order")}}, caps: transport.Publish | transport.Ack,
			want: []string{`handler "a": SequentialBy "client_id" needs a transport with partitioning (this one can: publish, ack)`},
		},
		"a transport that cannot publish": {
			in: declared{behaviors: behaviors{order("order"), handler("a", "", "order")}}, caps: transport.Ack,
			want: []string{`handler "a": the transport cannot publish`},
		},
		"a bad name, no constructor and nothing handled": {
			in:   declared{behaviors: behaviors{Handler[*book]{Name: "a:b", Categories: []string{"order"}}, order("order")}},
			want: []string{`handler "a:b": Name`, "New is nil", "On is empty"},
		},
		"bad categories": {
			in:   declared{categories: []Category{{Name: "a.commands"}, {Name: "b", Buckets: -1}, {Name: "c", Key: "k", Buckets: 3}, {Name: "d", Events: []EventType{{}}}}},
			want: []string{`category "a.commands": Name`, `category "b": Buckets is -1`, `category "c": Key and Buckets`, `category "d": Events[0]`},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.caps == 0 {
				c.caps = everything
			}
			_, err := resolve(c.in, testTypes(t), c.caps)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

func TestOneMistakeIsOneFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   declared
		want string
	}{
		"a misspelt category":   {declared{behaviors: []actors.Definition{order("order"), handler("a", "client_id", "ordre")}}, `category "ordre" is unknown`},
		"no category":           {declared{behaviors: []actors.Definition{order("order"), handler("a", "client_id")}}, "Categories is empty"},
		"a type without a name": {declared{categories: []Category{{Name: "price", Events: []EventType{EventOf[unnamed]()}}}}, `category "price": type keyhold.unnamed has no wire name`},
	} {
		_, err := resolve(c.in, testTypes(t), everything)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want one fault that says %q:\n%v", name, c.want, err)
		}
	}
}

func TestInlineTransportTakesSequentialHandlers(t *testing.T) {
	t.Parallel()
	in := declared{behaviors: []actors.Definition{order("order"), handler("a", "client_id", "order")}}
	if _, err := resolve(in, testTypes(t), transport.Publish|transport.Inline); err != nil {
		t.Fatal(err)
	}
}

func TestCategoriesGetTheirKeyFromHandlersOrBuckets(t *testing.T) {
	t.Parallel()
	in := declared{
		behaviors:  []actors.Definition{order("order"), handler("a", "client_id", "order"), handler("b", "", "order")},
		categories: []Category{{Name: "price", Events: []EventType{EventOf[*priced]()}}},
	}
	p, err := resolve(in, testTypes(t), everything)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Category{}
	for name, c := range p.categories {
		got[name] = Category{Key: c.Key, Buckets: c.Buckets}
	}
	want := map[string]Category{"order": {Key: "client_id"}, "order.commands": {}, "price": {Buckets: 64}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func routerOf(t *testing.T, in declared) *router {
	t.Helper()
	types := testTypes(t)
	p, err := resolve(in, types, everything)
	if err != nil {
		t.Fatal(err)
	}
	return &router{routes: p.routes, types: types}
}

func TestRouteFindsCategoryKeyAndLane(t *testing.T) {
	t.Parallel()
	r := routerOf(t, declared{
		behaviors:  []actors.Definition{order("order"), handler("a", "client_id", "order")},
		categories: []Category{{Name: "price", Events: []EventType{EventOf[priced]()}}},
	})
	entity, emitter := event.Stream{Kind: "price", ID: "p-1"}, event.Stream{Kind: "order", ID: "o-1"}
	cases := map[string]struct {
		from event.Stream
		v    any
		want event.LaneRef
	}{
		"by key":                {from: emitter, v: placed{Client: "c-1"}, want: event.LaneRef{Category: "order", Key: "c-1"}},
		"by key, of a pointer":  {from: emitter, v: &placed{Client: "c-1"}, want: event.LaneRef{Category: "order", Key: "c-1"}},
		"by bucket of a name":   {v: For("p-1", priced{}), want: event.LaneRef{Category: "price", Key: event.Bucket("p-1", 64)}},
		"by bucket of emitter":  {from: entity, v: priced{}, want: event.LaneRef{Category: "price", Key: event.Bucket("p-1", 64)}},
		"name before emitter":   {from: entity, v: For("p-2", priced{}), want: event.LaneRef{Category: "price", Key: event.Bucket("p-2", 64)}},
		"backfill":              {from: emitter, v: Backfill(placed{Client: "c-1"}), want: event.LaneRef{Category: "order", Key: "c-1", Lane: event.Backfill}},
		"backfill, of a bucket": {v: Backfill(For("p-1", priced{})), want: event.LaneRef{Category: "price", Key: event.Bucket("p-1", 64), Lane: event.Backfill}},
	}
	for name, c := range cases {
		env, err := r.Route(context.Background(), c.from, c.v)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if env.Ref() != c.want || env.Type == "" || len(env.Data) == 0 {
			t.Errorf("%s: got %+v, want lane %v", name, env, c.want)
		}
	}
}

func TestRouteRefusesKeysThatCannotBe(t *testing.T) {
	t.Parallel()
	r := routerOf(t, declared{
		behaviors:  []actors.Definition{order("order"), handler("a", "client_id", "order")},
		categories: []Category{{Name: "price", Events: []EventType{EventOf[priced]()}}},
	})
	for v, want := range map[any]string{
		placed{}:                                 `key field "client_id"`,
		placed{Client: "a:b"}:                    `category "order"`,
		placed{Client: "dlq"}:                    `category "order"`,
		placed{Client: "backfill"}:               `category "order"`,
		placed{Client: "__lease__"}:              `category "order"`,
		placed{Client: "{x}"}:                    `category "order"`,
		placed{Client: "\xff"}:                   `category "order"`,
		priced{}:                                 "keyhold.For(id, event)",
		stray{}:                                  "in no category",
		placed{Client: strings.Repeat("k", 256)}: `category "order"`,
	} {
		from := event.Stream{}
		if _, emitted := v.(placed); emitted {
			from.Kind = "order"
		}
		_, err := r.Route(context.Background(), from, v)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v does not say %q", v, err, want)
		}
	}
	if _, err := r.Route(context.Background(), event.Stream{}, nil); err == nil {
		t.Error("nil was routed")
	}
}

func TestOnlyItsEntityEmitsAnEvent(t *testing.T) {
	t.Parallel()
	r := routerOf(t, declared{
		behaviors:  []actors.Definition{order("order"), handler("a", "client_id", "order")},
		categories: []Category{{Name: "order", Events: []EventType{EventOf[placed](), EventOf[noted]()}}},
	})
	const want = `placed: it is an event of entity "order", which would not see it: only the entity emits it; send it a command`
	for _, v := range []any{placed{Client: "c-1"}, &placed{Client: "c-1"}, Backfill(placed{Client: "c-1"}), For("c-1", placed{Client: "c-1"})} {
		for _, from := range []event.Stream{{}, {Kind: "price", ID: "p-1"}} {
			if _, err := r.Route(context.Background(), from, v); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v of %v: error %v does not say %q", v, from, err, want)
			}
		}
	}
	lane := event.LaneRef{Category: "order", Key: "c-1"}
	for _, v := range []any{past.Event{Event: placed{Client: "c-1"}}, noted{Client: "c-1"}} {
		if env, err := r.Route(context.Background(), event.Stream{}, v); err != nil || env.Ref() != lane {
			t.Errorf("%+v: %v, %v", v, env.Ref(), err)
		}
	}
}

func TestConfigReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{Name: "a:b", Node: "a\nb", IdleAfter: -1, Concurrency: -1, BackfillSuffix: "x:y", Cluster: ClusterConfig{Version: "v\xff"}}.faults()
	for _, want := range []string{"Name", `config: Node "a\nb" contains the control character`, `config: Cluster: Version "v\xff" is not valid UTF-8`, "Store is nil", "Transport is nil", "IdleAfter", "Concurrency", "BackfillSuffix"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s:\n%v", want, err)
		}
	}
}

func TestNamesOfNodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ node, want string }{
		{"orders-1", ""}, {"orders@host.example", ""}, {"knoten-ü", ""}, {strings.Repeat("n", 255), ""},
		{"   ", `Node "   " has nothing but spaces: name it as in orders-1, or leave Node empty for Name@host`},
		{"orders 1", `Node "orders 1" has a space in it: name it as in orders-1`},
		{"orders-1 ", "has a space in it"}, {"a\u00a0b", "has a space in it"},
		{"a\x00b", "contains the control character U+0000"}, {"a\xff", "is not valid UTF-8"},
		{strings.Repeat("n", 256), "is 256 bytes long, 255 are allowed"},
	} {
		err := checkNode(c.node)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.20q: %v, want %q", c.node, err, c.want)
		}
	}
}

// Whatever a host is called: its node has a name, by which it can be told from others.
func TestTheNameThatANodeHasByDefaultIsNeverRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, host, want string }{
		{"orders", "host", "orders@host"}, {"orders", "my host\n", "orders@my-host-"}, {"orders", "a\x00b\xffc", "orders@a-b-c"}, {"", "host", "@host"},
		{"orders", strings.Repeat("ü", 200), strings.Repeat("ü", 127)}, {strings.Repeat("o", 255), "host", strings.Repeat("o", 250) + "@host"},
	} {
		got := nodeNamed(c.name, c.host)
		if err := checkNode(got); got != c.want || err != nil {
			t.Errorf("%.20q on %.20q: %q, %v", c.name, c.host, got, err)
		}
	}
}
