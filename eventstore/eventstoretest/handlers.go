package eventstoretest

import (
	"errors"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// retired registers handlers in a start that is over: the present one does not have them.
func (f *fixture) retired(handlers ...[]string) {
	f.Helper()
	f.register(handlers...)
	f.restart(f.stop)
}

func (f *fixture) handlerNames() []string {
	f.Helper()
	var names []string
	for _, h := range f.loadRegistry().Handlers {
		names = append(names, h.Name)
	}
	return names
}

func renaming(name, to string) eventstore.Act {
	a := doing(eventstore.ActRename, event.Unit{Name: name})
	a.To = to
	return a
}

func resetting(name string, start eventstore.Start) eventstore.Act {
	a := doing(eventstore.ActReset, event.Unit{Name: name})
	a.Start = &start
	return a
}

// lived has a handler that did all that can be done to one, and is halted, parks, was tried, has dead letters that are due, and is paused.
func (f *fixture) lived(name string) {
	f.Helper()
	l := func(key string) event.LaneRef { return lane("order", key) }
	u := func(key string) event.Unit { return event.Unit{Name: name, Key: key} }
	f.commit(advance(u("applied"), l("applied"), 0, 1))
	f.commit(advance(u("applied"), backfillLane("order", "applied"), 0, 1))
	f.halt(u("halted"), l("halted"), 1)
	c := advance(u("parking"), l("parking"), 0, 2)
	c.Park = []eventstore.Parked{parkedRow(u("parking"), l("parking"), 1, "poison"), parkedRow(u("parking"), l("parking"), 2, "")}
	f.commit(c)
	f.act(seeing(eventstore.ActRetry, u("parking"), l("parking"), 1))
	tried := triedAt(l("tried"), 1)
	tried.Unit = u("tried")
	f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: tried.Unit}, Tried: tried})
	c = advance(u("dead"), l("dead"), 0, 2)
	c.Dead = []eventstore.Dead{deadRow(u("dead"), l("dead"), 1), deadRow(u("dead"), l("dead"), 2)}
	f.commit(c)
	f.stepJob(f.startJob(eventstore.JobReplay, eventstore.Filter{Handler: name}).ID, 1)
	f.pause(u("paused"), base)
	f.pause(event.Unit{Name: name}, base)
}

var livedKeys = []string{"applied", "dead", "halted", "parking", "paused", "tried"}

// publishLived publishes the events that lived needs.
func (f *fixture) publishLived() {
	f.Helper()
	for _, key := range livedKeys {
		f.publish(f.events("order", key, 2)...)
	}
	f.publish(backfill(f.events("order", "applied", 1)...)...)
}

// known is all that a store knows of a handler.
func (f *fixture) known(name string) map[string]eventstore.UnitState {
	f.Helper()
	all := make(map[string]eventstore.UnitState)
	for _, key := range append([]string{""}, livedKeys...) {
		all[key] = f.state(event.Unit{Name: name, Key: key})
	}
	return all
}

// named gives what is known of a handler as if it had another name.
func named(all map[string]eventstore.UnitState, name string) map[string]eventstore.UnitState {
	out := make(map[string]eventstore.UnitState)
	for key, s := range all {
		s.Unit.Name = name
		if s.Halt != nil {
			h := *s.Halt
			h.Unit.Name, s.Halt = name, &h
		}
		for _, p := range []**eventstore.Pause{&s.Pause, &s.HandlerPause} {
			if *p != nil {
				pause := **p
				pause.Unit.Name, *p = name, &pause
			}
		}
		if s.Parking != nil {
			p := *s.Parking
			p.Unit.Name, p.First.Unit.Name, s.Parking = name, name, &p
		}
		if s.Tried != nil {
			t := *s.Tried
			t.Unit.Name, s.Tried = name, &t
		}
		out[key] = s
	}
	return out
}

var handlerActs = []check{
	{"what the present start has registered is in use: it is neither renamed, removed nor reset", func(f *fixture) {
		f.retired([]string{"shipping", "order"}, []string{"billing", "order"}, []string{"audit", "order"})
		f.publish(f.events("order", "a", 3)...)
		f.commit(advance(shipping, orders, 0, 2))
		f.register([]string{"shipping", "order"}) // this start has it, and not the others
		want, last := f.loadRegistry(), f.lastAct()
		for _, a := range []eventstore.Act{
			renaming("shipping", "shipments"), doing(eventstore.ActRemove, event.Unit{Name: "shipping"}), resetting("shipping", eventstore.Start{}),
		} {
			_, err := f.store.Act(f.ctx, a)
			f.is(err, eventstore.ErrInUse)
		}
		f.same("registry", f.loadRegistry(), want)
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(2))
		f.same("last act", f.lastAct(), last)
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "billing"}))
		f.act(renaming("audit", "auditing"))
		f.same("handlers", f.handlerNames(), []string{"auditing", "shipping"})
	}},
	{"remove forgets all of a handler, and nothing of another", func(f *fixture) {
		f.retired([]string{"billing", "order"}, []string{"shipping", "order"})
		f.publishLived()
		f.lived("shipping")
		f.lived("billing")
		want, revision := f.known("billing"), f.loadRegistry().Revision
		got := f.act(doing(eventstore.ActRemove, event.Unit{Name: "shipping"}))
		f.same("row", f.actsAfter(got.ID-1, 10), []eventstore.ActRecord{got})
		f.same("handlers", f.handlerNames(), []string{"billing"})
		if f.loadRegistry().Revision <= revision {
			f.Fatal("the revision of the registry did not grow")
		}
		for _, key := range livedKeys {
			u := event.Unit{Name: "shipping", Key: key}
			f.same("recovered", f.recover(u, lane("order", key), backfillLane("order", key)), eventstore.Recovered{
				Unit: u, Checkpoints: []event.Position{{Lane: lane("order", key)}, {Lane: backfillLane("order", key)}},
			})
			f.same("known", f.state(u).Known(), false)
			f.same("due", f.dueRefs(u), []eventstore.AsideRef{})
		}
		f.same("halts", f.listHalts("shipping", event.Unit{}, 10), []eventstore.Halt{})
		f.same("parking", f.listParking("shipping", event.Unit{}, 10), []eventstore.Parking{})
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{})
		f.same("pauses", f.listPauses("shipping", event.Unit{}, 10), []eventstore.Pause{})
		for _, j := range f.listJobs(0, true, 10) {
			f.same("open job", j.Filter.Handler, "billing")
		}
		f.same("jobs", len(f.listJobs(0, false, 10)), 2)
		f.same("another handler", f.known("billing"), want)
		f.same("due of another", f.dueRefs(event.Unit{Name: "billing", Key: "dead"}), deadRefs(lane("order", "dead"), 1))
	}},
	{"remove lets the records go that only the handler held", func(f *fixture) {
		f.retired([]string{"billing", "order"}, []string{"shipping", "order"})
		f.publish(f.events("order", "a", 4)...)
		c := advance(shipping, orders, 0, 2)
		c.Dead = []eventstore.Dead{deadRow(shipping, orders, 1)}
		c.Park = []eventstore.Parked{parkedRow(shipping, orders, 2, "poison")}
		f.commit(c)
		f.commit(advance(billing, orders, 0, 4))
		f.same("purged", f.purgeAll(later), 0)
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "shipping"}))
		f.same("purged", f.purgeAll(later), 4)
	}},
	{"a handler that was removed may come again, as a new one", func(f *fixture) {
		f.retired([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 2)...)
		f.commit(advance(shipping, orders, 0, 2))
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "shipping"}))
		f.register([]string{"shipping", "order"})
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
		f.commit(advance(shipping, orders, 0, 1))
	}},
	{"rename keeps all, under the other name", func(f *fixture) {
		f.retired([]string{"billing", "order"}, []string{"shipping", "order", "payment"})
		f.publishLived()
		f.lived("shipping")
		f.lived("billing")
		want, other, before := named(f.known("shipping"), "shipments"), f.known("billing"), f.loadRegistry()
		letters, lag := f.listDead("shipping", event.Position{}, 10), f.lag("shipping")
		last := f.lastAct()
		f.act(renaming("shipping", "shipments"))
		f.same("known", f.known("shipments"), want)
		f.same("another handler", f.known("billing"), other)
		for _, s := range f.known("shipping") {
			f.same("known of the old name", s.Known() || s.Kind != "", false)
		}
		handler := before.Handlers[1]
		handler.Name = "shipments"
		got := f.loadRegistry()
		f.same("handlers", got.Handlers, []eventstore.Handler{before.Handlers[0], handler})
		if got.Revision <= before.Revision {
			f.Fatal("the revision of the registry did not grow")
		}
		for i := range letters {
			letters[i].Unit.Name = "shipments"
		}
		f.same("dead letters", f.listDead("shipments", event.Position{}, 10), letters)
		f.same("dead letters of the old name", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{})
		f.same("pauses of the old name", f.listPauses("shipping", event.Unit{}, 10), []eventstore.Pause{})
		f.same("lag", f.lag("shipments"), lag)
		dead := event.Unit{Name: "shipments", Key: "dead"}
		f.same("due", f.dueRefs(dead), deadRefs(lane("order", "dead"), 1))
		f.commit(through(dead, deadRef(lane("order", "dead"), 1)))
		parking := event.Unit{Name: "shipments", Key: "parking"}
		f.commit(through(parking, parkedRef(lane("order", "parking"), 1)))
		var job eventstore.Job
		for _, j := range f.listJobs(0, true, 10) {
			if j.Filter.Handler == "shipments" {
				job = j
			}
		}
		f.progress("job", job, progress{eventstore.JobRunning, 2, 1, 1, 0})
		f.stepJob(job.ID, 10)
		f.same("due", f.dueRefs(dead), deadRefs(lane("order", "dead"), 2))
		f.same("what was done to it stays", len(f.listActs(eventstore.ActQuery{Name: "shipping", Limit: 100})) > 1, true)
		f.same("row", f.actsAfter(last, 10)[0].Unit, event.Unit{Name: "shipping"})
		f.commit(advance(event.Unit{Name: "shipments", Key: "applied"}, lane("order", "applied"), 1, 2))
	}},
	{"a handler is not given a name that is taken", func(f *fixture) {
		f.retired([]string{"billing", "order"}, []string{"shipping", "order"})
		f.publish(f.events("order", "a", 1)...)
		f.commit(advance(event.Unit{Name: "former", Key: "a"}, orders, 0, 1)) // a place without a registration
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: event.Unit{Name: "letters", Key: "a"}}, Dead: []eventstore.Dead{deadRow(event.Unit{Name: "letters", Key: "a"}, orders, 1)}})
		f.declare(totals(1, "order"))
		for _, to := range []string{"billing", "former", "letters", "totals"} {
			f.same("why", f.stateMoved(renaming("shipping", to)).Why, `the name "`+to+`" is taken`)
		}
		f.same("handlers", f.handlerNames(), []string{"billing", "shipping"})
	}},
	{"an entity kind keeps its name", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, declared, nil))
		f.restart(f.stop)
		if _, err := f.store.Act(f.ctx, renaming("order", "orders")); err == nil {
			f.Fatal("it was renamed")
		}
		f.same("handlers", f.handlerNames(), []string{"order", "shipping"})
		f.same("last act", f.lastAct(), int64(0))
	}},
	{"an entity kind that is removed, and comes back, decides no command twice", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, declared, nil))
		one := event.Unit{Name: "order", Key: "o-1"}
		commands := lane("order.commands", "o-1")
		f.publish(f.events("order.commands", "o-1", 3)...)
		f.commit(advance(one, commands, 0, 2))
		f.restart(f.stop)
		reset := doing(eventstore.ActReset, event.Unit{Name: "order"})
		reset.Start = &eventstore.Start{}
		if _, err := f.store.Act(f.ctx, reset); err == nil || errors.Is(err, eventstore.ErrInUse) {
			f.Fatalf("reset: %v", err)
		}
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "order"}))
		f.same("handlers", f.handlerNames(), []string{"shipping"})
		f.same("place", f.checkpoint(one, commands), event.Sequence(2))
		again := f.loadRegistry()
		again.Handlers = declared.Handlers
		f.must(f.store.SaveRegistry(f.ctx, again, nil))
		f.same("behind", f.handler("order").Lag, uint64(1))
	}},
	{"who loaded the registry before a handler was renamed or removed saves nothing", func(f *fixture) {
		f.retired([]string{"billing", "order"}, []string{"shipping", "order"})
		for _, a := range []eventstore.Act{renaming("shipping", "shipments"), doing(eventstore.ActRemove, event.Unit{Name: "billing"})} {
			loaded := f.loadRegistry()
			f.act(a)
			var moved *eventstore.RegistryError
			if err := f.store.SaveRegistry(f.ctx, loaded, nil); !errors.As(err, &moved) {
				f.Fatalf("save gave %v, want a *RegistryError", err)
			}
		}
		f.same("handlers", f.handlerNames(), []string{"shipments"})
	}},
	{"reset puts a handler to where a new one would begin, in the lanes of its categories", func(f *fixture) {
		f.retired([]string{"billing", "order"}, []string{"shipping", "order"})
		events := f.events("order", "a", 4)
		f.publish(events...)
		f.publish(slices.Concat(backfill(f.events("order", "a", 2)...), f.events("order", "b", 2), f.events("payment", "a", 2))...)
		other := event.Unit{Name: "shipping", Key: "b"}
		f.commit(advance(shipping, orders, 0, 3))
		f.commit(advance(shipping, payments, 0, 1)) // of no category of its own
		f.commit(advance(billing, orders, 0, 1))
		for _, c := range []struct {
			start                    eventstore.Start
			primary, backfill, third event.Sequence
		}{
			{eventstore.Start{Handler: "ignored", Category: "ignored", Now: true}, 4, 2, 2},
			{eventstore.Start{From: events[2].Time}, 2, 0, 0},
			{eventstore.Start{}, 0, 0, 0},
			{eventstore.Start{From: later}, 4, 2, 2},
		} {
			f.act(resetting("shipping", c.start))
			f.same("primary", f.checkpoint(shipping, orders), c.primary)
			f.same("backfill", f.checkpoint(shipping, backfillLane("order", "a")), c.backfill)
			f.same("other key", f.checkpoint(other, lane("order", "b")), c.third)
			f.same("other category", f.checkpoint(shipping, payments), event.Sequence(1))
			f.same("other handler", f.checkpoint(billing, orders), event.Sequence(1))
		}
		f.same("event id", f.recover(shipping, orders).Checkpoints[0].EventID, events[3].ID)
		f.act(resetting("shipping", eventstore.Start{}))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders, backfillLane("order", "a"), lane("order", "b")})
		f.commit(advance(shipping, orders, 0, 1))
	}},
	{"reset begins with the first record kept", func(f *fixture) {
		f.retired([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 2)...)
		f.commit(advance(shipping, orders, 0, 2))
		f.same("purged", f.purgeAll(later), 2)
		f.publish(f.events("order", "a", 2)...)
		f.commit(advance(shipping, orders, 2, 4))
		f.act(resetting("shipping", eventstore.Start{}))
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(2))
	}},
	{"reset forgets halts, parked events and attempts; dead letters and pauses stay", func(f *fixture) {
		f.retired([]string{"billing", "order"}, []string{"shipping", "order"})
		f.publishLived()
		f.lived("shipping")
		f.lived("billing")
		other, letters := f.known("billing"), f.listDead("shipping", event.Position{}, 10)
		f.act(resetting("shipping", eventstore.Start{}))
		f.same("halts", f.listHalts("shipping", event.Unit{}, 10), []eventstore.Halt{})
		f.same("parking", f.listParking("shipping", event.Unit{}, 10), []eventstore.Parking{})
		f.same("parked", f.parked(event.Unit{Name: "shipping", Key: "parking"}), []eventstore.Parked{})
		f.same("tried", f.state(event.Unit{Name: "shipping", Key: "tried"}).Tried, (*eventstore.Tried)(nil))
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), letters)
		f.same("due", f.dueRefs(event.Unit{Name: "shipping", Key: "dead"}), deadRefs(lane("order", "dead"), 1))
		f.same("pauses", len(f.listPauses("shipping", event.Unit{}, 10)), 2)
		f.same("another handler", f.known("billing"), other)
		f.act(doing(eventstore.ActResume, event.Unit{Name: "shipping"}))
		f.same("unpassed", len(f.unpassed("shipping", "order")), len(livedKeys)) // one has two lanes, one is paused
	}},
	{"what was done to handlers is kept over a restart", func(f *fixture) {
		f.retired([]string{"audit", "order"}, []string{"billing", "order"}, []string{"shipping", "order"})
		f.publish(f.events("order", "a", 3)...)
		for _, name := range []string{"audit", "billing", "shipping"} {
			f.commit(advance(event.Unit{Name: name, Key: "a"}, orders, 0, 3))
		}
		f.act(renaming("audit", "auditing"))
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "billing"}))
		reset := resetting("shipping", eventstore.Start{})
		reset.Time = base.Add(time.Hour)
		f.act(reset)
		f.restart(f.crash)
		f.same("handlers", f.handlerNames(), []string{"auditing", "shipping"})
		for name, want := range map[string]event.Sequence{"audit": 0, "auditing": 3, "billing": 0, "shipping": 0} {
			f.same(name, f.checkpoint(event.Unit{Name: name, Key: "a"}, orders), want)
		}
		f.same("rows", len(f.actsAfter(0, 10)), 3)
	}},
}
