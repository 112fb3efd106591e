package actors_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/signal"
	"github.com/keyhold/keyhold/partitions"
)

func TestAPausedHandlerReadsNoFurtherUntilItIsResumed(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"one key": false, "the whole handler": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := ledgers(nothing)
				b := setup(t, []actors.Definition{h, accounts()})
				b.registered(t, h, accounts())
				b.publish(t, amounts(1, 1)...)
				b.applied(t, 1)
				b.deposit(t, "x", 1) // another kind, not concerned
				b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "c-x" })
				u := ledgerC
				if whole {
					u.Key = ""
				}
				b.act(t, eventstore.ActPause, u, event.Position{})
				paused := 1
				if whole {
					paused = 2 // both of its live keys
				}
				for range paused {
					if got := b.saw.paused.Wait(t); got.Name != "ledger" {
						t.Errorf("paused: %s", got)
					}
				}
				b.publish(t, amounts(2, 2)...)
				if err := b.Drive(t.Context(), ledgerC, lane("c"), 2); err != nil { // it stands, and that is no error
					t.Error(err)
				}
				synctest.Wait()
				b.same(t, "checkpoint while paused", event.Sequence(1), b.checkpoint(t, "ledger", lane("c")))

				b.act(t, eventstore.ActResume, u, event.Position{})
				if whole {
					b.Wake(ledgerC) // its unit may have been put away: ResumeAll wakes nobody
				}
				b.applied(t, 2)
				if !whole {
					b.saw.resumed.Wait(t)
				}
				b.same(t, "checkpoint", event.Sequence(2), b.checkpoint(t, "ledger", lane("c")))
			})
		})
	}
}

func TestAPausedEntityAnswersAsksAndReadsNoCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, []actors.Definition{accounts()})
		b.registered(t, accounts())
		if err := b.Send(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1}); err != nil {
			t.Fatal(err)
		}
		b.saw.applied.Wait(t)
		u := event.Unit{Name: "account", Key: "a"}
		for range 2 { // the second time it is known to have been resumed
			b.act(t, eventstore.ActPause, u, event.Position{})
			b.saw.paused.Wait(t)
			b.Resume(u) // another act, which changes nothing of that
			synctest.Wait()
			before := b.balance(t, "a")
			if err := b.Send(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 10}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := b.deposit(t, "a", 1); got != before+1 {
				t.Errorf("total is %d, want %d: the sent command waits", got, before+1)
			}
			synctest.Wait()
			if a, live := b.Inspect(u); !live || a.Phase != partitions.PhasePaused {
				t.Errorf("it is %+v", a)
			}
			b.act(t, eventstore.ActResume, u, event.Position{})
			b.saw.applied.Wait(t)
			b.saw.resumed.Wait(t)
			if got := b.balance(t, "a"); got != before+11 {
				t.Errorf("balance is %d, want %d", got, before+11)
			}
		}
		nothingLeft(t, "paused", &b.saw.paused)
		nothingLeft(t, "resumed", &b.saw.resumed)
	})
}

// Acts that neither stop a unit nor let it go on are no news of that kind.
func TestOnlyWhatWasStoppedIsResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m mendable
		h := m.handler(actors.ParkSequence, 1)
		b := setup(t, []actors.Definition{h})
		b.registered(t, h)
		b.publish(t, amounts(1, 2)...)
		b.saw.parked.Wait(t)
		synctest.Wait()
		m.mend(1)
		b.act(t, eventstore.ActRetry, ledgerC, event.Position{Lane: lane("c"), Sequence: 1})
		b.saw.unparked.Wait(t)
		b.Resume(ledgerC)
		b.ResumeAll("ledger")
		synctest.Wait()
		b.act(t, eventstore.ActPause, ledgerC, event.Position{})
		b.saw.paused.Wait(t)
		synctest.Wait()
		b.act(t, eventstore.ActPause, event.Unit{Name: "ledger"}, event.Position{})
		b.act(t, eventstore.ActResume, event.Unit{Name: "ledger"}, event.Position{})
		synctest.Wait()
		b.act(t, eventstore.ActResume, ledgerC, event.Position{})
		b.saw.resumed.Wait(t)
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, "resumed", &b.saw.resumed)
		nothingLeft(t, "paused", &b.saw.paused)
	})
}

// nothingLeft fails when more was told.
func nothingLeft(t testing.TB, what string, s interface {
	Send(event.Unit)
	Wait(signal.TB) event.Unit
}) {
	t.Helper()
	end := event.Unit{Name: "end"}
	s.Send(end)
	if got := s.Wait(t); got != end {
		t.Errorf("%s: %s besides", what, got)
	}
}

// A machine that is handed on after its goroutine was ended does not recover by itself: it must hear of what was done to all.
func TestAnActOnAWholeHandlerReachesAUnitWhoseGoroutineWasEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := ledgers(func(*ledger, actors.Context, Deposited) error {
			runtime.Goexit()
			return nil
		})
		h.Retry = actors.RetryPolicy{Attempts: 3, Min: time.Hour, Max: time.Hour}
		b := setup(t, []actors.Definition{h})
		b.registered(t, h)
		b.publish(t, amounts(1, 1)...)
		b.saw.panicked.Wait(t)
		b.act(t, eventstore.ActPause, event.Unit{Name: "ledger"}, event.Position{})
		b.saw.paused.Wait(t)
	})
}

func TestWhatAUnitDoesCanBeLookedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside, letGo := make(chan struct{}), make(chan struct{})
		h := ledgers(func(_ *ledger, c actors.Context, e Deposited) error {
			switch e.Amount {
			case 1:
				inside <- struct{}{}
				<-letGo
			case 2:
				return errors.New("broken")
			}
			return nil
		})
		h.Retry = actors.RetryPolicy{Attempts: 2, Min: time.Hour, Max: time.Hour}
		slow := accounts()
		slow.Queries = actors.Queries[account]{actors.OnQuery(func(q actors.Query, s account, in *Balance) (*Total, error) {
			inside <- struct{}{}
			<-letGo
			return &Total{}, nil
		})}
		b := setup(t, []actors.Definition{h, slow}, func(c *actors.Config) {
			c.Now = func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
		})
		if a, live := b.Inspect(ledgerC); live {
			t.Errorf("there is none, and it is %+v", a)
		}
		b.publish(t, amounts(1, 3)...)
		<-inside
		began := time.Now()
		<-pause(t, time.Minute)
		a, live := b.Inspect(ledgerC)
		if !live || a.Unit != ledgerC || a.Phase != partitions.PhaseApplying || a.InHand == nil {
			t.Fatalf("it is %+v", a)
		}
		got := *a.InHand
		if got.EventID == "" || got.Type != "account.deposited" || got.Lane != lane("c") || got.Sequence != 1 || got.Attempt != 1 || got.Suspect || got.Waiting {
			t.Errorf("in hand: %+v", got)
		}
		for what, at := range map[string]time.Time{"phase": a.Since, "attempt": got.Began} {
			if d := at.Sub(began); d > time.Second || d < -time.Second {
				t.Errorf("%s since %s before now, want a minute", what, time.Since(at))
			}
		}
		noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		b.same(t, "loads", []actors.Load{{Name: "account"}, {Name: "ledger", Live: 1, Applying: 1, Oldest: noon}}, b.Loads())

		letGo <- struct{}{}
		b.saw.retried.Wait(t)
		synctest.Wait()
		if a, _ := b.Inspect(ledgerC); a.Phase != partitions.PhaseBackoff || a.InHand != nil {
			t.Errorf("after an attempt that failed it is %+v", a)
		}
		b.same(t, "loads", []actors.Load{{Name: "account"}, {Name: "ledger", Live: 1, Oldest: noon}}, b.Loads())

		for range 3 {
			go func() { _, _ = b.Ask(t.Context(), ref("a"), &Balance{}) }()
		}
		<-inside
		synctest.Wait()
		a, _ = b.Inspect(event.Unit{Name: "account", Key: "a"})
		if a.Phase != partitions.PhaseServing || a.Asks != 2 || a.InHand == nil || a.InHand.Sequence != 0 {
			t.Errorf("the entity is %+v, %+v", a, a.InHand)
		}
		letGo <- struct{}{}
		for range 2 {
			<-inside
			letGo <- struct{}{}
		}
		synctest.Wait()
		if a, _ := b.Inspect(event.Unit{Name: "account", Key: "a"}); a.Phase != partitions.PhaseReady || a.InHand != nil || a.Asks != 0 {
			t.Errorf("the entity is %+v when all is answered", a)
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if _, live := b.Inspect(ledgerC); live || len(b.Loads()) != 2 || b.Loads()[1] != (actors.Load{Name: "ledger"}) {
			t.Errorf("after a stop: %v, %+v", live, b.Loads())
		}
	})
}

// Looking is done while everything changes.
func TestLookingAtUnitsAtWorkIsSafe(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts(), ledgers(nothing)}, silent)
	done := make(chan struct{})
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			b.Loads()
			b.Inspect(event.Unit{Name: "account", Key: fmt.Sprint(i % 4)})
			b.Inspect(event.Unit{Name: "ledger", Key: fmt.Sprint("c-", i%4)})
		}
	}()
	for i := range 400 {
		b.deposit(t, fmt.Sprint(i%4), 1)
	}
	close(done)
	<-looked
	for key := range 4 {
		if err := b.Drive(t.Context(), event.Unit{Name: "ledger", Key: fmt.Sprint("c-", key)}, event.LaneRef{}, 0); err != nil {
			t.Error(err)
		}
	}
	for _, l := range b.Loads() {
		if l.Name == "ledger" && (l.Applying > 0 || !l.Oldest.IsZero()) {
			t.Errorf("nothing is left to do: %+v", l)
		}
	}
}

func TestADriveToTheEndIncludesWhatWasSetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, drive := range map[string]func(*bundle) error{
			"of a lane":      func(b *bundle) error { return b.Drive(t.Context(), ledgerC, lane("c"), 3) },
			"until all done": func(b *bundle) error { return b.Drive(t.Context(), ledgerC, event.LaneRef{}, 0) },
		} {
			var m mendable
			h := m.handler(actors.ParkSequence, 1)
			h.New = func(key string) *ledger {
				<-pause(t, time.Second) // whoever does not wait for it has gone on by then
				return &ledger{client: key}
			}
			b := setup(t, []actors.Definition{h}, byHand)
			b.registered(t, h)
			b.publish(t, amounts(1, 3)...)
			if err := drive(b); err != nil {
				t.Fatal(err)
			}
			m.mend(1)
			b.act(t, eventstore.ActRetry, ledgerC, event.Position{Lane: lane("c"), Sequence: 1})
			if err := drive(b); err != nil {
				t.Fatal(err)
			}
			b.same(t, "effects, drive "+name, audited(1, 2, 3), b.effects(t, "c"))
		}
	})
}
