package eventstoretest

import (
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// allPartitions pages through the answer to a query, two at a time.
func (f *fixture) allPartitions(q eventstore.PartitionQuery) []eventstore.Partition {
	f.Helper()
	var all []eventstore.Partition
	for q.Limit = 2; ; {
		page, err := f.store.ListPartitions(f.ctx, q)
		f.must(err)
		if len(page) > q.Limit {
			f.Fatalf("%d partitions on a page of %d", len(page), q.Limit)
		}
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
		last := page[len(page)-1]
		q.After = eventstore.PartitionPlace{Name: last.Unit.Name, Lane: last.Lane}
	}
}

// inEachState has handlers audit, billing and shipping with units in each state, and gives all their partitions.
func inEachState(f *fixture) []eventstore.Partition {
	f.Helper()
	f.register([]string{"audit", "order"}, []string{"billing", "payment"}, []string{"shipping", "payment", "order"})
	unit := func(key string) event.Unit { return event.Unit{Name: "shipping", Key: key} }
	for _, key := range []string{"behind", "done", "halted", "parking", "paused", "tried"} {
		f.publish(f.events("order", key, 2)...)
	}
	f.publish(slices.Concat(f.events("payment", "halted", 1), backfill(f.events("order", "done", 1)...))...)
	f.commit(advance(unit("done"), lane("order", "done"), 0, 2))
	f.commit(advance(unit("done"), backfillLane("order", "done"), 0, 1))
	f.commit(advance(unit("halted"), lane("order", "halted"), 0, 1))
	f.halt(unit("halted"), lane("order", "halted"), 2)
	f.parkPublished(unit("parking"), lane("order", "parking"), 0, 2)
	f.pause(unit("paused"), base.Add(time.Hour))
	tried := triedAt(lane("order", "tried"), 1)
	tried.Unit = unit("tried")
	f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: tried.Unit}, Tried: tried})
	f.act(doing(eventstore.ActPause, unit("halted"))) // the gravest counts

	handlerPause := f.pause(event.Unit{Name: "audit"}, base)
	var all []eventstore.Partition
	for _, key := range []string{"behind", "done", "halted", "parking", "paused", "tried"} {
		p := eventstore.Partition{
			Unit: event.Unit{Name: "audit", Key: key}, Lane: lane("order", key), Tail: 2,
			Status: eventstore.StatusPaused, Since: handlerPause.Since, Summary: "handler paused by ann: carrier is back",
		}
		all = append(all, p)
		if key == "done" {
			p.Lane, p.Tail = backfillLane("order", key), 1
			all = append(all, p)
		}
	}
	of := func(name string, l event.LaneRef, tail, checkpoint event.Sequence, s eventstore.Status, since time.Time, summary string) {
		all = append(all, eventstore.Partition{
			Unit: event.Unit{Name: name, Key: l.Key}, Lane: l, Tail: tail, Checkpoint: checkpoint, Status: s, Since: since, Summary: summary,
		})
	}
	of("billing", lane("payment", "halted"), 1, 0, eventstore.StatusBehind, time.Time{}, "")
	of("shipping", lane("order", "behind"), 2, 0, eventstore.StatusBehind, time.Time{}, "")
	of("shipping", lane("order", "done"), 2, 2, eventstore.StatusDone, time.Time{}, "")
	of("shipping", backfillLane("order", "done"), 1, 1, eventstore.StatusDone, time.Time{}, "")
	of("shipping", lane("order", "halted"), 2, 1, eventstore.StatusHalted, base, "retries exhausted at #2: no carrier")
	of("shipping", lane("order", "parking"), 2, 2, eventstore.StatusParking, base, "2 parked from #1 on, retries exhausted: no carrier")
	of("shipping", lane("order", "paused"), 2, 0, eventstore.StatusPaused, base.Add(time.Hour), "paused by ann: carrier is back")
	of("shipping", lane("order", "tried"), 2, 0, eventstore.StatusTrying, base, "2 attempts failed at #1: no carrier")
	of("shipping", lane("payment", "halted"), 1, 0, eventstore.StatusHalted, base, "retries exhausted at order:halted #2: no carrier")
	return all
}

var partitions = []check{
	{"partitions come in order of handler, category, key and lane, with the gravest that is known of each, page by page", func(f *fixture) {
		want := inEachState(f)
		f.same("partitions", f.allPartitions(eventstore.PartitionQuery{}), want)
		whole, err := f.store.ListPartitions(f.ctx, eventstore.PartitionQuery{Limit: 100})
		f.must(err)
		f.same("on one page", whole, want)
	}},
	{"partitions are selected by handler, category and status", func(f *fixture) {
		all := inEachState(f)
		for _, name := range []string{"", "audit", "billing", "shipping", "ship"} {
			for _, category := range []string{"", "order", "payment", "other"} {
				for _, status := range []eventstore.Status{
					"", eventstore.StatusDone, eventstore.StatusBehind, eventstore.StatusTrying, eventstore.StatusHalted, eventstore.StatusParking, eventstore.StatusPaused,
				} {
					var want []eventstore.Partition
					for _, p := range all {
						if (name == "" || p.Unit.Name == name) && (category == "" || p.Lane.Category == category) && (status == "" || p.Status == status) {
							want = append(want, p)
						}
					}
					got := f.allPartitions(eventstore.PartitionQuery{Name: name, Category: category, Status: status})
					f.same("partitions of "+name+" in "+category+" that are "+string(status), got, want)
				}
			}
		}
	}},
	{"a status that is none, and a bad limit, are refused", func(f *fixture) {
		for _, q := range []eventstore.PartitionQuery{{Status: "nonsense", Limit: 1}, {}, {Limit: eventstore.MaxLimit + 1}} {
			if _, err := f.store.ListPartitions(f.ctx, q); err == nil {
				f.Errorf("%+v was answered", q)
			}
		}
	}},
	{"without a registered handler there are no partitions", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		f.commit(advance(shipping, orders, 0, 1))
		f.same("partitions", f.allPartitions(eventstore.PartitionQuery{}), []eventstore.Partition{})
	}},
}

var unitStates = []check{
	{"a unit that nobody knows has no state", func(f *fixture) {
		got := f.state(shipping)
		f.same("generation", got.Generation, f.id.StartGeneration)
		got.Generation = 0
		f.same("state", got, eventstore.UnitState{Unit: shipping})
		f.same("known", got.Known(), false)
	}},
	{"the state of a unit is all that is known of it", func(f *fixture) {
		f.register([]string{"shipping", "payment", "order", "refund"})
		f.publish(slices.Concat(f.events("order", "a", 3), backfill(f.events("order", "a", 1)...), f.events("other", "a", 2), f.events("order", "b", 2))...)
		f.commit(advance(shipping, orders, 0, 1))
		f.commit(advance(shipping, backfillLane("order", "a"), 0, 1))
		parked := f.park(shipping, payments, 2)
		h := f.halt(shipping, orders, 2)
		tried := triedAt(orders, 2)
		c := eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Tried: tried}
		c.Dead = []eventstore.Dead{deadRow(shipping, payments, 1), deadRow(shipping, orders, 1)}
		f.commit(c)
		own, all := f.pause(shipping, base), f.pause(event.Unit{Name: "shipping"}, base)
		f.raise(shipping, 7)
		got := f.state(shipping)
		got.Parking.First.Ordinal = 0
		next := f.lane(orders)[1]
		next.Data = nil
		f.same("state", got, eventstore.UnitState{
			Unit: shipping, Kind: eventstore.EventHandler, Generation: 7, Halt: &h, Pause: &own, HandlerPause: &all,
			Parking: &eventstore.Parking{Unit: shipping, First: parked[0], Count: 2}, Tried: tried, Dead: 2,
			Lanes: []eventstore.LaneState{
				{Lane: orders, Tail: 3, Checkpoint: position(orders, 1, "at-1"), Next: &next},
				{Lane: backfillLane("order", "a"), Tail: 1, Checkpoint: position(backfillLane("order", "a"), 1, "at-1")},
				{Lane: payments, Tail: 2, Checkpoint: position(payments, 2, "at-2")},
			},
		})
		f.same("lag", got.Lanes[0].Lag(), uint64(2))
		f.same("known", got.Known(), true)
	}},
	{"what comes next may be a void, or lie above what was purged", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.purgeAll(later)
		f.publish(f.events("order", "a", 1)...)
		f.must(f.store.Abandon(f.ctx, orders, 4, "erased"))
		f.register([]string{"shipping", "order"})
		next := f.lane(orders)[0]
		f.same("lanes", f.state(shipping).Lanes, []eventstore.LaneState{{Lane: orders, Tail: 4, Checkpoint: event.Position{Lane: orders}, Next: &next}})
	}},
	{"the state of a whole handler is its kind and its pause", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 1)...)
		f.halt(shipping, orders, 1)
		want := f.pause(event.Unit{Name: "shipping"}, base)
		f.same("state", f.state(event.Unit{Name: "shipping"}), eventstore.UnitState{
			Unit: event.Unit{Name: "shipping"}, Kind: eventstore.EventHandler, Generation: f.id.StartGeneration, HandlerPause: &want,
		})
	}},
}
