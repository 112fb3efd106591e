package keyhold

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/projection"
)

// The program under test knows version 3 of order.placed, and reads what it is told to of the versions before.
type (
	placed1 struct {
		Client string `json:"client_id"`
		Units  int    `json:"units"`
	}
	placed2 struct {
		Client string `json:"client_id"`
		Total  string `json:"total"`
	}
)

func evolved(t *testing.T, with ...codec.Declaration) *codec.Registry {
	t.Helper()
	r, err := codec.NewRegistry(append(with, codec.Of[placed]("order.placed", 3), codec.Of[shipped]("order.shipped", 1),
		codec.Of[priced]("price.changed", 1), codec.Of[place]("order.place", 2), codec.Of[noted]("order.noted", 2)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var (
	placed1to3 = codec.UpcastOf(func(p placed1) (placed, error) { return placed{p.Client, 100 * p.Units}, nil })
	placed2to3 = codec.UpcastJSONOf("order.placed", 2, func(f map[string]any) error { f["total"] = 0; return nil })
)

func TestStoredVersionsThatNobodyReadsAreRefusedWhereSomebodyMeetsThem(t *testing.T) {
	t.Parallel()
	orders, reader := order("order"), handler("reader", "client_id", "order")
	notes := Category{Name: "order", Key: "client_id", Events: []EventType{EventOf[noted]()}}
	stored := func(category, name string, versions ...int) (all []eventstore.Type) {
		for _, v := range versions {
			all = append(all, eventstore.Type{Name: name, Version: v, Encoding: event.JSON, Category: category})
		}
		return all
	}
	one := codec.Of[placed1]("order.placed", 1)
	two := codec.Of[placed2]("order.placed", 2)
	noting := func(categories ...string) Projection[*book] {
		return Projection[*book]{Name: "noting", Categories: categories, New: func() *book { return nil },
			On: ProjectionCases[*book]{Project(func(*book, ProjectionContext, noted) error { return nil })}}
	}
	placing := Projection[*book]{Name: "placing", New: func() *book { return nil },
		On: ProjectionCases[*book]{Project(func(*book, ProjectionContext, placed) error { return nil })}}
	bothFolded := with(order("order"), func(e *Entity[int]) {
		e.Fold = append(e.Fold, OnEvent(func(s int, _ placed1) int { return s }), OnEvent(func(s int, _ placed2) int { return s }))
	})
	for name, c := range map[string]struct {
		types  []codec.Declaration
		in     declared
		stored []eventstore.Type
		lists  []string // of the handler, in the store
		err    []string // lines; each a part
		warn   []string
	}{
		"all are read": {
			types: []codec.Declaration{one, placed1to3, placed2to3}, in: declared{behaviors: []actors.Definition{orders, reader}},
			stored: stored("order", "order.placed", 1, 2, 3),
		},
		"none is": {
			in: declared{behaviors: []actors.Definition{orders, reader}}, stored: stored("order", "order.placed", 1, 2, 3),
			err: []string{`type "order.placed" version 1: the store may have some in category "order", and this program has no use for them, ` +
				`which entity "order" and handler "reader" would meet: add a keyhold.Upcast from its Go type, or keyhold.UpcastJSON("order.placed", 1, ...)`,
				`type "order.placed" version 2: `},
		},
		"one has a Go type and no case": {
			types: []codec.Declaration{one, two}, in: declared{behaviors: []actors.Definition{orders}}, stored: stored("order", "order.placed", 1),
			err: []string{`type "order.placed" version 1: `},
		},
		"a version to come": { // the program was put back: it must start, and wait where it meets one
			in: declared{behaviors: []actors.Definition{orders, reader}}, stored: stored("order", "order.placed", 4),
			warn: []string{`type "order.placed" version 4: this program handles it nowhere, and the store may have some in category "order": an entity, a handler or a projection that meets one waits for a newer program`},
		},
		"a type to come, or one that is gone": {
			in: declared{behaviors: []actors.Definition{orders, reader}}, stored: stored("order", "order.returned", 1), lists: []string{"order.returned"},
			warn: []string{`type "order.returned" version 1: this program handles it nowhere`},
		},
		"of a category that nobody is given": {
			in: declared{behaviors: []actors.Definition{orders}}, stored: stored("price", "price.changed", 1),
			warn: []string{`type "price.changed" version 1: this program handles it nowhere, and the store may have some in category "price": nothing registered here meets them`},
		},
		"a handler has no case for a version that its entity folds": {
			types: []codec.Declaration{one, two}, in: declared{behaviors: []actors.Definition{bothFolded, reader}}, stored: stored("order", "order.placed", 1),
			warn: []string{`type "order.placed" version 1: handler "reader" has no case for it`},
		},
		"a handler has no case any more for what it was registered for": {
			in: declared{behaviors: []actors.Definition{orders, reader}}, stored: stored("order", "order.shipped", 1), lists: []string{"order.shipped"},
			warn: []string{`type "order.shipped" version 1: handler "reader" has no case for it, though it is registered for type "order.shipped"`},
		},
		"a handler never cared": {
			in: declared{behaviors: []actors.Definition{orders, reader}}, stored: stored("order", "order.shipped", 1),
		},
		"an old version of what is published beside the entity's events": { // no entity folds it, and no handler cares
			in: declared{behaviors: []actors.Definition{orders, reader}, categories: []Category{notes}}, stored: stored("order", "order.noted", 1),
			warn: []string{`type "order.noted" version 1: this program handles it nowhere, and the store may have some in category "order": nothing registered here meets them`},
		},
		"an old version that only a projection meets": {
			in:     declared{behaviors: []actors.Definition{orders, reader}, projections: []projection.Definition{noting("order")}, categories: []Category{notes}},
			stored: stored("order", "order.noted", 1),
			err: []string{`type "order.noted" version 1: the store may have some in category "order", and this program has no use for them, which projection "noting" would meet: ` +
				`add a keyhold.Upcast from its Go type, or keyhold.UpcastJSON("order.noted", 1, ...)`},
		},
		"an old version that only a projection of everything meets": {
			in:     declared{behaviors: []actors.Definition{orders}, projections: []projection.Definition{noting()}, categories: []Category{notes}},
			stored: stored("order", "order.noted", 1),
			err:    []string{`type "order.noted" version 1: the store may have some in category "order", and this program has no use for them, which projection "noting" would meet`},
		},
		"a version that a projection has, and an old one that an upcaster makes into it": {
			types:  []codec.Declaration{codec.UpcastJSONOf("order.noted", 1, func(map[string]any) error { return nil })},
			in:     declared{behaviors: []actors.Definition{orders}, projections: []projection.Definition{noting()}, categories: []Category{notes}},
			stored: stored("order", "order.noted", 1, 2),
		},
		"an old version in a category that the projection does not read": {
			in:     declared{behaviors: []actors.Definition{orders}, projections: []projection.Definition{noting("order")}, categories: []Category{notes}},
			stored: stored("price", "order.noted", 1),
			err:    []string{`type "order.noted": its events are in category "price"`},
			warn:   []string{`type "order.noted" version 1: this program handles it nowhere, and the store may have some in category "price": nothing registered here meets them`},
		},
		"a projection has no case for a version that its entity folds": {
			types: []codec.Declaration{one, two}, stored: stored("order", "order.placed", 1),
			in:   declared{behaviors: []actors.Definition{bothFolded}, projections: []projection.Definition{placing}},
			warn: []string{`type "order.placed" version 1: projection "placing" has no case for it`},
		},
		"a version to come, of what a projection has": {
			in:     declared{behaviors: []actors.Definition{orders}, projections: []projection.Definition{noting()}, categories: []Category{notes}},
			stored: stored("order", "order.noted", 3),
			warn:   []string{`type "order.noted" version 3: this program handles it nowhere, and the store may have some in category "order": an entity, a handler or a projection that meets one waits`},
		},
		"an old version of a command": {
			in: declared{behaviors: []actors.Definition{orders}}, stored: stored("order.commands", "order.place", 1),
			err: []string{`type "order.place" version 1: the store may have some in category "order.commands", and this program has no use for them, which entity "order" would meet`},
		},
		"fields of an old version that are not what they were": {
			types: []codec.Declaration{one, placed1to3}, in: declared{behaviors: []actors.Definition{orders}},
			stored: []eventstore.Type{{Name: "order.placed", Version: 1, Encoding: event.JSON, Category: "order", Fields: []eventstore.Field{{Name: "units", Kind: "string"}}}},
			warn:   []string{`type "order.placed" version 1: field "units" was string, is int now`},
		},
		"fields that changed with the version": {
			types: []codec.Declaration{one, placed1to3}, in: declared{behaviors: []actors.Definition{orders}},
			stored: []eventstore.Type{{Name: "order.placed", Version: 1, Encoding: event.JSON, Category: "order",
				Fields: []eventstore.Field{{Name: "units", Kind: "int"}, {Name: "total", Kind: "string"}}}},
		},
		"a renamed event of another category": {
			types:  []codec.Declaration{codec.Of[placed1]("price.ordered", 1), placed1to3},
			in:     declared{behaviors: []actors.Definition{orders}, categories: []Category{{Name: "price", Events: []EventType{EventOf[priced]()}}}},
			stored: stored("price", "price.ordered", 1),
			err:    []string{`type "price.ordered": its events are in category "price", and its upcaster leads to type "order.placed" in category "order"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			types := evolved(t, c.types...)
			p, err := resolve(c.in, types, everything)
			if err != nil {
				t.Fatal(err)
			}
			in := eventstore.Registered{Types: c.stored}
			if slices.Contains(p.names(), "reader") { // one that is not in the program has a warning of its own
				in.Handlers = []eventstore.Handler{{Name: "reader", Kind: eventstore.EventHandler, Categories: []string{"order"}, Types: c.lists}}
			}
			got, err := p.register(types, in, "store-1", map[string]bool{"order": true, "order.commands": true, "price": true}, time.Now())
			said := ""
			if err != nil {
				said = err.Error()
			}
			lines(t, "error", strings.Split(said, "\n"), c.err)
			lines(t, "warning", got.warnings, c.warn)
			if got, err := p.register(types, in, "store-1", nil, time.Now()); err != nil || len(got.warnings) > 0 {
				t.Errorf("without events: %v, %q", err, got.warnings)
			}
		})
	}
}

// lines compares lines with what each must contain.
func lines(t *testing.T, of string, got, want []string) {
	t.Helper()
	if len(got) == 1 && got[0] == "" {
		got = nil
	}
	if len(got) != len(want) {
		t.Fatalf("%ss %q, want %q", of, got, want)
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s %q does not say %q", of, got[i], want[i])
		}
	}
}

// What was renamed is listed too: should the upcaster go, the handler must wait instead of passing over it.
func TestHandlersAreRegisteredForWhatUpcastersBringThem(t *testing.T) {
	t.Parallel()
	types := evolved(t, codec.Of[placed1]("order.began", 1), placed1to3)
	p, err := resolve(declared{behaviors: []actors.Definition{order("order"), handler("reader", "client_id", "order")}}, types, everything)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.register(types, eventstore.Registered{}, "store-1", nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"order.began", "order.placed"}, listed(got.save)["reader"]); d != "" {
		t.Error(d)
	}
}

func TestAnOldVersionHasNoCaseOfItsOwn(t *testing.T) {
	t.Parallel()
	types := evolved(t, codec.Of[placed1]("order.placed", 1), placed1to3)
	old := with(handler("old", "client_id", "order"), func(h *Handler[*book]) {
		h.On = append(h.On, On(func(*book, Context, placed1) error { return nil }))
	})
	_, err := resolve(declared{
		behaviors:  []actors.Definition{order("order"), old},
		categories: []Category{{Name: "order", Events: []EventType{EventOf[placed1]()}}},
	}, types, everything)
	for _, want := range []string{
		`handler "old": nobody meets type keyhold.placed1, which upcasters make into keyhold.placed: use that type in its place, or drop the upcaster`,
		`category "order": nobody meets type keyhold.placed1`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
}

func TestAnOldVersionIsNotEmitted(t *testing.T) {
	t.Parallel()
	types := evolved(t, codec.Of[placed1]("order.placed", 1), placed1to3)
	p, err := resolve(declared{behaviors: []actors.Definition{order("order")}}, types, everything)
	if err != nil {
		t.Fatal(err)
	}
	r := router{routes: p.routes, types: types}
	if _, err := r.Route(context.Background(), event.Stream{Kind: "order", ID: "o-1"}, placed1{}); err == nil ||
		!strings.Contains(err.Error(), "emit keyhold.placed1: it is an old version, which is read as keyhold.placed: emit that") {
		t.Errorf("got %v", err)
	}
}
