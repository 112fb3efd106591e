package eventstoretest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// register registers handlers, each as {name, category, category, ...}.
func (f *fixture) register(handlers ...[]string) {
	f.Helper()
	r := eventstore.Registered{Revision: f.loadRegistry().Revision}
	for _, h := range handlers {
		r.Handlers = append(r.Handlers, eventstore.Handler{Name: h[0], Kind: eventstore.EventHandler, Categories: h[1:], Since: base})
	}
	f.must(f.store.SaveRegistry(f.ctx, r, nil))
}

// purge deletes one batch.
func (f *fixture) purge(before time.Time, limit int) int {
	f.Helper()
	n, err := f.store.Purge(f.ctx, before, limit)
	f.must(err)
	if n > limit {
		f.Fatalf("purged %d in a batch of %d", n, limit)
	}
	return n
}

// purgeAll deletes until nothing is left to delete.
func (f *fixture) purgeAll(before time.Time) int {
	f.Helper()
	total := 0
	for {
		n := f.purge(before, 1000)
		if n == 0 {
			return total
		}
		total += n
	}
}

// later is when every event of a test is old.
var later = base.Add(24 * time.Hour)

var lanes = []check{
	{"lanes above the checkpoint are unpassed, in lane order", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "b", 2), f.events("order", "a", 1), backfill(f.events("order", "a", 1)...),
			f.events("payment", "a", 1), f.events("order", "c", 3))...)
		f.commit(advance(event.Unit{Name: "shipping", Key: "c"}, lane("order", "c"), 0, 3))
		f.commit(advance(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"), 0, 1))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders, backfillLane("order", "a"), lane("order", "b")})
		f.same("of another handler", f.unpassed("billing", "order"), []event.LaneRef{orders, backfillLane("order", "a"), lane("order", "b"), lane("order", "c")})
		f.same("of another category", f.unpassed("shipping", "payment"), []event.LaneRef{lane("payment", "a")})
		f.same("of none", f.unpassed("shipping", "unknown"), []event.LaneRef{})
		f.publish(f.events("order", "A", 1)...)
		f.same("with a new lane", f.unpassed("shipping", "order"), []event.LaneRef{lane("order", "A"), orders, backfillLane("order", "a"), lane("order", "b")})
	}},
	{"a checkpoint without a lane is passed", func(f *fixture) {
		f.commit(advance(shipping, orders, 0, 5))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
		f.publish(f.events("order", "a", 5)...)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
		f.publish(f.events("order", "a", 1)...)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
	}},
	{"pages of unpassed lanes are full and exact, with passed and halted lanes between", func(f *fixture) {
		var want []event.LaneRef
		for i := range 40 {
			key := fmt.Sprintf("k-%02d", i)
			l, u := lane("order", key), event.Unit{Name: "shipping", Key: key}
			f.publish(f.events("order", key, 1)...)
			switch i % 4 {
			case 1:
				f.commit(advance(u, l, 0, 1))
			case 2:
				f.halt(u, l, 1)
			default:
				want = append(want, l)
			}
		}
		var got []event.LaneRef
		for after := (event.LaneRef{}); ; {
			page, err := f.store.Unpassed(f.ctx, "shipping", "order", after, 7)
			f.must(err)
			got = append(got, page...)
			if len(page) < 7 {
				break
			}
			after = page[len(page)-1]
		}
		f.same("unpassed", got, want)
		page, err := f.store.Unpassed(f.ctx, "shipping", "order", lane("order", "k-03x"), 2)
		f.must(err)
		f.same("after a lane that is not there", page, []event.LaneRef{lane("order", "k-04"), lane("order", "k-07")})
	}},
	{"a halted unit leaves out all its lanes, and no other unit's", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 1), backfill(f.events("order", "a", 1)...), f.events("payment", "a", 1), f.events("order", "b", 1))...)
		f.halt(shipping, orders, 1)
		f.same("orders", f.unpassed("shipping", "order"), []event.LaneRef{lane("order", "b")})
		f.same("payments", f.unpassed("shipping", "payment"), []event.LaneRef{})
		f.same("of another handler", f.unpassed("billing", "payment"), []event.LaneRef{lane("payment", "a")})
	}},
	{"purge deletes nothing that a registered handler has not passed", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "payment", "order"}, []string{"audit", "payment"})
		f.publish(f.events("order", "a", 5)...)
		f.same("purged", f.purgeAll(later), 0)
		f.commit(advance(shipping, orders, 0, 4))
		f.same("purged", f.purgeAll(later), 0)
		f.commit(advance(billing, orders, 0, 2))
		f.same("purged", f.purgeAll(later), 2)
		f.same("lane", sequences(f.lane(orders)), []event.Sequence{3, 4, 5})
		f.commit(advance(billing, orders, 2, 5))
		f.same("purged", f.purgeAll(later), 2)
		f.same("lane", sequences(f.lane(orders)), []event.Sequence{5})
	}},
	{"purge looks at each lane's own checkpoint", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(slices.Concat(f.events("order", "a", 2), backfill(f.events("order", "a", 2)...), f.events("order", "b", 2))...)
		f.commit(advance(shipping, orders, 0, 2))
		f.same("purged", f.purgeAll(later), 2)
		f.same("primary", f.lane(orders), []event.Envelope{})
		f.same("backfill", sequences(f.lane(backfillLane("order", "a"))), upTo(2))
		f.same("other key", sequences(f.lane(lane("order", "b"))), upTo(2))
	}},
	{"purge keeps what is not older", func(f *fixture) {
		events := f.events("order", "a", 4)
		f.publish(events...)
		f.same("purged", f.purgeAll(events[2].Time), 2)
		f.same("lane", ids(f.lane(orders)), ids(events[2:]))
	}},
	{"without a handler old records go", func(f *fixture) {
		f.register([]string{"shipping", "payment"})
		f.publish(f.events("order", "a", 2)...)
		f.same("purged", f.purgeAll(later), 2)
	}},
	{"purge never deletes events of a stream; a run of the lane ends where records are gone", func(f *fixture) {
		other := event.Stream{Kind: "order", ID: "8"}
		f.publish(f.events("order", "a", 1)...)         // #1
		f.emit(order7, 0, f.events("order", "a", 2)...) // #2, #3
		f.publish(f.events("order", "a", 2)...)         // #4, #5
		f.emit(other, 0, f.events("order", "a", 1)...)  // #6
		stream := f.stream(order7)
		f.same("purged", f.purgeAll(later), 3)
		f.same("stream", f.stream(order7), stream)
		f.same("from the beginning", sequences(f.lane(orders)), []event.Sequence{2, 3})
		f.same("after the run", sequences(f.laneAfter(orders, 3)), []event.Sequence{6})
		f.same("at the end", sequences(f.laneAfter(orders, 6)), []event.Sequence{})
	}},
	{"a purged lane keeps its tail and goes on", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.same("purged", f.purgeAll(later), 3)
		f.same("tail", f.tail(orders), event.Sequence(3))
		f.same("tails", f.publish(f.events("order", "a", 1)...).Tails, []event.Tail{{Lane: orders, First: 4, Last: 4}})
		f.same("lane", sequences(f.lane(orders)), []event.Sequence{4})
	}},
	{"purge works in batches and tells how much it did", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 4), f.events("order", "b", 3))...)
		for range 3 {
			f.same("purged", f.purge(later, 2), 2)
		}
		f.same("purged", f.purge(later, 2), 1)
		f.same("purged", f.purge(later, 2), 0)
	}},
	{"purge deletes old replies, and no young ones", func(f *fixture) {
		for i := range 3 {
			f.commit(eventstore.Changes{Reply: &eventstore.Reply{Stream: order7, CommandID: fmt.Sprintf("c-%d", i), Time: base.Add(time.Duration(i) * time.Minute)}})
		}
		f.same("purged", f.purgeAll(base.Add(time.Minute)), 1)
		f.same("old reply", f.reply(order7, "c-0"), (*eventstore.Reply)(nil))
		for _, id := range []string{"c-1", "c-2"} {
			if f.reply(order7, id) == nil {
				f.Fatalf("reply %s is gone", id)
			}
		}
	}},
	{"records and replies share the batch", func(f *fixture) {
		f.commit(eventstore.Changes{
			Publish: f.events("order", "a", 1),
			Reply:   &eventstore.Reply{Stream: order7, CommandID: "c-1", Time: base},
		})
		f.same("purged", f.purge(later, 1), 1)
		f.same("purged", f.purge(later, 1), 1)
		f.same("purged", f.purge(later, 1), 0)
	}},
	{"a purged void takes its abandoned record with it", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		f.must(f.store.Abandon(f.ctx, orders, 1, "bad"))
		f.same("purged", f.purgeAll(later), 2)
		f.same("abandoned", f.abandoned(event.Position{}, 10), []eventstore.Abandoned{})
	}},
	{"purge beside a handler at work deletes nothing ahead of it", func(f *fixture) {
		const total = 40
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", total)...)
		var group sync.WaitGroup
		passed := make(chan struct{}, total)
		group.Go(func() {
			defer close(passed)
			for n := range event.Sequence(total) {
				if f.idAt(orders, n+1) == "" {
					f.Errorf("#%d was purged before it was passed", n+1)
				}
				if _, err := f.try(advance(shipping, orders, n, n+1)); err != nil {
					f.Errorf("advance: %v", err)
				}
				passed <- struct{}{}
			}
		})
		for range passed {
			f.purge(later, 10)
		}
		group.Wait()
		f.purgeAll(later)
		f.same("lane", f.lane(orders), []event.Envelope{})
	}},
}
