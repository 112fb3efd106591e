package postgres

import (
	"errors"
	"fmt"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Here two sessions change what stands in the way of one unit, step by step: one has decided and is held at the last thing that it does,
// the other begins. Whoever is second must decide on what the first one left.

func TestAnActComesAfterTheCommitThatHasTheUnit(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 3))
	d.commit(events("told", 1))
	d.commit(parked(1, "poison"))
	d.commit(parked(2, ""))
	d.must(d.act(on(eventstore.ActRetry, 1)))
	release := d.holdLanes()
	settled := d.committing(settles(eventstore.AsideParked, 1))
	d.waiting(1)
	skipped := d.acting(on(eventstore.ActSkip, 1))
	d.waiting(2)
	release()
	d.must(<-settled)
	if err := <-skipped; !errors.Is(err, eventstore.ErrStateMoved) {
		t.Errorf("skip of what the owner has applied: %v", err)
	}
	left, err := d.store.ListParked(t.Context(), shipping, 0, 10)
	d.must(err)
	if len(left) != 1 || left[0].Sequence != 2 || !left[0].Due {
		t.Errorf("parked: %+v, want #2, due", left)
	}
}

func TestACommitComesAfterTheActThatHasTheUnit(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 3))
	d.commit(parked(1, "poison"))
	d.commit(parked(2, ""))
	d.must(d.act(on(eventstore.ActRetry, 1)))
	release := d.holdActs()
	skipped := d.acting(on(eventstore.ActSkip, 1))
	d.waiting(1)
	settled := d.committing(settles(eventstore.AsideParked, 1))
	d.waiting(2)
	release()
	d.must(<-skipped)
	if err := <-settled; !errors.Is(err, eventstore.ErrAsideMoved) {
		t.Errorf("the owner's attempt at what was skipped: %v", err)
	}
	if tail, err := d.store.LaneTail(t.Context(), event.LaneRef{Category: "order", Key: "told"}); tail != 0 || err != nil {
		t.Errorf("what it told: %d, %v", tail, err)
	}
}

func TestOfTwoActsAtOnceTheSecondSeesTheFirst(t *testing.T) {
	t.Parallel()
	for _, kind := range []eventstore.ActKind{eventstore.ActSkip, eventstore.ActRetry, eventstore.ActDeadLetter} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.commit(events("a", 3))
			d.commit(halted("a"))
			release := d.holdActs()
			first := d.acting(on(kind, 1))
			d.waiting(1)
			second := d.acting(on(eventstore.ActSkip, 1))
			d.waiting(2)
			release()
			d.must(<-first)
			if err := <-second; !errors.Is(err, eventstore.ErrStateMoved) {
				t.Errorf("skip after %s: %v", kind, err)
			}
			want := event.Sequence(1)
			if kind == eventstore.ActRetry {
				want = 0
			}
			state, err := d.store.UnitState(t.Context(), shipping)
			d.must(err)
			if state.Lanes[0].Checkpoint.Sequence != want || state.Halt != nil {
				t.Errorf("%+v", state)
			}
		})
	}
}

func TestTwoWhoPauseAtOnceLeaveOnePause(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	whole := event.Unit{Name: "shipping"}
	release := d.holdActs()
	first := d.acting(pausing(whole))
	d.waiting(1)
	second := d.acting(pausing(whole))
	d.waiting(2)
	release()
	d.must(<-first)
	if err := <-second; !errors.Is(err, eventstore.ErrStateMoved) {
		t.Errorf("second: %v", err)
	}
}

func TestNothingIsParkedBehindWhatIsBeingDropped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 3))
	d.commit(parked(1, "poison"))
	release := d.holdActs()
	dropped := d.acting(on(eventstore.ActSkip, 1))
	d.waiting(1)
	behind := d.committing(parked(2, ""))
	d.waiting(2)
	release()
	d.must(<-dropped)
	if err := <-behind; !errors.Is(err, eventstore.ErrAsideMoved) {
		t.Errorf("parked behind nothing: %v", err)
	}
	state, err := d.store.UnitState(t.Context(), shipping)
	d.must(err)
	if state.Parking != nil || state.Lanes[0].Checkpoint.Sequence != 1 {
		t.Errorf("%+v", state)
	}
}

func TestWhatWasParkedJustBeforeIsDueOnceTheFirstIsDropped(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 3))
	d.commit(events("told", 1))
	d.commit(parked(1, "poison"))
	more := parked(2, "")
	more.Publish = events("told", 1).Publish
	release := d.holdLanes()
	behind := d.committing(more)
	d.waiting(1)
	dropped := d.acting(on(eventstore.ActSkip, 1))
	d.waiting(2)
	release()
	d.must(<-behind)
	d.must(<-dropped)
	left, err := d.store.ListParked(t.Context(), shipping, 0, 10)
	d.must(err)
	if len(left) != 1 || left[0].Sequence != 2 || !left[0].Due {
		t.Errorf("parked: %+v, want #2, due", left)
	}
}

// replayed hands the first dead letter of shipping out, which is that of a key.
func (d *desk) replayed(key string) eventstore.Job {
	d.Helper()
	d.commit(events(key, 1))
	d.commit(events("told", 1))
	d.commit(dead(key, 1))
	job, err := d.at.StartJob(d.Context(), eventstore.Job{Kind: eventstore.JobReplay, Filter: eventstore.Filter{Handler: "shipping"}, Actor: "ann"})
	d.must(err)
	_, units, err := d.store.StepJob(d.Context(), job.ID, 1)
	d.must(err)
	if len(units) != 1 {
		d.Fatalf("handed out to %v", units)
	}
	return job
}

// What another does to a dead letter, while the owner settles it: in each case it counts for the replay once.
func TestADeadLetterIsSettledOnce(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(*desk, eventstore.Job) error{
		"purge": func(d *desk, _ eventstore.Job) error {
			purge, err := d.at.StartJob(d.Context(), eventstore.Job{Kind: eventstore.JobPurge, Filter: eventstore.Filter{Handler: "shipping"}, Actor: "ann", Reason: "old"})
			if err == nil {
				_, _, err = d.at.StepJob(d.Context(), purge.ID, 10)
			}
			return err
		},
		"cancel": func(d *desk, job eventstore.Job) error {
			_, err := d.at.ActOnJob(d.Context(), job.ID, eventstore.ActCancelJob, "ann", "enough")
			return err
		},
	} {
		t.Run(name+" after the owner", func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			job := d.replayed("a")
			release := d.holdLanes()
			settled := d.committing(settles(eventstore.AsideDead, 1))
			d.waiting(1)
			after := background(func() error { return other(d, job) })
			d.waiting(2)
			release()
			d.must(<-settled)
			d.must(<-after)
			d.checkJob(job.ID, "1 handed, 1 through, 0 failed")
		})
		t.Run(name+" before the owner", func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			job := d.replayed("a")
			release := d.hold(`SELECT FROM keyhold_jobs FOR UPDATE`) // the last row that the other changes
			before := background(func() error { return other(d, job) })
			d.waiting(1)
			settled := d.committing(settles(eventstore.AsideDead, 1))
			d.waiting(2)
			release()
			d.must(<-before)
			if err := <-settled; !errors.Is(err, eventstore.ErrAsideMoved) {
				t.Errorf("settle: %v", err)
			}
			want := "1 handed, 1 through, 0 failed"
			if name == "cancel" {
				want = "1 handed, 0 through, 0 failed"
			}
			d.checkJob(job.ID, want)
		})
	}
}

func (d *desk) checkJob(id int64, want string) {
	d.Helper()
	j, err := d.store.ReadJob(d.Context(), id)
	d.must(err)
	if got := fmt.Sprintf("%d handed, %d through, %d failed", j.Handed, j.Through, j.Failed); got != want {
		d.Errorf("job: %s, want %s", got, want)
	}
}

func TestNothingIsHandedOutForAJobThatIsBeingCancelled(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 1))
	d.commit(dead("a", 1))
	job, err := d.at.StartJob(t.Context(), eventstore.Job{Kind: eventstore.JobReplay, Filter: eventstore.Filter{Handler: "shipping"}, Actor: "ann"})
	d.must(err)
	release := d.holdActs()
	cancelled := background(func() error {
		_, err := d.at.ActOnJob(t.Context(), job.ID, eventstore.ActCancelJob, "ann", "enough")
		return err
	})
	d.waiting(1)
	stepped := background(func() error {
		_, _, err := d.store.StepJob(t.Context(), job.ID, 10)
		return err
	})
	d.waiting(2)
	release()
	d.must(<-cancelled)
	d.must(<-stepped)
	d.checkJob(job.ID, "0 handed, 0 through, 0 failed")
	due, err := d.store.DueAsides(t.Context(), shipping, 10)
	if d.must(err); len(due) > 0 {
		t.Errorf("due for a job that is over: %+v", due)
	}
}

func TestAStepLosesNoOutcomeThatIsCountedMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("b", 1))
	d.commit(dead("b", 1))
	job := d.replayed("a") // and not b yet
	release := d.holdLanes()
	settled := d.committing(settles(eventstore.AsideDead, 1))
	d.waiting(1)
	stepped := background(func() error {
		_, _, err := d.store.StepJob(t.Context(), job.ID, 10)
		return err
	})
	d.waiting(2)
	release()
	d.must(<-settled)
	d.must(<-stepped)
	d.checkJob(job.ID, "2 handed, 1 through, 0 failed")
}

func TestTwoWhoStepAJobTakeEachRowOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, key := range []string{"a", "b", "c"} {
		d.commit(events(key, 1))
		d.commit(dead(key, 1))
	}
	job, err := d.at.StartJob(t.Context(), eventstore.Job{Kind: eventstore.JobReplay, Filter: eventstore.Filter{Handler: "shipping"}, Actor: "ann"})
	d.must(err)
	release := d.hold(`SELECT FROM keyhold_jobs FOR UPDATE`)
	step := func() error {
		_, units, err := d.store.StepJob(t.Context(), job.ID, 2)
		if err == nil && len(units) == 0 {
			err = errors.New("it took nothing")
		}
		return err
	}
	first := background(step)
	d.waiting(1)
	second := background(step)
	d.waiting(2)
	release()
	d.must(<-first)
	d.must(<-second)
	d.checkJob(job.ID, "3 handed, 0 through, 0 failed")
}

func TestAJobOnMoreUnitsThanOneCommitMayLockTakesThemAll(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const units = mostStops + 7
	for i := range units {
		d.commit(halted(fmt.Sprintf("k-%04d", i)))
	}
	job, err := d.at.StartJob(t.Context(), eventstore.Job{Kind: eventstore.JobRetry, Filter: eventstore.Filter{Handler: "shipping"}, Actor: "ann"})
	d.must(err)
	steps := 0
	for job.State == eventstore.JobRunning {
		job, _, err = d.at.StepJob(t.Context(), job.ID, eventstore.MaxLimit)
		d.must(err)
		steps++
	}
	if steps != 2 || job.Handed != units || job.Through != units {
		t.Errorf("%d steps: %+v", steps, job)
	}
	acts, err := d.store.ActsAfter(t.Context(), 0, eventstore.MaxLimit)
	d.must(err)
	if len(acts) != units+1 {
		t.Errorf("%d acts", len(acts))
	}
}

func TestAnActIsSeenBeforeAnyWithAHigherId(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, err := d.raw.Begin(t.Context())
	d.must(err)
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock('keyhold_acts'::regclass::oid::int4, 0)`); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO keyhold_acts (kind, name, key, lane, sequence, event_id, job, actor, reason, detail, time)
		VALUES ('pause', 'other', '', 0, 0, '', 0, 'bob', '', '', 0)`); err != nil { // it has its id, and is not committed
		t.Fatal(err)
	}
	acted := d.acting(pausing(event.Unit{Name: "shipping"}))
	d.waiting(1)
	if last, err := d.store.LastAct(t.Context()); last != 0 || err != nil {
		t.Errorf("last act %d, %v", last, err)
	}
	d.must(tx.Commit(t.Context()))
	d.must(<-acted)
	acts, err := d.store.ActsAfter(t.Context(), 0, 10)
	d.must(err)
	if len(acts) != 2 || acts[0].Actor != "bob" || acts[1].Actor != "ann" {
		t.Errorf("acts: %+v", acts)
	}
}
