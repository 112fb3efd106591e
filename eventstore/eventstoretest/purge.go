package eventstoretest

import (
	"fmt"
	"slices"
	"strconv"
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

var purges = []check{
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
	{"purge neither deletes nor empties what a dead letter refers to", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		f.publish(f.events("order", "a", 4)...)
		c := advance(billing, orders, 0, 4)
		for _, at := range []event.Sequence{2, 3} {
			c.Dead = append(c.Dead, eventstore.Dead{Unit: billing, Lane: orders, Sequence: at, Time: base})
		}
		f.commit(c)
		f.commit(advance(shipping, orders, 0, 4))
		want := f.lane(orders)[1:]
		want[2] = void(want[2])
		f.same("purged", f.purgeAll(later), 2)
		f.same("lane", f.lane(orders), want)
		f.same("purged", f.purgeAll(later.Add(time.Second)), 0)
		f.same("lane", f.lane(orders), want)
	}},
	{"a lane that mixes streams and loose records is purged without a hole", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)         // #1
		f.emit(order7, 0, f.events("order", "a", 2)...) // #2, #3
		loose := f.events("order", "a", 2)              // #4, #5
		loose[0].Tenant, loose[0].CorrelationID = "tenant", "correlation"
		loose[0].CausationID, loose[0].Trace = "causation", event.Trace{Parent: "00-trace-01", State: "k=v"}
		f.publish(loose...)
		f.emit(order7, 2, f.events("order", "a", 1)...) // #6
		f.publish(f.events("order", "a", 1)...)         // #7
		want := f.lane(orders)[1:]
		stream, all := f.stream(order7), []string{"e-2", "e-3", "e-6"}
		for _, at := range []int{2, 3, 5} {
			want[at] = void(want[at])
		}
		f.same("purged", f.purgeAll(later), 4)
		for range 2 { // once more changes nothing
			f.same("lane", f.lane(orders), want)
			f.same("after a void", f.laneAfter(orders, 4), want[3:])
			f.same("stream", f.stream(order7), stream)
			f.same("all", ids(f.everything(2)), all)
			f.same("abandoned", f.abandoned(event.Position{}, 10), []eventstore.Abandoned{})
			f.same("purged", f.purgeAll(later), 0)
		}
		f.emit(order7, 3, f.events("order", "a", 1)...)
		f.same("tail", f.tail(orders), event.Sequence(8))
	}},
	{"what is not passed or young keeps all above it, and its voids go with it", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		events := f.events("order", "a", 6)
		events[1].Time = later // #2
		f.publish(events...)
		f.commit(advance(shipping, orders, 0, 5))
		f.same("purged", f.purgeAll(base.Add(time.Hour)), 4)
		f.same("lane", voids(f.lane(orders)), []event.Sequence{3, 4, 5})
		f.same("lane", sequences(f.lane(orders)), []event.Sequence{2, 3, 4, 5, 6})
		f.same("purged", f.purgeAll(base.Add(time.Hour)), 0)
		f.same("purged", f.purgeAll(later.Add(time.Second)), 4)
		f.same("lane", sequences(f.lane(orders)), []event.Sequence{6})
		f.commit(advance(shipping, orders, 5, 6))
		f.same("purged", f.purgeAll(later), 1)
		f.same("lane", f.lane(orders), []event.Envelope{})
	}},
	{"voids go although their times are later than what was above them", func(f *fixture) {
		for limit := range 4 {
			key := strconv.Itoa(limit)
			events := f.events("order", key, 7)
			for i := range events {
				events[i].Time = later.Add(-time.Duration(i) * time.Minute) // the first is the youngest
			}
			f.publish(events...)
			f.same("emptied", f.purgeAll(later), 6)
			f.same("lane", sequences(f.lane(lane("order", key))), upTo(7))
			f.same("voids", len(voids(f.lane(lane("order", key)))), 6)
			purged := 0
			for n := -1; n != 0; purged += n {
				n = f.purge(later.Add(time.Second), limit+1)
			}
			f.same("purged", purged, 7)
			f.same("lane", f.lane(lane("order", key)), []event.Envelope{})
		}
	}},
	{"a lane whose times run backwards is purged in batches to the end", func(f *fixture) {
		for limit := range 4 {
			events := f.events("order", "a", 5)
			slices.Reverse(events)
			f.publish(events...)
			for n := -1; n != 0; {
				n = f.purge(later, limit+1)
				left := f.lane(orders)
				f.same("voids below what goes, too", voids(left), []event.Sequence{})
			}
			f.same("lane", f.lane(orders), []event.Envelope{})
		}
	}},
	{"a void is kept for a handler that came later, until it has passed it", func(f *fixture) {
		events := f.events("order", "a", 4)
		events[0].Time = later
		f.publish(events...)
		f.same("emptied", f.purgeAll(later), 3)
		f.register([]string{"shipping", "order"})
		f.commit(advance(shipping, orders, 0, 1))
		f.same("purged", f.purgeAll(later.Add(time.Second)), 1)
		f.same("lane", voids(f.lane(orders)), []event.Sequence{2, 3, 4})
		f.same("purged", f.purgeAll(later.Add(time.Second)), 0)
		f.commit(advance(shipping, orders, 1, 3))
		f.same("purged", f.purgeAll(later.Add(time.Second)), 2)
		f.same("lane", voids(f.lane(orders)), []event.Sequence{4})
		f.commit(advance(shipping, orders, 3, 4))
		f.same("purged", f.purgeAll(later.Add(time.Second)), 1)
		f.same("lane", f.lane(orders), []event.Envelope{})
	}},
	{"whatever is in the lanes, a purge leaves no hole, and nothing that could go", purgeAtRandom},
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
	{"a purged void takes its abandoned record with it, and so does one that is emptied", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)         // #1, #2
		f.emit(order7, 0, f.events("order", "a", 2)...) // #3, #4
		f.publish(f.events("order", "a", 2)...)         // #5, #6
		for _, at := range []event.Sequence{1, 3, 5} {
			f.must(f.store.Abandon(f.ctx, orders, at, "bad"))
		}
		f.same("purged", f.purgeAll(later), 4)
		f.same("lane", sequences(f.lane(orders)), []event.Sequence{3, 4, 5, 6})
		f.same("voids", voids(f.lane(orders)), []event.Sequence{3, 5, 6})
		got := f.abandoned(event.Position{}, 10)
		if len(got) != 1 || got[0].Record.Sequence != 3 {
			f.Fatalf("abandoned: %+v", got)
		}
		f.must(f.store.Abandon(f.ctx, orders, 6, "a void stays what it is"))
		f.same("abandoned", f.abandoned(event.Position{}, 10), got)
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

// voids gives the sequences of the voids.
func voids(events []event.Envelope) []event.Sequence {
	return sequences(slices.DeleteFunc(slices.Clone(events), func(e event.Envelope) bool { return !e.Void() }))
}

// void is what takes the place of a record that is abandoned or emptied.
func void(e event.Envelope) event.Envelope {
	return event.Envelope{
		ID: e.ID, Category: e.Category, Key: e.Key, Lane: e.Lane, Time: e.Time,
		Stream: e.Stream, StreamVersion: e.StreamVersion, Sequence: e.Sequence, StoreID: e.StoreID,
	}
}

// purgeAtRandom lets two lanes grow, be passed and be purged in small batches, and compares what is left with the rule.
func purgeAtRandom(f *fixture) {
	random := f.random()
	minute := func() time.Time { return base.Add(time.Duration(random.IntN(100)) * time.Minute) }
	f.register([]string{"shipping", "order"})
	var version uint64
	passed := map[string]event.Sequence{}
	for range 40 {
		for range random.IntN(6) {
			e := f.event("order", []string{"a", "b"}[random.IntN(2)])
			if e.Time = minute(); random.IntN(8) > 0 {
				f.publish(e)
				continue
			}
			f.emit(order7, version, e)
			version++
		}
		before, limit := minute(), 1+random.IntN(5)
		stays := map[string]bool{}
		for _, key := range []string{"a", "b"} {
			l := lane("order", key)
			if to := min(passed[key]+event.Sequence(random.IntN(4)), f.tail(l)); to > passed[key] {
				f.commit(advance(event.Unit{Name: "shipping", Key: key}, l, passed[key], to))
				passed[key] = to
			}
			for _, e := range f.lane(l) {
				if !e.Void() && (!e.Stream.IsZero() || e.Sequence > passed[key] || !e.Time.Before(before)) {
					stays[e.ID] = true
				}
			}
		}
		for f.purge(before, limit) > 0 {
		}
		for _, key := range []string{"a", "b"} {
			left := f.lane(lane("order", key))
			tail := f.tail(lane("order", key))
			for i, e := range left {
				switch {
				case e.Sequence != tail+1-event.Sequence(len(left)-i):
					f.Fatalf("a hole: the tail is %d, the lane is %v", tail, sequences(left))
				case e.Void() == stays[e.ID]:
					f.Fatalf("%s #%d: it is a void: %v, it stays: %v", key, e.Sequence, e.Void(), stays[e.ID])
				case i == 0 && e.Void() && e.Sequence <= passed[key] && e.Time.Before(before):
					f.Fatalf("%s #%d is a void with nothing below it", key, e.Sequence)
				}
				delete(stays, e.ID)
			}
		}
		f.same("lost", stays, map[string]bool{})
	}
}
