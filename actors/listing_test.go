package actors_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
)

// register saves what a release of the program handles, and gives the revision.
func register(t *testing.T, s *memory.Store, types ...string) uint64 {
	t.Helper()
	was, err := s.LoadRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := eventstore.Registered{Revision: was.Revision, Handlers: []eventstore.Handler{
		{Name: "ledger", Kind: eventstore.EventHandler, Categories: []string{"account"}, Types: types, Sequential: true, Since: time.Now()},
	}}
	if err := s.SaveRegistry(t.Context(), now, nil); err != nil {
		t.Fatal(err)
	}
	return was.Revision + 1
}

// relists has a runtime read the registry again, and counts.
func relists(n **node, times *atomic.Int64) func(context.Context) error {
	return func(ctx context.Context) error {
		times.Add(1)
		got, err := (*n).memory.LoadRegistry(ctx)
		if err != nil {
			return err
		}
		(*n).SetListed(got.Revision, map[string][]string{"ledger": got.Handlers[0].Types})
		return nil
	}
}

// A rolling deploy: another node registers for a type that this one does not know, after this one has passed over an event of it and before
// that is committed.
func TestAnEventThatIsListedMeanwhileIsNotPassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		var a *node
		var again atomic.Int64
		unfit := make(chan error, 9)
		hold := make(chan struct{})
		var held atomic.Bool
		first := w.join(t, nil) // has the store open
		revision := register(t, first.memory, "account.deposited")
		a = w.joinOn(t, func(op faulty.Op) faulty.Fault {
			if op.Call == faulty.Commit && len(op.Changes.Advance) > 0 && !held.Swap(true) {
				if op.Changes.Listed != revision {
					t.Errorf("committed by revision %d, want %d", op.Changes.Listed, revision)
				}
				return faulty.Fault{Wait: hold}
			}
			return faulty.Fault{}
		}, []actors.Definition{auditing("A", nil)}, func(c *actors.Config) {
			c.Listed, c.Revision = map[string][]string{"ledger": {"account.deposited"}}, revision
			c.Others.Relist = relists(&a, &again)
			c.Others.Unfit = func(_ event.Unit, why error) { unfit <- why }
		})
		a.publish(t, Withdrawn{Client: "c", Amount: 1}, Deposited{Client: "c", Amount: 2})
		pass(time.Second)
		register(t, first.memory, "account.deposited", "account.withdrawn")
		close(hold)
		if err := <-unfit; !errors.Is(err, actors.ErrNewerType) {
			t.Errorf("unfit: %v", err)
		}
		same(t, "lists read", int64(1), again.Load())
		same(t, "checkpoint", event.Sequence(0), a.checkpoint(t, "ledger", lane("c")))
		same(t, "audits", 0, len(w.audits(t, a, "c")))
	})
}

func TestListsThatGrewAreKeptToWithoutARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a := w.join(t, []actors.Definition{auditing("A", nil)})
		a.publish(t, Withdrawn{Client: "c", Amount: 1}, Deposited{Client: "c", Amount: 2})
		pass(time.Second)
		same(t, "checkpoint", event.Sequence(2), a.checkpoint(t, "ledger", lane("c")))
		a.SetListed(7, map[string][]string{"ledger": {"account.withdrawn"}})
		a.SetListed(6, nil) // an older one, that took long to be read
		a.publish(t, Withdrawn{Client: "d", Amount: 1})
		a.publish(t, Withdrawn{Client: "c", Amount: 3})
		a.saw.waits.Wait(t)
		a.saw.waits.Wait(t)
		pass(time.Minute)
		same(t, "checkpoint", event.Sequence(2), a.checkpoint(t, "ledger", lane("c")))
		same(t, "checkpoint", event.Sequence(0), a.checkpoint(t, "ledger", lane("d")))
	})
}

// Lists that moved for others do not stop this unit: what it passes over is still not listed.
func TestAUnitGoesOnAfterTheListsWereReadAgain(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]int64{"at once": 0, "after two failures": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newNodes()
				var a *node
				var again atomic.Int64
				first := w.join(t, nil)
				revision := register(t, first.memory, "account.deposited")
				a = w.join(t, []actors.Definition{auditing("A", nil)}, func(c *actors.Config) {
					c.Listed, c.Revision = map[string][]string{"ledger": {"account.deposited"}}, revision
					relist := relists(&a, &again)
					c.Others.Relist = func(ctx context.Context) error {
						if again.Load() < fails {
							again.Add(1)
							return errors.New("store is out of reach")
						}
						return relist(ctx)
					}
				})
				register(t, first.memory, "account.deposited", "account.closed")
				a.publish(t, Withdrawn{Client: "c", Amount: 1}, Deposited{Client: "c", Amount: 2})
				pass(time.Minute)
				same(t, "lists read", fails+1, again.Load())
				same(t, "audits", []string{"2 by A"}, w.audits(t, a, "c"))
				a.publish(t, Withdrawn{Client: "c", Amount: 3}, Deposited{Client: "c", Amount: 4})
				pass(time.Minute)
				same(t, "lists read", fails+1, again.Load())
				same(t, "audits", []string{"2 by A", "4 by A"}, w.audits(t, a, "c"))
			})
		})
	}
}

// What was only passed over is committed when the unit is put away, by nobody's attempt.
func TestACheckpointOverPassedEventsIsDecidedAnewToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		var a *node
		var again atomic.Int64
		first := w.join(t, nil)
		revision := register(t, first.memory, "account.deposited")
		a = w.join(t, []actors.Definition{auditing("A", nil)}, func(c *actors.Config) {
			c.Listed, c.Revision = map[string][]string{"ledger": {"account.deposited"}}, revision
			c.Others.Relist = relists(&a, &again)
		})
		a.publish(t, Withdrawn{Client: "c", Amount: 1})
		pass(time.Second)
		register(t, first.memory, "account.deposited", "account.closed")
		pass(2 * time.Minute)
		same(t, "lists read", int64(1), again.Load())
		same(t, "checkpoint", event.Sequence(1), a.checkpoint(t, "ledger", lane("c")))
		if a.Live(ledgerOf("c")) {
			t.Error("it is not put away")
		}
	})
}

// A newer program has registered for a type, and emits one. This node has not heard of it; when it finds out by the refusal of its commit, it has been inside the
// event behind, whose effects outside the store would come too early.
func TestNothingIsEnteredBehindAnEventThatANewerProgramHandles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		var a *node
		var again, entered atomic.Int64
		unfit := make(chan error, 9)
		first := w.join(t, nil)
		revision := register(t, first.memory, "account.deposited")
		a = w.join(t, []actors.Definition{auditing("A", func(actors.Context, Deposited) error {
			entered.Add(1)
			return nil
		})}, func(c *actors.Config) {
			c.Listed, c.Revision = map[string][]string{"ledger": {"account.deposited"}}, revision
			c.Others.Relist = relists(&a, &again)
			c.Others.Unfit = func(_ event.Unit, why error) { unfit <- why }
		})
		register(t, first.memory, "account.deposited", "account.withdrawn")
		a.publish(t, Withdrawn{Client: "c", Amount: 1}, Deposited{Client: "c", Amount: 2})
		if err := <-unfit; !errors.Is(err, actors.ErrNewerType) {
			t.Errorf("unfit: %v", err)
		}
		same(t, "entered", int64(0), entered.Load())
		same(t, "lists read", int64(1), again.Load())
		same(t, "checkpoint", event.Sequence(0), a.checkpoint(t, "ledger", lane("c")))
	})
}
