package eventstoretest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// restartRelayed starts the store again, for a relay.
func (f *fixture) restartRelayed(end func()) {
	f.Helper()
	f.restartAs(end, eventstore.StartOptions{Node: "next", Relayed: true})
}

// beside starts the data of the store for one more process, which several may have at once.
func (f *fixture) beside() (eventstore.Store, eventstore.Identity) {
	f.Helper()
	if !f.id.Capabilities.Shared {
		f.Skip("one process has this store at a time")
	}
	s := f.harness.Reopen()
	id, err := s.Start(f.ctx, eventstore.StartOptions{Node: "beside", Relayed: true})
	f.must(err)
	f.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			f.Errorf("stop: %v", err)
		}
	})
	return s, id
}

var relayedStarts = append([]check{
	{"without a relay nothing is found, and whatever is noted is refused", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{})
		for name, call := range f.fenced(f.hold(1, orders), orders) {
			if err := call(); !errors.Is(err, eventstore.ErrNotRelayed) {
				f.Errorf("%s: %v", name, err)
			}
		}
		f.register([]string{"shipping", "order"})
		f.untouched(orders)
	}},
	{"each of several says of itself, and is known by its start", func(f *fixture) {
		f.restartRelayed(f.stop)
		other, id := f.beside()
		f.must(other.Say(f.ctx, "no broker", base))
		present, err := f.store.Present(f.ctx)
		f.must(err)
		if len(present) != 2 || present[0].Generation != f.id.StartGeneration || present[0].Trouble != "" ||
			present[1].Generation != id.StartGeneration || present[1].Trouble != "no broker" || !present[1].Since.Equal(base) || present[1].Node != "beside" {
			f.Fatalf("present: %+v", present)
		}
	}},
	{"without a relay one process has the store at a time", func(f *fixture) {
		f.same("shared", f.id.Capabilities.Shared, false)
		f.restart(f.stop)
		f.same("shared", f.id.Capabilities.Shared, false)
	}},
	{"records of before are found by a start for a relay, but those that were noted", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 3), f.events("order", "b", 1))...)
		f.commit(advance(shipping, lane("order", "z"), 0, 1)) // a checkpoint is no record
		f.restartRelayed(f.crash)
		f.same("at first", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 0, 3), unpublishedOf(lane("order", "b"), 0, 1)})
		f.note(f.own(orders), orders, 3, time.Time{})
		f.note(f.own(lane("order", "b")), lane("order", "b"), 1, time.Time{})
		f.restart(f.stop)
		f.publish(slices.Concat(f.events("order", "a", 2), f.events("order", "c", 1))...)
		f.same("without a relay", f.unpublished(), []eventstore.Unpublished{})
		f.restart(f.stop) // once more
		f.restartRelayed(f.stop)
		f.same("again", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 3, 5), unpublishedOf(lane("order", "c"), 0, 1)})
		f.restartRelayed(f.stop)
		f.same("and once more", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 3, 5), unpublishedOf(lane("order", "c"), 0, 1)})
	}},
	{"lanes that a handler has not passed are looked at after a start for a relay that follows one without", func(f *fixture) {
		f.restartRelayed(f.stop)
		f.register([]string{"shipping", "order"})
		f.publish(slices.Concat(f.events("order", "a", 1), f.events("order", "b", 1), f.events("payment", "a", 1))...)
		for _, l := range []event.LaneRef{orders, lane("order", "b"), payments} {
			f.note(f.own(l), l, 1, time.Time{})
		}
		f.commit(advance(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"), 0, 1))
		f.restartRelayed(f.stop)
		f.same("after one with", f.dueLanes(), []event.LaneRef{})
		f.restart(f.stop)
		f.foreign([]string{"mail", "payment"})
		f.restartRelayed(f.stop)
		f.same("after one without", f.dueLanes(), []event.LaneRef{orders})
	}},
	{"commits are fenced by the rows of their units", func(f *fixture) {
		f.restartRelayed(f.stop)
		f.raise(shipping, 5)
		f.commit(leased(shipping, 5, orders, 0, 1))
		f.raise(shipping, 6)
		f.refused(leased(shipping, 5, orders, 1, 2), eventstore.ErrStale)
		f.restart(f.stop)
		f.refused(leased(shipping, 5, orders, 1, 2), eventstore.ErrStale)
		f.commit(leased(shipping, 6, orders, 1, 2))
	}},
	{"where one process has the store at a time, that goes with a relay too", func(f *fixture) {
		f.restartRelayed(f.stop)
		if f.id.Capabilities.Shared {
			f.Skip("several have this store at once")
		}
		_, err := f.harness.Reopen().Start(f.ctx, eventstore.StartOptions{Node: "second", Relayed: true})
		f.is(err, eventstore.ErrOwned)
	}},
}, whenRelayed(sharedStarts)...)

var sharedStarts = []check{
	{"several have the store at once, and see one another's commits", func(f *fixture) {
		second, id := f.beside()
		f.same("store id", id.StoreID, f.id.StoreID)
		if id.StartGeneration <= f.id.StartGeneration {
			f.Fatalf("start generation is %d after %d", id.StartGeneration, f.id.StartGeneration)
		}
		early := second.Begin("early")
		f.publish(f.events("order", "a", 1)...)
		_, third := f.beside()
		f.same("shared", []bool{id.Capabilities.Shared, third.Capabilities.Shared}, []bool{true, true})
		done, err := early.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)}) // a start with a relay fences nobody
		f.must(err)
		f.same("drawn", done.Tails, []event.Tail{{Lane: orders, First: 2, Last: 2}})
		f.publish(f.events("order", "a", 1)...)
		got, err := second.ReadLane(f.ctx, orders, 0, 10)
		f.must(err)
		f.same("lane", got, f.lane(orders))
		f.same("sequences", sequences(got), upTo(3))
	}},
	{"a stop ends one, and none of the others", func(f *fixture) {
		second, _ := f.beside()
		begun := second.Begin("begun")
		f.must(second.Stop(f.ctx))
		f.everyMethod(second, f.ctx, eventstore.ErrClosed)
		f.publish(f.events("order", "a", 1)...)
		_, err := begun.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
		if !errors.Is(err, eventstore.ErrClosed) && !errors.Is(err, eventstore.ErrStale) {
			f.Fatalf("commit gave %v", err)
		}
		f.same("tail", f.tail(orders), event.Sequence(1))
	}},
	{"a raise by one fences the other", func(f *fixture) {
		second, _ := f.beside()
		f.raise(shipping, 5)
		f.commit(leased(shipping, 5, orders, 0, 1))
		_, err := second.Raise(f.ctx, []eventstore.Ask{{Unit: shipping, Generation: 6}})
		f.must(err)
		f.refused(leased(shipping, 5, orders, 1, 2), eventstore.ErrStale)
		_, err = second.Begin("second").Commit(f.ctx, leased(shipping, 6, orders, 1, 2))
		f.must(err)
	}},
	{"a part is noted by its owner alone", func(f *fixture) {
		second, _ := f.beside()
		f.publish(f.events("order", "a", 2)...)
		former, now := f.hold(1, orders), f.hold(2, orders)
		f.must(second.NotePublished(f.ctx, now, []eventstore.Published{{Lane: orders, Through: 1}}))
		f.is(f.store.NotePublished(f.ctx, former, []eventstore.Published{{Lane: orders, Through: 2}}), eventstore.ErrStale)
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 1, 2)})
	}},
	{"two that draw in one lane draw no sequence twice, and all are unpublished", func(f *fixture) {
		second, _ := f.beside()
		var group sync.WaitGroup
		for _, s := range []eventstore.Store{f.store, second} {
			group.Go(func() {
				for range 25 {
					if _, err := s.Begin("writer").Commit(f.ctx, eventstore.Changes{Publish: []event.Envelope{f.event("order", "a"), f.event("order", "b")}}); err != nil {
						f.Errorf("commit: %v", err)
					}
				}
			})
		}
		group.Wait()
		f.same("sequences", sequences(f.lane(orders)), upTo(50))
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 0, 50), unpublishedOf(lane("order", "b"), 0, 50)})
	}},
	{"lists that the one registered are the other's", func(f *fixture) {
		second, _ := f.beside()
		f.register([]string{"shipping", "order"})
		read := f.loadRegistry()
		f.must(second.SaveRegistry(f.ctx, read, nil))
		f.refused(passedOver(read.Revision, 0, 1), eventstore.ErrListMoved)
		f.commit(passedOver(read.Revision+1, 0, 1))
	}},
	{"a handler runs, and cannot be removed, while one that saved it is started", func(f *fixture) {
		second, _ := f.beside()
		f.register([]string{"shipping", "order"})
		_, third := f.beside() // does not have it
		f.same("running", f.handler("shipping").Running, true)
		if third.StartGeneration <= f.id.StartGeneration {
			f.Fatalf("start generation is %d after %d", third.StartGeneration, f.id.StartGeneration)
		}
		removed := doing(eventstore.ActRemove, event.Unit{Name: "shipping"})
		_, err := second.Act(f.ctx, removed)
		f.is(err, eventstore.ErrInUse)
		f.stop()
		f.store = second
		f.must(second.Stop(f.ctx))
		f.restartRelayed(func() {})
		f.same("running", f.handler("shipping").Running, false)
		f.act(removed)
	}},
	{"a handler that several saved runs while any of them is started", func(f *fixture) {
		second, _ := f.beside()
		third, _ := f.beside()
		for _, s := range []eventstore.Store{f.store, third, second} { // not in the order of their starts
			at, err := s.LoadRegistry(f.ctx)
			f.must(err)
			at.Handlers = []eventstore.Handler{{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}, Since: base}}
			f.must(s.SaveRegistry(f.ctx, at, nil))
		}
		f.must(second.Stop(f.ctx))
		f.same("with the first and the last", f.handler("shipping").Running, true)
		f.must(third.Stop(f.ctx))
		f.same("with the first", f.handler("shipping").Running, true)
		fourth, _ := f.beside()
		f.stop()
		f.store = fourth
		f.same("with one that never saved it", f.handler("shipping").Running, false)
	}},
	{"a handler that was saved by an earlier start last runs in a later one that saved it, too", func(f *fixture) {
		second, _ := f.beside()
		for _, s := range []eventstore.Store{second, f.store} {
			at, err := s.LoadRegistry(f.ctx)
			f.must(err)
			at.Handlers = []eventstore.Handler{{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}, Since: base}}
			f.must(s.SaveRegistry(f.ctx, at, nil))
		}
		f.stop()
		f.store = second
		f.same("running", f.handler("shipping").Running, true)
	}},
	{"a start without a relay finds the store owned while one with is on", func(f *fixture) {
		f.beside()
		alone := f.harness.Reopen()
		_, err := alone.Start(f.ctx, eventstore.StartOptions{Node: "alone"})
		f.is(err, eventstore.ErrOwned)
		f.publish(f.events("order", "a", 1)...) // nobody was fenced
	}},
	{"a start with a relay finds the store owned while one without is on", func(f *fixture) {
		if !f.id.Capabilities.Shared {
			f.Skip("one process has this store at a time")
		}
		f.restart(f.stop)
		_, err := f.harness.Reopen().Start(f.ctx, eventstore.StartOptions{Node: "second", Relayed: true})
		f.is(err, eventstore.ErrOwned)
		f.publish(f.events("order", "a", 1)...)
	}},
	{"with Wait a start without a relay gets the store when the last one with it stops", func(f *fixture) {
		second, _ := f.beside()
		f.waitingAs(f.ctx, eventstore.StartOptions{}, func(result <-chan error) {
			f.must(second.Stop(f.ctx))
			select {
			case err := <-result:
				f.Fatalf("started beside one that has the store: %v", err)
			default:
			}
			f.stop()
			f.must(<-result)
		})
	}},
	{"with Wait a start with a relay gets the store when the one without stops", func(f *fixture) {
		if !f.id.Capabilities.Shared {
			f.Skip("one process has this store at a time")
		}
		f.restart(f.stop)
		f.waitingAs(f.ctx, eventstore.StartOptions{Relayed: true}, func(result <-chan error) {
			f.stop()
			f.must(<-result)
		})
	}},
}
