package eventstoretest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// leased is an advance in the name of an owner at a generation.
func leased(u event.Unit, g event.Generation, l event.LaneRef, from, to event.Sequence) eventstore.Changes {
	c := advance(u, l, from, to)
	c.Fence.Generation = g
	return c
}

var units = []check{
	{"what is not known is zero", func(f *fixture) {
		got, err := f.store.Recover(f.ctx, []eventstore.Ask{{Unit: shipping, Lanes: []event.LaneRef{orders}}, {Unit: billing}})
		f.must(err)
		f.same("recovered", got, []eventstore.Recovered{
			{Unit: shipping, Checkpoints: []event.Position{{Lane: orders}}}, {Unit: billing},
		})
	}},
	{"asking for nothing gives nothing", func(f *fixture) {
		got, err := f.store.Recover(f.ctx, nil)
		f.must(err)
		f.same("recovered", got, []eventstore.Recovered{})
		got, err = f.store.Raise(f.ctx, nil)
		f.must(err)
		f.same("raised", got, []eventstore.Recovered{})
	}},
	{"units and lanes come back in the order asked", func(f *fixture) {
		payments := lane("payment", "a")
		f.commit(advance(shipping, orders, 0, 1))
		f.commit(advance(shipping, payments, 0, 2))
		f.commit(advance(billing, orders, 0, 3))
		got, err := f.store.Recover(f.ctx, []eventstore.Ask{
			{Unit: shipping, Lanes: []event.LaneRef{payments, orders}},
			{Unit: billing, Lanes: []event.LaneRef{payments, orders}},
		})
		f.must(err)
		f.same("recovered", got, []eventstore.Recovered{
			{Unit: shipping, Checkpoints: []event.Position{{Lane: payments, Sequence: 2, EventID: "at-2"}, {Lane: orders, Sequence: 1, EventID: "at-1"}}},
			{Unit: billing, Checkpoints: []event.Position{{Lane: payments}, {Lane: orders, Sequence: 3, EventID: "at-3"}}},
		})
	}},
	{"many units are recovered at once", func(f *fixture) {
		asked := make([]eventstore.Ask, 600)
		for i := range asked {
			key := fmt.Sprintf("k-%d", i)
			asked[i] = eventstore.Ask{Unit: event.Unit{Name: "shipping", Key: key}, Lanes: []event.LaneRef{lane("order", key)}, Generation: 1}
		}
		f.commit(advance(asked[577].Unit, asked[577].Lanes[0], 0, 9))
		got, err := f.store.Raise(f.ctx, asked)
		f.must(err)
		f.same("raised", len(got), len(asked))
		for i, r := range got {
			if r.Unit != asked[i].Unit || !r.Raised || (r.Checkpoints[0].Sequence == 9) != (i == 577) {
				f.Fatalf("unit %d: %+v", i, r)
			}
		}
	}},
	{"a raise gives checkpoint, halt and the new generation", func(f *fixture) {
		f.publish(f.events("order", "a", 9)...)
		f.commit(advance(shipping, orders, 0, 8))
		halt := f.halt(shipping, orders, 9)
		f.same("recovered", f.raise(shipping, 6, orders), eventstore.Recovered{
			Unit: shipping, Raised: true, Generation: 6, Halt: &halt,
			Checkpoints: []event.Position{{Lane: orders, Sequence: 8, EventID: "at-8"}},
		})
		f.same("generation", f.recover(shipping).Generation, event.Generation(6))
	}},
	{"a raise at an equal or lower generation is refused and tells the row's", func(f *fixture) {
		f.raise(shipping, 6)
		for _, g := range []event.Generation{6, 5, 0} {
			got, err := f.store.Raise(f.ctx, []eventstore.Ask{{Unit: shipping, Generation: g, Lanes: []event.LaneRef{orders}}})
			f.must(err)
			f.same("recovered", got, []eventstore.Recovered{{Unit: shipping, Generation: 6, Checkpoints: []event.Position{{Lane: orders}}}})
		}
		f.raise(shipping, 7)
	}},
	{"of raises at one generation one wins", func(f *fixture) {
		const rivals = 8
		var (
			group sync.WaitGroup
			won   = make(chan bool, rivals)
		)
		for range rivals {
			group.Go(func() {
				got, err := f.store.Raise(f.ctx, []eventstore.Ask{{Unit: shipping, Generation: 6}})
				if err != nil {
					f.Errorf("raise: %v", err)
					return
				}
				won <- got[0].Raised
			})
		}
		group.Wait()
		close(won)
		winners := 0
		for w := range won {
			if w {
				winners++
			}
		}
		f.same("winners", winners, 1)
	}},
	{"one unit's refusal fails no other of the batch", func(f *fixture) {
		f.raise(billing, 6)
		got, err := f.store.Raise(f.ctx, []eventstore.Ask{{Unit: billing, Generation: 6}, {Unit: shipping, Generation: 6}})
		f.must(err)
		f.same("raised", got, []eventstore.Recovered{{Unit: billing, Generation: 6}, {Unit: shipping, Generation: 6, Raised: true}})
	}},
	{"a commit at the generation of the row succeeds", func(f *fixture) {
		f.raise(shipping, 6)
		f.commit(leased(shipping, 6, orders, 0, 1))
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(1))
	}},
	{"a stale owner commits nothing from the raise on, not only from the next commit on", func(f *fixture) {
		f.raise(shipping, 5)
		f.commit(leased(shipping, 5, orders, 0, 8))
		f.raise(shipping, 6)
		c := leased(shipping, 5, orders, 8, 9)
		c.Publish = f.events("shipment", "a", 1)
		c.Append = []eventstore.Append{{Stream: order7, Events: f.events("order", "b", 1)}}
		f.refused(c, eventstore.ErrStale)
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(8))
		f.same("effects", f.tail(lane("shipment", "a")), event.Sequence(0))
		f.same("stream", f.stream(order7), []event.Envelope{})
		f.commit(leased(shipping, 6, orders, 8, 9))
	}},
	{"a stale owner cannot halt", func(f *fixture) {
		f.raise(shipping, 5)
		f.raise(shipping, 6)
		f.refused(eventstore.Changes{
			Fence: eventstore.Fence{Unit: shipping, Generation: 5},
			Halt:  &eventstore.Halt{Unit: shipping, Lane: orders, Sequence: 9, Since: base},
		}, eventstore.ErrStale)
		f.same("halt", f.recover(shipping).Halt, (*eventstore.Halt)(nil))
	}},
	{"a stale owner cannot skip", func(f *fixture) {
		f.raise(shipping, 5)
		f.raise(shipping, 6)
		c := leased(shipping, 5, orders, 0, 1)
		c.Dead = []eventstore.Dead{{Unit: shipping, Lane: orders, Sequence: 1, Time: base}}
		f.refused(c, eventstore.ErrStale)
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(0))
	}},
	{"a generation that never was raised commits nothing", func(f *fixture) {
		f.refused(leased(shipping, 1, orders, 0, 1), eventstore.ErrStale)
		f.raise(shipping, 6)
		f.refused(leased(shipping, 7, orders, 0, 1), eventstore.ErrStale)
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(0))
	}},
	{"a raise fences its own unit only", func(f *fixture) {
		f.raise(shipping, 5)
		f.raise(billing, 9)
		f.raise(event.Unit{Name: "shipping", Key: "b"}, 9)
		f.commit(leased(shipping, 5, orders, 0, 1))
	}},
	{"a unit of work begun before the raise is fenced too", func(f *fixture) {
		f.raise(shipping, 5)
		tx := f.store.Begin(f.Name())
		f.raise(shipping, 6)
		_, err := tx.Commit(f.ctx, leased(shipping, 5, orders, 0, 1))
		f.is(err, eventstore.ErrStale)
	}},
	{"a raise sees every commit that beat it, and the others are refused", func(f *fixture) {
		f.raise(shipping, 1)
		var at event.Sequence
		for g := event.Generation(1); g <= 30; g++ {
			var (
				group     sync.WaitGroup
				committed error
			)
			c := leased(shipping, g, orders, at, at+1)
			group.Go(func() { _, committed = f.try(c) })
			seen := f.raise(shipping, g+1, orders).Checkpoints[0].Sequence
			group.Wait()
			switch {
			case committed == nil:
				at++
			case !errors.Is(committed, eventstore.ErrStale):
				f.Fatalf("commit at generation %d: %v", g, committed)
			}
			f.same("checkpoint seen by the raise", seen, at)
			f.same("checkpoint", f.checkpoint(shipping, orders), at)
		}
	}},
	{"a generation is kept over a restart", func(f *fixture) {
		f.raise(shipping, 6)
		f.restart(f.crash)
		f.same("generation", f.recover(shipping).Generation, event.Generation(6))
		f.refused(leased(shipping, 5, orders, 0, 1), eventstore.ErrStale)
		f.commit(leased(shipping, 6, orders, 0, 1))
	}},
}
