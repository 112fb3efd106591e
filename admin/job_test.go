package admin_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

func job(k eventstore.JobKind, f admin.Filter) admin.JobRequest {
	f.Handler = "shipping"
	return admin.JobRequest{Kind: k, Filter: f, Reason: "the address was mended"}
}

// buried has three dead letters of two keys, and two keys halted.
func (b *bundle) buried() {
	b.Helper()
	b.publish("ada", "order.placed", "order.placed", "order.placed", "order.placed")
	b.publish("bob", "order.placed", "order.placed")
	b.bury(ada, 1, "poison")
	b.bury(ada, 2, "poison")
	b.bury(bob, 1, "rejected")
	b.advance(ada, 2, 3)
	b.halt(ada, 4)
	b.halt(bob, 2)
}

func TestPlanOfAJobTellsWhatItWouldDo(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.buried()
		for _, c := range []struct {
			r     admin.JobRequest
			count int
			words string
			warn  []string
		}{
			{job(eventstore.JobReplay, admin.Filter{}), 3, "would apply 3 dead letters of shipping once more, in about 1 s",
				[]string{"their keys went on without them: later events were applied already"}},
			{job(eventstore.JobReplay, admin.Filter{EventID: b.eventAt("ada", 1)}), 1, "would apply 1 dead letter of shipping once more, in about 1 s",
				[]string{"2 later events of this key were applied already"}},
			{job(eventstore.JobReplay, admin.Filter{EventID: b.eventAt("bob", 1)}), 1, "would apply 1 dead letter of shipping once more, in about 1 s", nil},
			{job(eventstore.JobPurge, admin.Filter{Reason: "poison"}), 2, "would forget 2 dead letters of shipping, in about 1 s",
				[]string{"they are forgotten for good, and never applied"}},
			{job(eventstore.JobRetry, admin.Filter{}), 2, "would have 2 keys of shipping try again, in about 1 s", nil},
			{job(eventstore.JobSkip, admin.Filter{Key: "ada"}), 1, "would have 1 key of shipping go on without the event, in about 1 s",
				[]string{"the events are never applied, and what comes after them is"}},
			{job(eventstore.JobDeadLetter, admin.Filter{}), 2, "would have 2 keys of shipping keep the event as a dead letter and go on, in about 1 s",
				[]string{"what comes after the events is applied before them, if they ever are"}},
			{job(eventstore.JobPurge, admin.Filter{Key: "zoe"}), 0, "there is nothing to purge", nil},
		} {
			p, err := b.desk.PlanJob(b.Context(), c.r)
			b.must(err)
			b.same("plan", append([]string{fmt.Sprint(p.Count), p.Words}, p.Warnings...), append([]string{fmt.Sprint(c.count), c.words}, c.warn...))
		}
		jobs, err := b.desk.Jobs(b.Context(), admin.JobQuery{})
		b.must(err)
		b.same("jobs after plans", jobs.Items, []admin.Job{})
	})
}

func TestJobsAreStartedListedPausedResumedAndCancelled(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.buried()
		ctx := b.Context()
		r := job(eventstore.JobPurge, admin.Filter{})
		r.Rate = 1
		j, err := b.desk.StartJob(ctx, r)
		b.must(err)
		b.same("words", j.Words, "purge of shipping: running, 0 of 3 through, about 3 s left")
		b.same("live", j.Live, b.owner())
		if j.Actor != "ada" || j.Reason != r.Reason || j.Rate != 1 {
			b.Errorf("job: %+v", j)
		}
		_, _, err = b.store.StepJob(ctx, j.ID, 1)
		b.must(err)
		for _, c := range []struct {
			do    func(context.Context, int64, string, string) (admin.Job, error)
			state eventstore.JobState
			words string
		}{
			{b.desk.PauseJob, eventstore.JobPaused, "purge of shipping: paused, 1 of 3 through"},
			{b.desk.ResumeJob, eventstore.JobRunning, "purge of shipping: running, 1 of 3 through, about 2 s left"},
			{b.desk.CancelJob, eventstore.JobCancelled, "purge of shipping: cancelled, 1 of 3 through"},
		} {
			j, err = c.do(ctx, j.ID, "", "lunch")
			b.must(err)
			b.same("job", []any{j.State, j.Words}, []any{c.state, c.words})
			_, err := c.do(ctx, j.ID, "", "lunch")
			moved, ok := errors.AsType[*admin.MovedError](err)
			if !ok || moved.Job == nil || moved.Job.State != c.state || !errors.Is(err, eventstore.ErrStateMoved) {
				b.Errorf("%s twice: %v", c.state, err)
			}
		}
		again, err := b.desk.StartJob(ctx, job(eventstore.JobReplay, admin.Filter{}))
		b.must(err)
		page, err := b.desk.Jobs(ctx, admin.JobQuery{Limit: 1})
		b.must(err)
		if len(page.Items) != 1 || page.Items[0].ID != again.ID || page.Next == "" {
			b.Errorf("first page: %+v", page)
		}
		page, err = b.desk.Jobs(ctx, admin.JobQuery{Cursor: page.Next, Limit: 1})
		b.must(err)
		if len(page.Items) != 1 || page.Items[0].ID != j.ID || page.Items[0].Live != "" || page.Next != "" {
			b.Errorf("second page: %+v", page)
		}
		page, err = b.desk.Jobs(ctx, admin.JobQuery{Open: true})
		b.must(err)
		if len(page.Items) != 1 {
			b.Errorf("open: %+v", page)
		}
		for name, do := range map[string]func() error{
			"show":  func() error { _, err := b.desk.Job(ctx, 99); return err },
			"pause": func() error { _, err := b.desk.PauseJob(ctx, 99, "", ""); return err },
		} {
			if err := do(); !errors.Is(err, eventstore.ErrNotFound) || err.Error() != `no job is called "99"` {
				b.Errorf("%s one that is none: %v", name, err)
			}
		}
		var kinds []eventstore.ActKind
		audit, err := b.desk.Audit(ctx, admin.AuditQuery{})
		b.must(err)
		for _, a := range audit.Items {
			kinds = append(kinds, a.Kind)
		}
		b.same("audit", kinds, []eventstore.ActKind{
			eventstore.ActStartJob, eventstore.ActCancelJob, eventstore.ActResumeJob, eventstore.ActPauseJob, eventstore.ActStartJob,
		})
	})
}

func TestJobsThatNothingWouldMakeRightAreRefusedWithAllFaults(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	nobody := b.deskOf(admin.Options{})
	for want, r := range map[string]admin.JobRequest{
		`job "" is none: give replay, purge, retry, skip or dead-letter; no handler or entity kind is named: give one; nobody is named who acts: give a name`: {},
		"purge needs a reason: say why; nobody is named who acts: give a name":                                                                                {Kind: eventstore.JobPurge, Filter: admin.Filter{Handler: "shipping"}},
		"rate is -1: give 1 to 100000 a second, 0 for 100":                                                                                                    {Kind: eventstore.JobReplay, Actor: "ada", Rate: -1, Filter: admin.Filter{Handler: "shipping"}},
		"from 2026-03-14T12:00:00Z is not before until 2026-03-14T11:00:00Z: nothing lies between": {
			Kind: eventstore.JobReplay, Actor: "ada", Filter: admin.Filter{Handler: "shipping", From: noon, Until: noon.Add(-time.Hour)}},
	} {
		for name, do := range map[string]func() error{
			"plan":  func() error { _, err := nobody.PlanJob(t.Context(), r); return err },
			"start": func() error { _, err := nobody.StartJob(t.Context(), r); return err },
		} {
			if err := do(); !errors.Is(err, admin.ErrUsage) || err.Error() != want {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
		}
	}
	r := job(eventstore.JobReplay, admin.Filter{})
	r.Filter.Handler = "shiping"
	if _, err := b.desk.StartJob(t.Context(), r); !errors.Is(err, eventstore.ErrNotFound) {
		t.Errorf("a handler that is none: %v", err)
	}
	if _, err := nobody.PauseJob(t.Context(), 1, "", ""); !errors.Is(err, admin.ErrUsage) {
		t.Errorf("nobody pauses: %v", err)
	}
}

// unsureJobs is a store that loses the answer to the start of a job.
type unsureJobs struct{ eventstore.Store }

func (u unsureJobs) StartJob(context.Context, eventstore.Job) (eventstore.Job, error) {
	return eventstore.Job{}, eventstore.ErrUnknownCommit
}

func TestJobWhoseStartIsNotKnownIsLookedForAllTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t, memory.Open())
	b.store = unsureJobs{b.store}
	var told []eventstore.ActRecord
	d := b.deskOf(admin.Options{Actor: "ada", Live: &admin.Live{Acted: func(r eventstore.ActRecord) { told = append(told, r) }}})
	_, err := d.StartJob(t.Context(), job(eventstore.JobReplay, admin.Filter{}))
	if !errors.Is(err, eventstore.ErrUnknownCommit) || len(told) != 1 || told[0].Kind != eventstore.ActStartJob {
		t.Errorf("%v, told %+v", err, told)
	}
}

func TestJobSaysThatItGoesOnWhenAProgramStarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b := setup(t, sqlite.Open(path))
	b.buried()
	b.must(b.store.Stop(context.Background()))
	attached, err := sqlite.Attach(t.Context(), path)
	b.must(err)
	t.Cleanup(func() { _ = attached.Close() })
	j, err := admin.New(attached, admin.Options{Actor: "ada"}).StartJob(t.Context(), job(eventstore.JobReplay, admin.Filter{}))
	b.must(err)
	b.same("live", j.Live, "nobody has the store open: it goes on when a program starts")
}

func TestDeadLetterIsShownWithItsEventAndWhatWasAppliedSince(t *testing.T) {
	onStores(t, func(b *bundle) {
		b.buried()
		l, err := b.desk.DeadLetter(b.Context(), ada, admin.Place{Category: "order", Key: "ada", Sequence: 1}, true)
		b.must(err)
		b.same("words", l.Words, "2 later events of this key were applied already")
		if l.Event == nil || l.Event.Payload == nil || string(l.Event.Payload.JSON) != `{"client_id":"ada","n":1}` || l.Reason != "poison" || l.Error != "no such address" {
			b.Errorf("dead letter: %+v", l)
		}
		groups, more, err := b.desk.DeadGroups(b.Context(), "")
		b.must(err)
		at := noon.Add(-time.Hour)
		b.same("groups", groups, []admin.DeadGroup{
			{Handler: "shipping", Reason: "poison", Type: "order.placed", Count: 2, Oldest: at, Newest: at},
			{Handler: "shipping", Reason: "rejected", Type: "order.placed", Count: 1, Oldest: at, Newest: at},
		})
		if more {
			b.Error("more were left out")
		}
		if _, _, err := b.desk.DeadGroups(b.Context(), "shiping"); !errors.Is(err, eventstore.ErrNotFound) {
			b.Errorf("groups of a name that is none: %v", err)
		}
		_, err = b.desk.DeadLetter(b.Context(), event.Unit{Name: "shipping", Key: "bob"}, admin.Place{Category: "order", Key: "ada", Sequence: 1}, false)
		if !errors.Is(err, eventstore.ErrNotFound) {
			b.Errorf("dead letter of another key: %v", err)
		}
	})
}
