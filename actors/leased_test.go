package actors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore/faulty"
)

func decode(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func same(t testing.TB, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// once gives a case that waits in the first event it gets, minding its context or not, and tells of it.
func once(enter chan<- context.Context, letGo <-chan struct{}, minds bool) func(actors.Context, Deposited) error {
	var first atomic.Bool
	return func(c actors.Context, e Deposited) error {
		if first.Swap(true) {
			return nil
		}
		enter <- c
		if !minds {
			<-letGo
			return nil
		}
		select {
		case <-letGo:
			return nil
		case <-c.Done():
			return context.Cause(c)
		}
	}
}

// A unit that is held and idle is renewed, and put away like any other.
func TestALeaseIsKeptAsLongAsTheUnitLivesAndGivenBackAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a := w.join(t, []actors.Definition{auditing("A", nil)}, func(c *actors.Config) { c.IdleAfter = time.Minute })
		a.publish(t, amounts(1, 1)...)
		pass(50 * time.Second)
		a.publish(t, amounts(2, 2)...)
		pass(time.Second)
		same(t, "generation", uint64(1), a.port.generated.Load())
		same(t, "asked for", int64(1), a.port.acquired.Load())
		pass(2 * time.Minute)
		same(t, "given back", int64(1), a.port.released.Load())
		if a.Live(ledgerOf("c")) {
			t.Error("it lives on")
		}
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		b.publish(t, amounts(3, 3)...)
		pass(time.Second)
		same(t, "audits", 3, len(w.audits(t, a, "c")))
	})
}

// The lease is not there any more when it would be renewed, which is no loss.
func TestALeaseThatIsBeingGivenBackIsNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a := w.join(t, []actors.Definition{auditing("A", nil)}, func(c *actors.Config) { c.IdleAfter = time.Second })
		a.port.slow = heartbeat - time.Millisecond
		for range 5 {
			a.publish(t, amounts(1, 1)...)
			pass(time.Minute)
		}
		same(t, "given back", int64(5), a.port.released.Load())
		a.saw.trouble.Send(errors.New("end"))
		if err := a.saw.trouble.Wait(t); err.Error() != "end" {
			t.Errorf("trouble: %v", err)
		}
	})
}

// Renewals alone are frozen while the behavior goes on: the live stale owner.
func TestAnOwnerThatLostItsLeaseCommitsNothingAndTheOtherGoesOnInOrder(t *testing.T) {
	t.Parallel()
	for _, minds := range []bool{true, false} {
		t.Run(fmt.Sprintf("minds its context: %t", minds), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newNodes()
				enter, letGo := make(chan context.Context, 9), make(chan struct{})
				began := time.Now()
				a := w.join(t, []actors.Definition{auditing("A", once(enter, letGo, minds))})
				a.port.freeze()
				a.publish(t, amounts(1, 3)...)
				c := <-enter
				b := w.join(t, []actors.Definition{auditing("B", nil)})
				b.Wake(ledgerOf("c"))
				<-c.Done()
				if took := time.Since(began); took != leaseLife {
					t.Errorf("its context ended after %s, want %s", took, leaseLife)
				}
				if err := context.Cause(c); !errors.Is(err, actors.ErrLeaseLost) {
					t.Errorf("cause: %v", err)
				}
				pass(10 * time.Second)
				if minds { // it has returned, and was the first to ask again
					same(t, "audits", []string{"1 by A", "2 by A", "3 by A"}, w.audits(t, b, "c"))
				} else {
					same(t, "audits while it is inside", []string{"1 by B", "2 by B", "3 by B"}, w.audits(t, b, "c"))
				}
				close(letGo)
				pass(time.Minute)
				b.publish(t, amounts(4, 4)...)
				pass(time.Second)
				got := w.audits(t, b, "c")
				same(t, "audits", []string{"1", "2", "3", "4"}, []string{got[0][:1], got[1][:1], got[2][:1], got[3][:1]})
				a.saw.retried.Send(errors.New("end"))
				if err := a.saw.retried.Wait(t); err.Error() != "end" {
					t.Errorf("it counts as an attempt: %v", err)
				}
			})
		})
	}
}

// It is in the middle of its commit when it loses the unit: the fence in the store decides.
func TestACommitUnderWayIsRefusedOnceAnotherHasTheUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		hold := make(chan struct{})
		var commits atomic.Int64
		a := w.joinOn(t, func(op faulty.Op) faulty.Fault {
			if op.Call == faulty.Commit && len(op.Changes.Advance) > 0 && commits.Add(1) == 1 {
				return faulty.Fault{Wait: hold}
			}
			return faulty.Fault{}
		}, []actors.Definition{auditing("A", nil)})
		a.port.freeze()
		a.publish(t, amounts(1, 2)...)
		pass(time.Second)
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		b.Wake(ledgerOf("c"))
		pass(20 * time.Second)
		same(t, "audits of B", []string{"1 by B", "2 by B"}, w.audits(t, b, "c"))
		close(hold)
		pass(time.Second)
		same(t, "audits", []string{"1 by B", "2 by B"}, w.audits(t, b, "c"))
		same(t, "commits of A", int64(1), commits.Load())
	})
}

func TestALateRenewalRevivesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a := w.join(t, []actors.Definition{auditing("A", nil)})
		a.publish(t, amounts(1, 1)...)
		late := make(chan struct{})
		f := func(_ context.Context, renew func() []error) []error {
			got := renew() // the broker has it
			<-late         // but the answer takes its time
			return got
		}
		a.port.renewals.Store(&f)
		pass(leaseLife)
		pass(heartbeat)
		a.port.renewals.Store(nil)
		close(late)
		a.publish(t, amounts(2, 2)...)
		pass(time.Second)
		same(t, "generation", uint64(2), a.port.generated.Load())
		same(t, "audits", []string{"1 by A", "2 by A"}, w.audits(t, a, "c"))
	})
}

// Renewals come while a behavior is inside that takes longer than a lease: nobody can tell the machine meanwhile.
func TestABehaviorThatTakesLongerThanALeaseKeepsItsUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		enter, letGo := make(chan context.Context, 9), make(chan struct{})
		a := w.join(t, []actors.Definition{auditing("A", once(enter, letGo, true))})
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		w.mu.all = w.mu.all[:1] // A is first
		a.publish(t, amounts(1, 2)...)
		<-enter
		b.Wake(ledgerOf("c"))
		pass(5 * leaseTTL)
		close(letGo)
		pass(time.Second)
		same(t, "audits", []string{"1 by A", "2 by A"}, w.audits(t, a, "c"))
		same(t, "generation", uint64(1), a.port.generated.Load())
	})
}

func TestAnEntityThatTakesLongerThanALeaseAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		slow := accounts()
		slow.Timeout = -1
		slow.Queries = actors.Queries[account]{actors.OnQuery(func(q actors.Query, s account, in *Balance) (*Total, error) {
			pass2(time.Minute)
			return &Total{Amount: s.Total}, nil
		})}
		a := w.join(t, []actors.Definition{slow})
		a.deposit(t, "a", 5)
		same(t, "balance", 5, a.balance(t, "a"))
		same(t, "generation", uint64(1), a.port.generated.Load())
	})
}

// pass2 lets virtual time pass for somebody who is not the test.
func pass2(d time.Duration) {
	ctx, done := context.WithTimeout(context.Background(), d)
	defer done()
	<-ctx.Done()
}

func TestAReplyOfAnEntityThatIsNotOursAnyMoreIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		slow := accounts()
		slow.Timeout = -1
		slow.Queries = actors.Queries[account]{actors.OnQuery(func(q actors.Query, s account, in *Balance) (*Total, error) {
			<-q.Done()
			return &Total{Amount: s.Total}, nil // as if nothing were the matter
		})}
		a := w.join(t, []actors.Definition{slow})
		a.deposit(t, "a", 5)
		a.port.freeze()
		_, err := a.Ask(t.Context(), ref("a"), &Balance{})
		if !errors.Is(err, actors.ErrUnavailable) || !errors.Is(err, actors.ErrLeaseLost) || !actors.Retryable(err) {
			t.Errorf("ask: %v", err)
		}
	})
}

func TestOnAHostThatStoodStillABehaviorIsCancelledAndTheUnitRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		var ahead atomic.Int64
		enter, letGo := make(chan context.Context, 9), make(chan struct{})
		a := w.join(t, []actors.Definition{auditing("A", once(enter, letGo, true))}, func(c *actors.Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		a.publish(t, amounts(1, 2)...)
		c := <-enter
		ahead.Add(int64(time.Hour))
		pass(heartbeat)
		if err := context.Cause(c); !errors.Is(err, actors.ErrLeaseLost) {
			t.Errorf("cause: %v", err)
		}
		pass(time.Minute)
		same(t, "audits", []string{"1 by A", "2 by A"}, w.audits(t, a, "c"))
		same(t, "generation", uint64(2), a.port.generated.Load())

		// It is noticed before a behavior is entered, too.
		ahead.Add(int64(time.Hour))
		a.publish(t, amounts(3, 3)...)
		pass(time.Second)
		same(t, "generation", uint64(3), a.port.generated.Load())
		same(t, "audits", 3, len(w.audits(t, a, "c")))
	})
}

// Between the moment at which it is decided that a behavior is to run and the moment at which it does, much time may pass.
func TestABehaviorIsNotEnteredUnderALeaseThatEndedWhileItsStateWasRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		hold := make(chan struct{})
		var entered atomic.Int64
		counted := accounts()
		counted.Queries = actors.Queries[account]{actors.OnQuery(func(_ actors.Query, s account, _ *Balance) (*Total, error) {
			entered.Add(1)
			return &Total{Amount: s.Total}, nil
		})}
		a := w.joinOn(t, faulty.Nth(faulty.ReadSnapshot, 1, faulty.Fault{Wait: hold}), []actors.Definition{counted})
		a.port.freeze()
		time.AfterFunc(leaseTTL+time.Second, func() { close(hold) })
		_, err := a.Ask(t.Context(), ref("a"), &Balance{})
		if !errors.Is(err, actors.ErrUnavailable) || !actors.Retryable(err) {
			t.Errorf("ask: %v", err)
		}
		same(t, "entered", int64(0), entered.Load())
	})
}

// A suspect that waits for its turn holds nobody up when its lease is lost.
func TestASuspectThatWaitsForItsTurnGivesUpALostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		crashed := w.broker.Port()
		if _, err := crashed.Acquire(t.Context(), ledgerOf("c"), 0); err != nil {
			t.Fatal(err)
		}
		a := w.join(t, []actors.Definition{auditing("A", nil)})
		release, err := a.Alone(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pass(leaseTTL)
		a.publish(t, amounts(1, 2)...)
		pass(time.Second)
		if act, ok := a.Inspect(ledgerOf("c")); !ok || act.InHand == nil || !act.InHand.Waiting {
			t.Fatalf("it does not wait: %+v", act)
		}
		thaw := a.port.freeze()
		pass(leaseTTL)
		thaw()
		pass(time.Second)
		if act, ok := a.Inspect(ledgerOf("c")); !ok || act.InHand == nil || !act.InHand.Waiting {
			t.Errorf("acquired anew, and now above suspicion: %+v", act)
		}
		release()
		pass(time.Second)
		same(t, "audits", []string{"1 by A", "2 by A"}, w.audits(t, a, "c"))
	})
}

// The next unit of the same id goes on under the lease of the one that was ended.
func TestABehaviorThatEndsItsGoroutineDoesNotCostTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		var first atomic.Bool
		a := w.join(t, []actors.Definition{auditing("A", func(actors.Context, Deposited) error {
			if !first.Swap(true) {
				runtime.Goexit()
			}
			return nil
		})}, func(c *actors.Config) { c.IdleAfter = time.Hour })
		pass(time.Minute)
		a.publish(t, amounts(1, 2)...)
		pass(time.Minute)
		a.publish(t, amounts(3, 3)...)
		pass(time.Second)
		same(t, "audits", []string{"1 by A", "2 by A", "3 by A"}, w.audits(t, a, "c"))
		same(t, "generation", uint64(1), a.port.generated.Load())
	})
}

func TestTheFenceThatABehaviorSeesIsItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		fences := make(chan actors.Fence, 9)
		see := func(c actors.Context, _ Deposited) error {
			fences <- c.Fence()
			return nil
		}
		a := w.join(t, []actors.Definition{auditing("A", see)})
		a.publish(t, amounts(1, 1)...)
		same(t, "fence", actors.Fence{Unit: ledgerOf("c"), Generation: 1, Lane: lane("c"), Sequence: 1}, <-fences)
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		b := w.join(t, []actors.Definition{auditing("B", see)})
		b.publish(t, amounts(2, 2)...)
		same(t, "fence", actors.Fence{Unit: ledgerOf("c"), Generation: 2, Lane: lane("c"), Sequence: 2}, <-fences)
	})
}
