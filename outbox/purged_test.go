package outbox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// alone has the store started by a process that relays nothing, for as long as f lasts.
func (w *world) alone(f func()) {
	w.Helper()
	w.must("stop store", w.store.Stop(w.Context()))
	_, err := w.store.Start(w.Context(), eventstore.StartOptions{})
	w.must("start store", err)
	f()
	w.must("stop store", w.store.Stop(w.Context()))
	_, err = w.store.Start(w.Context(), eventstore.StartOptions{Relayed: true})
	w.must("start store", err)
}

// purge takes away all that may go.
func (w *world) purge(want int) {
	w.Helper()
	n, err := w.store.Purge(w.Context(), time.Now().Add(time.Hour), 10_000)
	w.must("purge", err)
	w.same("purged", want, n)
}

func TestWhatWasPassedAndPurgedWithoutABrokerIsInTheWayOfNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		var old []event.LaneRef
		for i := range 2_500 {
			old = append(old, event.LaneRef{Category: "order", Key: fmt.Sprintf("old-%d", i)})
		}
		w.alone(func() {
			w.commit(2, old...)
			for _, l := range old {
				w.pass("shipping", l, 0, 2)
				w.pass("billing", l, 0, 2)
			}
			w.purge(2 * len(old))
		})
		n := w.holder("a")
		w.after(30 * time.Second)
		left, err := w.store.Unpublished(w.Context(), partsAll(), eventstore.MaxLimit)
		w.must("unpublished", err)
		w.same("unpublished", 0, len(left))
		n.Committed(w.commit(1, orders))
		settle()
		w.published(orders, 0)
		n.Committed(w.commit(1, old[7]))
		w.after(time.Second)
		w.same("stream", places(w.records(old[7])), places(w.server.Stream(old[7])))
	})
}
