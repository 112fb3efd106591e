package eventstoretest

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var unitsOfWork = []check{
	{"changes that change nothing commit", func(f *fixture) {
		f.same("committed", f.commit(eventstore.Changes{}), eventstore.Committed{})
	}},
	{"the fence holds although nothing is changed", func(f *fixture) {
		f.raise(shipping, 6)
		f.refused(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping, Generation: 5}}, eventstore.ErrStale)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping, Generation: 6}})
	}},
	{"everything of a unit of work is there at once", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		emitted, published := f.events("order", "a", 1), f.events("audit", "a", 1)
		dead := eventstore.Dead{Unit: shipping, Lane: orders, Sequence: 1, Time: base}
		c := eventstore.Changes{
			Fence:    eventstore.Fence{Unit: shipping},
			Append:   []eventstore.Append{{Stream: order7, Events: emitted}},
			Publish:  published,
			Advance:  []eventstore.Advance{{Lane: orders, To: 1, EventID: "e-1"}},
			Snapshot: &eventstore.Snapshot{Stream: order7, Version: 1, StateVersion: 1, Data: []byte("s"), Encoding: event.JSON},
			Reply:    &eventstore.Reply{Stream: order7, CommandID: "c-1", Data: []byte("r"), Time: base},
			Halt:     &eventstore.Halt{Unit: shipping, Lane: orders, Sequence: 2, Since: base},
			Dead:     []eventstore.Dead{dead},
		}
		f.same("committed", f.commit(c), eventstore.Committed{
			Versions: []uint64{1},
			Tails:    []event.Tail{{Lane: lane("audit", "a"), First: 1, Last: 1}, {Lane: orders, First: 2, Last: 2}},
		})
		f.same("stream", f.stream(order7), ofStream(order7, 1, f.placed(2, emitted...)))
		f.same("audit", f.lane(lane("audit", "a")), f.placed(1, published...))
		f.same("snapshot", f.snapshot(order7), c.Snapshot)
		f.same("reply", f.reply(order7, "c-1"), c.Reply)
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), c.Dead)
		f.same("unit", f.recover(shipping, orders), eventstore.Recovered{
			Unit: shipping, Halt: c.Halt, Checkpoints: []event.Position{{Lane: orders, Sequence: 1, EventID: "e-1"}},
		})
	}},
	{"a large unit of work is one commit", func(f *fixture) {
		const keys, each = 250, 4
		var events []event.Envelope
		for i := range keys {
			events = append(events, f.events("order", fmt.Sprintf("k-%03d", i), each)...)
		}
		done := f.publish(events...)
		f.same("tails", len(done.Tails), keys)
		if !slices.IsSortedFunc(done.Tails, func(a, b event.Tail) int { return a.Lane.Compare(b.Lane) }) {
			f.Fatal("tails are not in lane order")
		}
		f.same("events", ids(f.everything(eventstore.MaxLimit)), ids(events))
	}},
	{"a unit of work ends with its commit", func(f *fixture) {
		tx := f.store.Begin(f.Name())
		_, err := tx.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
		f.must(err)
		f.ended(tx)
		f.same("tail", f.tail(orders), event.Sequence(1))
	}},
	{"a unit of work ends with a commit that was refused", func(f *fixture) {
		f.emit(order7, 0, f.event("order", "a"))
		tx := f.store.Begin(f.Name())
		_, err := tx.Commit(f.ctx, eventstore.Changes{Append: []eventstore.Append{{Stream: order7, Events: f.events("order", "a", 1)}}})
		f.is(err, eventstore.ErrVersionConflict)
		f.ended(tx)
		f.same("tail", f.tail(orders), event.Sequence(1))
	}},
	{"a unit of work ends with a commit whose context is done", func(f *fixture) {
		done, cancel := context.WithCancel(f.ctx)
		cancel()
		tx := f.store.Begin(f.Name())
		_, err := tx.Commit(done, eventstore.Changes{Publish: f.events("order", "a", 1)})
		f.is(err, context.Canceled)
		f.ended(tx)
		f.same("tail", f.tail(orders), event.Sequence(0))
	}},
	{"a unit of work ends with its rollback", func(f *fixture) {
		tx := f.store.Begin(f.Name())
		f.must(tx.Rollback())
		f.ended(tx)
		f.same("tail", f.tail(orders), event.Sequence(0))
	}},
	{"rollback after stop is no error", func(f *fixture) {
		tx := f.store.Begin(f.Name())
		f.stop()
		f.must(tx.Rollback())
	}},
	{"changes that no store may commit are refused whole", func(f *fixture) {
		for _, c := range malformed(f) {
			if c.Validate() == nil {
				f.Fatalf("%+v is not malformed", c)
			}
			c.Publish = append(c.Publish, f.event("audit", "a"))
			if _, err := f.try(c); err == nil {
				f.Errorf("%+v was committed", c)
			}
		}
		f.same("events", f.everything(10), []event.Envelope{})
		f.nothingOf(shipping, order7)
	}},
	{"a limit that is not 1 to 10,000 is refused", func(f *fixture) {
		f.publish(f.event("order", "a"))
		f.register([]string{"shipping", "order"})
		f.same("job", f.startJob(eventstore.JobReplay, ofShipping).ID, int64(1))
		for _, limit := range []int{-1, 0, eventstore.MaxLimit + 1} {
			for name, call := range limited(f.store, f.ctx, limit) {
				if call() == nil {
					f.Errorf("%s took a limit of %d", name, limit)
				}
			}
			for name, read := range map[string]func() error{
				"ReadStream": func() error { _, err := f.store.ReadStream(f.ctx, order7, 0, limit); return err },
				"ReadAll":    func() error { _, _, err := f.store.ReadAll(f.ctx, "", nil, limit); return err },
				"ReadLane":   func() error { _, err := f.store.ReadLane(f.ctx, orders, 0, limit); return err },
				"Abandoned":  func() error { _, err := f.store.Abandoned(f.ctx, event.Position{}, limit); return err },
				"Unpassed": func() error {
					_, err := f.store.Unpassed(f.ctx, "shipping", "order", event.LaneRef{}, limit)
					return err
				},
				"Purge":     func() error { _, err := f.store.Purge(f.ctx, later, limit); return err },
				"ListHalts": func() error { _, err := f.store.ListHalts(f.ctx, "", event.Unit{}, limit); return err },
				"ListDead":  func() error { _, err := f.store.ListDead(f.ctx, "shipping", event.Position{}, limit); return err },
			} {
				if read() == nil {
					f.Errorf("%s took a limit of %d", name, limit)
				}
			}
		}
		f.same("lane", len(f.lane(orders)), 1)
	}},
}

// malformed gives one of each kind of changes that [eventstore.Changes.Validate] refuses.
func malformed(f *fixture) []eventstore.Changes {
	fence := eventstore.Fence{Unit: shipping}
	noID, unknownLane := f.event("order", "a"), f.event("order", "a")
	noID.ID, unknownLane.Lane = "", 7
	return []eventstore.Changes{
		{Fence: eventstore.Fence{Generation: 1}},
		{Append: []eventstore.Append{{Stream: order7}}},
		{Append: []eventstore.Append{{Stream: order7, Events: f.events("order", "a", 1)}, {Stream: order7, Expected: 1, Events: f.events("order", "a", 1)}}},
		{Publish: []event.Envelope{{}}},
		{Publish: []event.Envelope{noID}},
		{Publish: []event.Envelope{unknownLane}},
		{Advance: []eventstore.Advance{{Lane: orders, To: 1}}},
		{Fence: fence, Advance: []eventstore.Advance{{Lane: orders}}},
		{Fence: fence, Advance: []eventstore.Advance{{Lane: orders, To: 1}, {Lane: orders, To: 1}}},
		{Snapshot: &eventstore.Snapshot{Version: 1}},
		{Reply: &eventstore.Reply{Stream: order7}},
		{Halt: &eventstore.Halt{Unit: shipping, Lane: orders, Sequence: 1}},
		{Fence: eventstore.Fence{Unit: billing}, Halt: &eventstore.Halt{Unit: shipping, Lane: orders, Sequence: 1}},
		{Fence: eventstore.Fence{Unit: billing}, Dead: []eventstore.Dead{{Unit: shipping, Lane: orders, Sequence: 1}}},
		{Fence: eventstore.Fence{Unit: billing}, Park: []eventstore.Parked{parkedRow(shipping, orders, 1, "")}},
		{Fence: fence, Park: []eventstore.Parked{{Unit: shipping, Lane: orders}}},
		{Fence: fence, Park: []eventstore.Parked{{Unit: shipping, Sequence: 1}}},
		{Settle: &eventstore.Settle{AsideRef: parkedRef(orders, 1)}},
		{Fence: fence, Settle: &eventstore.Settle{AsideRef: eventstore.AsideRef{Lane: orders, Sequence: 1}}},
		{Fence: fence, Settle: &eventstore.Settle{AsideRef: parkedRef(orders, 0)}},
		{Fence: eventstore.Fence{Unit: billing}, Tried: triedAt(orders, 1)},
		{Fence: fence, Tried: triedAt(orders, 0)},
		{Fence: fence, Tried: triedAt(orders, 1), Untry: true},
		{Untry: true},
	}
}

// ended checks that a unit of work is over.
func (f *fixture) ended(tx eventstore.Tx) {
	f.Helper()
	f.same("begun", tx.Begun(), false)
	for range 2 {
		_, err := tx.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
		f.is(err, eventstore.ErrEnded)
		_, err = tx.SQL(f.ctx)
		f.is(err, eventstore.ErrEnded)
		f.must(tx.Rollback())
	}
}
