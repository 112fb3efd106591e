package memory_test

import (
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
)

// What operators may do costs nothing where nobody does it.
func TestCommitThatSetsNothingAsideAllocatesItsRecordAlone(t *testing.T) {
	s := memory.Open()
	if _, err := s.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(t.Context()) })
	unit, orders := event.Unit{Name: "shipping", Key: "a"}, event.LaneRef{Category: "order", Key: "a"}
	publish := []event.Envelope{{ID: "e-1", Type: "shipment.booked", Category: "shipment", Key: "a"}}
	move := []eventstore.Advance{{Lane: orders}}
	commit := func(c eventstore.Changes) {
		move[0].From, move[0].To = move[0].To, move[0].To+1
		c.Fence.Unit, c.Advance = unit, move
		if _, err := s.Begin("shipping").Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		changes eventstore.Changes
		most    float64 // the unit of work, and the records of a commit
	}{
		"a checkpoint": {eventstore.Changes{}, 1},
		"an event":     {eventstore.Changes{Publish: publish}, 2},
	} {
		for range 100 { // room in the lane and the log grows by doubling
			commit(c.changes)
		}
		if n := testing.AllocsPerRun(100, func() { commit(c.changes) }); n > c.most {
			t.Errorf("%s: %v allocations, at most %v", what, n, c.most)
		}
	}
}
