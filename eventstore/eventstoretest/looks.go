package eventstoretest

import (
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// dueLooks gives the looks of all parts that are due then.
func (f *fixture) dueLooks(now time.Time) []eventstore.Look {
	f.Helper()
	got, err := f.store.DueLooks(f.ctx, allParts(), now, eventstore.MaxLimit)
	f.must(err)
	return got
}

// dueLanes gives the lanes that are to be looked at now, in lane order.
func (f *fixture) dueLanes() []event.LaneRef {
	f.Helper()
	var lanes []event.LaneRef
	for _, l := range f.dueLooks(time.Now().Add(time.Minute)) {
		lanes = append(lanes, l.Lane)
	}
	slices.SortFunc(lanes, event.LaneRef.Compare)
	return lanes
}

// setLook sets a look that must be found as it was given.
func (f *fixture) setLook(held []eventstore.PartFence, look eventstore.Look) {
	f.Helper()
	f.must(f.store.SetLooks(f.ctx, held, []eventstore.Look{look}))
}

var looks = whenRelayed([]check{
	{"a note sets a look, which is due from its time on", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.note(f.own(orders), orders, 2, base)
		f.same("before", f.dueLooks(base.Add(-time.Millisecond)), []eventstore.Look{})
		want := []eventstore.Look{{Lane: orders, Published: 2, Due: base}}
		f.same("then", f.dueLooks(base), want)
		f.same("again", f.dueLooks(later), want)
	}},
	{"an earlier look stays, with its gap; a later one is brought forward, without", func(f *fixture) {
		held := f.hold(1, orders)
		f.publish(f.events("order", "a", 4)...)
		f.note(held, orders, 1, base)
		f.setLook(held, eventstore.Look{Lane: orders, Published: 1, Due: base, Gap: 4 * time.Second})
		f.note(held, orders, 2, base.Add(time.Second))
		f.same("the earlier", f.dueLooks(later), []eventstore.Look{{Lane: orders, Published: 2, Due: base, Gap: 4 * time.Second}})
		f.note(held, orders, 3, base.Add(-time.Second))
		f.same("the later", f.dueLooks(later), []eventstore.Look{{Lane: orders, Published: 3, Due: base.Add(-time.Second)}})
	}},
	{"a note without a look sets none, and leaves one that is set", func(f *fixture) {
		held := f.hold(1, orders)
		f.publish(f.events("order", "a", 3)...)
		f.note(held, orders, 1, time.Time{})
		f.same("none", f.dueLooks(later), []eventstore.Look{})
		f.note(held, orders, 2, base)
		f.note(held, orders, 3, time.Time{})
		f.same("the one that was set", f.dueLooks(later), []eventstore.Look{{Lane: orders, Published: 3, Due: base}})
	}},
	{"a note of nothing new sets its look all the same", func(f *fixture) {
		held := f.hold(1, orders)
		f.publish(f.events("order", "a", 3)...)
		f.note(held, orders, 3, time.Time{})
		f.note(held, orders, 3, base.Add(time.Minute))
		f.note(held, orders, 1, base)
		f.same("looks", f.dueLooks(later), []eventstore.Look{{Lane: orders, Published: 3, Due: base}})
	}},
	{"a note replaces a look that was to retire the lane, also an earlier one", func(f *fixture) {
		held := f.hold(1, orders)
		f.publish(f.events("order", "a", 2)...)
		for i, due := range []time.Time{base.Add(-time.Hour), base.Add(time.Hour)} {
			f.note(held, orders, event.Sequence(i), time.Time{})
			f.setLook(held, eventstore.Look{Lane: orders, Published: event.Sequence(i), Due: due, Gap: time.Hour, Retire: true})
			f.note(held, orders, event.Sequence(i+1), base)
			f.same("looks", f.dueLooks(later), []eventstore.Look{{Lane: orders, Published: event.Sequence(i + 1), Due: base}})
		}
	}},
	{"looks come the earliest first, up to the limit, of the parts asked", func(f *fixture) {
		var want []eventstore.Look
		for i, key := range []string{"c", "a", "e", "b", "d"} {
			l := lane("order", key)
			f.publish(f.events("order", key, 1)...)
			want = append(want, eventstore.Look{Lane: l, Published: 1, Due: base.Add(time.Duration(i) * time.Second)})
		}
		for _, i := range []int{3, 0, 4, 1, 2} {
			f.note(f.own(want[i].Lane), want[i].Lane, 1, want[i].Due)
		}
		f.same("looks", f.dueLooks(later), want)
		f.same("those that are due", f.dueLooks(want[2].Due), want[:3])
		got, err := f.store.DueLooks(f.ctx, allParts(), later, 2)
		f.must(err)
		f.same("up to the limit", got, want[:2])
		for _, part := range allParts() {
			got, err := f.store.DueLooks(f.ctx, []event.Part{part}, later, 10)
			f.must(err)
			f.same("of part "+part.String(), got, slices.DeleteFunc(slices.Clone(want), func(l eventstore.Look) bool { return l.Lane.Part() != part }))
		}
	}},
	{"a look is replaced, and deleted when it has no time", func(f *fixture) {
		held := f.hold(1, orders)
		f.publish(f.events("order", "a", 1)...)
		f.note(held, orders, 1, base)
		for _, look := range []eventstore.Look{
			{Lane: orders, Published: 1, Due: base.Add(time.Hour), Gap: 2 * time.Second},
			{Lane: orders, Published: 1, Due: base, Gap: time.Second, Retire: true},
			{Lane: orders, Published: 1, Due: base.Add(time.Minute)},
		} {
			f.setLook(held, look)
			f.same("looks", f.dueLooks(later), []eventstore.Look{look})
		}
		f.setLook(held, eventstore.Look{Lane: orders, Published: 1})
		f.same("deleted", f.dueLooks(later), []eventstore.Look{})
		f.setLook(held, eventstore.Look{Lane: orders, Published: 1}) // there is none
		f.setLook(held, eventstore.Look{Lane: orders, Published: 1, Due: base})
		f.same("set anew", f.dueLooks(later), []eventstore.Look{{Lane: orders, Published: 1, Due: base}})
	}},
	{"a look stays of which more was published since, and others of the call are set", func(f *fixture) {
		other := lane("order", "b")
		held := f.hold(1, orders, other)
		f.publish(slices.Concat(f.events("order", "a", 2), f.events("order", "b", 2))...)
		f.note(held, orders, 1, base)
		f.note(held, other, 2, base)
		f.note(held, orders, 2, base.Add(time.Second)) // while somebody looks at what was noted before
		f.must(f.store.SetLooks(f.ctx, held, []eventstore.Look{{Lane: orders, Published: 1}, {Lane: other, Published: 2}}))
		f.same("deleted", f.dueLooks(later), []eventstore.Look{{Lane: orders, Published: 2, Due: base}})
		f.setLook(held, eventstore.Look{Lane: orders, Published: 1, Due: base.Add(time.Hour), Retire: true})
		f.same("replaced", f.dueLooks(later), []eventstore.Look{{Lane: orders, Published: 2, Due: base}})
	}},
	{"all looks of parts become due, and of no other part", func(f *fixture) {
		mine, other, retiring := orders, lane("order", "b"), backfillLane("order", "a")
		f.publish(slices.Concat(f.events("order", "a", 1), backfill(f.events("order", "a", 1)...), f.events("order", "b", 1))...)
		if other.Part() == mine.Part() {
			f.Fatal("the keys a and b are in one part")
		}
		held := f.hold(1, mine, other)
		far := base.Add(time.Hour)
		for _, l := range []event.LaneRef{mine, other} {
			f.note(held, l, 1, far)
		}
		f.note(held, retiring, 1, time.Time{})
		f.setLook(held, eventstore.Look{Lane: retiring, Published: 1, Due: far, Gap: time.Hour, Retire: true})
		f.must(f.store.AllLooksDue(f.ctx, held[:1], base))
		f.same("lanes", lanesOf(f.dueLooks(base)), []event.LaneRef{mine, retiring})
		f.same("all", lanesOf(f.dueLooks(far)), []event.LaneRef{mine, retiring, other})
		f.must(f.store.AllLooksDue(f.ctx, nil, base))
	}},
	{"looks are kept over a restart", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		look := eventstore.Look{Lane: orders, Published: 1, Due: base, Gap: 90 * time.Second, Retire: true}
		held := f.hold(1, orders)
		f.note(held, orders, 1, time.Time{})
		f.setLook(held, look)
		f.restartRelayed(f.crash)
		f.same("looks", f.dueLooks(later), []eventstore.Look{look})
	}},
	{"a category that is new to a handler has its lanes looked at, but those that it starts at the end of", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 2), backfill(f.events("order", "a", 1)...), f.events("order", "b", 1), f.events("payment", "a", 1))...)
		f.commit(advance(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"), 0, 1)) // it was here before
		f.register([]string{"shipping", "order"})
		f.same("of order", f.dueLanes(), []event.LaneRef{orders, backfillLane("order", "a")})
		f.register([]string{"shipping", "order"})
		f.register([]string{"shipping", "order", "payment"})
		f.same("and of payment", f.dueLanes(), []event.LaneRef{orders, backfillLane("order", "a"), payments})
		f.same("published", f.dueLooks(time.Now().Add(time.Minute))[0].Published, event.Sequence(0))
	}},
	{"a category that a handler had is not looked at again; one that is new to a handler of another store is, whole", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(slices.Concat(f.events("order", "a", 2), f.events("payment", "a", 1))...)
		f.register([]string{"shipping", "order"})
		f.same("looks", f.dueLanes(), []event.LaneRef{})
		f.foreign([]string{"billing", "order", "payment"})
		f.same("of another store", f.dueLanes(), []event.LaneRef{orders, payments})
		held := f.hold(1, orders, payments)
		for _, l := range []event.LaneRef{orders, payments} {
			f.setLook(held, eventstore.Look{Lane: l, Due: time.Now().Add(time.Hour)})
		}
		f.foreign([]string{"billing", "order", "payment"})
		f.same("again", f.dueLanes(), []event.LaneRef{})
		f.register([]string{"billing", "order"}) // it is this store's now
		f.same("of this store", f.dueLanes(), []event.LaneRef{orders})
	}},
	{"a handler that starts at the end of its lanes has none looked at", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 2), f.events("order", "b", 2))...)
		second := f.lane(orders)[1].Time
		r := eventstore.Registered{Handlers: []eventstore.Handler{{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}}}}
		f.must(f.store.SaveRegistry(f.ctx, r, []eventstore.Start{{Handler: "shipping", Category: "order", Now: true}}))
		f.same("looks", f.dueLanes(), []event.LaneRef{})
		r.Handlers[0].Name, r.Revision = "billing", f.loadRegistry().Revision
		f.must(f.store.SaveRegistry(f.ctx, r, []eventstore.Start{{Handler: "billing", Category: "order", From: second.Add(time.Millisecond)}}))
		f.same("looks", f.dueLanes(), []event.LaneRef{lane("order", "b")})
	}},
	{"a look that a new handler brings takes the place of one that is to retire the lane", func(f *fixture) {
		held := f.hold(1, orders)
		f.publish(f.events("order", "a", 2)...)
		f.note(held, orders, 2, time.Time{})
		f.setLook(held, eventstore.Look{Lane: orders, Published: 2, Due: time.Now().Add(time.Hour), Gap: time.Hour, Retire: true})
		f.register([]string{"shipping", "order"})
		got := f.dueLooks(time.Now().Add(time.Minute))
		f.same("looks", len(got), 1)
		f.same("look", []any{got[0].Lane, got[0].Published, got[0].Retire, got[0].Gap}, []any{orders, event.Sequence(2), false, time.Duration(0)})
	}},
	{"a handler that was reset has its lanes looked at", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(slices.Concat(f.events("order", "a", 2), f.events("payment", "a", 1))...)
		f.commit(advance(shipping, orders, 0, 2))
		f.restartRelayed(f.stop) // or it would be in use
		f.same("before", f.dueLanes(), []event.LaneRef{})
		f.act(resetting("shipping", eventstore.Start{Now: true}))
		f.same("to the end", f.dueLanes(), []event.LaneRef{})
		f.act(resetting("shipping", eventstore.Start{}))
		f.same("to the beginning", f.dueLanes(), []event.LaneRef{orders})
	}},
})

// lanesOf gives the lanes of looks in lane order.
func lanesOf(looks []eventstore.Look) []event.LaneRef {
	lanes := make([]event.LaneRef, len(looks))
	for i := range looks {
		lanes[i] = looks[i].Lane
	}
	slices.SortFunc(lanes, event.LaneRef.Compare)
	return lanes
}
