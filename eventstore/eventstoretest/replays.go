package eventstoretest

import (
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var replays = []check{
	{"a job begins with what was asked, and leaves a row", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 3)
		got := f.startJob(eventstore.JobReplay, ofShipping)
		f.same("job", got, eventstore.Job{
			ID: got.ID, Kind: eventstore.JobReplay, Filter: ofShipping, State: eventstore.JobRunning, Rate: eventstore.DefaultRate, Total: 3,
			Actor: "ann", Reason: "carrier is back", Began: got.Began, Changed: got.Began,
		})
		if got.ID <= 0 || got.Began.IsZero() {
			f.Fatalf("job %+v", got)
		}
		f.same("read", f.readJob(got.ID), got)
		f.same("rows", f.actsAfter(0, 10), []eventstore.ActRecord{{
			ID: f.lastAct(), Kind: eventstore.ActStartJob, Unit: event.Unit{Name: "shipping"}, Job: got.ID, Actor: "ann", Reason: "carrier is back",
			Detail: "replay of 3 dead letters, 100 a second", Time: got.Began,
		}})
		f.same("due before a step", f.dueRefs(shipping), []eventstore.AsideRef{})
	}},
	{"what another replay has handed out is not counted", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 3)
		f.stepJob(f.startJob(eventstore.JobReplay, ofShipping).ID, 2)
		n, _ := f.countJob(eventstore.JobReplay, ofShipping)
		f.same("counted", n, 1)
		f.same("total", f.startJob(eventstore.JobReplay, ofShipping).Total, 1)
		n, _ = f.countJob(eventstore.JobPurge, ofShipping)
		f.same("of a purge", n, 3)
	}},
	{"a replay hands out what it is asked for, counts what becomes of it, and is done when it waits for nothing", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		rows := f.dead(shipping, orders, 5)
		id := f.startJob(eventstore.JobReplay, ofShipping).ID
		j, units := f.stepJob(id, 2)
		f.progress("after a step", j, progress{eventstore.JobRunning, 5, 2, 0, 0})
		f.same("units", units, []event.Unit{shipping})
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 1, 2))
		f.same("due units", f.dueUnits(event.Unit{}, 10), []event.Unit{shipping})
		f.same("recovered", f.recover(shipping).Due, true)
		f.same("parked", f.recover(shipping).Parked, []eventstore.ParkedIn{})

		f.commit(through(shipping, deadRef(orders, 1)))
		f.commit(stays(shipping, deadRef(orders, 2), failedAgain(6)))
		rows[1].Attempts, rows[1].Reason, rows[1].Error, rows[1].Time = 6, "retries exhausted", "still no carrier", base.Add(time.Hour)
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), rows[1:])
		f.same("due", f.dueRefs(shipping), []eventstore.AsideRef{})
		f.same("due units", f.dueUnits(event.Unit{}, 10), []event.Unit{})
		f.same("recovered", f.recover(shipping).Due, false)
		f.progress("after outcomes", f.readJob(id), progress{eventstore.JobRunning, 5, 2, 1, 1})

		j, _ = f.stepJob(id, 10)
		f.progress("after the last step", j, progress{eventstore.JobRunning, 5, 5, 1, 1})
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 3, 4, 5))
		for at := event.Sequence(3); at <= 5; at++ {
			f.commit(through(shipping, deadRef(orders, at)))
		}
		j, units = f.stepJob(id, 10)
		f.progress("at the end", j, progress{eventstore.JobDone, 5, 5, 4, 1})
		f.same("units", units, []event.Unit{})
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), rows[1:2])
		j, units = f.stepJob(id, 10)
		f.progress("after the end", j, progress{eventstore.JobDone, 5, 5, 4, 1})
		f.same("units", units, []event.Unit{})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(5))
		f.progress("another job takes what is left", f.startJob(eventstore.JobReplay, ofShipping), progress{eventstore.JobRunning, 1, 0, 0, 0})
	}},
	{"a job without rows is done at its first step", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		for _, kind := range []eventstore.JobKind{eventstore.JobReplay, eventstore.JobPurge, eventstore.JobRetry, eventstore.JobSkip, eventstore.JobDeadLetter} {
			j, units := f.stepJob(f.startJob(kind, ofShipping).ID, 10)
			f.progress(string(kind), j, progress{State: eventstore.JobDone})
			f.same("units", units, []event.Unit{})
		}
	}},
	{"dead letters are due in order of category, lane and sequence, after what is parked, with their records", func(f *fixture) {
		f.register([]string{"shipping", "order", "payment"})
		f.dead(shipping, payments, 1)
		f.dead(shipping, orders, 2)
		f.publish(backfill(f.events("order", "a", 1)...)...)
		c := advance(shipping, backfillLane("order", "a"), 0, 1)
		c.Dead = []eventstore.Dead{deadRow(shipping, backfillLane("order", "a"), 1)}
		f.commit(c)
		f.dead(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"), 1)
		f.park(shipping, orders, 1)
		_, units := f.stepJob(f.startJob(eventstore.JobReplay, ofShipping).ID, 10)
		f.same("units", units, []event.Unit{shipping, {Name: "shipping", Key: "b"}})
		f.act(seeing(eventstore.ActRetry, shipping, orders, 3))
		want := []eventstore.Aside{
			{AsideRef: parkedRef(orders, 3), Attempts: 5, Record: f.lane(orders)[2]},
			{AsideRef: deadRef(orders, 1), Attempts: 5, Record: f.lane(orders)[0]},
			{AsideRef: deadRef(orders, 2), Attempts: 5, Record: f.lane(orders)[1]},
			{AsideRef: deadRef(backfillLane("order", "a"), 1), Attempts: 5, Record: f.lane(backfillLane("order", "a"))[0]},
			{AsideRef: deadRef(payments, 1), Attempts: 5, Record: f.lane(payments)[0]},
		}
		f.same("due", f.dueAsides(shipping, 10), want)
		f.same("first of them", f.dueAsides(shipping, 3), want[:3])
	}},
	{"settling a dead letter that is not due, or gone, is refused whole", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 2)
		c := through(shipping, deadRef(orders, 1))
		c.Publish = f.events("shipment", "a", 1)
		f.refused(c, eventstore.ErrAsideMoved)
		f.stepJob(f.startJob(eventstore.JobReplay, ofShipping).ID, 1)
		f.refused(through(shipping, deadRef(orders, 2)), eventstore.ErrAsideMoved)
		f.refused(through(shipping, parkedRef(orders, 1)), eventstore.ErrAsideMoved)
		f.refused(through(billing, deadRef(orders, 1)), eventstore.ErrAsideMoved)
		f.same("effects", f.tail(lane("shipment", "a")), event.Sequence(0))
		f.commit(c)
		f.refused(c, eventstore.ErrAsideMoved)
		f.same("effects", f.tail(lane("shipment", "a")), event.Sequence(1))
	}},
	{"what was set aside after the start of a job is not taken", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 1)
		j := f.startJob(eventstore.JobReplay, ofShipping)
		c := advance(shipping, orders, 1, 2)
		c.Dead = []eventstore.Dead{deadRow(shipping, orders, 2)}
		c.Dead[0].Time = j.Began.Add(time.Second)
		f.publish(f.events("order", "a", 1)...)
		f.commit(c)
		f.stepJob(j.ID, 10)
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 1))
		f.commit(through(shipping, deadRef(orders, 1)))
		f.progress("job", f.finish(j.ID), progress{eventstore.JobDone, 1, 1, 1, 0})
	}},
	{"a row is taken by one job at a time, and by one job once", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 2)
		first, second := f.startJob(eventstore.JobReplay, ofShipping).ID, f.startJob(eventstore.JobReplay, ofShipping).ID
		f.stepJob(first, 1)
		f.commit(stays(shipping, deadRef(orders, 1), eventstore.AsideFailure{Attempts: 6, Reason: "poison", Time: base}))
		f.stepJob(first, 10)
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 2))
		j, _ := f.stepJob(second, 10) // the first of them failed, and is free
		f.progress("second job", j, progress{eventstore.JobRunning, 2, 1, 0, 0})
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 1, 2))
		f.commit(through(shipping, deadRef(orders, 1)))
		f.commit(through(shipping, deadRef(orders, 2)))
		f.progress("first job", f.finish(first), progress{eventstore.JobDone, 2, 2, 1, 1})
		f.progress("second job", f.finish(second), progress{eventstore.JobDone, 2, 1, 1, 0})
	}},
	{"a dead letter that is set aside anew is not due any more, and failed", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		rows := f.dead(shipping, orders, 1)
		id := f.startJob(eventstore.JobReplay, ofShipping).ID
		f.stepJob(id, 10)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Dead: rows})
		f.same("due", f.dueRefs(shipping), []eventstore.AsideRef{})
		f.progress("job", f.finish(id), progress{eventstore.JobDone, 1, 1, 0, 1})
	}},
	{"a filter selects by each of its fields", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		rows := f.dead(shipping, orders, 4)
		rows[1].Type, rows[2].Reason, rows[3].EventID = "order.cancelled", "retries exhausted", "e-other"
		for i := range rows {
			rows[i].Time = base.Add(time.Duration(i) * time.Hour)
		}
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Dead: rows})
		other := event.Unit{Name: "shipping", Key: "b"}
		of := f.dead(other, lane("order", "b"), 1)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: billing}, Dead: []eventstore.Dead{deadRow(billing, orders, 1)}})
		for what, c := range map[string]struct {
			filter eventstore.Filter
			want   []eventstore.Dead
		}{
			"all":       {eventstore.Filter{}, append(append([]eventstore.Dead{}, rows...), of...)},
			"key":       {eventstore.Filter{Key: "b"}, of},
			"type":      {eventstore.Filter{Type: "order.cancelled"}, rows[1:2]},
			"reason":    {eventstore.Filter{Reason: "retries exhausted"}, rows[2:3]},
			"event":     {eventstore.Filter{EventID: "e-other"}, rows[3:4]},
			"from":      {eventstore.Filter{From: base.Add(2 * time.Hour)}, rows[2:4]},
			"until":     {eventstore.Filter{Key: "a", Until: base.Add(2 * time.Hour)}, rows[:2]},
			"from till": {eventstore.Filter{From: base.Add(time.Hour), Until: base.Add(2 * time.Hour)}, rows[1:2]},
			"two":       {eventstore.Filter{Key: "b", Type: "order.cancelled"}, nil},
			"part":      {eventstore.Filter{Reason: "retries"}, nil},
		} {
			c.filter.Handler = "shipping"
			n, few := f.countJob(eventstore.JobPurge, c.filter)
			f.same(what+": count", n, len(c.want))
			f.same(what+": few", few, c.want)
			id := f.startJob(eventstore.JobReplay, c.filter).ID
			j, _ := f.stepJob(id, 100)
			f.same(what+": total", j.Total, len(c.want))
			f.same(what+": handed", j.Handed, len(c.want))
			var refs []eventstore.AsideRef
			for _, u := range []event.Unit{shipping, other} {
				refs = append(refs, f.dueRefs(u)...)
			}
			for i, d := range c.want {
				f.same(what+": due", refs[i], deadRef(d.Lane, d.Sequence))
			}
			f.same(what+": due", len(refs), len(c.want))
			f.same(what+": due of another handler", f.dueRefs(billing), []eventstore.AsideRef{})
			if j.Open() {
				f.actOnJob(id, eventstore.ActCancelJob)
			}
		}
	}},
	{"counting gives the first few of many, and changes nothing", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		rows := f.dead(shipping, orders, eventstore.FewDead+2)
		n, few := f.countJob(eventstore.JobReplay, ofShipping)
		f.same("count", n, len(rows))
		f.same("few", few, rows[:eventstore.FewDead])
		f.same("jobs", f.listJobs(0, false, 10), []eventstore.Job{})
		f.same("acts", f.lastAct(), int64(0))
	}},
	{"purge forgets dead letters, with which their records may go", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		rows := f.dead(shipping, orders, 3)
		f.same("purged", f.purgeAll(later), 0)
		id := f.startJob(eventstore.JobPurge, ofShipping).ID
		j, units := f.stepJob(id, 2)
		f.progress("after a step", j, progress{eventstore.JobRunning, 3, 2, 2, 0})
		f.same("units", units, []event.Unit{shipping})
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), rows[2:])
		f.same("due", f.dueRefs(shipping), []eventstore.AsideRef{})
		j, _ = f.stepJob(id, 2)
		f.progress("at the end", j, progress{eventstore.JobDone, 3, 3, 3, 0})
		f.same("purged", f.purgeAll(later), 3)
	}},
	{"purge of what a replay has handed out ends its wait", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 1)
		replay := f.startJob(eventstore.JobReplay, ofShipping).ID
		f.stepJob(replay, 10)
		f.finish(f.startJob(eventstore.JobPurge, ofShipping).ID)
		f.refused(through(shipping, deadRef(orders, 1)), eventstore.ErrAsideMoved)
		f.progress("replay", f.finish(replay), progress{eventstore.JobDone, 1, 1, 1, 0})
	}},
	{"outcomes that race with steps are all counted", func(f *fixture) {
		const count = 40
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, count)
		var (
			group sync.WaitGroup
			id    = f.startJob(eventstore.JobReplay, ofShipping).ID
			begun = make(map[event.Sequence]bool)
			last  eventstore.Job
		)
		for last.State != eventstore.JobDone {
			j, units, err := f.store.StepJob(f.ctx, id, 3)
			f.must(err)
			if last = j; len(units) == 0 {
				group.Wait()
			}
			for _, ref := range f.dueRefs(shipping) {
				if begun[ref.Sequence] {
					continue
				}
				begun[ref.Sequence] = true
				group.Go(func() {
					c := through(shipping, ref)
					if ref.Sequence%4 == 0 {
						c = stays(shipping, ref, failedAgain(6))
					}
					if _, err := f.try(c); err != nil {
						f.Errorf("settle %+v: %v", ref, err)
					}
				})
			}
		}
		group.Wait()
		f.progress("job", last, progress{eventstore.JobDone, count, count, count * 3 / 4, count / 4})
		f.same("dead letters", len(f.listDead("shipping", event.Position{}, count)), count/4)
	}},
}
