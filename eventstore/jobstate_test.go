package eventstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func TestJobIsActedOnOnlyWhereItCanBe(t *testing.T) {
	t.Parallel()
	const pause, resume, cancel = eventstore.ActPauseJob, eventstore.ActResumeJob, eventstore.ActCancelJob
	for from, to := range map[eventstore.JobState]map[eventstore.ActKind]eventstore.JobState{
		eventstore.JobRunning:   {pause: eventstore.JobPaused, cancel: eventstore.JobCancelled},
		eventstore.JobPaused:    {resume: eventstore.JobRunning, cancel: eventstore.JobCancelled},
		eventstore.JobDone:      {},
		eventstore.JobCancelled: {},
	} {
		for _, kind := range []eventstore.ActKind{pause, resume, cancel, eventstore.ActPause, eventstore.ActStartJob} {
			j := eventstore.Job{ID: 3, State: from, Changed: noon}
			got, err := j.Acted(kind, noon.Add(time.Hour))
			if want, can := to[kind]; can {
				if diff := cmp.Diff(eventstore.Job{ID: 3, State: want, Changed: noon.Add(time.Hour)}, got); diff != "" || err != nil {
					t.Errorf("%s of a job that is %s: %v\n%s", kind, from, err, diff)
				}
				continue
			}
			var moved *eventstore.JobMovedError
			if !errors.As(err, &moved) || cmp.Diff(j, moved.Now) != "" || cmp.Diff(j, got) != "" {
				t.Errorf("%s of a job that is %s gave %+v, %v", kind, from, got, err)
			}
		}
	}
}

func TestJobIsDoneWhenNothingIsLeftAndNothingWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		handed, through, failed int
		more                    bool
		want                    eventstore.JobState
	}{
		{3, 2, 1, false, eventstore.JobDone}, {3, 2, 1, true, eventstore.JobRunning}, {3, 2, 0, false, eventstore.JobRunning}, {0, 0, 0, false, eventstore.JobDone},
	} {
		j := eventstore.Job{State: eventstore.JobRunning, Handed: c.handed, Through: c.through, Failed: c.failed}
		if got := j.Stepped(c.more, noon); got.State != c.want || !got.Changed.Equal(noon) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestJobTakesWhatItsFilterAndItsStartAllow(t *testing.T) {
	t.Parallel()
	j := eventstore.Job{Began: noon, Filter: eventstore.Filter{From: noon.Add(-2 * time.Hour), Until: noon.Add(-time.Hour)}}
	for at, want := range map[time.Duration]bool{-2*time.Hour - 1: false, -2 * time.Hour: true, -time.Hour - 1: true, -time.Hour: false} {
		if j.Takes(noon.Add(at)) != want {
			t.Errorf("%s from its start: %v", at, !want)
		}
	}
	j.Filter = eventstore.Filter{}
	if !j.Takes(noon) || j.Takes(noon.Add(1)) || !j.Takes(time.Time{}) {
		t.Error("without times a job takes all up to its start")
	}
}

func TestRowsOfJobsTellWhatIsDone(t *testing.T) {
	t.Parallel()
	j := eventstore.Job{
		Kind: eventstore.JobSkip, Actor: "ann", Reason: "carrier is back", Rate: 7,
		Filter: eventstore.Filter{Handler: "shipping", Key: "a", Type: "order.placed", Reason: "poison", EventID: "e-1", From: noon, Until: noon.Add(time.Hour)},
	}.Begun(2, noon)
	j.ID, j.Handed, j.Through, j.Failed = 4, 2, 1, 1
	for kind, want := range map[eventstore.ActKind]string{
		eventstore.ActStartJob: `skip of 2 stops, 7 a second, type "order.placed", reason "poison", event "e-1", ` +
			`from 2026-03-01 12:00:00.000Z on, before 2026-03-01 13:00:00.000Z`,
		eventstore.ActPauseJob: "skip of 2 stops: 2 taken, 1 through, 1 failed",
	} {
		got := j.Record(kind, "bob", "not now", noon.Add(time.Hour))
		if diff := cmp.Diff(eventstore.ActRecord{
			Kind: kind, Unit: unit, Job: 4, Actor: "bob", Reason: "not now", Detail: want, Time: noon.Add(time.Hour),
		}, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestJobActsOnWhatItSaw(t *testing.T) {
	t.Parallel()
	h, p := halted(5).Halt, parking(2, false).Parking
	for kind, want := range map[eventstore.JobKind]eventstore.ActKind{
		eventstore.JobRetry: eventstore.ActRetry, eventstore.JobSkip: eventstore.ActSkip, eventstore.JobDeadLetter: eventstore.ActDeadLetter,
	} {
		j := eventstore.Job{Kind: kind, Actor: "ann", Reason: "carrier is back"}
		a := eventstore.Act{
			Kind: want, Unit: unit, Seen: event.Position{Lane: orders, Sequence: 5, EventID: "e-5"}, Since: noon, Actor: "ann", Reason: "carrier is back", Time: noon.Add(1),
		}
		if diff := cmp.Diff([]eventstore.Act{a, a}, []eventstore.Act{j.OnHalt(h, noon.Add(1)), j.OnParking(p, noon.Add(1))}); diff != "" {
			t.Errorf("%s:\n%s", kind, diff)
		}
		if err := a.Validate(); err != nil {
			t.Error(err)
		}
	}
}
