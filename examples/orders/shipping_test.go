package orders_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
)

func TestARefusedOrderHaltsItsClientAndNoOther(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.carrier.refuses("o-2")
	for _, o := range []struct{ id, client string }{{"o-1", "c-1"}, {"o-2", "c-1"}, {"o-3", "c-1"}, {"o-4", "c-2"}} {
		s.place(t, o.id, o.client)
	}
	if diff := cmp.Diff([]string{"o-1"}, s.shipped(t, "c-1")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"o-4"}, s.shipped(t, "c-2")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"o-1", "o-2", "o-2", "o-2", "o-2", "o-4"}, s.carrier.askedFor()); diff != "" {
		t.Errorf("asked of the carrier: %s", diff)
	}
	if diff := cmp.Diff([]string{"3"}, s.column(t, `SELECT orders FROM orders_per_client WHERE client_id = 'c-1'`)); diff != "" {
		t.Errorf("the read model: %s", diff)
	}

	// The halt outlives the process, and the event is not run again.
	s.restart(t)
	halts, err := s.Halts(t.Context(), "", event.Unit{}, 10)
	if err != nil || len(halts) != 1 || halts[0].Unit != (event.Unit{Name: "shipping", Key: "c-1"}) || halts[0].Sequence != 2 ||
		halts[0].Attempts != 4 || !strings.Contains(halts[0].Error, "no such address") {
		t.Fatalf("halts: %+v (%v)", halts, err)
	}
	if asked := s.carrier.askedFor(); len(asked) != 6 {
		t.Errorf("the carrier was asked again: %q", asked)
	}

	// A person decides. With the next event the inline transport has delivered what waited, too.
	s.carrier.refuses("")
	if _, err := admin.Resume(t.Context(), s, halts[0].Unit); err != nil {
		t.Fatal(err)
	}
	s.place(t, "o-5", "c-1")
	if diff := cmp.Diff([]string{"o-1", "o-2", "o-3", "o-5"}, s.shipped(t, "c-1")); diff != "" {
		t.Error(diff)
	}
}

func TestAPanicIsAFailureOfItsEventAlone(t *testing.T) {
	t.Parallel()
	s := open(t)
	var before bool
	s.carrier.does(func(string) (int64, error) {
		if !before {
			before = true
			panic("out of paper")
		}
		return 490, nil
	})
	s.place(t, "o-1", "c-1")
	if diff := cmp.Diff([]string{"o-1"}, s.shipped(t, "c-1")); diff != "" {
		t.Error(diff)
	}
}

// The row and the fact that the event is done commit together, whichever way a commit fails: before it happened, or after, with
// the answer lost.
func TestWhenACommitFailsTheRowIsThereOnceAllTheSame(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, fault := range map[string]faulty.Fault{"before": {Before: boom}, "after": {After: boom}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var hit atomic.Bool
			shippingOnce := func(op faulty.Op) faulty.Fault {
				if op.Call != faulty.Commit || op.Changes.Fence.Unit.Name != "shipping" || len(op.Changes.Advance) == 0 || hit.Swap(true) {
					return faulty.Fault{}
				}
				return fault
			}
			s := open(t, func(inner eventstore.Store) eventstore.Store { return faulty.Wrap(inner, shippingOnce) })
			s.place(t, "o-1", "c-1")
			s.place(t, "o-2", "c-1")
			if diff := cmp.Diff([]string{"o-1", "o-2"}, s.shipped(t, "c-1")); diff != "" {
				t.Error(diff)
			}
			asked := slices.DeleteFunc(s.carrier.askedFor(), func(o string) bool { return o != "o-1" })
			if again := len(asked) - 1; again != map[string]int{"before": 1, "after": 0}[name] || !hit.Load() {
				t.Errorf("the carrier was asked for it %d times more, fault hit: %v", again, hit.Load())
			}
		})
	}
}
