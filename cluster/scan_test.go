package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// What one handler has to do may be on a server of the broker that does not answer. Units of the others, whose wakes are lost as well, are found all the same, and are not
// forgotten for it.
func TestWorkOfOneHandlerIsFoundThoughThatOfAnotherCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.names = []string{"billing"}
		a := w.join("a")
		pass(30 * time.Second)
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "busy" && c.Unit.Name == "billing" {
				return brokertest.Refused
			}
			return brokertest.None
		})
		w.server.Deafen(true)
		a.take()
		u := event.Unit{Name: "shipping", Key: "k-1"}
		w.mark(a, u)
		pass(10 * time.Second)
		if got := a.take(); len(got) != 1 || got[0] != u {
			t.Errorf("woken: %v", got)
		}
		w.server.Break(nil)
		a.leave()
	})
}

// A handler whose work cannot be asked for has its time for it by itself: what is woken meanwhile, and the work of the others, does not wait for that, however many such handlers there are.
func TestHandlersWhoseWorkCannotBeAskedForHoldUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 7 {
			w.names = append(w.names, fmt.Sprint("billing-", i))
		}
		a, b := w.join("a"), w.join("b")
		pass(30 * time.Second)
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "busy" && c.Unit.Name != "shipping" {
				return late(3 * time.Second)
			}
			return brokertest.None
		})
		pass(time.Minute)
		units := a.owned(3)
		for range 7 {
			a.take()
			w.mark(b, units[0])
			if got := a.take(); len(got) != 1 || got[0] != units[0] {
				t.Errorf("a wake has it go for %v at once", got)
			}
			pass(700 * time.Millisecond)
		}
		w.server.Deafen(true)
		a.take()
		w.mark(b, units[1])
		pass(3*time.Second + 100*time.Millisecond)
		if got := a.take(); !slices.Contains(got, units[1]) {
			t.Errorf("the work of which the wake is lost is not among what it finds within a heartbeat: %v", got)
		}
		// What has no work any more is not asked for, although of other handlers nobody knows what has.
		held, err := b.broker.Port().Acquire(t.Context(), units[2], 0)
		if err != nil || !held.Granted {
			t.Fatal(held, err)
		}
		a.Held(units[2], time.Hour)
		pass(20 * time.Second)
		if wants := a.Self().Wants; slices.Contains(wants, units[2]) {
			t.Errorf("it asks for a unit without work: %v", wants)
		}
		w.server.Break(nil)
		a.leave()
		b.leave()
	})
}

// Keys are counted once a minute, for people. Where that hangs, for as many categories as there are, the others are told of this node all the same.
func TestCountingKeysKeepsNobodyOffTheList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 20 {
			w.counts = append(w.counts, fmt.Sprint("category-", i))
		}
		a := w.join("a")
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "partitions" {
				return late(3 * time.Second)
			}
			return brokertest.None
		})
		pass(50 * time.Second)
		before := a.beaten()
		pass(30 * time.Second) // in which keys are counted
		if after := a.beaten(); after-before < 7 {
			t.Errorf("it has beaten %d times in ten heartbeats", after-before)
		}
		w.server.Break(nil)
		a.leave()
	})
}

// A category whose keys cannot be counted keeps none of the others from it for long.
func TestACategoryThatCannotBeCountedIsNotTheFirstEachTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.counts = []string{"category-1", "category-2", "category-3"}
		a := w.join("a")
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "partitions" && c.Lane.Category == "category-1" {
				return late(4 * time.Second)
			}
			return brokertest.None
		})
		pass(130 * time.Second) // keys are counted twice or thrice
		a.note(func() {
			if got := fmt.Sprint(a.mu.counted); got != "map[category-2:0 category-3:0 order:0]" {
				t.Errorf("counted: %v", got)
			}
		})
		w.server.Break(nil)
		a.leave()
	})
}
