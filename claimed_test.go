package keyhold_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/inline"
	"github.com/keyhold/keyhold/transport/local"
	"github.com/keyhold/keyhold/transport/redis"
)

// shareable makes what applications may be given twice, of every kind: stores of one application each, and transports.
var shareable = map[string]func(t *testing.T) (store func() eventstore.Store, carries func() transport.Transport){
	"memory, inline": func(*testing.T) (func() eventstore.Store, func() transport.Transport) {
		return func() eventstore.Store { return memory.Open() }, func() transport.Transport { return inline.New() }
	},
	"sqlite, local": func(t *testing.T) (func() eventstore.Store, func() transport.Transport) {
		return func() eventstore.Store { return sqlite.Open(filepath.Join(t.TempDir(), "shop.db")) }, func() transport.Transport { return local.New() }
	},
	"postgres, redis": func(t *testing.T) (func() eventstore.Store, func() transport.Transport) {
		url := redisserver.Run(t, redisserver.Options{}).URL()
		return func() eventstore.Store { return postgres.Open(postgresserver.Database(t)) },
			func() transport.Transport { return redis.New(redis.Config{URL: url, TTL: 2 * time.Second}) }
	},
}

// works has a cart take an item, by which something is published and applied.
func works(t *testing.T, app *keyhold.App, n *notes, item string) {
	t.Helper()
	add(t, app, "c-1", "ada", item)
	if got := within(t, time.Minute, "what was added to be applied", n.news); got != item {
		t.Errorf("%s was applied, want %s", got, item)
	}
}

// Whoever is refused what another application of the process has leaves it as it is, starting and stopping.
func TestASecondApplicationOnTheSameStoreOrTransportIsRefusedAndTheFirstGoesOn(t *testing.T) {
	t.Parallel()
	for name, kind := range shareable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, carries := kind(t)
			n := newNotes()
			cfg := keyhold.Config{Name: "shop", Node: "first", Store: store(), Transport: carries(), Logger: quiet}
			first := run(t, cfg, cart, n.handler())
			works(t, first, n, "tea")
			for what, of := range map[string]struct {
				store     eventstore.Store
				transport transport.Transport
				is        error
				says      string
			}{
				"transport": {store(), cfg.Transport, transport.ErrClaimed, "give each App one of its own"},
				"store":     {cfg.Store, carries(), eventstore.ErrOwned, "give each App a store of its own"},
				"both":      {cfg.Store, cfg.Transport, transport.ErrClaimed, "give each App one of its own"},
			} {
				second := keyhold.New(keyhold.Config{Name: "shop", Node: "second", Store: of.store, Transport: of.transport, Logger: quiet, Wait: true})
				second.Register(cart, newNotes().handler())
				for range 2 {
					if err := second.Start(t.Context()); !errors.Is(err, of.is) || !strings.Contains(err.Error(), of.says) {
						t.Errorf("%s: the second says %v", what, err)
					}
					stop(t, second)
				}
				works(t, first, n, what)
			}
			want := slices.Clone(n.of("ada"))
			if len(want) != 4 {
				t.Errorf("%v was applied", want)
			}
			stop(t, first)

			// What the first has left anybody may have, with a store of its own as well.
			works(t, run(t, cfg, cart, n.handler()), n, "again")
			if diff := cmp.Diff(append(want, "again"), n.of("ada")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestATransportThatWasLeftServesAnApplicationWithAnotherStore(t *testing.T) {
	t.Parallel()
	for name, kind := range shareable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, carries := kind(t)
			carrier := carries()
			for _, what := range []string{"wine", "beer"} {
				n := newNotes()
				h := n.prices()
				h.Name, h.Categories = what+".prices", []string{what}
				app := keyhold.New(keyhold.Config{Name: "shop", Store: store(), Transport: carrier, Logger: quiet})
				app.Register(h, keyhold.Category{Name: what, Events: price.Events})
				if err := app.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := keyhold.Publish(t.Context(), app, keyhold.For("p-1", priceSet{what})); err != nil {
					t.Fatal(err)
				}
				within(t, time.Minute, "what was published to be applied", n.news)
				stop(t, app)
			}
		})
	}
}

// A start that fails, wherever it does, keeps nothing.
func TestAStartThatFailsLeavesTheTransportToOthers(t *testing.T) {
	t.Parallel()
	carrier := local.New()
	trouble := errors.New("trouble")
	fails := func(call faulty.Call) keyhold.Config {
		return keyhold.Config{Store: faulty.Wrap(memory.Open(), faulty.Nth(call, 1, faulty.Fault{Before: trouble}))}
	}
	for what, cfg := range map[string]keyhold.Config{
		"wrong configuration":   {Store: memory.Open(), IdleAfter: -1},
		"before the store":      fails(faulty.Start),
		"with the store":        fails(faulty.SaveRegistry),
		"with the transport up": fails(faulty.ListHalts),
	} {
		cfg.Name, cfg.Transport, cfg.Logger = "shop", carrier, quiet
		app := keyhold.New(cfg)
		app.Register(cart, newNotes().handler())
		if err := app.Start(t.Context()); err == nil {
			t.Errorf("%s: it is started", what)
			stop(t, app)
		}
		n := newNotes()
		other := keyhold.New(keyhold.Config{Name: "shop", Store: memory.Open(), Transport: carrier, Logger: quiet})
		other.Register(cart, n.handler())
		if err := other.Start(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		stop(t, app) // of what it has not
		works(t, other, n, what)
		stop(t, other)
	}
}

// grudging is a store that cannot be closed at first.
type grudging struct {
	eventstore.Store
	fault error
}

func (s *grudging) Stop(ctx context.Context) error {
	if s.fault != nil {
		return s.fault
	}
	return s.Store.Stop(ctx)
}

// A store that cannot be closed keeps its transport from nobody, and another Stop of it does not touch that again.
func TestAStoreThatCannotBeClosedLeavesTheTransportToOthers(t *testing.T) {
	t.Parallel()
	for name, kind := range shareable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, carries := kind(t)
			carrier, stuck := carries(), &grudging{Store: store(), fault: errors.New("the disk is gone")}
			n := newNotes()
			sells := func(what string, store eventstore.Store) (app *keyhold.App, sell func()) {
				h := n.prices()
				h.Name, h.Categories = what+".prices", []string{what}
				app = keyhold.New(keyhold.Config{Name: "shop", Store: store, Transport: carrier, Logger: quiet})
				app.Register(h, keyhold.Category{Name: what, Events: price.Events})
				if err := app.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				return app, func() {
					t.Helper()
					if err := keyhold.Publish(t.Context(), app, keyhold.For("p-1", priceSet{what})); err != nil {
						t.Fatal(err)
					}
					within(t, time.Minute, "what was published to be applied", n.news)
				}
			}
			app, sell := sells("wine", stuck)
			sell()
			if err := app.Stop(t.Context()); !errors.Is(err, stuck.fault) {
				t.Errorf("stop: %v", err)
			}
			other, sell := sells("beer", store())
			sell()
			if err := app.Stop(t.Context()); !errors.Is(err, stuck.fault) {
				t.Errorf("stop again: %v", err)
			}
			sell()
			stuck.fault = nil
			stop(t, app)
			sell()
			stop(t, other)
		})
	}
}

// Of applications that start at the same time one has what they share.
func TestOfManyApplicationsOnOneTransportOneStarts(t *testing.T) {
	t.Parallel()
	carrier := local.New()
	n := newNotes()
	var all sync.WaitGroup
	apps := make([]*keyhold.App, 8)
	errs := make([]error, len(apps))
	for i := range apps {
		apps[i] = keyhold.New(keyhold.Config{Name: "shop", Store: memory.Open(), Transport: carrier, Logger: quiet})
		apps[i].Register(cart, n.handler())
		all.Go(func() { errs[i] = apps[i].Start(t.Context()) })
	}
	all.Wait()
	var runs []*keyhold.App
	for i, app := range apps {
		switch err := errs[i]; {
		case err == nil:
			runs = append(runs, app)
		case !errors.Is(err, transport.ErrClaimed):
			t.Error(err)
		default:
			stop(t, app)
		}
	}
	if len(runs) != 1 {
		t.Fatalf("%d applications are started", len(runs))
	}
	works(t, runs[0], n, "tea")
	stop(t, runs[0])
}
