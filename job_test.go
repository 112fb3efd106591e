package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport/local"
)

// clerk sets aside what it refuses, and goes on.
func (n *notes) clerk() keyhold.Handler[*notes] {
	h := n.handler()
	h.OnPoison = keyhold.Release
	return h
}

// refuseAll has so many events of different clients set aside.
func refuseAll(t *testing.T, app *keyhold.App, n *notes, count int) {
	t.Helper()
	n.refuse("bomb", true)
	for i := range count {
		add(t, app, fmt.Sprintf("c%d", i), fmt.Sprintf("client-%03d", i), "bomb")
	}
}

func replayAll(t *testing.T, d *admin.Desk, rate int) admin.Job {
	t.Helper()
	j, err := d.StartJob(t.Context(), admin.JobRequest{Kind: eventstore.JobReplay, Filter: admin.Filter{Handler: "register"}, Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func jobNow(t *testing.T, d *admin.Desk, id int64) admin.Job {
	t.Helper()
	j, err := d.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestReplayAppliesAllDeadLettersAtItsRate(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			n, log := newNotes(), new(journal)
			cfg.Logger = log.logger()
			app := run(t, cfg, cart, n.clerk())
			refuseAll(t, app, n, 25)
			synctest.Wait()
			n.refuse("bomb", false)
			began := time.Now()
			j := replayAll(t, outside(cfg.Store), 1) // from outside: found within half a second
			if j.Total != 25 {
				t.Fatalf("job: %+v", j)
			}
			for range 25 {
				<-n.news
			}
			if took := time.Since(began); took < 24*time.Second || took > 25*time.Second {
				t.Errorf("25 rows at 1 a second took %s", took)
			}
			time.Sleep(time.Second)
			if j := jobNow(t, app.Admin(), j.ID); j.State != eventstore.JobDone || j.Through != 25 || j.Words != "replay of register: done, 25 of 25 through" {
				t.Errorf("at the end: %+v", j)
			}
			for i := range 25 {
				if got := n.of(fmt.Sprintf("client-%03d", i)); len(got) != 1 {
					t.Errorf("client %d: %q", i, got)
				}
			}
			log.wants(t, `msg="job begins"`, "kind=replay", "handler=register", "total=25", "by=eve")
			log.wants(t, `msg="job is done"`, "through=25")
			if got := log.lines(`msg="job runs"`); len(got) != 2 {
				t.Errorf("progress in 25 seconds: %q", got)
			}
		})
	})
}

func TestJobGoesOnAfterARestartWhereItStood(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			n, log := newNotes(), new(journal)
			app := run(t, cfg, cart, n.clerk())
			refuseAll(t, app, n, 20)
			synctest.Wait()
			n.refuse("bomb", false)
			j := replayAll(t, app.Admin(), 1)
			for range 8 {
				<-n.news
			}
			stop(t, app)
			again := cfg
			again.Logger = log.logger()
			if cfg.Transport.Name() == "local" {
				again.Transport = local.New()
			}
			app = run(t, again, cart, n.clerk())
			for range 12 {
				<-n.news
			}
			time.Sleep(time.Second)
			if j := jobNow(t, app.Admin(), j.ID); j.State != eventstore.JobDone || j.Through != 20 {
				t.Errorf("at the end: %+v", j)
			}
			if len(n.news) > 0 {
				t.Error("some were applied twice")
			}
			log.wants(t, `msg="job goes on"`)
		})
	})
}

func TestJobOnDiskIsInterruptedByStopAndGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	n, set := newNotes(), make(chan struct{}, 100)
	cfg := onDisk(path)
	cfg.Observer.DeadLettered = func(eventstore.Dead) { set <- struct{}{} }
	app := run(t, cfg, cart, n.clerk())
	refuseAll(t, app, n, 40)
	for range 40 {
		<-set
	}
	n.refuse("bomb", false)
	j := replayAll(t, app.Admin(), 20) // two seconds of them: the stop comes before the last
	<-n.news
	stop(t, app)
	done := make(chan struct{})
	cfg = onDisk(path)
	cfg.Logger = (&awaiting{"job is done", sync.OnceFunc(func() { close(done) })}).logger()
	app = run(t, cfg, cart, n.clerk())
	<-done
	if j := jobNow(t, app.Admin(), j.ID); j.State != eventstore.JobDone || j.Through != 40 || j.Failed != 0 {
		t.Errorf("at the end: %+v", j)
	}
	for i := range 40 {
		if got := n.of(fmt.Sprintf("client-%03d", i)); len(got) != 1 {
			t.Errorf("client %d: %q", i, got)
		}
	}
}

func TestPausedJobTakesNothingUntilItIsResumed(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			n := newNotes()
			app := run(t, cfg, cart, n.clerk())
			refuseAll(t, app, n, 10)
			synctest.Wait()
			n.refuse("bomb", false)
			j := replayAll(t, app.Admin(), 1)
			<-n.news
			d := outside(cfg.Store)
			if _, err := d.PauseJob(t.Context(), j.ID, "", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if len(n.news) > 1 {
				t.Errorf("%d were applied after the pause", len(n.news))
			}
			_, err := d.PauseJob(t.Context(), j.ID, "", "")
			if moved, ok := errors.AsType[*admin.MovedError](err); !ok || moved.Job == nil || moved.Job.State != eventstore.JobPaused {
				t.Errorf("paused twice: %v", err)
			}
			if _, err := d.ResumeJob(t.Context(), j.ID, "", ""); err != nil {
				t.Fatal(err)
			}
			for range 9 {
				<-n.news
			}
			time.Sleep(time.Second)
			if j := jobNow(t, d, j.ID); j.State != eventstore.JobDone {
				t.Errorf("at the end: %+v", j)
			}
		})
	})
}

func TestRetryOfManyUnitsIsTakenUpAndNotLoggedOneByOne(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			n, log := newNotes(), new(journal)
			cfg.Logger = log.logger()
			app := run(t, cfg, cart, n.handler())
			refuseAll(t, app, n, 30)
			synctest.Wait()
			n.refuse("bomb", false)
			_, err := app.Admin().StartJob(t.Context(), admin.JobRequest{Kind: eventstore.JobRetry, Filter: admin.Filter{Handler: "register"}})
			if err != nil {
				t.Fatal(err)
			}
			for range 30 {
				<-n.news
			}
			time.Sleep(time.Second)
			if got := log.lines("acted: "); len(got) > 1 {
				t.Errorf("%d lines tell of acts", len(got))
			}
			log.wants(t, `msg="job is done"`, "kind=retry", "through=30")
		})
	})
}

// failingSteps is a store that fails in steps of jobs, before they commit or after, as often as it is told.
type failingSteps struct {
	eventstore.Store
	before, after atomic.Int64
}

func (f *failingSteps) StepJob(ctx context.Context, id int64, most int) (eventstore.Job, []event.Unit, error) {
	if f.before.Add(-1) >= 0 {
		return eventstore.Job{}, nil, fmt.Errorf("step: %w", eventstore.ErrTrouble)
	}
	j, units, err := f.Store.StepJob(ctx, id, most)
	if err == nil && f.after.Add(-1) >= 0 {
		return eventstore.Job{}, nil, fmt.Errorf("step: %w", eventstore.ErrUnknownCommit)
	}
	return j, units, err
}

func TestJobWaitsForAStoreInTroubleAndLosesNothingOfWhatWasCommitted(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			n, log, f := newNotes(), new(journal), &failingSteps{Store: cfg.Store}
			cfg.Store, cfg.Logger = f, log.logger()
			app := run(t, cfg, cart, n.clerk())
			refuseAll(t, app, n, 5)
			synctest.Wait()
			n.refuse("bomb", false)
			f.before.Store(3)
			f.after.Store(2)
			replayAll(t, app.Admin(), 0)
			for range 5 {
				<-n.news
			}
			time.Sleep(5 * time.Second)
			log.wants(t, "level=WARN", "jobs wait for the store")
			log.wants(t, "level=INFO", "jobs go on", "failed=5")
			log.wants(t, `msg="job is done"`, "through=5")
		})
	})
}

// crowded is a store with one job that has handed out all it may.
type crowded struct {
	eventstore.Store
	reads atomic.Int64
	order chan string
}

func (c *crowded) job(through int) eventstore.Job {
	return eventstore.Job{ID: 1, Kind: eventstore.JobReplay, State: eventstore.JobRunning, Rate: 10_000, Total: 5000, Handed: 1000, Through: through}
}

func (c *crowded) ListJobs(context.Context, int64, bool, int) ([]eventstore.Job, error) {
	return []eventstore.Job{c.job(0)}, nil
}

func (c *crowded) ReadJob(context.Context, int64) (eventstore.Job, error) {
	c.order <- "read"
	if c.reads.Add(1) == 3 {
		return c.job(1), nil
	}
	return c.job(0), nil
}

func (c *crowded) StepJob(_ context.Context, _ int64, most int) (eventstore.Job, []event.Unit, error) {
	c.order <- fmt.Sprintf("step %d", most)
	j := c.job(1)
	j.State = eventstore.JobDone
	return j, nil, nil
}

func TestJobHandsOutNoMoreThanABoundedNumber(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			c := &crowded{Store: cfg.Store, order: make(chan string, 100)}
			cfg.Store = c
			run(t, cfg, cart)
			var got []string
			for range 4 {
				got = append(got, <-c.order)
			}
			if want := []string{"read", "read", "read", "step 1"}; !slices.Equal(got, want) {
				t.Errorf("asked %q, want %q", got, want)
			}
		})
	})
}

// stuckJob is a store with one job that has handed out all it may to keys that are stopped.
type stuckJob struct {
	eventstore.Store
	steps chan int
}

func (s *stuckJob) job() eventstore.Job {
	return eventstore.Job{ID: 1, Kind: eventstore.JobReplay, State: eventstore.JobRunning, Rate: 10_000, Total: 5000, Handed: 1000}
}

func (s *stuckJob) ListJobs(context.Context, int64, bool, int) ([]eventstore.Job, error) {
	return []eventstore.Job{s.job()}, nil
}

func (s *stuckJob) ReadJob(context.Context, int64) (eventstore.Job, error) { return s.job(), nil }

func (s *stuckJob) StepJob(_ context.Context, _ int64, most int) (eventstore.Job, []event.Unit, error) {
	s.steps <- most
	j := s.job()
	j.Handed += most
	j.State = eventstore.JobDone
	return j, nil, nil
}

func TestJobGoesOnBesideKeysThatAreStopped(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			s := &stuckJob{Store: cfg.Store, steps: make(chan int, 100)}
			cfg.Store = s
			run(t, cfg, cart)
			time.Sleep(jobIsStuck / 2)
			if len(s.steps) > 0 {
				t.Error("handed out more while what it has handed out may still go on")
			}
			time.Sleep(jobIsStuck)
			if len(s.steps) != 1 {
				t.Errorf("%d steps beside keys that are stopped", len(s.steps))
			}
		})
	})
}

// jobIsStuck is a little more than how long a job waits for an outcome of what it has handed out.
const jobIsStuck = 2500 * time.Millisecond
