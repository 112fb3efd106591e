package eventstoretest

import (
	"errors"
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
			func(j *eventstore.Job) { j.Kind, j.Reason = eventstore.JobPurge, "" }, // nothing may be lost without one
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
