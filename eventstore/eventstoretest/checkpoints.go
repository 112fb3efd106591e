package eventstoretest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var (
	shipping = event.Unit{Name: "shipping", Key: "a"}
	billing  = event.Unit{Name: "billing", Key: "a"}
	orders   = lane("order", "a")
)

// The rule "above the stored one" loses events in several ways; these are the interleavings that showed it.
var checkpoints = []check{
	{"a checkpoint moves from exactly where it is", func(f *fixture) {
		f.same("checkpoint", f.recover(shipping, orders).Checkpoints, []event.Position{{Lane: orders}})
		f.commit(advance(shipping, orders, 0, 3))
		f.commit(advance(shipping, orders, 3, 4))
		f.same("checkpoint", f.recover(shipping, orders).Checkpoints, []event.Position{{Lane: orders, Sequence: 4, EventID: "at-4"}})
	}},
	{"a checkpoint that moved says where it is", func(f *fixture) {
		f.commit(advance(shipping, orders, 0, 8))
		for _, from := range []event.Sequence{0, 7, 9} {
			err := f.refused(advance(shipping, orders, from, 12), eventstore.ErrCheckpointMoved)
			var moved *eventstore.CheckpointError
			if !errors.As(err, &moved) {
				f.Fatalf("%v is no *CheckpointError", err)
			}
			f.same("error", *moved, eventstore.CheckpointError{Name: "shipping", Lane: orders, From: from, Actual: 8})
		}
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(8))
	}},
	{"gap: 11 cannot be applied over 8, and 9, 10, 11 then can", func(f *fixture) {
		f.commit(advance(shipping, orders, 0, 8))
		f.refused(advance(shipping, orders, 10, 11), eventstore.ErrCheckpointMoved)
		for n := event.Sequence(8); n < 11; n++ {
			f.commit(advance(shipping, orders, n, n+1))
		}
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(11))
	}},
	{"several categories: one checkpoint each, none hides events of another", func(f *fixture) {
		payments := lane("payment", "a")
		f.commit(advance(shipping, orders, 0, 1))
		f.commit(advance(shipping, orders, 1, 2))
		f.commit(advance(shipping, payments, 0, 1))
		f.commit(advance(shipping, payments, 1, 2))
		f.same("checkpoints", f.recover(shipping, payments, orders).Checkpoints, []event.Position{
			{Lane: payments, Sequence: 2, EventID: "at-2"}, {Lane: orders, Sequence: 2, EventID: "at-2"},
		})
	}},
	{"backfill: 5 of the backfill lane can be applied after 6 of the primary", func(f *fixture) {
		back := backfillLane("order", "a")
		f.commit(advance(shipping, orders, 0, 6))
		f.commit(advance(shipping, back, 0, 5))
		f.same("primary", f.checkpoint(shipping, orders), event.Sequence(6))
		f.same("backfill", f.checkpoint(shipping, back), event.Sequence(5))
		f.refused(advance(shipping, back, 6, 7), eventstore.ErrCheckpointMoved)
	}},
	{"passed over: events that nothing handles are stepped over in one move", func(f *fixture) {
		f.publish(f.events("order", "a", 7)...)
		f.must(f.store.Abandon(f.ctx, orders, 5, "bad"))
		f.commit(advance(shipping, orders, 0, 3))
		f.commit(advance(shipping, orders, 3, 6)) // 4 is not handled, 5 is a void
		f.commit(advance(shipping, orders, 6, 7))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
	}},
	{"an event applied once is not applied again", func(f *fixture) {
		f.commit(advance(shipping, orders, 0, 9))
		again := advance(shipping, orders, 8, 9)
		again.Publish = f.events("shipment", "a", 1)
		f.refused(again, eventstore.ErrCheckpointMoved)
		f.same("effects", f.tail(lane("shipment", "a")), event.Sequence(0))
	}},
	{"a refused checkpoint leaves nothing of the effects", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		c := advance(billing, orders, 1, 2)
		c.Append = []eventstore.Append{{Stream: order7, Events: f.events("order", "a", 1)}}
		c.Publish = f.events("shipment", "a", 1)
		c.Snapshot = &eventstore.Snapshot{Stream: order7, Version: 1}
		c.Reply = &eventstore.Reply{Stream: order7, CommandID: "c-1", Time: base}
		c.Halt = &eventstore.Halt{Unit: billing, Lane: orders, Sequence: 3, Since: base}
		c.Dead = []eventstore.Dead{{Unit: billing, Lane: orders, Sequence: 2, Time: base}}
		f.refused(c, eventstore.ErrCheckpointMoved)
		f.nothingOf(billing, order7)
		f.same("lane", sequences(f.lane(orders)), upTo(2))
		f.same("tail", f.tail(lane("shipment", "a")), event.Sequence(0))
	}},
	{"one of two checkpoints refused moves neither", func(f *fixture) {
		payments := lane("payment", "a")
		f.commit(advance(shipping, payments, 0, 1))
		c := advance(shipping, orders, 0, 1)
		c.Advance = append(c.Advance, eventstore.Advance{Lane: payments, From: 0, To: 1})
		f.refused(c, eventstore.ErrCheckpointMoved)
		f.same("orders", f.checkpoint(shipping, orders), event.Sequence(0))
		f.same("payments", f.checkpoint(shipping, payments), event.Sequence(1))
	}},
	{"several checkpoints move in one commit, in whatever order they are named", func(f *fixture) {
		payments, back := lane("payment", "a"), backfillLane("order", "a")
		c := advance(shipping, payments, 0, 4)
		c.Advance = append(c.Advance, eventstore.Advance{Lane: back, To: 2}, eventstore.Advance{Lane: orders, To: 3})
		f.commit(c)
		f.same("payments", f.checkpoint(shipping, payments), event.Sequence(4))
		f.same("backfill", f.checkpoint(shipping, back), event.Sequence(2))
		f.same("orders", f.checkpoint(shipping, orders), event.Sequence(3))
	}},
	{"handlers and keys have checkpoints of their own", func(f *fixture) {
		other := event.Unit{Name: "shipping", Key: "b"}
		f.commit(advance(shipping, orders, 0, 5))
		f.commit(advance(billing, orders, 0, 2))
		f.commit(advance(other, lane("order", "b"), 0, 1))
		f.same("shipping", f.checkpoint(shipping, orders), event.Sequence(5))
		f.same("billing", f.checkpoint(billing, orders), event.Sequence(2))
		f.same("other key", f.checkpoint(other, lane("order", "b")), event.Sequence(1))
	}},
	{"of commits from one checkpoint one wins, and its effects alone are there", func(f *fixture) {
		const rivals = 8
		var (
			group sync.WaitGroup
			won   atomic.Int32
		)
		f.publish(f.events("order", "a", 1)...)
		for range rivals {
			c := advance(shipping, orders, 0, 1)
			c.Publish = f.events("shipment", "a", 1)
			group.Go(func() {
				switch _, err := f.try(c); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, eventstore.ErrCheckpointMoved):
					f.Errorf("commit: %v", err)
				}
			})
		}
		group.Wait()
		f.same("winners", won.Load(), int32(1))
		f.same("effects", f.tail(lane("shipment", "a")), event.Sequence(1))
	}},
	{"a checkpoint is kept over a restart", func(f *fixture) {
		f.commit(advance(shipping, orders, 0, 3))
		f.restart(f.crash)
		f.same("checkpoint", f.recover(shipping, orders).Checkpoints, []event.Position{{Lane: orders, Sequence: 3, EventID: "at-3"}})
		f.commit(advance(shipping, orders, 3, 4))
	}},
}
