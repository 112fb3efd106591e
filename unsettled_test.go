package keyhold_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport/local"
)

// endings is a store that its last owner did not stop, and that notes how this one does.
type endings struct {
	unclean
	untried bool
}

func (e *endings) Stop(ctx context.Context) error {
	e.untried = eventstore.IsUntried(ctx)
	return e.unclean.Stop(ctx)
}

// A stop before all had run that the process before may have ended of does not take it back.
func TestAStopBeforeTheSuspectsRanLeavesTheStoreUnclean(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ concurrency, suspicions int }{
		"in line for a slot":  {concurrency: 1},
		"in line to be alone": {concurrency: 2, suspicions: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &endings{unclean: unclean{memory.Open()}}
				cfg := func() keyhold.Config {
					return keyhold.Config{Name: "shop", Store: store, Transport: local.New(), Logger: quiet, Concurrency: of.concurrency}
				}
				app := run(t, cfg(), cart, keyhold.Category{Name: "cart", Key: "client"})
				for _, client := range []string{"ada", "bob"} {
					add(t, app, client, client, "tea")
					if of.suspicions > 0 {
						suspect(t, store, client, of.suspicions)
					}
				}
				stop(t, app)
				if store.untried {
					t.Error("nothing of what there is was there at the start, and it is suspected")
				}

				n := newNotes()
				slow := n.handler()
				inside := make(chan string, 2)
				slow.On = keyhold.Behavior[*notes]{keyhold.On(func(_ *notes, ctx keyhold.Context, e itemAdded) error {
					inside <- e.Item
					<-ctx.Done()
					return ctx.Err()
				})}
				app = run(t, cfg(), cart, slow)
				<-inside
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = app.Stop(ctx) // it interrupts the one, and the other never began
				if len(inside) > 0 || !store.untried {
					t.Errorf("%d more ran, and what did not run is suspected at the next start: %t", len(inside), store.untried)
				}

				app = run(t, cfg(), cart, n.handler())
				for range 2 {
					within(t, 20*time.Second, "an item", n.news)
				}
				stop(t, app)
				if store.untried {
					t.Error("all has run, and is suspected")
				}
			})
		})
	}
}

// suspect has the first event of a client be one that the process ended of before.
func suspect(t *testing.T, store eventstore.Store, client string, suspicions int) {
	t.Helper()
	u, lane := event.Unit{Name: "register", Key: client}, event.LaneRef{Category: "cart", Key: client}
	_, err := store.Begin("test").Commit(t.Context(), eventstore.Changes{
		Fence: eventstore.Fence{Unit: u}, Tried: &eventstore.Tried{Unit: u, Lane: lane, Sequence: 1, EventID: client, Time: time.Now(), Suspicions: suspicions},
	})
	if err != nil {
		t.Fatal(err)
	}
}
