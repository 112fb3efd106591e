package outbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/outbox"
)

// weighed writes down how much data is read at once at most.
type weighed struct {
	outbox.Store
	most int
}

func (s *weighed) ReadLanes(ctx context.Context, lanes []eventstore.LaneRead) ([][]event.Envelope, error) {
	runs, err := s.Store.ReadLanes(ctx, lanes)
	size := 0
	for _, run := range runs {
		for i := range run {
			size += len(run[i].Data)
		}
	}
	s.most = max(s.most, size)
	return runs, err
}

func TestABacklogOfLargeEventsIsNotReadAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		var lanes []event.LaneRef
		for i := range 20 {
			l := event.LaneRef{Category: "order", Key: event.Sequence(i).String()}
			lanes = append(lanes, l)
			var c eventstore.Changes
			for n := range 40 { // 128 KiB each, 100 MiB in all
				c.Publish = append(c.Publish, event.Envelope{
					ID: fmt.Sprint(l, n), Type: "order.happened", Version: 1, Encoding: event.JSON, Data: make([]byte, 128<<10), Category: l.Category, Key: l.Key,
				})
			}
			_, err := w.store.Begin("test").Commit(w.Context(), c)
			w.must("commit", err)
		}
		store := &weighed{Store: w.store}
		w.holder("a", func(c *outbox.Config) { c.Store = store })
		settle()
		for _, l := range lanes {
			w.noted(l, 40)
			w.same("stream", places(w.records(l)), places(w.server.Stream(l)))
		}
		if store.most > 17<<20 {
			t.Errorf("%d MiB were read at once", store.most>>20)
		}
	})
}
