package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/brokertest"
	"github.com/keyhold/keyhold/transport/local"
)

// Whoever calls has said by a context how long to wait. What is told here holds while calls of the store fail, lose their answers or hang, the broker refuses, and the
// application is being stopped: each call is back soon after its context has ended.

// storm is a crowd of callers and what goes wrong for them.
type storm struct {
	seed  uint64
	hangs chan struct{} // closed when nothing hangs any more
	soon  time.Duration // after the end of its context, for a call to be back
	each  int           // calls of each caller
}

var errStorm = errors.New("no connection")

func newStorm(t *testing.T, each int, soon time.Duration) *storm {
	t.Helper()
	s := &storm{seed: rand.Uint64(), hangs: make(chan struct{}), each: each, soon: soon}
	if given := os.Getenv("KEYHOLD_SEED"); given != "" {
		var err error
		if s.seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEYHOLD_SEED=%d", s.seed)
	return s
}

func (s *storm) dice(n uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, n)) }

// plan has calls of the store fail, lose their answers, or hang until their context ends.
func (s *storm) plan() faulty.Plan {
	fails := faulty.Seeded(s.seed, faulty.Rates{Before: 0.05, After: 0.05, Error: errStorm})
	return func(op faulty.Op) faulty.Fault {
		if op.Call == faulty.Start {
			return faulty.Fault{}
		}
		if (s.seed+uint64(op.N)*2654435761)%13 == 0 {
			return faulty.Fault{Wait: s.hangs}
		}
		return fails(op)
	}
}

// over has nothing go wrong any more.
func (s *storm) over(stores ...*faulty.Store) {
	for _, f := range stores {
		f.SetPlan(nil)
	}
	close(s.hangs)
}

// calls are those that there are.
var calls = map[string]func(ctx context.Context, app *keyhold.App, client string) error{
	"publish": func(ctx context.Context, app *keyhold.App, client string) error {
		return keyhold.Publish(ctx, app, itemLost{client, "tea"})
	},
	"ask": func(ctx context.Context, app *keyhold.App, client string) error {
		_, err := keyhold.Ask[*added](ctx, app, cart.ID(client), &addItem{client, "rye"})
		return err
	},
	"send": func(ctx context.Context, app *keyhold.App, client string) error {
		return keyhold.Send(ctx, app, cart.ID(client), &addItem{client, "jam"})
	},
	"do, and wait for what does not come": func(ctx context.Context, app *keyhold.App, client string) error {
		return keyhold.Do(ctx, app, func(u keyhold.UnitOfWork) error {
			u.Emit(itemLost{client, "oil"})
			<-u.Done()
			return u.Err()
		})
	},
	"do, and ask": func(ctx context.Context, app *keyhold.App, client string) error {
		return keyhold.Do(ctx, app, func(u keyhold.UnitOfWork) error {
			u.Emit(itemLost{client, "fig"})
			_, err := keyhold.Ask[*added](u, app, cart.ID(client), &addItem{client, "nut"})
			return err
		})
	},
	"publish in a transaction": func(ctx context.Context, app *keyhold.App, client string) error {
		return publishIn(ctx, app, itemLost{client, "egg"})
	},
}

func publishIn(ctx context.Context, app *keyhold.App, e any) error {
	tx, err := app.BeginTx(ctx)
	if err != nil {
		return err
	}
	if err := keyhold.PublishTx(ctx, app, tx, e); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit(ctx)
}

// rages has callers call, each with a context that ends soon, at some point of the call or before it.
func (s *storm) rages(t *testing.T, apps ...*keyhold.App) {
	t.Helper()
	var callers sync.WaitGroup
	for i := range 6 {
		callers.Go(func() {
			dice, app := s.dice(uint64(i)), apps[i%len(apps)]
			for range s.each {
				s.once(t, app, dice)
			}
		})
	}
	callers.Wait()
}

func (s *storm) once(t *testing.T, app *keyhold.App, dice *rand.Rand) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(dice.IntN(20_000))*time.Microsecond)
	defer cancel()
	names := slices.Sorted(maps.Keys(calls))
	what, client := names[dice.IntN(len(names))], strconv.Itoa(dice.IntN(4))
	back := make(chan struct{})
	go func() {
		defer close(back)
		_ = calls[what](ctx, app, client) // whatever came of it
	}()
	select {
	case <-back:
		return
	case <-ctx.Done():
	}
	late, done := context.WithTimeout(context.WithoutCancel(ctx), s.soon)
	defer done()
	select {
	case <-back:
	case <-late.Done():
		t.Errorf("%s: not back %v after its context had ended", what, s.soon)
	}
}

// stopWithin has an application end although calls hang.
func stopWithin(t *testing.T, app *keyhold.App, patience time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := app.Stop(ctx); err != nil {
		t.Logf("stop: %v", err)
	}
}

func TestCallersOfNodesAreBackWhenTheirContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, 150, 10*time.Millisecond)
		server, shared := brokertest.NewServer(brokertest.Config{RealTime: true}), memory.Open()
		var mu sync.Mutex
		faults := s.dice(100)
		var apps []*keyhold.App
		var stores []*faulty.Store
		for i := range 2 {
			store := faulty.Wrap(memory.Share(shared), nil)
			app := keyhold.New(keyhold.Config{
				Name: "shop", Node: fmt.Sprint("node-", i), Store: store, Transport: inMemoryBroker{server.Node(fmt.Sprint(i))}, Logger: quiet,
			})
			app.Register(cart, losses, newNotes().drops())
			if err := app.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			apps, stores = append(apps, app), append(stores, store)
		}
		for _, f := range stores {
			f.SetPlan(s.plan())
		}
		server.Break(func(brokertest.Call) brokertest.Fault {
			mu.Lock()
			defer mu.Unlock()
			return [...]brokertest.Fault{brokertest.Refused, brokertest.Lost, brokertest.None, brokertest.None, brokertest.None}[faults.IntN(5)]
		})
		s.rages(t, apps...)
		server.Break(func(c brokertest.Call) brokertest.Fault { // one node is cut off, and loses what it has
			if c.Node == "0" {
				return brokertest.Refused
			}
			return brokertest.None
		})
		var rest sync.WaitGroup
		rest.Go(func() { s.rages(t, apps...) })
		late, done := context.WithTimeout(t.Context(), 20*time.Second) // virtual: longer than a lease
		<-late.Done()
		done()
		rest.Wait()
		rest.Go(func() { s.rages(t, apps...) }) // into the stop
		stopWithin(t, apps[0], time.Second)
		rest.Wait()
		s.over(stores...)
		server.Break(nil)
		for _, app := range apps {
			stop(t, app)
		}
	})
}

func TestCallersOfAStoreWithOneWriterAreBackWhenTheirContextEnds(t *testing.T) {
	t.Parallel()
	s := newStorm(t, 60, 15*time.Second)
	store := faulty.Wrap(sqlite.Open(filepath.Join(t.TempDir(), "store.db")), nil)
	app := keyhold.New(keyhold.Config{Name: "shop", Store: store, Transport: local.New(), Logger: quiet})
	app.Register(cart, losses, newNotes().drops())
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.SetPlan(s.plan())
	s.rages(t, app)
	var rest sync.WaitGroup
	rest.Go(func() { s.rages(t, app) })
	stopWithin(t, app, 50*time.Millisecond)
	rest.Wait()
	s.over(store)
	stop(t, app)
}

// drops is losses by somebody who does not keep them.
func (n *notes) drops() keyhold.Handler[*notes] {
	h := n.losses()
	h.On = keyhold.Behavior[*notes]{keyhold.On(func(_ *notes, ctx keyhold.Context, _ itemLost) error { return ctx.Err() })}
	h.Retry = keyhold.RetryPolicy{Attempts: 1000, Max: time.Second}
	return h
}

// inMemoryBroker is one that an application can be on. It has no rules for keys.
type inMemoryBroker struct{ *brokertest.Broker }

func (b inMemoryBroker) Bind(store eventstore.Store, id eventstore.Identity, _ event.KeyRules) {
	b.Broker.Bind(store, id)
}
