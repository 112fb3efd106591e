package actors_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/partitions"
)

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
			same(t, "holder", a.id, held.Holder)
			same(t, "generation", event.Generation(a.port.generated.Load()), held.Generation)
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

// It rests without having served, so whoever came meanwhile is told.
func TestAnAskThatComesWhileAUnitIsGivenUpIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		a := w.joinOn(t, faulty.Nth(faulty.Raise, 1, faulty.Fault{Before: errors.New("store is out of reach")}), []actors.Definition{accounts()},
			func(c *actors.Config) { c.Others.Unfit = func(event.Unit, error) {} })
		a.port.releasing = make(chan struct{})
		if _, err := a.Ask(t.Context(), ref("a"), &Balance{}); !errors.Is(err, actors.ErrUnavailable) {
			t.Errorf("the first: %v", err)
		}
		second := make(chan error, 1)
		go func() {
			_, err := a.Ask(t.Context(), ref("a"), &Balance{})
			second <- err
		}()
		synctest.Wait()
		close(a.port.releasing)
		if err := <-second; !errors.Is(err, actors.ErrUnavailable) || !actors.Retryable(err) {
			t.Errorf("the second: %v", err)
		}
		same(t, "balance", 0, a.balance(t, "a"))
	})
}

// Neither does a store that hangs keep the unit from those for whom it does not.
func TestAUnitWhoseRecoveryHangsIsLeftToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		unfit := make(chan error, 9)
		never := make(chan struct{})
		a := w.joinOn(t, faulty.Nth(faulty.Raise, 1, faulty.Fault{Wait: never}), []actors.Definition{auditing("A", nil)}, func(c *actors.Config) {
			c.Others.Unfit = func(_ event.Unit, why error) { unfit <- why }
		})
		a.publish(t, amounts(1, 1)...)
		if err := <-unfit; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unfit: %v", err)
		}
		synctest.Wait()
		same(t, "given back", int64(1), a.port.released.Load())
		a.Wake(ledgerOf("c"))
		pass(time.Second)
		same(t, "audits", []string{"1 by A"}, w.audits(t, a, "c"))
	})
}

func TestAPanicOfWhoeverIsToldCostsTheUnitNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		oops := func(c *actors.Config) {
			c.Others.Held = func(event.Unit, time.Duration) { panic("oops") }
			c.Others.LetGo = func(event.Unit, bool) { panic("oops") }
		}
		a, b := w.join(t, []actors.Definition{accounts()}, oops), w.join(t, []actors.Definition{accounts()}, oops)
		a.deposit(t, "a", 5)
		if _, err := b.Ask(t.Context(), ref("a"), &Balance{}); !errors.Is(err, actors.ErrUnavailable) {
			t.Errorf("ask: %v", err)
		}
		if err := a.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, "balance", 5, b.balance(t, "a"))
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
		for range 20 {
			b.Wake(ledgerOf("c")) // of which each is in vain, too
			synctest.Wait()
		}
		before := b.port.acquired.Load()
		pass(2 * leaseTTL)
		if again := b.port.acquired.Load() - before; again < 1 || again > 4 {
			t.Errorf("B tried again %d times", again)
		}
		same(t, "audits", []string{"1 by A", "2 by A"}, w.audits(t, a, "c"))
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
		synctest.Wait()             // it is put away
		a.ResumeLive(ledgerOf("c")) // so it is not live
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
