package actors_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func TestActivationAndPassivationComeInPairs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log []string
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			log = append(log, fmt.Sprint("event ", e.Amount))
			return nil
		})
		h.New = func(key string) *ledger { log = append(log, "new "+key); return &ledger{client: key} }
		h.OnActivate = func(l *ledger, c actors.Context) error {
			log = append(log, "activate "+c.Key())
			c.Emit(Audited{Client: l.client, By: "activation"})
			return nil
		}
		h.OnPassivate = func(l *ledger) { log = append(log, "passivate "+l.client) }
		b := setup(t, []actors.Definition{h}, soonIdle)
		b.publish(t, amounts(1, 2)...)
		b.saw.passivated.Wait(t)
		b.publish(t, amounts(3, 3)...)
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 3 })
		want := []string{"new c", "activate c", "event 1", "event 2", "passivate c", "new c", "activate c", "event 3"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if tail, err := b.memory.LaneTail(t.Context(), event.LaneRef{Category: "audit", Key: "c"}); err != nil || tail != 2 {
			t.Errorf("%d events of activations (%v), want 2", tail, err)
		}
	})
}

func TestAnActivationThatFailsCountsAgainstTheEvent(t *testing.T) {
	t.Parallel()
	h := ledgers(func(*ledger, actors.Context, Deposited) error { t.Error("the event was handled"); return nil })
	h.OnActivate = func(*ledger, actors.Context) error { return errors.New("no") }
	h.OnPassivate = func(*ledger) { t.Error("passivated what was never activated") }
	h.Retry = actors.RetryPolicy{Attempts: 2, Min: time.Microsecond}
	b := setup(t, []actors.Definition{h})
	b.publish(t, Deposited{Client: "c"})
	if halt := b.saw.halted.Wait(t); halt.Attempts != 2 || halt.Error != "no" {
		t.Errorf("halted after %d attempts with %q", halt.Attempts, halt.Error)
	}
}

func TestAWakeDuringPassivationIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bundle
		published := false
		h := ledgers(nothing)
		h.OnPassivate = func(l *ledger) {
			if !published {
				published = true
				b.publish(t, Deposited{Client: "c", Amount: 2})
			}
		}
		b = setup(t, []actors.Definition{h}, soonIdle)
		b.publish(t, Deposited{Client: "c", Amount: 1})
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 2 })
	})
}

func TestBecomeLastsUntilTheInstanceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log []string
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			log = append(log, fmt.Sprint("base ", e.Amount))
			c.Become("strict")
			if e.Amount == 1 && c.Meta().Attempt == 1 {
				return errors.New("and so it did not become anything")
			}
			return nil
		})
		h.On = append(h.On, actors.On(func(l *ledger, c actors.Context, e Withdrawn) error {
			log = append(log, "withdrawn")
			return nil
		}))
		h.Modes = map[string]actors.Behavior[*ledger]{"strict": {actors.On(func(l *ledger, c actors.Context, e Deposited) error {
			log = append(log, fmt.Sprint("strict ", e.Amount))
			return nil
		})}}
		b := setup(t, []actors.Definition{h}, soonIdle)
		b.publish(t, Deposited{Client: "c", Amount: 1}, Deposited{Client: "c", Amount: 2}, Withdrawn{Client: "c"})
		b.saw.passivated.Wait(t)
		b.publish(t, Deposited{Client: "c", Amount: 3})
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 4 })
		want := []string{"base 1", "base 1", "strict 2", "withdrawn", "base 3"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestBecomingWhatThereIsNotFails(t *testing.T) {
	t.Parallel()
	h := ledgers(func(l *ledger, c actors.Context, e Deposited) error { c.Become("typo"); return nil })
	h.Retry.Attempts = 1
	b := setup(t, []actors.Definition{h})
	b.publish(t, Deposited{Client: "c"})
	if halt := b.saw.halted.Wait(t); halt.Error != `become "typo": there is no such mode: add it to Modes` {
		t.Errorf("error: %s", halt.Error)
	}
}

func TestTimersRingAfterTheCommitAndKeepTheUnitAwake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var rang []time.Duration
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			c.StartTimer("never", time.Second)
			c.StartTimer("later", 8*time.Second)
			c.StopTimer("never")
			if c.Meta().Attempt == 1 {
				return errors.New("so this one starts nothing")
			}
			return nil
		})
		h.OnTimer = func(l *ledger, c actors.Context, name string) error {
			rang = append(rang, time.Since(start).Round(time.Second))
			if name != "later" {
				t.Errorf("%q rang", name)
			}
			c.Emit(Audited{Client: l.client, By: "timer"})
			return nil
		}
		b := setup(t, []actors.Definition{h}, soonIdle)
		b.publish(t, Deposited{Client: "c"})
		b.saw.passivated.Wait(t)
		if diff := cmp.Diff([]time.Duration{8 * time.Second}, rang); diff != "" {
			t.Errorf("rang at (-want +got)\n%s", diff)
		}
		if d := time.Since(start); d < 12*time.Second {
			t.Errorf("put away after %v, with the timer still running", d)
		}
		if tail, err := b.memory.LaneTail(t.Context(), event.LaneRef{Category: "audit", Key: "c"}); err != nil || tail != 1 {
			t.Errorf("%d events by the timer (%v), want 1", tail, err)
		}
	})
}

func TestATimerThatIsStoppedWhileItRingsIsNotCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			if e.Amount == 1 {
				c.StartTimer("x", time.Second)
				return nil
			}
			<-c.Done() // longer than the timer
			return errors.New("which costs the instance, and with it the timer")
		})
		h.OnTimer = func(*ledger, actors.Context, string) error { t.Error("it was called"); return nil }
		h.Timeout = 2 * time.Second
		h.Retry.Attempts = 1
		b := setup(t, []actors.Definition{h}, soonIdle)
		b.publish(t, amounts(1, 2)...)
		b.saw.halted.Wait(t)
		synctest.Wait()
	})
}

func TestATimerThatFailsIsToldAndCostsTheInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error { c.StartTimer("x", time.Second); return nil })
		var instances atomic.Int32
		h.New = func(string) *ledger { instances.Add(1); return &ledger{} }
		h.OnTimer = func(*ledger, actors.Context, string) error { return errors.New("no") }
		b := setup(t, []actors.Definition{h})
		b.publish(t, Deposited{Client: "c"})
		if err := b.saw.timer.Wait(t); err.Error() != "no" {
			t.Errorf("error: %v", err)
		}
		b.publish(t, Deposited{Client: "c"})
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 2 })
		if instances.Load() != 2 {
			t.Errorf("%d instances, want 2", instances.Load())
		}
	})
}

func TestAContextThatWasKeptIsOfNoUse(t *testing.T) {
	t.Parallel()
	var kept actors.Context
	b := setup(t, []actors.Definition{ledgers(func(l *ledger, c actors.Context, e Deposited) error { kept = c; return nil })})
	b.publish(t, Deposited{Client: "c"})
	b.saw.applied.Wait(t)
	kept.Emit(Audited{Client: "c"})
	if err := b.saw.misused.Wait(t); !errors.Is(err, actors.ErrOver) {
		t.Errorf("error: %v", err)
	}
	if _, err := kept.Tx().ExecContext(t.Context(), "DELETE"); !errors.Is(err, actors.ErrOver) {
		t.Errorf("Tx: %v", err)
	}
	if err := b.Send(kept, actors.Ref{Kind: "account", ID: "a"}, &Deposit{}); !errors.Is(err, actors.ErrUnknownEntity) {
		t.Errorf("Send on a kept context: got %v, want it taken for one from outside", err)
	}
	b.publish(t, Deposited{Client: "c"})
	b.saw.applied.Wait(t)
	if tail, err := b.memory.LaneTail(t.Context(), event.LaneRef{Category: "audit", Key: "c"}); err != nil || tail != 0 {
		t.Errorf("%d events of the kept context were committed (%v)", tail, err)
	}
	select {
	case <-kept.Done():
	default:
		t.Error("the context is not done")
	}
}

func TestAnAttemptThatTakesTooLongIsCancelledAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			if c.Meta().Attempt > 1 {
				return nil
			}
			<-c.Done()
			if cause := context.Cause(c); !errors.Is(cause, actors.ErrTimeout) {
				t.Errorf("cause: %v", cause)
			}
			return nil // and yet it must not count
		})
		h.Timeout = time.Second
		b := setup(t, []actors.Definition{h})
		b.publish(t, Deposited{Client: "c"})
		if err := b.saw.retried.Wait(t); !errors.Is(err, actors.ErrTimeout) {
			t.Errorf("first attempt: %v", err)
		}
		b.saw.applied.Wait(t)
	})
}

func TestAHungBehaviorHoldsUpItsOwnUnitOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		letGo := make(chan struct{})
		var inside atomic.Int32
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			if l.client == "hung" {
				if inside.Add(1) > 1 {
					t.Error("the hung unit was entered a second time")
				}
				<-letGo
				inside.Add(-1)
			}
			return nil
		})
		h.Timeout = time.Second
		b := setup(t, []actors.Definition{h}, func(c *actors.Config) { c.Concurrency = 1 })
		release := sync.OnceFunc(func() { close(letGo) })
		t.Cleanup(release)
		b.publish(t, Deposited{Client: "hung"})
		if u := b.saw.overdue.Wait(t); u.Key != "hung" {
			t.Errorf("overdue: %s", u)
		}
		b.publish(t, Deposited{Client: "other"}, Deposited{Client: "hung"})
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "other" })
		release()
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "hung" && e.Sequence == 2 })
	})
}

func TestABehaviorThatEndsItsGoroutineIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		b := setup(t, []actors.Definition{ledgers(func(*ledger, actors.Context, Deposited) error {
			if calls.Add(1) == 1 {
				runtime.Goexit()
			}
			return nil
		})}, func(c *actors.Config) { c.Concurrency = 1 })
		b.publish(t, Deposited{Client: "c"})
		b.saw.panicked.Wait(t)
		b.publish(t, Deposited{Client: "d"})
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "d" })
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "c" })
	})
}

// An observer's panic costs neither the activation, nor the event, nor the process.
func TestAnObserverThatPanicsEndsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made int
		h := ledgers(func(_ *ledger, c actors.Context, e Deposited) error {
			switch {
			case e.Amount == 2 && c.Meta().Attempt == 1:
				return errors.New("once more")
			case e.Amount == 3:
				panic("behavior")
			case e.Amount == 4:
				<-c.Done()
			}
			return nil
		})
		h.New = func(key string) *ledger { made++; return &ledger{client: key} }
		h.Timeout = time.Second
		h.Retry = actors.RetryPolicy{Attempts: 2, Min: time.Millisecond}
		h.OnPoison = actors.Release
		b := setup(t, []actors.Definition{h}, soonIdle, func(c *actors.Config) {
			o := &c.Observer
			o.Activated = func(event.Unit) { panic("o") }
			o.Retried = func(event.Unit, *event.Envelope, int, error) { panic("o") }
			o.Panicked = func(event.Unit, *actors.PanicError) { panic("o") }
			o.Applied = func(event.Unit, *event.Envelope) { panic("o") }
			dead := o.DeadLettered
			o.DeadLettered = func(d eventstore.Dead) { dead(d); panic("o") }
		})
		b.publish(t, amounts(1, 5)...)
		for _, want := range []event.Sequence{3, 4} {
			if d := b.saw.dead.Wait(t); d.Sequence != want || d.Attempts != 2 {
				t.Errorf("#%d was set aside after %d attempts, want #%d after 2", d.Sequence, d.Attempts, want)
			}
		}
		b.saw.passivated.Wait(t)
		if made != 6 { // one, and another after each of the five attempts that failed
			t.Errorf("%d instances, want 6", made)
		}
	})
}
