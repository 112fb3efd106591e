package outbox_test

import (
	"errors"
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/outbox"
)

func TestALagIsWhatTheBrokerIsNotKnownToHaveOfThePartsHeld(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.after(time.Second)
		oldest := time.Now().UTC()
		w.commit(1, orders) // nobody told the relay
		w.after(100 * time.Millisecond)
		w.commit(2, orders, others)
		lag, err := n.Lag(w.Context())
		w.must("lag", err)
		w.same("lag", outbox.Lag{Lanes: 2, Records: 5, Oldest: oldest}, lag)

		n.Drop(orders.Part())
		lag, err = n.Lag(w.Context())
		w.must("lag", err)
		w.same("without the part of one", uint64(2), lag.Records)

		for _, broken := range []faulty.Call{faulty.Unpublished, faulty.ReadLanes} {
			w.faults.SetPlan(func(op faulty.Op) faulty.Fault {
				if op.Call == broken {
					return faulty.Fault{Before: errBroken}
				}
				return faulty.Fault{}
			})
			if _, err := n.Lag(w.Context()); !errors.Is(err, errBroken) {
				w.Errorf("%v does not answer: %v", broken, err)
			}
		}
		w.faults.SetPlan(nil)
		n.Notify()
		settle()
		if lag, err = n.Lag(w.Context()); err != nil || lag != (outbox.Lag{}) {
			t.Errorf("all is published but for the part that was dropped: %+v, %v", lag, err)
		}
	})
}
