package eventstoretest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func (f *fixture) loadRegistry() eventstore.Registered {
	f.Helper()
	got, err := f.store.LoadRegistry(f.ctx)
	f.must(err)
	revision, err := f.store.Revision(f.ctx)
	f.must(err)
	f.same("revision", revision, got.Revision)
	return got
}

// start saves nothing but starts.
func (f *fixture) start(starts ...eventstore.Start) {
	f.Helper()
	f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{Revision: f.loadRegistry().Revision}, starts))
}

var declared = eventstore.Registered{
	Categories: []eventstore.Category{
		{Name: "order", KeyField: "client_id", StoreID: "store"},
		{Name: "order.commands", KeyField: "id", Commands: true, StoreID: "store"},
		{Name: "payment", Buckets: 64, StoreID: "store"},
	},
	Handlers: []eventstore.Handler{
		{Name: "order", Kind: eventstore.EntityKind, Categories: []string{"order.commands"}, Since: base},
		{
			Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"payment", "order"},
			Types: []string{"order.placed", "order.cancelled"}, Sequential: true, Since: base,
		},
	},
	Types: []eventstore.Type{
		{
			Name: "order.placed", Version: 1, Encoding: event.JSON, Category: "order",
			Fields: []eventstore.Field{{Name: "order_id", Kind: "string"}, {Name: "client_id", Kind: "string"}},
		},
		{Name: "order.placed", Version: 2, Encoding: event.Proto, Category: "order", Descriptor: []byte{0, 1, 0xff}},
		{Name: "order.placed_reply", Version: 1, Encoding: event.JSON},
	},
}

// seen is r as this start saved it.
func (f *fixture) seen(r eventstore.Registered) eventstore.Registered {
	r.Handlers = slices.Clone(r.Handlers)
	for i := range r.Handlers {
		r.Handlers[i].Seen = f.id.StartGeneration
	}
	return r
}

func withSeen(h eventstore.Handler, g event.Generation) eventstore.Handler {
	h.Seen = g
	return h
}

var registry = []check{
	{"an empty registry is at revision 0", func(f *fixture) {
		f.same("registry", f.loadRegistry(), eventstore.Registered{})
	}},
	{"the memory of the first broker stays, over starts", func(f *fixture) {
		for _, memory := range []string{"first", "second", "first"} {
			first, err := f.store.FirstBroker(f.ctx, memory)
			f.must(err)
			f.same("first broker", first, "first")
		}
		f.restart(f.stop)
		first, err := f.store.FirstBroker(f.ctx, "third")
		f.must(err)
		f.same("first broker after another start", first, "first")
	}},
	{"what was declared comes back in order of name", func(f *fixture) {
		given := eventstore.Registered{
			Categories: slices.Clone(declared.Categories), Handlers: slices.Clone(declared.Handlers), Types: slices.Clone(declared.Types),
		}
		slices.Reverse(given.Categories)
		slices.Reverse(given.Handlers)
		slices.Reverse(given.Types)
		f.must(f.store.SaveRegistry(f.ctx, given, nil))
		got := f.loadRegistry()
		if got.Revision == 0 {
			f.Fatal("the revision did not grow")
		}
		got.Revision = 0
		f.same("registry", got, f.seen(declared))
	}},
	{"a handler is seen in the start that saved it last, whatever is given", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, f.seen(declared), nil))
		first := f.id.StartGeneration
		f.restart(f.stop)
		saved := f.loadRegistry()
		f.same("before a save", saved.Handlers, []eventstore.Handler{withSeen(declared.Handlers[0], first), withSeen(declared.Handlers[1], first)})
		f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{Revision: saved.Revision, Handlers: saved.Handlers[1:]}, nil))
		f.same("after it", f.loadRegistry().Handlers, []eventstore.Handler{
			withSeen(declared.Handlers[0], first), withSeen(declared.Handlers[1], f.id.StartGeneration),
		})
	}},
	{"a save replaces what it names and leaves the rest", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, declared, nil))
		want := f.loadRegistry()
		revision := want.Revision
		want.Categories[0].KeyField = "customer_id"
		want.Handlers[1].Types = []string{"order.placed"}
		want.Handlers[1].Categories = []string{"order"}
		want.Types[1].Descriptor = []byte{2}
		f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{
			Revision: revision, Categories: want.Categories[:1], Handlers: want.Handlers[1:], Types: want.Types[1:2],
		}, nil))
		got := f.loadRegistry()
		if got.Revision <= revision {
			f.Fatalf("revision went from %d to %d", revision, got.Revision)
		}
		want.Revision = got.Revision
		f.same("registry", got, want)
	}},
	{"what a load returned may be changed", func(f *fixture) {
		given := declared
		given.Handlers = slices.Clone(given.Handlers)
		given.Handlers[1].Types, given.Handlers[1].Categories = []string{"order.placed"}, []string{"order"}
		given.Types = slices.Clone(given.Types)
		given.Types[0].Fields, given.Types[1].Descriptor = []eventstore.Field{{Name: "order_id"}}, []byte{1}
		f.must(f.store.SaveRegistry(f.ctx, given, nil))
		want := fmt.Sprint(f.loadRegistry())
		got := f.loadRegistry()
		got.Handlers[1].Types[0], got.Handlers[1].Categories[0] = "changed", "changed"
		got.Types[0].Fields[0].Name, got.Types[1].Descriptor[0] = "changed", 'X'
		f.same("registry", fmt.Sprint(f.loadRegistry()), want)
	}},
	{"a save at another revision is refused and changes nothing", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		f.must(f.store.SaveRegistry(f.ctx, declared, nil))
		want := f.loadRegistry()
		for _, revision := range []uint64{0, want.Revision + 1} {
			err := f.store.SaveRegistry(f.ctx, eventstore.Registered{
				Revision: revision, Categories: []eventstore.Category{{Name: "other"}},
			}, []eventstore.Start{{Handler: "shipping", Category: "order", Now: true}})
			var moved *eventstore.RegistryError
			if !errors.As(err, &moved) {
				f.Fatalf("save gave %v, want a *RegistryError", err)
			}
			f.same("error", *moved, eventstore.RegistryError{Expected: revision, Actual: want.Revision})
		}
		f.same("registry", f.loadRegistry(), want)
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(0))
	}},
	{"of two that save at one revision one wins", func(f *fixture) {
		var (
			group sync.WaitGroup
			won   atomic.Int32
		)
		for i := range 4 {
			group.Go(func() {
				var moved *eventstore.RegistryError
				switch err := f.store.SaveRegistry(f.ctx, eventstore.Registered{
					Categories: []eventstore.Category{{Name: fmt.Sprintf("c-%d", i)}},
				}, nil); {
				case err == nil:
					won.Add(1)
				case !errors.As(err, &moved):
					f.Errorf("save: %v", err)
				}
			})
		}
		group.Wait()
		f.same("winners", won.Load(), int32(1))
		f.same("categories", len(f.loadRegistry().Categories), 1)
	}},
	{"the registry is kept over a restart", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, declared, nil))
		want := f.loadRegistry()
		f.restart(f.crash)
		f.same("registry", f.loadRegistry(), want)
	}},
	{"a category has events from the first on", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, declared, nil))
		f.commit(advance(shipping, orders, 0, 5)) // a checkpoint is no event
		has := func() bool {
			got, err := f.store.CategoryHasEvents(f.ctx, "order")
			f.must(err)
			return got
		}
		f.publish(f.event("order.commands", "a"))
		f.same("before", has(), false)
		f.publish(backfill(f.events("order", "a", 1)...)...)
		f.same("after", has(), true)
	}},
	{"Now starts at the end of every lane that there is", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 2), backfill(f.events("order", "a", 3)...), f.events("order", "b", 1), f.events("payment", "a", 1))...)
		f.start(eventstore.Start{Handler: "shipping", Category: "order", Now: true})
		f.same("primary", f.checkpoint(shipping, orders), event.Sequence(2))
		f.same("backfill", f.checkpoint(shipping, backfillLane("order", "a")), event.Sequence(3))
		f.same("other key", f.checkpoint(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b")), event.Sequence(1))
		f.same("other category", f.checkpoint(shipping, lane("payment", "a")), event.Sequence(0))
		f.same("other handler", f.checkpoint(billing, orders), event.Sequence(0))
		f.publish(slices.Concat(f.events("order", "a", 1), f.events("order", "c", 1))...)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders, lane("order", "c")})
		f.commit(advance(shipping, orders, 2, 3))
	}},
	{"Now starts at the end of a lane that was purged", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		f.purgeAll(later)
		f.start(eventstore.Start{Handler: "shipping", Category: "order", Now: true})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(2))
	}},
	{"a start from the beginning is at the first record kept of each lane", func(f *fixture) {
		// What is purged is the first of three, and all, and what lies below a stream, and nothing.
		part, all, mixed, whole := orders, lane("order", "all"), lane("order", "mixed"), backfillLane("order", "a")
		f.publish(slices.Concat(f.events("order", part.Key, 1), f.events("order", all.Key, 2), f.events("order", mixed.Key, 1))...)
		f.emit(order7, 0, f.event("order", mixed.Key))
		f.publish(f.events("order", mixed.Key, 2)...)
		f.same("purged", f.purgeAll(later), 6)
		f.publish(slices.Concat(f.events("order", part.Key, 2), backfill(f.events("order", whole.Key, 1)...))...)
		f.start(eventstore.Start{Handler: "shipping", Category: "order"})
		for l, want := range map[event.LaneRef]event.Sequence{part: 1, all: 2, mixed: 1, whole: 0} {
			at := f.checkpoint(event.Unit{Name: "shipping", Key: l.Key}, l)
			f.same("checkpoint on "+l.String(), at, want)
			for i, e := range f.laneAfter(l, at) {
				f.same("next on "+l.String(), e.Sequence, at+1+event.Sequence(i))
			}
		}
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{part, whole, mixed})
	}},
	{"a time starts just before the first record at or after it", func(f *fixture) {
		events := f.events("order", "a", 4)
		f.publish(events...)
		f.publish(backfill(f.events("order", "a", 1)...)...)
		for i, c := range []struct {
			from time.Time
			want event.Sequence
		}{
			{base, 0}, {events[0].Time, 0}, {events[1].Time, 1}, {events[1].Time.Add(time.Millisecond), 2},
			{events[3].Time, 3}, {events[3].Time.Add(time.Millisecond), 4},
		} {
			name := fmt.Sprintf("h-%d", i)
			f.start(eventstore.Start{Handler: name, Category: "order", From: c.from})
			u := event.Unit{Name: name, Key: "a"}
			f.same("checkpoint of "+name, f.checkpoint(u, orders), c.want)
			f.same("backfill of "+name, f.checkpoint(u, backfillLane("order", "a")), event.Sequence(0))
		}
	}},
	{"a time finds the first record in the lane although a later one is older", func(f *fixture) {
		events := f.events("order", "a", 3)
		events[1].Time, events[2].Time = base.Add(time.Hour), base
		f.publish(events...)
		f.start(eventstore.Start{Handler: "shipping", Category: "order", From: base.Add(time.Hour)})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(1))
	}},
	{"in a category of another application a start is at the places named, and no other", func(f *fixture) {
		f.commit(advance(shipping, orders, 0, 1))
		b, c := event.Unit{Name: "shipping", Key: "b"}, event.Unit{Name: "shipping", Key: "c"}
		f.start(eventstore.Start{Handler: "shipping", Category: "order", Foreign: true, Now: true, Places: []event.Position{
			{Lane: orders, Sequence: 9, EventID: "e-9"}, {Lane: lane("order", "b"), Sequence: 7, EventID: "e-7"}, {Lane: lane("order", "c")},
		}})
		f.same("one that is there", f.checkpoint(shipping, orders), event.Sequence(1))
		f.same("a place", f.checkpoint(b, lane("order", "b")), event.Sequence(7))
		f.same("no place", f.checkpoint(c, lane("order", "c")), event.Sequence(0))
		f.commit(advance(b, lane("order", "b"), 7, 8))
		f.commit(advance(c, lane("order", "c"), 0, 1))
	}},
	{"from when on a handler begins with another application's events goes with its name, and is what a reset sets", func(f *fixture) {
		abroad := declared
		abroad.Handlers = slices.Clone(declared.Handlers)
		abroad.Handlers[1].Begins = map[string]time.Time{"payment": base.Add(time.Millisecond)}
		f.must(f.store.SaveRegistry(f.ctx, abroad, nil))
		f.restart(f.crash)
		f.same("handlers", f.loadRegistry().Handlers[1].Begins, abroad.Handlers[1].Begins)
		f.restart(f.stop) // what runs cannot be acted on
		again := doing(eventstore.ActReset, event.Unit{Name: "shipping"})
		again.Start = &eventstore.Start{Now: true}
		if _, err := f.store.Act(f.ctx, again); err == nil {
			f.Error("reset to now, which nobody here knows where it is")
		}
		f.same("after a reset that was refused", f.loadRegistry().Handlers[1].Begins, abroad.Handlers[1].Begins)
		again.Start = &eventstore.Start{}
		f.act(again)
		f.same("after a reset", f.loadRegistry().Handlers[1].Begins, map[string]time.Time{"payment": {}})
	}},
	{"a start leaves a checkpoint that is there", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.commit(advance(shipping, orders, 0, 1))
		f.start(eventstore.Start{Handler: "shipping", Category: "order", Now: true})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(1))
	}},
	{"several starts in one save", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 1), f.events("payment", "a", 2))...)
		f.start(
			eventstore.Start{Handler: "shipping", Category: "order", Now: true},
			eventstore.Start{Handler: "shipping", Category: "payment", Now: true},
			eventstore.Start{Handler: "billing", Category: "payment", From: base},
		)
		f.same("orders", f.checkpoint(shipping, orders), event.Sequence(1))
		f.same("payments", f.checkpoint(shipping, lane("payment", "a")), event.Sequence(2))
		f.same("billing", f.checkpoint(billing, lane("payment", "a")), event.Sequence(0))
	}},
	{"Now is one moment for all lanes, with commits racing", func(f *fixture) {
		const writers, each = 4, 25
		var group sync.WaitGroup
		committed := make(chan struct{}, writers*each)
		for range writers {
			group.Go(func() {
				for range each {
					if _, err := f.try(eventstore.Changes{Publish: []event.Envelope{f.event("order", "a"), f.event("order", "b")}}); err != nil {
						f.Errorf("commit: %v", err)
					}
					committed <- struct{}{}
				}
			})
		}
		for range writers * each / 2 {
			<-committed
		}
		before := f.tail(orders)
		f.start(eventstore.Start{Handler: "shipping", Category: "order", Now: true})
		after := f.tail(orders)
		a, b := f.checkpoint(shipping, orders), f.checkpoint(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"))
		group.Wait()
		if a != b || a < before || a > after {
			f.Fatalf("checkpoints are %d and %d, the lanes were between %d and %d", a, b, before, after)
		}
	}},
}
