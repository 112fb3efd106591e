package partitionstest_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/partitions/partitionstest"
)

// TestStoreLane: the port over a store that the process owns, with the store in memory.
func TestStoreLane(t *testing.T) {
	t.Parallel()
	partitionstest.Run(t, func(t *testing.T) partitionstest.Harness {
		store := memory.Open()
		id, err := store.Start(t.Context(), eventstore.StartOptions{Node: "test"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Stop(context.Background()); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
		published := 0
		return partitionstest.Harness{
			Port: storelane.New(store, id, event.KeyRules{}),
			Append: func(t *testing.T, lane event.LaneRef, n int) {
				t.Helper()
				e := event.Envelope{Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte("{}"), Category: lane.Category, Key: lane.Key, Lane: lane.Lane}
				for range n {
					published++
					e.ID = strconv.Itoa(published)
					if _, err := store.Begin("test").Commit(t.Context(), eventstore.Changes{Publish: []event.Envelope{e}}); err != nil {
						t.Fatalf("append: %v", err)
					}
				}
			},
		}
	})
}

func TestBroker(t *testing.T) {
	t.Parallel()
	partitionstest.Run(t, func(*testing.T) partitionstest.Harness {
		b := partitionstest.NewBroker(partitions.Traits{TTL: 15 * time.Second, Heartbeat: 3 * time.Second, Margin: 3 * time.Second})
		return partitionstest.Harness{
			Port:   b.Port(),
			Owner:  "1",
			Append: func(_ *testing.T, lane event.LaneRef, n int) { b.Append(lane, n, "order.placed") },
			Purge:  func(_ *testing.T, lane event.LaneRef, seq event.Sequence) { b.Purge(lane, seq) },
			Other:  func(*testing.T) partitions.Port { return b.Port() },
			Pass:   func(_ *testing.T, d time.Duration) { b.Pass(d) },
			Forget: func(*testing.T) { b.Forget() },
		}
	})
}
