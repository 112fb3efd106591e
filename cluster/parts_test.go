package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// raised is the generation that the store has of a part.
func (w *world) raised(p event.Part) event.Generation {
	w.t.Helper()
	found, err := w.store.Recover(w.t.Context(), []eventstore.Ask{{Unit: p.Unit()}})
	if err != nil {
		w.t.Fatal(err)
	}
	return found[0].Generation
}

func TestAPartThatIsGivenBackIsTakenAndRaisedAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		pass(10 * time.Second)
		before := w.raised(7)
		a.GiveBack(7)
		pass(10 * time.Second) // two heartbeats of 3 s, at most
		if !a.Holds(7) || a.partCount() != event.Parts {
			t.Errorf("it holds part 7: %t, and %d parts", a.Holds(7), a.partCount())
		}
		if now := w.raised(7); now <= before {
			t.Errorf("the store has it at generation %d, and had it at %d", now, before)
		}
		if n := w.raised(8); n != before {
			t.Errorf("another part was raised to %d", n)
		}
		a.leave()
	})
}
