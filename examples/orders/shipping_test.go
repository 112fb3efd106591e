package orders_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
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
