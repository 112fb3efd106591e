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
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/transport/local"
)

// A port says once that a unit was left unclean. What follows is about all that may come between that and the run of the suspect.

// recoverFails has as many recoveries fail as told.
func recoverFails(times int32) faulty.Plan {
	var n atomic.Int32
	return func(op faulty.Op) faulty.Fault {
		if (op.Call == faulty.Recover || op.Call == faulty.Raise) && n.Add(1) <= times {
			return faulty.Fault{Before: errors.New("no connection")}
		}
		return faulty.Fault{}
	}
}

func TestASuspicionOutlivesARecoveryThatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bundle{memory: died(t, map[string]int{"a": 1}, 1), saw: new(recorder), carrier: local.New()}
		b.store = leftUnclean{faulty.Wrap(b.memory, recoverFails(2))}
		b.start(t, []actors.Definition{ledgers(nothing)}, nil)
		b.saw.applied.Wait(t)
		if s := b.saw.suspected.Wait(t); s != (suspected{ledgerOf("a"), 1, 2, true}) {
			t.Errorf("suspected: %+v", s)
		}
	})
}

// The unit is put away meanwhile: whoever takes its place goes on.
func TestASuspicionOutlivesTheUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		if _, err := w.broker.Port().Acquire(t.Context(), ledgerOf("c"), 0); err != nil {
			t.Fatal(err)
		}
		var unfit atomic.Int32
		a := w.joinOn(t, recoverFails(1), []actors.Definition{auditing("A", nil)}, func(c *actors.Config) {
			c.Others.Unfit = func(event.Unit, error) { unfit.Add(1) }
		})
		pass(leaseTTL)
		a.publish(t, amounts(1, 1)...)
		pass(time.Second)
		if _, live := a.Inspect(ledgerOf("c")); live || unfit.Load() != 1 {
			t.Fatalf("live: %t, unfit: %d", live, unfit.Load())
		}
		if n := a.port.released.Load(); n != 0 {
			t.Error("it was given back, and is clean for whoever takes it next")
		}
		a.Wake(ledgerOf("c"))
		pass(time.Second)
		same(t, "audits", []string{"1 by A"}, w.audits(t, a, "c"))
		if s := a.saw.suspected.Wait(t); s != (suspected{ledgerOf("c"), 1, 1, false}) {
			t.Errorf("suspected: %+v", s)
		}
		if a.Stop(t.Context()) != nil || a.Unsettled() {
			t.Error("it has run, and is unsettled")
		}
	})
}

func TestAStopBeforeTheSuspectsRanLeavesThemUnsettled(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		run, want bool
	}{"ran": {run: true}, "did not": {want: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setupUnclean(t, died(t, map[string]int{"a": 1}, 1), []actors.Definition{ledgers(nothing)}, byHand)
				b.takeOver(t, ledgers(nothing))
				release, err := b.Alone(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				b.Wake(ledgerOf("a"))
				synctest.Wait()
				if of.run {
					release()
					b.saw.applied.Wait(t)
				} else {
					defer release()
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = b.Stop(ctx) // it interrupts what waits; which is no matter here
				if got := b.Unsettled(); got != of.want {
					t.Errorf("unsettled: %t, want %t", got, of.want)
				}
				if row := tried(t, b.memory, "a"); !of.run && (row == nil || row.Suspicions != 1) {
					t.Errorf("in the store: %+v", row)
				}
			})
		})
	}
}
