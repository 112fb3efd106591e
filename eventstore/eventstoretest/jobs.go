package eventstoretest

import (
	"errors"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// job is one to begin.
func job(kind eventstore.JobKind, filter eventstore.Filter) eventstore.Job {
	return eventstore.Job{Kind: kind, Filter: filter, Actor: "ann", Reason: "carrier is back"}
}

func (f *fixture) startJob(kind eventstore.JobKind, filter eventstore.Filter) eventstore.Job {
	f.Helper()
	got, err := f.store.StartJob(f.ctx, job(kind, filter))
	f.must(err)
	return got
}

// ofShipping selects all of the handler.
var ofShipping = eventstore.Filter{Handler: "shipping"}

func (f *fixture) readJob(id int64) eventstore.Job {
	f.Helper()
	got, err := f.store.ReadJob(f.ctx, id)
	f.must(err)
	return got
}

func (f *fixture) stepJob(id int64, max int) (eventstore.Job, []event.Unit) {
	f.Helper()
	j, units, err := f.store.StepJob(f.ctx, id, max)
	f.must(err)
	f.same("job read", f.readJob(id), j)
	return j, units
}

// finish steps a job until it is done.
func (f *fixture) finish(id int64) eventstore.Job {
	f.Helper()
	for range 1000 {
		if j, _ := f.stepJob(id, 100); j.State == eventstore.JobDone {
			return j
		}
	}
	f.Fatalf("job %d does not end: %+v", id, f.readJob(id))
	return eventstore.Job{}
}

func (f *fixture) actOnJob(id int64, kind eventstore.ActKind) eventstore.Job {
	f.Helper()
	j, err := f.store.ActOnJob(f.ctx, id, kind, "bob", "not now")
	f.must(err)
	f.same("job read", f.readJob(id), j)
	return j
}

func (f *fixture) countJob(kind eventstore.JobKind, filter eventstore.Filter) (int, []eventstore.Dead) {
	f.Helper()
	n, few, err := f.store.CountJob(f.ctx, kind, filter)
	f.must(err)
	return n, few
}

// progress is what is counted of a job.
type progress struct {
	State                          eventstore.JobState
	Total, Handed, Through, Failed int
}

func (f *fixture) progress(what string, j eventstore.Job, want progress) {
	f.Helper()
	f.same(what, progress{j.State, j.Total, j.Handed, j.Through, j.Failed}, want)
}

func deadRefs(l event.LaneRef, at ...event.Sequence) []eventstore.AsideRef {
	var refs []eventstore.AsideRef
	for _, n := range at {
		refs = append(refs, deadRef(l, n))
	}
	return refs
}

func failedAgain(attempts int) eventstore.AsideFailure {
	return eventstore.AsideFailure{Attempts: attempts, Reason: "retries exhausted", Error: "still no carrier", Time: base.Add(time.Hour)}
}

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
}

func (f *fixture) listJobs(before int64, open bool, limit int) []eventstore.Job {
	f.Helper()
	got, err := f.store.ListJobs(f.ctx, before, open, limit)
	f.must(err)
	return got
}

// jobMoved does to a job what cannot be done in its state.
func (f *fixture) jobMoved(id int64, kinds ...eventstore.ActKind) {
	f.Helper()
	for _, kind := range kinds {
		before := f.lastAct()
		_, err := f.store.ActOnJob(f.ctx, id, kind, "bob", "")
		var moved *eventstore.JobMovedError
		if !errors.As(err, &moved) || !errors.Is(err, eventstore.ErrStateMoved) {
			f.Fatalf("%s gave %v, want a *JobMovedError", kind, err)
		}
		f.same("job told", moved.Now, f.readJob(id))
		f.same("last act", f.lastAct(), before)
	}
}

var jobActs = []check{
	{"a job is paused, resumed and cancelled from the states in which that can be, each with a row", func(f *fixture) {
		const pause, resume, cancel = eventstore.ActPauseJob, eventstore.ActResumeJob, eventstore.ActCancelJob
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 3)
		id := f.startJob(eventstore.JobReplay, ofShipping).ID
		f.jobMoved(id, resume)
		f.same("paused", f.actOnJob(id, pause).State, eventstore.JobPaused)
		f.jobMoved(id, pause)
		j, units := f.stepJob(id, 10)
		f.progress("a paused job takes nothing", j, progress{eventstore.JobPaused, 3, 0, 0, 0})
		f.same("units", units, []event.Unit{})
		f.same("running", f.actOnJob(id, resume).State, eventstore.JobRunning)
		f.stepJob(id, 1)
		f.actOnJob(id, pause)
		f.same("cancelled", f.actOnJob(id, cancel).State, eventstore.JobCancelled)
		f.jobMoved(id, pause, resume, cancel)
		done := f.startJob(eventstore.JobPurge, eventstore.Filter{Handler: "shipping", Key: "none"}).ID
		f.finish(done)
		f.jobMoved(done, pause, resume, cancel)
		var kinds []eventstore.ActKind
		for _, r := range f.actsAfter(0, 10) {
			if r.Job == id && r.Kind != eventstore.ActStartJob {
				kinds = append(kinds, r.Kind)
				f.same("row", []string{r.Unit.Name, r.Actor, r.Reason}, []string{"shipping", "bob", "not now"})
			}
		}
		f.same("rows", kinds, []eventstore.ActKind{pause, resume, pause, cancel})
	}},
	{"pausing leaves due what was handed out, cancelling does not", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		rows := f.dead(shipping, orders, 3)
		id := f.startJob(eventstore.JobReplay, ofShipping).ID
		f.stepJob(id, 3)
		f.actOnJob(id, eventstore.ActPauseJob)
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 1, 2, 3))
		f.commit(through(shipping, deadRef(orders, 1)))
		f.progress("job", f.readJob(id), progress{eventstore.JobPaused, 3, 3, 1, 0})
		f.actOnJob(id, eventstore.ActCancelJob)
		f.same("due", f.dueRefs(shipping), []eventstore.AsideRef{})
		f.same("due units", f.dueUnits(event.Unit{}, 10), []event.Unit{})
		f.refused(through(shipping, deadRef(orders, 2)), eventstore.ErrAsideMoved)
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), rows[1:])
		f.progress("job", f.readJob(id), progress{eventstore.JobCancelled, 3, 3, 1, 0})
		j, _ := f.stepJob(f.startJob(eventstore.JobReplay, ofShipping).ID, 10)
		f.progress("another job takes them", j, progress{eventstore.JobRunning, 2, 2, 0, 0})
	}},
	{"jobs are listed the newest first, page by page, with or without those that are over", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 1)
		var all, open []eventstore.Job
		for i := range 6 {
			j := f.startJob(eventstore.JobReplay, eventstore.Filter{Handler: "shipping", Key: "a"})
			switch i % 3 {
			case 0:
				open = append([]eventstore.Job{j}, open...)
			case 1:
				j = f.actOnJob(j.ID, eventstore.ActPauseJob)
				open = append([]eventstore.Job{j}, open...)
			default:
				j = f.actOnJob(j.ID, eventstore.ActCancelJob)
			}
			all = append([]eventstore.Job{j}, all...)
		}
		for _, q := range []struct {
			open bool
			want []eventstore.Job
		}{{false, all}, {true, open}} {
			var got []eventstore.Job
			for before := int64(0); ; before = got[len(got)-1].ID {
				page := f.listJobs(before, q.open, 2)
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
			}
			f.same("jobs", got, q.want)
		}
	}},
	{"a job that is malformed, or not known, is refused", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		good := job(eventstore.JobReplay, ofShipping)
		for _, spoil := range []func(j *eventstore.Job){
			func(j *eventstore.Job) { j.Kind = "nonsense" },
			func(j *eventstore.Job) { j.Filter.Handler = "" },
			func(j *eventstore.Job) { j.Rate = -1 },
			func(j *eventstore.Job) { j.Rate = eventstore.MaxRate + 1 },
			func(j *eventstore.Job) { j.Actor = "" },
			func(j *eventstore.Job) { j.Reason = "" },
		} {
			j := good
			spoil(&j)
			if _, err := f.store.StartJob(f.ctx, j); err == nil {
				f.Errorf("%+v was started", j)
			}
		}
		unknown := eventstore.Filter{Handler: "unknown"}
		_, err := f.store.StartJob(f.ctx, job(eventstore.JobReplay, unknown))
		f.is(err, eventstore.ErrNotFound)
		_, _, err = f.store.CountJob(f.ctx, eventstore.JobReplay, unknown)
		f.is(err, eventstore.ErrNotFound)
		_, err = f.store.ReadJob(f.ctx, 99)
		f.is(err, eventstore.ErrNotFound)
		_, _, err = f.store.StepJob(f.ctx, 99, 1)
		f.is(err, eventstore.ErrNotFound)
		_, err = f.store.ActOnJob(f.ctx, 99, eventstore.ActPauseJob, "bob", "")
		f.is(err, eventstore.ErrNotFound)
		if _, _, err = f.store.CountJob(f.ctx, "nonsense", ofShipping); err == nil {
			f.Error("a job of no kind was counted")
		}
		id := f.startJob(eventstore.JobReplay, ofShipping).ID
		if _, err = f.store.ActOnJob(f.ctx, id, eventstore.ActPauseJob, "", ""); err == nil {
			f.Error("a job was paused by nobody")
		}
		if _, err = f.store.ActOnJob(f.ctx, id, eventstore.ActPause, "bob", ""); err == nil {
			f.Error("a job was paused as if it was a unit")
		}
		f.same("jobs", len(f.listJobs(0, false, 10)), 1)
	}},
	{"a job goes on where it stood after a restart", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 4)
		id := f.startJob(eventstore.JobReplay, ofShipping).ID
		f.stepJob(id, 2)
		f.commit(stays(shipping, deadRef(orders, 1), failedAgain(6)))
		want := f.readJob(id)
		f.restart(f.crash)
		f.same("job", f.readJob(id), want)
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 2))
		j, _ := f.stepJob(id, 10)
		f.progress("job", j, progress{eventstore.JobRunning, 4, 4, 0, 1})
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 2, 3, 4))
		if next := f.startJob(eventstore.JobReplay, ofShipping).ID; next <= id {
			f.Fatalf("job %d comes after %d", next, id)
		}
	}},
}

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
		other := event.Unit{Name: "shipping", Key: "b"}
		f.publish(f.events("order", "b", 1)...)
		j := f.startJob(eventstore.JobRetry, ofShipping)
		f.stepJob(j.ID, 1)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Halt: &h}) // at the same time as before
		late := f.halt(other, lane("order", "b"), 1)
		late.Since = j.Began.Add(time.Second)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: other}, Halt: &late})
		f.progress("job", f.finish(j.ID), progress{eventstore.JobDone, 1, 1, 1, 0})
		f.same("halts", len(f.listHalts("", event.Unit{}, 10)), 2)
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
