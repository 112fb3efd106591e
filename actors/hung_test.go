package actors_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
)

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
