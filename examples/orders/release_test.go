package orders_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/examples/orders"
)

// includes reports what of a state is not as it was. Fields that were added since are not looked at.
func includes(was, is map[string]any) string {
	for stream, state := range is {
		before, _ := was[stream].(map[string]any)
		now, _ := state.(map[string]any)
		for field := range now {
			if _, known := before[field]; !known {
				delete(now, field)
			}
		}
	}
	return cmp.Diff(was, is)
}

// The events of all releases are folded to the states that they made then.
func TestTheJournalOfEachReleaseMakesTheSameStates(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, dir string) {
		was := readJSON[map[string]any](t, filepath.Join(dir, "states.json"))
		if d := includes(was, statesOf(t, readJournal(t, dir))); d != "" {
			t.Errorf("(-then +now): %s", d)
		}
	})
}

// A database of any release is brought to the newest format, and nothing in it is lost.
func TestTheDatabaseOfEachReleaseIsTakenOver(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, dir string) {
		store := openStore(t, databaseOf(t, dir))
		journal := readJournal(t, dir)
		if d := cmp.Diff(journal, journalOf(t, store)); d != "" {
			t.Errorf("journal (-then +now): %s", d)
		}
		if d := cmp.Diff(readJSON[kept](t, filepath.Join(dir, "store.json")), keptIn(t, store, journal)); d != "" {
			t.Errorf("(-then +now): %s", d)
		}
	})
}

// The shop goes on where a release has left it.
func TestTheShopGoesOnOnTheDatabaseOfEachRelease(t *testing.T) {
	t.Parallel()
	eachRelease(t, func(t *testing.T, dir string) {
		s := openRelease(t, databaseOf(t, dir))
		was := readJSON[map[string]any](t, filepath.Join(dir, "states.json"))
		is := map[string]any{}
		for stream, state := range was {
			if id, ok := strings.CutPrefix(stream, "order/"); ok {
				view := s.get(t, id)
				is[stream] = generic(t, map[string]any{"client_id": view.ClientID, "cents": view.Cents, "status": view.Status})
			} else {
				is[stream] = state
			}
		}
		if d := includes(was, is); d != "" {
			t.Errorf("states (-then +now): %s", d)
		}

		// A command that was answered then is answered the same, and done once.
		_, err := keyhold.Ask[*orders.Done](t.Context(), s.App, orders.Order.ID("o-1"), &orders.PlaceOrder{ClientID: "c-1", Cents: 4200}, keyhold.CommandID("place"))
		if err != nil {
			t.Error(err)
		}
		s.place(t, "o-100", "c-1")
		s.pay(t, "p-100", "o-100", 4200)
		if d := cmp.Diff([]string{"o-1", "o-2", "o-100"}, s.shipped(t, "c-1")); d != "" {
			t.Error(d)
		}
		if got := s.get(t, "o-100").Status; got != orders.Paid {
			t.Errorf("status %q", got)
		}
		if d := cmp.Diff([]string{"2 orders, 2 paid, 8400"}, s.column(t, `SELECT orders || ' orders, ' || paid || ' paid, ' || cents FROM orders_per_client WHERE client_id = 'c-1'`)); d != "" {
			t.Errorf("the read model: %s", d)
		}

		// A client that was halted then is halted still, and what waits is shipped in its order once the halt is lifted.
		if got := s.shipped(t, "c-2"); len(got) > 0 {
			t.Errorf("of the halted client were shipped %q", got)
		}
		halt, err := s.Halt(t.Context(), event.Unit{Name: "shipping", Key: "c-2"})
		if err != nil || halt == nil {
			t.Fatalf("c-2 has the halt %v, %v", halt, err)
		}
		ref := halt.Ref()
		if _, err := s.store.Begin("test").Commit(t.Context(), eventstore.Changes{LiftHalt: &ref}); err != nil {
			t.Fatal(err)
		}
		s.place(t, "o-101", "c-2")
		if d := cmp.Diff([]string{"o-3", "o-4", "o-101"}, s.shipped(t, "c-2")); d != "" {
			t.Error(d)
		}
	})
}
