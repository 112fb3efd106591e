package cluster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/transport"
)

func TestAHolderLetsGoOfWhatTheFirstAsksFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		pass(time.Second)
		const n = 1000
		a.note(func() {
			for i := range n {
				a.mu.live[unit(i)] = true
			}
		})
		for i := range n {
			if got, err := a.broker.Port().Acquire(t.Context(), unit(i), 0); err != nil || !got.Granted {
				t.Fatal(got, err)
			}
			w.mark(a, unit(i))
		}
		b := w.join("b")
		pass(500 * time.Millisecond)
		if len(a.handed()) > 0 {
			t.Errorf("hands over %d units at once: nobody asked", len(a.handed()))
		}
		pass(4 * time.Second)
		if got := len(a.handed()); got == 0 || got > 150+50 {
			t.Errorf("hands over %d units within a heartbeat, at 50 in a second", got)
		}
		for _, u := range a.handed() {
			if b.Placement().First(u) != b.broker.OwnerID() {
				t.Errorf("hands over %s, which it ranks first for itself", u)
			}
		}
		a.leave()
		b.leave()
	})
}

// TestAHolderKeepsWhatItRanksFirstFor: members whose views differ both believe to be the first. A unit goes over only when both sides agree, or it would go to
// and fro.
func TestAHolderKeepsWhatItRanksFirstFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(5 * time.Second)
		own, others := a.owned(3), b.owned(3)
		a.note(func() {
			for _, u := range slices.Concat(own, others) {
				a.mu.live[u] = true
			}
		})
		// A member that runs nothing, as far as the list says, asks for all of them; b asks for what it ranks first for.
		mistaken := w.server.Node("mistaken")
		mistaken.Bind(w.store, w.id)
		if err := mistaken.Connect(t.Context()); err != nil {
			t.Error(err)
		}
		member := transport.Member{ID: mistaken.OwnerID(), Node: "mistaken", StoreID: w.id.StoreID, Wants: slices.Concat(own, others)}
		for range 5 {
			if _, err := mistaken.Beat(t.Context(), member, 15*time.Second); err != nil {
				t.Error(err)
			}
			pass(3 * time.Second)
		}
		if got := a.handed(); len(got) > 0 {
			t.Errorf("hands %v over to a member that does not rank first for them", got)
		}
		for _, u := range others {
			if got, err := a.broker.Port().Acquire(t.Context(), u, 0); err != nil || !got.Granted {
				t.Error(got, err)
			}
			w.mark(a, u) // which b sees
		}
		pass(10 * time.Second)
		got := slices.Compact(slices.SortedFunc(slices.Values(a.handed()), cmpKeys))
		if diff := cmp.Diff(others, got); diff != "" {
			t.Errorf("handed over (-what b ranks first for +what was):\n%s", diff)
		}
		a.leave()
		b.leave()
	})
}
