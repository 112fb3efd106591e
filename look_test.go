package keyhold_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/local"
)

var registerOfAda = keyhold.Unit{Name: "register", Key: "ada"}

// outside is a desk as another process has it.
func outside(store eventstore.Operations) *admin.Desk {
	return admin.New(store, admin.Options{Actor: "eve"})
}

func do(t *testing.T, d *admin.Desk, kind eventstore.ActKind, u keyhold.Unit) {
	t.Helper()
	_, err := d.Act(t.Context(), admin.ActRequest{Kind: kind, Handler: u.Name, Key: u.Key, Reason: "the test says so"})
	if err != nil {
		t.Fatal(err)
	}
}

// virtual runs a test that is for virtual time on each transport, on a store in memory.
func virtual(t *testing.T, f func(t *testing.T, config func() keyhold.Config)) {
	t.Parallel()
	for name, cfg := range map[string]func() keyhold.Config{
		"inline": inMemory,
		"local": func() keyhold.Config {
			cfg := inMemory()
			cfg.Transport = local.New()
			return cfg
		},
	} {
		t.Run(name, func(t *testing.T) { f(t, cfg) })
	}
}

func TestActsFromOutsideAreTakenUpWithinHalfASecond(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			for kind, want := range map[eventstore.ActKind][]string{
				eventstore.ActRetry: {"bomb", "tea"}, eventstore.ActSkip: {"tea"}, eventstore.ActDeadLetter: {"tea"},
			} {
				n, log := newNotes(), new(journal)
				cfg := cfg
				cfg.Store, cfg.Logger = memory.Open(), log.logger()
				app := run(t, cfg, cart, n.handler())
				n.refuse("bomb", true)
				add(t, app, "c1", "ada", "bomb")
				add(t, app, "c2", "ada", "tea")
				synctest.Wait()
				n.refuse("bomb", false)
				began := time.Now()
				do(t, outside(cfg.Store), kind, registerOfAda)
				for _, item := range want {
					if got := <-n.news; got != item {
						t.Errorf("%s: handled %s, want %s", kind, got, item)
					}
				}
				if took := time.Since(began); took > 500*time.Millisecond {
					t.Errorf("%s was taken up after %s", kind, took)
				}
				log.wants(t, "level=INFO", "acted: ", "act="+string(kind), "unit=register/ada", "sequence=1", "by=eve", `reason="the test says so"`)
				stop(t, app)
			}
		})
	})
}

func TestPausesFromOutsideHoldAndResumesFindWhatCameMeanwhile(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			for _, u := range []keyhold.Unit{registerOfAda, {Name: "register"}} {
				n := newNotes()
				cfg := cfg
				cfg.Store = memory.Open()
				app := run(t, cfg, cart, n.handler())
				add(t, app, "c1", "ada", "tea")
				<-n.news
				if u.Key == "" { // also a unit that is not awake finds its work
					time.Sleep(time.Minute)
				}
				do(t, outside(cfg.Store), eventstore.ActPause, u)
				time.Sleep(time.Second)
				add(t, app, "c2", "ada", "rye")
				time.Sleep(time.Second)
				if got := n.of("ada"); len(got) != 1 {
					t.Errorf("%s is paused and handled %q", u, got)
				}
				began := time.Now()
				do(t, outside(cfg.Store), eventstore.ActResume, u)
				if got := <-n.news; got != "rye" {
					t.Errorf("handled %s", got)
				}
				if took := time.Since(began); took > 500*time.Millisecond {
					t.Errorf("%s was resumed after %s", u, took)
				}
				stop(t, app)
			}
		})
	})
}

func TestActsOfTheApplicationItselfAreTakenUpAtOnceAndOnce(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			n, log := newNotes(), new(journal)
			cfg.Logger = log.logger()
			app := run(t, cfg, cart, n.handler())
			do(t, app.Admin(), eventstore.ActPause, keyhold.Unit{Name: "register"})
			add(t, app, "c1", "ada", "tea")
			time.Sleep(time.Second)
			began := time.Now()
			do(t, app.Admin(), eventstore.ActResume, keyhold.Unit{Name: "register"})
			<-n.news
			if took := time.Since(began); took != 0 {
				t.Errorf("taken up after %s", took)
			}
			time.Sleep(time.Second)
			log.wants(t, "act=pause", "handler=register", "by=shop@")
			log.wants(t, "act=resume", "handler=register")
		})
	})
}

func TestActOfAnotherProcessIsTakenUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	n, halted, cfg := newNotes(), make(chan keyhold.Halted, 1), onDisk(path)
	cfg.Observer.Halted = func(h keyhold.Halted) { halted <- h }
	app := run(t, cfg, cart, n.handler())
	n.refuse("bomb", true)
	add(t, app, "c1", "ada", "bomb")
	<-halted
	n.refuse("bomb", false)
	attached, err := sqlite.Attach(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer attached.Close()
	do(t, outside(attached), eventstore.ActRetry, registerOfAda)
	if got := <-n.news; got != "bomb" {
		t.Errorf("handled %s", got)
	}
}

func TestActsBeforeTheStartAreNotTakenUpAgain(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			n := newNotes()
			app := run(t, cfg, cart, n.handler())
			add(t, app, "c1", "ada", "tea")
			do(t, app.Admin(), eventstore.ActPause, registerOfAda)
			stop(t, app)
			log := new(journal)
			again := cfg
			again.Logger = log.logger()
			if cfg.Transport.Name() == "local" {
				again.Transport = local.New()
			}
			run(t, again, cart, n.handler())
			time.Sleep(time.Second)
			if got := log.lines("acted"); len(got) > 0 {
				t.Errorf("taken up again: %s", got)
			}
		})
	})
}

// counting counts what is asked of a store while nobody does anything, and fails to look as often as it is told.
type counting struct {
	eventstore.Store
	looks, lists, steps, fails atomic.Int64
}

func (c *counting) ActsAfter(ctx context.Context, id int64, limit int) ([]eventstore.ActRecord, error) {
	c.looks.Add(1)
	if c.fails.Add(-1) >= 0 {
		return nil, errors.New("disk broken")
	}
	return c.Store.ActsAfter(ctx, id, limit)
}

func (c *counting) ListJobs(ctx context.Context, before int64, open bool, limit int) ([]eventstore.Job, error) {
	c.lists.Add(1)
	return c.Store.ListJobs(ctx, before, open, limit)
}

func (c *counting) StepJob(ctx context.Context, id int64, most int) (eventstore.Job, []event.Unit, error) {
	c.steps.Add(1)
	return c.Store.StepJob(ctx, id, most)
}

func TestALookIsOneQueryInAQuarterOfASecondAndJobsCostNothingWhenThereAreNone(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			c := &counting{Store: cfg.Store}
			cfg.Store = c
			run(t, cfg, cart, newNotes().handler())
			time.Sleep(time.Minute + time.Millisecond)
			if diff := cmp.Diff([]int64{240, 1, 0}, []int64{c.looks.Load(), c.lists.Load(), c.steps.Load()}); diff != "" {
				t.Error(diff)
			}
		})
	})
}

func TestAStoreThatDoesNotAnswerIsAskedMoreSlowlyAndLoggedOnce(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			n, log, c := newNotes(), new(journal), &counting{Store: cfg.Store}
			cfg.Store, cfg.Logger = c, log.logger()
			app := run(t, cfg, cart, n.handler())
			n.refuse("bomb", true)
			add(t, app, "c1", "ada", "bomb")
			synctest.Wait()
			n.refuse("bomb", false)
			c.fails.Store(4)
			do(t, outside(c), eventstore.ActRetry, registerOfAda)
			began := time.Now()
			time.Sleep(2 * time.Second)
			if err := app.Ready(); err == nil || !strings.Contains(err.Error(), "the store is out of reach") {
				t.Errorf("ready without a store: %v", err)
			}
			<-n.news
			if err := app.Ready(); err != nil {
				t.Error(err)
			}
			if took, want := time.Since(began), 250*(1+2+4+8+16)*time.Millisecond; took > want || took < want-250*time.Millisecond {
				t.Errorf("taken up after %s, want %s", took, want)
			}
			log.wants(t, "level=WARN", "out of reach: the store", `error="disk broken"`)
			log.wants(t, "level=INFO", "reached again: the store", "failed=4")
		})
	})
}

func TestDeskOfTheApplicationTellsWhatAUnitIsDoing(t *testing.T) {
	virtual(t, func(t *testing.T, config func() keyhold.Config) {
		synctest.Test(t, func(t *testing.T) {
			cfg := config()
			if cfg.Transport.Name() == "inline" {
				cfg.Transport = local.New() // inline delivers while it commits
			}
			d := newDeaf()
			app := run(t, cfg, cart, d.handler())
			defer close(d.letGo)
			add(t, app, "c1", "ada", "tea")
			<-d.entered
			time.Sleep(3 * time.Second)
			u, err := app.Admin().Unit(t.Context(), keyhold.Unit{Name: "register", Key: "ada"}, admin.ShowOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if a := u.Activity; a == nil || a.State != "applying" || a.At == nil || a.At.String() != "cart:ada #1" || a.Type != "cart.item" || a.Attempt != 1 {
				t.Fatalf("activity: %+v", u.Activity)
			}
			if want := "1 event is to be applied; applying cart:ada #1 (cart.item) for 3 s"; u.Words != want {
				t.Errorf("words are %q, want %q", u.Words, want)
			}
			if _, err := app.Admin().Unit(t.Context(), keyhold.Unit{Name: "register", Key: "bob"}, admin.ShowOptions{}); !errors.Is(err, eventstore.ErrNotFound) {
				t.Errorf("one of a key that no event has: %v", err)
			}
		})
	})
}

func TestDeskOfAnApplicationThatIsStoppedSaysSo(t *testing.T) {
	t.Parallel()
	app := keyhold.New(keyhold.Config{})
	if _, err := app.Admin().Status(t.Context()); !errors.Is(err, keyhold.ErrNotStarted) {
		t.Errorf("before the start: %v", err)
	}
	n := newNotes()
	app = run(t, inMemory(), cart, n.handler())
	d := app.Admin()
	if s, err := d.Status(t.Context()); err != nil || s.Verdict != admin.Healthy || s.Owner == nil || s.Owner.Node == "" {
		t.Errorf("status: %+v, %v", s, err)
	}
	stop(t, app)
	if _, err := d.Status(t.Context()); !errors.Is(err, keyhold.ErrNotStarted) {
		t.Errorf("after the stop: %v", err)
	}
}

// unclean is a store whose last owner did not stop.
type unclean struct{ eventstore.Store }

func (u unclean) Start(ctx context.Context, opts eventstore.StartOptions) (eventstore.Identity, error) {
	id, err := u.Store.Start(ctx, opts)
	id.Unclean = true
	return id, err
}

func TestStartAfterAnUncleanEndSaysSo(t *testing.T) {
	t.Parallel()
	log, cfg := new(journal), inMemory()
	cfg.Store, cfg.Logger = unclean{cfg.Store}, log.logger()
	run(t, cfg, cart)
	log.wants(t, "level=WARN", "did not stop by itself", "max_crashes=3")
}

func TestMaxCrashesIsChecked(t *testing.T) {
	t.Parallel()
	cfg := inMemory()
	cfg.MaxCrashes = -1
	err := keyhold.New(cfg).Start(t.Context())
	if err == nil || err.Error() != "start shop: config: MaxCrashes is -1: it cannot be negative" {
		t.Errorf("start: %v", err)
	}
}
