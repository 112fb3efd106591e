package actors_test

import (
	"context"
	"errors"
	"fmt"
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

// A database in trouble is no event's fault, wherever it is met: in a statement of the behavior, at the commit, or by an entity that
// the behavior asks.
func TestTroubleOfTheDatabaseIsNeverCounted(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("insert: disk is full: %w", eventstore.ErrTrouble)
	statement := func(c actors.Context) error {
		_, err := c.Tx().ExecContext(c, "insert")
		return err
	}
	for name, tt := range map[string]struct {
		do     func(b *bundle, c actors.Context) error
		commit bool // commits fail, too
	}{
		"in a statement": {do: func(_ *bundle, c actors.Context) error { return errors.Join(statement(c), full) }},
		"at the commit":  {do: func(_ *bundle, c actors.Context) error { return statement(c) }, commit: true},
		"in an ask": {do: func(b *bundle, c actors.Context) error {
			_, err := actors.Ask[*Total](c, b, ref("a"), &Deposit{Client: "other"})
			return err
		}, commit: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const troubles = 7
				var b *bundle
				var calls atomic.Int32
				inTrouble := func() bool { return calls.Load() > 0 && calls.Load() <= troubles }
				h := ledgers(func(l *ledger, c actors.Context, _ Deposited) error {
					if calls.Add(1) > troubles || l.client != "c" {
						return nil
					}
					return tt.do(b, c)
				})
				h.Retry = actors.RetryPolicy{Attempts: 2, Min: time.Millisecond}
				plan := func(op faulty.Op) faulty.Fault {
					if tt.commit && op.Call == faulty.Commit && inTrouble() {
						return faulty.Fault{Before: full}
					}
					return faulty.Fault{}
				}
				b = setupOn(t, memory.Open(), plan, []actors.Definition{h, accounts()}, func(c *actors.Config) { c.Store = &withSQL{Store: c.Store} })
				b.publish(t, Deposited{Client: "c"})
				b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "c" })
				if n := calls.Load(); n != troubles+1 {
					t.Errorf("%d calls, want %d", n, troubles+1)
				}
				halts, err := b.store.ListHalts(t.Context(), "", event.Unit{}, 10)
				if err != nil || len(halts) > 0 {
					t.Errorf("halts: %v, %v", halts, err)
				}
			})
		})
	}
}

// What a commit of unknown outcome added is delivered without anything else having to happen.
func TestWhatACommitOfUnknownOutcomeAddedIsDelivered(t *testing.T) {
	t.Parallel()
	lost := errors.New("the answer is lost")
	for name, commit := range map[string]func(t *testing.T, b *bundle) error{
		"of an entity": func(t *testing.T, b *bundle) error {
			_, err := actors.Ask[*Total](t.Context(), b, ref("a"), &Deposit{Client: "c"})
			return err
		},
		"of Do": func(t *testing.T, b *bundle) error {
			return b.Do(t.Context(), func(u actors.UnitOfWork) error { u.Emit(Deposited{Client: "c"}); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				plan := func(op faulty.Op) faulty.Fault {
					if op.Call == faulty.Commit && len(op.Changes.Append)+len(op.Changes.Publish) > 0 {
						return faulty.Fault{After: lost}
					}
					return faulty.Fault{}
				}
				b := setupOn(t, memory.Open(), plan, []actors.Definition{ledgers(nothing), accounts()})
				if err := commit(t, b); !errors.Is(err, lost) {
					t.Fatalf("got %v, want that the answer is lost", err)
				}
				b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "c" })
			})
		})
	}
}

// lateStore commits what is published once it is let go, long after the caller was told that the outcome is unknown.
type lateStore struct {
	eventstore.Store
	letGo <-chan struct{}
}

type lateTx struct {
	eventstore.Tx
	letGo <-chan struct{}
}

func (s lateStore) Begin(who string) eventstore.Tx { return lateTx{s.Store.Begin(who), s.letGo} }

func (tx lateTx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	if len(c.Publish) == 0 {
		return tx.Tx.Commit(ctx, c)
	}
	go func() {
		<-tx.letGo
		_, _ = tx.Tx.Commit(context.WithoutCancel(ctx), c)
	}()
	return eventstore.Committed{}, eventstore.ErrUnknownCommit
}

func TestWhatIsCommittedAfterItsOutcomeWasUnknownIsDelivered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		b := setup(t, []actors.Definition{ledgers(nothing)}, func(c *actors.Config) { c.Store = lateStore{c.Store, letGo} })
		err := b.Do(t.Context(), func(u actors.UnitOfWork) error { u.Emit(Deposited{Client: "c"}); return nil })
		if !errors.Is(err, eventstore.ErrUnknownCommit) {
			t.Fatal(err)
		}
		synctest.Wait() // the unit that was woken at once has found nothing
		close(letGo)
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "c" })
	})
}

// The deadline of an attempt counts also where the watch still looks after the one before, which it gave a second more.
func TestAnAttemptAfterOneThatTookTooLongIsCancelledInTimeAsWell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 50 * time.Millisecond
		h := ledgers(func(_ *ledger, c actors.Context, _ Deposited) error {
			began := time.Now()
			<-c.Done()
			if took := time.Since(began); took > 2*timeout {
				t.Errorf("attempt %d was cancelled after %v, want %v", c.Meta().Attempt, took, timeout)
			}
			return context.Cause(c)
		})
		h.Timeout = timeout
		h.Retry = actors.RetryPolicy{Attempts: 4, Min: time.Millisecond, Max: time.Millisecond}
		b := setup(t, []actors.Definition{h})
		b.publish(t, Deposited{Client: "c"})
		b.saw.halted.Wait(t)
	})
}
