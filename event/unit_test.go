package event_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
)

func TestLanesAreOrderedByCategoryKeyAndLane(t *testing.T) {
	t.Parallel()
	ordered := []event.LaneRef{
		{Category: "a", Key: "x", Lane: event.Primary},
		{Category: "a", Key: "x", Lane: event.Backfill},
		{Category: "a", Key: "y", Lane: event.Primary},
		{Category: "ab", Key: "a", Lane: event.Primary},
		{Category: "b", Key: "a", Lane: event.Backfill},
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := a.Compare(b), sign(i-j); got != want {
				t.Errorf("%v compared with %v gives %d, want %d", a, b, got, want)
			}
		}
	}
	shuffled := []event.LaneRef{ordered[3], ordered[1], ordered[4], ordered[0], ordered[2]}
	slices.SortFunc(shuffled, event.LaneRef.Compare)
	if diff := cmp.Diff(ordered, shuffled); diff != "" {
		t.Errorf("sorted (-want +got):\n%s", diff)
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

func TestEnvelopeWithoutATypeIsAVoidInItsLane(t *testing.T) {
	t.Parallel()
	e := event.Envelope{Type: "order.placed", Category: "order", Key: "client-1", Lane: event.Backfill}
	if e.Void() {
		t.Error("an event is taken for a void")
	}
	e.Type = ""
	if !e.Void() {
		t.Error("a void is taken for an event")
	}
	if got, want := e.Ref().String(), "order:client-1 (backfill)"; got != want {
		t.Errorf("lane is %q, want %q", got, want)
	}
}
