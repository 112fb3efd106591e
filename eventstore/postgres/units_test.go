package postgres

import (
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// TestASecondAttemptAtARaiseKnowsNothingOfTheFirst: what was in the way of a unit when the database broke a deadlock may be gone when the raise is made again.
func TestASecondAttemptAtARaiseKnowsNothingOfTheFirst(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	u := event.Unit{Name: "shipping", Key: "a"}
	asked := []eventstore.Ask{{Unit: u, Generation: 3, Lanes: []event.LaneRef{orders}}}
	found := []eventstore.Recovered{{Unit: u, Halt: &eventstore.Halt{Unit: u}, Pause: &eventstore.Pause{Unit: u}, Due: true, Parked: []eventstore.ParkedIn{{}}, Tried: &eventstore.Tried{}}}
	d.must(recoverUnits(d.Context(), single{d.raw}, asked, found))
	d.same("found", found, []eventstore.Recovered{{Unit: u, Checkpoints: []event.Position{{Lane: orders}}}})
}
