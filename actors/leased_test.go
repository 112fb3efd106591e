package actors_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/partitions"
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

func TestAUnitIsRunByOneNodeAndRestsElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		held := make(chan time.Duration, 9)
		a := w.join(t, []actors.Definition{auditing("A", nil)})
		a.publish(t, amounts(1, 2)...)
		pass(time.Second)
		b := w.join(t, []actors.Definition{auditing("B", nil)}, func(c *actors.Config) {
			c.Others.Held = func(_ event.Unit, most time.Duration) { held <- most }
		})
		a.publish(t, amounts(3, 4)...)
		pass(time.Second)
		same(t, "audits", []string{"1 by A", "2 by A", "3 by A", "4 by A"}, w.audits(t, a, "c"))
		if most := <-held; most <= 0 || most > leaseTTL {
			t.Errorf("held for %s", most)
		}
		same(t, "asked for by B", int64(1), b.port.acquired.Load())
		if b.Live(ledgerOf("c")) || !a.Live(ledgerOf("c")) {
			t.Error("it is live where it should not be, or not where it should")
		}
	})
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

func TestAnAskOfAnEntityThatAnotherNodeHasIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a, b := w.join(t, []actors.Definition{accounts()}), w.join(t, []actors.Definition{accounts()})
		a.deposit(t, "a", 5)
		began := time.Now()
		for range 3 {
			_, err := b.Ask(t.Context(), ref("a"), &Balance{})
			var held *actors.HeldError
			if !errors.As(err, &held) || !errors.Is(err, actors.ErrUnavailable) || !actors.Retryable(err) {
				t.Fatalf("ask: %v", err)
			}
			if held.Unit != (event.Unit{Name: "account", Key: "a"}) || held.Most <= 0 || held.Most > leaseTTL || !strings.Contains(err.Error(), "another node has account/a") {
				t.Errorf("%v", err)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("after %s", time.Since(began))
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, "balance", 5, b.balance(t, "a"))
	})
}

// Commands that are sent, and those that are asked, go through one unit, whoever sends them.
func TestSentCommandsAndAsksShareTheUnitWhileItIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a, b := w.join(t, []actors.Definition{accounts()}), w.join(t, []actors.Definition{accounts()})
		a.deposit(t, "a", 1)
		for range 20 {
			if err := b.Send(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1}); err != nil {
				t.Fatal(err)
			}
			a.deposit(t, "a", 1)
		}
		pass(time.Second)
		same(t, "balance", 41, a.balance(t, "a"))
		same(t, "events", 41, len(a.events(t, "a")))
		same(t, "generation at A", uint64(1), a.port.generated.Load())
		same(t, "generation at B", uint64(0), b.port.generated.Load())
	})
}

func TestABrokerThatForgotGrantsNothingForOneLeaseAndThenAboveWhatWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a := w.join(t, []actors.Definition{accounts()})
		a.deposit(t, "a", 5)
		w.clock()
		w.broker.Forget()
		pass(heartbeat) // the renewal is fenced
		_, err := a.Ask(t.Context(), ref("a"), &Balance{})
		if !errors.Is(err, actors.ErrUnavailable) || !strings.Contains(err.Error(), "lost its memory") {
			t.Errorf("ask: %v", err)
		}
		pass(leaseTTL)
		same(t, "balance", 5, a.balance(t, "a"))
		if g := a.port.generated.Load(); g < 2 {
			t.Errorf("generation %d again", g)
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

// A behavior that ignores the end of its context: the lease lapses, and another node goes on.
func TestABehaviorThatHangsLosesItsUnitToAnotherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		enter, letGo := make(chan context.Context, 9), make(chan struct{})
		hanging := auditing("A", once(enter, letGo, false))
		hanging.Timeout = 2 * time.Second
		a := w.join(t, []actors.Definition{hanging})
		a.publish(t, amounts(1, 2)...)
		<-enter
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		b.Wake(ledgerOf("c"))
		a.saw.overdue.Wait(t)
		pass(2 * leaseTTL)
		same(t, "audits", []string{"1 by B", "2 by B"}, w.audits(t, b, "c"))
		if act, ok := a.Inspect(ledgerOf("c")); !ok || act.InHand == nil {
			t.Errorf("at A: %+v, %t", act, ok)
		}
		a.Wake(ledgerOf("c"))
		pass(leaseTTL)
		same(t, "asked for by A", int64(1), a.port.acquired.Load()) // nothing before it has returned
		close(letGo)
		b.publish(t, amounts(3, 3)...)
		pass(time.Second)
		got := w.audits(t, b, "c")
		same(t, "audits", []string{"1 by B", "2 by B"}, got[:2])
		same(t, "audits", 3, len(got))
	})
}

func TestAsksOfAnEntityWhoseBehaviorHangsAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		letGo := make(chan struct{})
		hanging := accounts()
		hanging.Timeout = 2 * time.Second
		hanging.Queries = actors.Queries[account]{actors.OnQuery(func(actors.Query, account, *Balance) (*Total, error) {
			<-letGo
			return &Total{}, nil
		})}
		a := w.join(t, []actors.Definition{hanging})
		a.deposit(t, "a", 5)
		first := make(chan error, 1)
		go func() {
			_, err := a.Ask(t.Context(), ref("a"), &Balance{})
			first <- err
		}()
		synctest.Wait()
		_, err := a.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1}) // that waits
		if !errors.Is(err, actors.ErrUnavailable) || !actors.Retryable(err) {
			t.Errorf("waiting: %v", err)
		}
		if err := <-first; !errors.Is(err, actors.ErrUnavailable) || actors.Retryable(err) {
			t.Errorf("in hand: %v", err)
		}
		if _, err := a.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1}); !errors.Is(err, actors.ErrUnavailable) {
			t.Errorf("later: %v", err)
		}
		b := w.join(t, []actors.Definition{accounts()})
		pass(2 * leaseTTL)
		same(t, "balance at B", 5, b.balance(t, "a"))
		close(letGo)
		pass(time.Minute)
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		a.deposit(t, "a", 1) // it works again
	})
}

func TestAUnitIsHandedOverAfterTheEventInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		enter, letGo := make(chan context.Context, 9), make(chan struct{})
		gone := make(chan bool, 9)
		a := w.join(t, []actors.Definition{auditing("A", once(enter, letGo, true))}, func(c *actors.Config) {
			c.Others.LetGo = func(_ event.Unit, unread bool) { gone <- unread }
		})
		a.HandOver(ledgerOf("c")) // it is not there: nothing happens
		a.publish(t, amounts(1, 3)...)
		c := <-enter
		a.HandOver(ledgerOf("c"))
		pass(time.Minute)
		if c.Err() != nil || len(gone) > 0 {
			t.Error("the event in hand was not left to finish")
		}
		close(letGo)
		if !<-gone {
			t.Error("nothing is left to do, it says")
		}
		pass(time.Second)
		if a.Live(ledgerOf("c")) {
			t.Error("it is still there")
		}
		same(t, "given back", int64(1), a.port.released.Load())
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		b.Wake(ledgerOf("c"))
		pass(time.Second)
		same(t, "audits", []string{"1 by A", "2 by B", "3 by B"}, w.audits(t, b, "c"))
		b.saw.suspected.Send(suspected{})
		same(t, "suspected", event.Unit{}, b.saw.suspected.Wait(t).unit) // it was left clean
	})
}

func TestAsksDuringAHandOverAreForTheOtherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		enter, letGo := make(chan struct{}), make(chan struct{})
		slow := accounts()
		slow.Queries = actors.Queries[account]{actors.OnQuery(func(_ actors.Query, s account, _ *Balance) (*Total, error) {
			close(enter)
			<-letGo
			return &Total{Amount: s.Total}, nil
		})}
		a := w.join(t, []actors.Definition{slow})
		a.deposit(t, "a", 5)
		answers := make(chan string, 9)
		ask := func(what any) {
			got, err := a.Ask(t.Context(), ref("a"), what)
			switch {
			case err == nil:
				answers <- fmt.Sprint(got.(*Total).Amount)
			case errors.Is(err, actors.ErrUnavailable) && actors.Retryable(err):
				answers <- "unavailable"
			default:
				answers <- err.Error()
			}
		}
		go ask(&Balance{})
		<-enter
		go ask(&Deposit{Client: "c", Amount: 1})
		synctest.Wait()
		a.HandOver(event.Unit{Name: "account", Key: "a"})
		close(letGo)
		pass(time.Second)
		same(t, "answers", map[string]bool{"5": true, "unavailable": true}, map[string]bool{<-answers: true, <-answers: true})
		b := w.join(t, []actors.Definition{accounts()})
		same(t, "balance", 5, b.balance(t, "a"))
	})
}

// At a Stop that runs out of patience the lease of a unit that is stuck is left to lapse.
func TestStopLeavesTheLeaseOfAStuckUnitToLapse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		enter, letGo := make(chan context.Context, 9), make(chan struct{})
		a := w.join(t, []actors.Definition{auditing("A", once(enter, letGo, false))})
		a.publish(t, amounts(1, 2)...)
		<-enter
		var stuck *actors.StopError
		if err := a.stopWithin(t, time.Second); !errors.As(err, &stuck) || len(stuck.Stuck) != 1 {
			t.Fatalf("stop: %v", err)
		}
		same(t, "given back", int64(0), a.port.released.Load())
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		b.Wake(ledgerOf("c"))
		pass(leaseTTL + time.Second)
		same(t, "audits", []string{"1 by B", "2 by B"}, w.audits(t, b, "c"))
		close(letGo)
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, "given back", int64(0), a.port.released.Load())
	})
}

func TestWhatCannotBeRecoveredHereIsLeftToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		unfit := make(chan error, 9)
		broken := errors.New("store is out of reach")
		a := w.joinOn(t, func(op faulty.Op) faulty.Fault {
			if op.Call == faulty.Raise {
				return faulty.Fault{Before: broken}
			}
			return faulty.Fault{}
		}, []actors.Definition{auditing("A", nil), accounts()}, func(c *actors.Config) {
			c.Others.Unfit = func(_ event.Unit, why error) { unfit <- why }
		})
		a.publish(t, amounts(1, 1)...)
		if err := <-unfit; !errors.Is(err, broken) {
			t.Errorf("unfit: %v", err)
		}
		pass(time.Hour)
		same(t, "asked for", int64(1), a.port.acquired.Load())
		same(t, "given back", int64(1), a.port.released.Load())
		_, err := a.Ask(t.Context(), ref("a"), &Balance{})
		if !errors.Is(err, actors.ErrUnavailable) || !errors.Is(err, broken) {
			t.Errorf("ask: %v", err)
		}
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		b.Wake(ledgerOf("c"))
		pass(time.Second)
		same(t, "audits", []string{"1 by B"}, w.audits(t, b, "c"))
	})
}

// Where nobody shares units out, the runtime tries again by itself.
func TestWithoutOthersToTellARuntimeTriesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a := w.joinOn(t, faulty.Nth(faulty.Raise, 1, faulty.Fault{Before: errors.New("store is out of reach")}), []actors.Definition{auditing("A", nil)})
		a.publish(t, amounts(1, 1)...)
		pass(10 * time.Second)
		same(t, "audits", []string{"1 by A"}, w.audits(t, a, "c"))
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		a.publish(t, amounts(2, 2)...) // B is woken in vain
		pass(time.Second)
		a.port.freeze()
		before := b.port.acquired.Load()
		a.publish(t, amounts(3, 3)...)
		pass(2 * leaseTTL)
		if b.port.acquired.Load() == before {
			t.Error("B did not try again")
		}
		same(t, "audits", 3, len(w.audits(t, a, "c")))
	})
}

func TestOthersAreToldOfUnitsThatWaitForAPerson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		rested := make(chan partitions.Phase, 9)
		var fails atomic.Bool
		fails.Store(true)
		a := w.join(t, []actors.Definition{auditing("A", func(actors.Context, Deposited) error {
			if fails.Load() {
				return actors.Poison(errors.New("oops"))
			}
			return nil
		})}, func(c *actors.Config) { c.Others.Rested = func(_ event.Unit, p partitions.Phase) { rested <- p } })
		a.publish(t, amounts(1, 1)...)
		same(t, "phase", partitions.PhaseHalted, <-rested)
		fails.Store(false)
		halt := a.saw.halted.Wait(t)
		ref := halt.Ref()
		if _, err := a.memory.Begin("test").Commit(t.Context(), eventstore.Changes{LiftHalt: &ref}); err != nil {
			t.Fatal(err)
		}
		a.ResumeLive(ledgerOf("c")) // it is not
		synctest.Wait()
		same(t, "told", 0, len(rested))
		a.Resume(ledgerOf("c"))
		same(t, "phase", partitions.PhaseIdle, <-rested)
		pass(time.Second)
		same(t, "audits", []string{"1 by A"}, w.audits(t, a, "c"))
	})
}

func TestResumeLiveReachesAUnitThatIsLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a := w.join(t, []actors.Definition{auditing("A", nil)})
		a.publish(t, amounts(1, 1)...)
		pass(time.Second)
		a.ResumeLive(ledgerOf("c"))
		pass(time.Second)
		same(t, "generation", uint64(2), a.port.generated.Load()) // it recovered anew
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
		defer release()
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
		same(t, "audits", []string{"1 by A", "2 by A"}, w.audits(t, a, "c")) // acquired anew, from nobody who crashed
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

// Nodes that lose leases, hang and come back, by seed: what is committed is in order, each once.
func TestWhateverHappensToLeasesEventsAreAppliedInOrderAndOnce(t *testing.T) {
	t.Parallel()
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { leaseChaos(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func leaseChaos(t *testing.T, rng *rand.Rand) {
	const clients, each = 4, 40
	w := newNodes()
	var all []*node
	for _, name := range []string{"A", "B", "C"} {
		h := auditing(name, func(c actors.Context, _ Deposited) error {
			pass2(time.Duration(rand.N(3000)) * time.Millisecond)
			return nil
		})
		h.Timeout = 2 * time.Second
		h.Retry = actors.RetryPolicy{Attempts: 1000, Min: time.Millisecond, Max: time.Second}
		all = append(all, w.join(t, []actors.Definition{h}, func(c *actors.Config) { c.IdleAfter = 5 * time.Second }))
	}
	next := map[int]int{}
	for range clients * each {
		client := rng.IntN(clients)
		next[client]++
		all[rng.IntN(3)].publish(t, Deposited{Client: fmt.Sprint("c", client), Amount: next[client]})
		switch rng.IntN(8) {
		case 0:
			thaw := all[rng.IntN(3)].port.freeze()
			time.AfterFunc(time.Duration(rng.IntN(40))*time.Second, thaw)
		case 1:
			all[rng.IntN(3)].HandOver(ledgerOf(fmt.Sprint("c", rng.IntN(clients))))
		case 2:
			if rng.IntN(4) == 0 {
				w.clock()
				w.broker.Forget()
			}
		}
		pass(time.Duration(rng.IntN(2000)) * time.Millisecond)
	}
	for client, n := range next {
		name := fmt.Sprint("c", client)
		for range 200 {
			if len(w.audits(t, all[0], name)) >= n {
				break
			}
			for _, a := range all {
				a.Wake(ledgerOf(name)) // as a scan for what has work does
			}
			pass(heartbeat)
		}
		got := w.audits(t, all[0], name)
		for i, audit := range got {
			if !strings.HasPrefix(audit, fmt.Sprint(i+1, " by ")) {
				t.Fatalf("%s: %v", name, got)
			}
		}
		same(t, "applied of "+name, n, len(got))
	}
}
