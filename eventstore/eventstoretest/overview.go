package eventstoretest

import (
	"os"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func (f *fixture) overview() eventstore.Overview {
	f.Helper()
	got, err := f.store.Overview(f.ctx)
	f.must(err)
	return got
}

// handler gives how one handler stands, without what adapters need not know.
func (f *fixture) handler(name string) eventstore.HandlerOverview {
	f.Helper()
	all := f.overview().Handlers
	at := slices.IndexFunc(all, func(h eventstore.HandlerOverview) bool { return h.Name == name })
	if at < 0 {
		f.Fatalf("no handler %q in %+v", name, all)
	}
	h := all[at]
	h.Moved = time.Time{}
	return h
}

// lag gives how far behind a handler is, which must be what its lanes say.
func (f *fixture) lag(name string) uint64 {
	f.Helper()
	sum := uint64(0)
	for _, p := range f.allPartitions(eventstore.PartitionQuery{Name: name}) {
		sum += uint64(p.Tail - p.Checkpoint)
	}
	h := f.handler(name)
	f.same("lag of "+name, h.Lag, sum)
	return h.Lag
}

var overviews = []check{
	{"an empty store says who it is and who has it", func(f *fixture) {
		got := f.overview()
		if got.Owner == nil || got.Owner.PID != os.Getpid() || got.Owner.Node == "" {
			f.Fatalf("owner is %+v", got.Owner)
		}
		f.same("owners", got.Owners, []eventstore.Owner{*got.Owner})
		got.Owner, got.Owners = nil, nil
		f.same("overview", got, eventstore.Overview{StoreID: f.id.StoreID, StartGeneration: f.id.StartGeneration})
	}},
	{"handlers and categories come in order of name, with what was declared", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, declared, nil))
		f.publish(slices.Concat(f.events("order", "a", 3), backfill(f.events("order", "a", 1)...), f.events("order", "b", 2), f.events("payment", "a", 1))...)
		f.commit(advance(event.Unit{Name: "none", Key: "z"}, lane("order", "z"), 0, 1)) // a checkpoint is no lane
		got := f.overview()
		f.same("categories", got.Categories, []eventstore.CategoryOverview{
			{Category: declared.Categories[0], Partitions: 3, Records: 6},
			{Category: declared.Categories[1]},
			{Category: declared.Categories[2], Partitions: 1, Records: 1},
		})
		f.same("handlers", got.Handlers, []eventstore.HandlerOverview{
			{Handler: f.seen(declared).Handlers[0], Running: true},
			{Handler: f.seen(declared).Handlers[1], Running: true, Lag: 7},
		})
		f.purgeAll(later)
		f.same("after a purge", f.overview().Categories[0].Records, uint64(6))
	}},
	{"a handler that the last start does not have is not running", func(f *fixture) {
		f.retired([]string{"billing", "order"}, []string{"shipping", "order"})
		f.register([]string{"shipping", "order"})
		f.same("billing", f.handler("billing").Running, false)
		f.same("shipping", f.handler("shipping").Running, true)
	}},
	{"units are counted by what is in their way", func(f *fixture) {
		f.register([]string{"billing", "order"}, []string{"shipping", "order", "payment"})
		f.publishLived()
		f.lived("shipping")
		f.halt(event.Unit{Name: "shipping", Key: "applied"}, lane("order", "applied"), 2)
		f.pause(event.Unit{Name: "shipping", Key: "applied"}, base)
		f.halt(event.Unit{Name: "shipping", Key: "dead"}, lane("order", "dead"), 2) // void
		void := triedAt(lane("order", "dead"), 2)
		void.Unit = event.Unit{Name: "shipping", Key: "dead"}
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: void.Unit}, Tried: void})
		want := f.handler("shipping")
		want.Handler, want.Lag = eventstore.Handler{}, 0
		f.same("shipping", want, eventstore.HandlerOverview{
			Running: true, Halted: 2, Parking: 1, Paused: 2, Dead: 2, Trying: 1, Oldest: base,
			Pause: &eventstore.Pause{Unit: event.Unit{Name: "shipping"}, Actor: "ann", Reason: "carrier is back", Since: base},
		})
		other := f.handler("billing")
		other.Handler, other.Lag = eventstore.Handler{}, 0
		f.same("billing", other, eventstore.HandlerOverview{Running: true})
		f.same("open jobs", f.overview().Jobs, 1)
		f.actOnJob(f.listJobs(0, true, 10)[0].ID, eventstore.ActPauseJob)
		f.same("open jobs", f.overview().Jobs, 1)
		f.actOnJob(f.listJobs(0, true, 10)[0].ID, eventstore.ActCancelJob)
		f.same("open jobs", f.overview().Jobs, 0)
	}},
	{"the oldest is the unit that stopped first", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		for i, key := range []string{"a", "b", "c"} {
			u, l := event.Unit{Name: "shipping", Key: key}, lane("order", key)
			f.publish(f.events("order", key, 1)...)
			h := eventstore.Halt{Unit: u, Lane: l, Sequence: 1, Since: base.Add(time.Duration(3-i) * time.Hour)}
			f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Halt: &h})
		}
		f.same("oldest", f.handler("shipping").Oldest, base.Add(time.Hour))
		f.act(seeing(eventstore.ActRetry, event.Unit{Name: "shipping", Key: "c"}, lane("order", "c"), 1))
		f.same("oldest", f.handler("shipping").Oldest, base.Add(2*time.Hour))
		f.park(event.Unit{Name: "shipping", Key: "d"}, lane("order", "d"), 1) // at base
		f.same("oldest", f.handler("shipping").Oldest, base)
	}},
	{"counts end somewhere", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		c := eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}}
		for at := event.Sequence(1); at <= eventstore.MaxCount+1; at++ {
			c.Dead = append(c.Dead, deadRow(shipping, orders, at))
		}
		f.commit(c)
		f.same("dead letters", f.handler("shipping").Dead, eventstore.MaxCount)
		f.same("dead letters of the unit", f.state(shipping).Dead, 1000)
		n, _ := f.countJob(eventstore.JobPurge, ofShipping)
		f.same("a job counts all", n, eventstore.MaxCount+1)
	}},
	{"lag is what is above the checkpoints, whatever is done to records, handlers and places", func(f *fixture) {
		f.retired([]string{"shipping", "order", "payment"})
		f.publish(slices.Concat(f.events("order", "a", 3), backfill(f.events("order", "a", 1)...), f.events("order", "b", 2), f.events("payment", "a", 2), f.events("other", "a", 9))...)
		want := func(what string, name string, lag uint64) {
			f.Helper()
			f.same(what, f.lag(name), lag)
		}
		want("published", "shipping", 8)
		f.commit(advance(shipping, orders, 0, 2))
		f.commit(advance(shipping, lane("other", "a"), 0, 5)) // of no category of its own
		f.commit(advance(billing, orders, 0, 3))
		want("advanced", "shipping", 6)
		f.halt(shipping, orders, 3)
		want("halted", "shipping", 6)
		f.act(seeing(eventstore.ActSkip, shipping, orders, 3))
		want("skipped", "shipping", 5)
		f.emit(order7, 0, f.events("order", "a", 1)...)
		want("emitted", "shipping", 6)
		f.purgeAll(later)
		want("purged", "shipping", 6)
		f.act(resetting("shipping", eventstore.Start{}))
		want("reset to the first kept", "shipping", 6)
		f.act(renaming("shipping", "shipments"))
		want("renamed", "shipments", 6)
		f.act(resetting("shipments", eventstore.Start{Now: true}))
		want("reset to now", "shipments", 0)
		f.publish(f.events("payment", "b", 2)...)
		want("published", "shipments", 2)
		f.restart(f.crash)
		want("after a restart", "shipments", 2)
		f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{
			Revision: f.loadRegistry().Revision,
			Handlers: []eventstore.Handler{
				{Name: "late", Kind: eventstore.EventHandler, Categories: []string{"order", "other"}},
				{Name: "shipments", Kind: eventstore.EventHandler, Categories: []string{"order"}},
			},
		}, []eventstore.Start{{Handler: "late", Category: "order", Now: true}}))
		want("with a category less", "shipments", 0)
		want("with a start at the end of one of its categories", "late", 9)
		f.register([]string{"shipments", "order", "payment", "other"})
		want("with categories more", "shipments", 2+9-5)
		f.register([]string{"new", "payment"})
		f.restart(f.stop)
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "shipments"}))
		f.register([]string{"shipments", "order", "payment"})
		want("come again after it was removed", "shipments", 7+4)
	}},
	{"a handler moved when it passed something", func(f *fixture) {
		f.register([]string{"billing", "order"}, []string{"shipping", "order"})
		f.publish(f.events("order", "a", 2)...)
		f.commit(advance(shipping, orders, 0, 1))
		got := f.overview().Handlers
		f.same("billing", got[0].Moved, time.Time{})
		if at := got[1].Moved; at.After(time.Now()) {
			f.Fatalf("shipping moved at %s", at)
		}
	}},
}
