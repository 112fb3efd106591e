package eventstoretest

import (
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// stoppedUnits has two units of shipping halted, two that park, and one whose parked events are due.
func stoppedUnits(f *fixture) {
	f.Helper()
	f.register([]string{"shipping", "order", "payment"})
	for _, key := range []string{"a", "b"} {
		f.haltNext(event.Unit{Name: "shipping", Key: key}, lane("order", key), 2)
	}
	for _, key := range []string{"c", "d", "e"} {
		f.park(event.Unit{Name: "shipping", Key: key}, lane("payment", key), 2)
	}
	f.act(seeing(eventstore.ActRetry, event.Unit{Name: "shipping", Key: "e"}, lane("payment", "e"), 1))
}

var unitJobs = []check{
	{"retry, skip and dead-letter act on each unit that is stopped, and leave a row for each", func(f *fixture) {
		stoppedUnits(f)
		for i, c := range []struct {
			kind    eventstore.JobKind
			act     eventstore.ActKind
			passes  event.Sequence
			parked  int
			letters int
		}{
			{eventstore.JobRetry, eventstore.ActRetry, 0, 2, 0},
			{eventstore.JobSkip, eventstore.ActSkip, 1, 1, 0},
			{eventstore.JobDeadLetter, eventstore.ActDeadLetter, 1, 1, 4},
		} {
			if i > 0 { // stop them anew
				for _, key := range []string{"a", "b"} {
					u, l := event.Unit{Name: "shipping", Key: key}, lane("order", key)
					if f.recover(u).Halt == nil {
						f.publish(f.events("order", key, 1)...)
						f.halt(u, l, f.checkpoint(u, l)+1)
					}
				}
				for _, key := range []string{"c", "d"} {
					u, l := event.Unit{Name: "shipping", Key: key}, lane("payment", key)
					first := f.parked(u)[0]
					f.commit(stays(u, parkedRef(l, first.Sequence), eventstore.AsideFailure{Attempts: 6, Reason: "poison", Time: base}))
					f.park(u, l, 1)
				}
			}
			before := f.lastAct()
			at := f.checkpoint(shipping, orders)
			parked := len(f.parked(event.Unit{Name: "shipping", Key: "c"}))
			n, few := f.countJob(c.kind, ofShipping)
			f.same("count", n, 4)
			f.same("few", few, []eventstore.Dead{})
			id := f.startJob(c.kind, ofShipping).ID
			j, first := f.stepJob(id, 3)
			f.progress("after a step", j, progress{eventstore.JobRunning, 4, 3, 3, 0})
			j, rest := f.stepJob(id, 3)
			f.progress("at the end", j, progress{eventstore.JobDone, 4, 4, 4, 0})
			f.same("units", append(first, rest...), []event.Unit{
				{Name: "shipping", Key: "a"}, {Name: "shipping", Key: "b"}, {Name: "shipping", Key: "c"}, {Name: "shipping", Key: "d"},
			})
			f.same("halts", f.listHalts("", event.Unit{}, 10), []eventstore.Halt{})
			f.same("checkpoint", f.checkpoint(shipping, orders), at+c.passes)
			f.same("due", f.recover(event.Unit{Name: "shipping", Key: "c"}).Due, true)
			dropped := 1
			if c.kind == eventstore.JobRetry {
				dropped = 0
			}
			f.same("parked", len(f.parked(event.Unit{Name: "shipping", Key: "c"})), parked-dropped)
			f.same("dead letters", len(f.listDead("shipping", event.Position{}, 10)), c.letters)
			rows := f.actsAfter(before, 10)[1:] // after the start
			f.same("rows", len(rows), 4)
			for _, r := range rows {
				if r.Kind != c.act || r.Job != id || r.Actor != "ann" || r.Reason != "carrier is back" || r.Event.Sequence == 0 || r.Detail == "" {
					f.Fatalf("row %+v", r)
				}
			}
			f.same("the one that applies its parked events", len(f.parked(event.Unit{Name: "shipping", Key: "e"})), 2)
		}
	}},
	{"a filter selects stopped units by each of its fields", func(f *fixture) {
		stoppedUnits(f)
		h := f.haltNext(event.Unit{Name: "shipping", Key: "f"}, lane("order", "f"), 1)
		h.Reason, h.EventType, h.EventID, h.Since = "poison", "order.cancelled", "e-other", base.Add(time.Hour)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: h.Unit}, Halt: &h})
		for what, c := range map[string]struct {
			filter eventstore.Filter
			want   int
		}{
			"all":    {eventstore.Filter{}, 5},
			"key":    {eventstore.Filter{Key: "c"}, 1},
			"type":   {eventstore.Filter{Type: "order.cancelled"}, 1},
			"reason": {eventstore.Filter{Reason: "poison"}, 1},
			"event":  {eventstore.Filter{EventID: "e-other"}, 1},
			"parked": {eventstore.Filter{EventID: "at-1"}, 2},
			"from":   {eventstore.Filter{From: base.Add(time.Minute)}, 1},
			"until":  {eventstore.Filter{Until: base.Add(time.Minute)}, 4},
			"none":   {eventstore.Filter{Key: "c", Reason: "poison"}, 0},
		} {
			c.filter.Handler = "shipping"
			n, _ := f.countJob(eventstore.JobSkip, c.filter)
			f.same(what, n, c.want)
		}
		f.progress("job", f.finish(f.startJob(eventstore.JobRetry, eventstore.Filter{Handler: "shipping", Reason: "poison"}).ID),
			progress{eventstore.JobDone, 1, 1, 1, 0})
		f.same("halts left", len(f.listHalts("", event.Unit{}, 10)), 2)
	}},
	{"a unit that is halted and parks is taken for each", func(f *fixture) {
		f.register([]string{"shipping", "order", "payment"})
		f.park(shipping, payments, 2)
		f.haltNext(shipping, orders, 1)
		j := f.finish(f.startJob(eventstore.JobRetry, ofShipping).ID)
		f.progress("job", j, progress{eventstore.JobDone, 2, 2, 2, 0})
		f.same("halt", f.recover(shipping).Halt, (*eventstore.Halt)(nil))
		f.same("due", f.recover(shipping).Due, true)
	}},
	{"what stopped after the start of a job is not taken, and one that stops again is not taken twice", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		h := f.haltNext(shipping, orders, 1)
		f.haltNext(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"), 1)
		other := event.Unit{Name: "shipping", Key: "c"}
		f.publish(f.events("order", "c", 1)...)
		j := f.startJob(eventstore.JobRetry, ofShipping)
		f.stepJob(j.ID, 1)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Halt: &h}) // at the same time as before
		late := f.halt(other, lane("order", "c"), 1)
		late.Since = j.Began.Add(time.Second)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: other}, Halt: &late})
		f.progress("job", f.finish(j.ID), progress{eventstore.JobDone, 2, 2, 2, 0})
		f.same("halts", f.listHalts("", event.Unit{}, 10), []eventstore.Halt{h, late})
	}},
	{"a unit on which a job cannot act counts as failed, and keeps its halt", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 3)...)
		f.halt(shipping, orders, 3) // with events before it that are not applied
		f.progress("job", f.finish(f.startJob(eventstore.JobSkip, ofShipping).ID), progress{eventstore.JobDone, 1, 1, 0, 1})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(0))
		f.same("halts", len(f.listHalts("", event.Unit{}, 10)), 1)
		rows := f.actsAfter(0, 10)
		if len(rows) != 1 || !strings.HasPrefix(rows[0].Detail, "skip of 1 stop") {
			f.Fatalf("rows %+v", rows)
		}
	}},
}
