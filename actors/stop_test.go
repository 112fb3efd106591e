package actors_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/lifecycle/lifecycletest"
)

// stopWithin stops the runtime, with a limit of virtual time.
func (b *bundle) stopWithin(t testing.TB, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return b.Stop(ctx)
}

func TestStopOfAnIdleRuntimeReturnsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, []actors.Definition{accounts(), ledgers(nothing)})
		b.deposit(t, "a", 1)
		b.saw.applied.Wait(t)
		start := time.Now()
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if time.Since(start) != 0 {
			t.Errorf("took %v", time.Since(start))
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("a second time: %v", err)
		}
		if _, err := b.Ask(t.Context(), ref("a"), &Balance{}); !errors.Is(err, actors.ErrStopping) || !actors.Retryable(err) {
			t.Errorf("ask: %v", err)
		}
		if err := b.Drive(t.Context(), event.Unit{Name: "ledger", Key: "c"}, lane("c"), 1); !errors.Is(err, actors.ErrStopping) {
			t.Errorf("drive: %v", err)
		}
		b.Wake(event.Unit{Name: "ledger", Key: "c"}) // as a transport may, a moment too late
	})
}

func TestStopUnderLoadLosesNothingAndAnswersEverybody(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	var applied atomic.Int64
	var answered, refused atomic.Int64
	t.Run("stopped in the middle", func(t *testing.T) {
		b := setupOn(t, store, nil, []actors.Definition{accounts(), ledgers(func(*ledger, actors.Context, Deposited) error {
			applied.Add(1)
			return nil
		})})
		var asks sync.WaitGroup
		for i := range 8 {
			asks.Go(func() {
				for {
					_, err := b.Ask(t.Context(), ref(fmt.Sprint(i%3)), &Deposit{Client: fmt.Sprint("c", i), Amount: 1})
					switch {
					case err == nil:
						answered.Add(1)
					case errors.Is(err, actors.ErrStopping) && actors.Retryable(err):
						refused.Add(1)
						return
					default:
						t.Errorf("ask: %v", err)
						return
					}
				}
			})
		}
		for range 20 {
			b.saw.applied.Wait(t)
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		asks.Wait()
	})
	if refused.Load() != 8 {
		t.Errorf("%d were refused, want 8", refused.Load())
	}
	t.Run("started again", func(t *testing.T) {
		b := setupOn(t, store, nil, []actors.Definition{accounts(), ledgers(func(*ledger, actors.Context, Deposited) error {
			applied.Add(1)
			return nil
		})})
		total := 0
		for i := range 3 {
			total += b.balance(t, fmt.Sprint(i))
		}
		if int64(total) != answered.Load() {
			t.Errorf("%d deposits are in the store, %d were answered", total, answered.Load())
		}
		for i := range 8 {
			key := fmt.Sprint("c", i)
			tail, err := store.LaneTail(t.Context(), lane(key))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Drive(t.Context(), event.Unit{Name: "ledger", Key: key}, lane(key), tail); err != nil {
				t.Error(err)
			}
		}
		if applied.Load() != answered.Load() {
			t.Errorf("%d events applied, want %d", applied.Load(), answered.Load())
		}
	})
}

// slow gives a handler whose behaviors wait until let go, minding their contexts or not.
func slow(enter chan<- string, letGo <-chan struct{}, minds bool) actors.Handler[*ledger] {
	h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		enter <- l.client
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
	})
	h.Timeout = -1
	return h
}

func TestStopWaitsForTheBehaviorInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enter, letGo := make(chan string, 9), make(chan struct{})
		b := setup(t, []actors.Definition{slow(enter, letGo, true)})
		b.publish(t, amounts(1, 3)...)
		<-enter
		time.AfterFunc(5*time.Second, func() { close(letGo) })
		start := time.Now()
		if err := b.stopWithin(t, time.Minute); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("took %v, want 5s", d)
		}
		if at := b.checkpoint(t, "ledger", lane("c")); at != 1 || len(enter) != 0 {
			t.Errorf("checkpoint %d, %d more events begun; want the one in hand alone", at, len(enter))
		}
	})
}

func TestStopInterruptsThoseThatTakeTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enter := make(chan string, 9)
		b := setup(t, []actors.Definition{slow(enter, nil, true)})
		b.publish(t, Deposited{Client: "c"}, Deposited{Client: "d"})
		<-enter
		<-enter
		start := time.Now()
		err := b.stopWithin(t, 5*time.Second)
		var stop *actors.StopError
		if !errors.As(err, &stop) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error: %v", err)
		}
		if diff := cmp.Diff([]event.Unit{{Name: "ledger", Key: "c"}, {Name: "ledger", Key: "d"}}, stop.Interrupted); diff != "" || len(stop.Stuck) > 0 {
			t.Errorf("stuck %v, interrupted (-want +got)\n%s", stop.Stuck, diff)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("took %v, want 5s", d)
		}
		if len(b.halts(t)) > 0 {
			t.Error("an interruption was held against the event")
		}
		if err := b.Start(t.Context()); err != nil {
			t.Errorf("start again: %v", err)
		}
	})
}

func (b *bundle) halts(t testing.TB) []event.Unit {
	t.Helper()
	halts, err := b.memory.ListHalts(t.Context(), "", event.Unit{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	var units []event.Unit
	for _, h := range halts {
		units = append(units, h.Unit)
	}
	return units
}

// An interruption must not be the attempt that exhausts the retries.
func TestAnInterruptionIsNotCountedAsAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enter := make(chan string, 9)
		h := slow(enter, nil, true)
		h.Retry.Attempts = 1
		b := setup(t, []actors.Definition{h})
		b.publish(t, Deposited{Client: "c"})
		<-enter
		if err := b.stopWithin(t, time.Second); err == nil {
			t.Fatal("stopped")
		}
		if got := b.halts(t); len(got) > 0 {
			t.Errorf("halted: %v", got)
		}
	})
}

func TestStopNamesTheUnitsThatAreStuckAndCanBeAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enter, letGo := make(chan string, 9), make(chan struct{})
		stuck := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			enter <- c.ID()
			<-letGo
			return &Total{}, nil
		})
		stuck.Timeout = -1
		b := setup(t, []actors.Definition{slow(enter, letGo, false), stuck}, func(c *actors.Config) { c.Concurrency = 2 })
		b.publish(t, Deposited{Client: "c"})
		<-enter
		answers := make(chan error, 2)
		ask := func() {
			_, err := b.Ask(t.Context(), ref("a"), &Deposit{})
			answers <- err
		}
		go ask()
		<-enter
		go ask() // waits in the mailbox
		go func() { answers <- b.Drive(t.Context(), event.Unit{Name: "ledger", Key: "c"}, lane("c"), 1) }()
		b.publish(t, Deposited{Client: "d"}) // waits for a slot, which none of the others gives up
		synctest.Wait()

		start := time.Now()
		err := b.stopWithin(t, 5*time.Second)
		var stop *actors.StopError
		if !errors.As(err, &stop) {
			t.Fatalf("error: %v", err)
		}
		want := []event.Unit{{Name: "account", Key: "a"}, {Name: "ledger", Key: "c"}}
		if diff := cmp.Diff(want, stop.Stuck); diff != "" {
			t.Errorf("stuck (-want +got)\n%s", diff)
		}
		if d := time.Since(start); d != 6*time.Second {
			t.Errorf("took %v, want 6s: the deadline and a second", d)
		}
		unknown := 0
		for range 3 {
			var ask *actors.AskError
			if err := <-answers; !errors.Is(err, actors.ErrStopping) {
				t.Errorf("answered %v", err)
			} else if errors.As(err, &ask) && ask.Unknown {
				unknown++
			}
		}
		if unknown != 1 {
			t.Errorf("%d asks have an unknown outcome, want that of the one that had begun", unknown)
		}
		if err := b.Start(t.Context()); err == nil {
			t.Fatal("started while behaviors are still inside")
		}
		close(letGo)
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("once they had returned: %v", err)
		}
		if err := b.Start(t.Context()); err != nil {
			t.Errorf("start again: %v", err)
		}
	})
}

func TestStopWhileTheStoreIsOutOfReach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		plan := func(op faulty.Op) faulty.Fault {
			switch op.Call {
			case faulty.ReadLane:
				return faulty.Fault{Wait: never} // until its context ends
			case faulty.ReadSnapshot:
				return faulty.Fault{Before: errors.New("no route to host")}
			}
			return faulty.Fault{}
		}
		b := setupOn(t, memory.Open(), plan, []actors.Definition{accounts(), ledgers(nothing)})
		b.publish(t, Deposited{Client: "c"})
		if _, err := b.Ask(t.Context(), ref("a"), &Balance{}); err == nil {
			t.Error("the balance of an entity that cannot be read was given")
		}
		synctest.Wait()
		err := b.stopWithin(t, 5*time.Second)
		var stop *actors.StopError
		if !errors.As(err, &stop) || len(stop.Stuck) > 0 {
			t.Errorf("error: %v", err)
		}
	})
}

func TestStopDoesNotWaitForABackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := ledgers(func(*ledger, actors.Context, Deposited) error { return errors.New("no") })
		h.Retry = actors.RetryPolicy{Min: time.Hour, Max: time.Hour}
		b := setup(t, []actors.Definition{h})
		b.publish(t, Deposited{Client: "c"})
		b.saw.retried.Wait(t)
		start := time.Now()
		if err := b.Stop(t.Context()); err != nil || time.Since(start) != 0 {
			t.Errorf("took %v: %v", time.Since(start), err)
		}
	})
}

func TestStopWhileATimerRings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enter, letGo := make(chan struct{}), make(chan struct{})
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			if e.Amount == 1 {
				c.StartTimer("x", time.Second)
				return nil
			}
			close(enter)
			<-letGo
			return nil
		})
		h.OnTimer = func(*ledger, actors.Context, string) error { return nil }
		b := setup(t, []actors.Definition{h})
		b.publish(t, amounts(1, 2)...)
		<-enter
		time.AfterFunc(2*time.Second, func() { close(letGo) }) // the timer has rung, and waits for the behavior
		if err := b.stopWithin(t, 5*time.Second); err != nil {
			t.Error(err)
		}
	})
}

func TestARuntimeStartedAndStoppedByMany(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lifecycletest.Stress(t, b.Runtime)
}

func TestDriveReturnsWhenTheLaneIsThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unit := event.Unit{Name: "ledger", Key: "c"}
		var applied atomic.Int32
		b := setup(t, []actors.Definition{ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			if e.Amount == 4 {
				return actors.Poison(errors.New("cannot"))
			}
			applied.Add(1)
			return nil
		})}, byHand)
		b.publish(t, append(amounts(1, 2), Withdrawn{Client: "c"})...)
		if err := b.Drive(t.Context(), unit, lane("c"), 3); err != nil || applied.Load() != 2 {
			t.Errorf("%d applied, %v; want 2, and what is of no interest passed", applied.Load(), err)
		}
		if err := b.Drive(t.Context(), unit, lane("c"), 1); err != nil {
			t.Errorf("what was applied before: %v", err)
		}
		b.publish(t, amounts(4, 5)...)
		if err := b.Drive(t.Context(), unit, lane("c"), 5); err != nil || applied.Load() != 2 {
			t.Errorf("%d applied, %v; want it to return although the unit halted", applied.Load(), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Drive(ctx, event.Unit{Name: "ledger", Key: "x"}, lane("x"), 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("what is not there: %v", err)
		}
	})
}

// An entity whose stream has halted stays in service: it does not have to be put away first.
func TestDriveOfAnEntityReturnsAsSoonAsItsStreamHalts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, []actors.Definition{only(func(actors.Command, account, *Deposit) (*Total, error) {
			return nil, actors.Poison(errors.New("cannot"))
		})}, byHand)
		if err := b.Send(t.Context(), ref("a"), &Deposit{Client: "c"}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		commands := event.LaneRef{Category: "account.commands", Key: "a"}
		if err := b.Drive(t.Context(), event.Unit{Name: "account", Key: "a"}, commands, 1); err != nil || time.Since(start) > 0 {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if got := len(b.halts(t)); got != 1 {
			t.Errorf("%d halts, want 1", got)
		}
	})
}

// A transport that delivers inside Committed must see that the commit belongs to its own Drive.
func TestWhatAUnitCommitsUnderADriveIsToldUnderItsContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	var mu sync.Mutex
	told := map[string]any{}
	var b *bundle
	b = setup(t, []actors.Definition{accounts(), ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		c.Emit(Audited{Client: l.client})
		if e.Amount == 1 {
			_, err := b.Ask(c, ref("nested"), &Deposit{Client: "other", Amount: 2})
			return err
		}
		return nil
	})}, func(c *actors.Config) {
		c.Committed = func(ctx context.Context, tails []event.Tail) error {
			mu.Lock()
			defer mu.Unlock()
			told[tails[0].Lane.String()] = ctx.Value(key{})
			return nil
		}
	})
	b.publish(t, Deposited{Client: "c", Amount: 1})
	ctx := context.WithValue(t.Context(), key{}, "driven")
	if err := b.Drive(ctx, event.Unit{Name: "ledger", Key: "c"}, lane("c"), 1); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := map[string]any{"account:c": nil, "audit:c": "driven", "account:other": "driven"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
