package storelane_test

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/partitions/partitionstest"
	"github.com/keyhold/keyhold/transport"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	partitionstest.Run(t, func(t *testing.T) partitionstest.Harness {
		b := setup(t)
		return partitionstest.Harness{
			Port: b.port,
			Append: func(t *testing.T, l event.LaneRef, n int) {
				for range n {
					b.publish(l, time.Duration(b.made)*time.Second)
				}
			},
			Crash: func(t *testing.T) partitions.Port {
				id := b.id
				id.Unclean = true
				next := storelane.New(b.store, id, event.KeyRules{})
				var all []transport.Subscription
				for _, name := range []string{"shipping", "billing"} {
					for _, category := range []string{"order", "payment"} {
						all = append(all, transport.Subscription{Name: name, Category: category})
					}
				}
				if err := next.TakeOver(t.Context(), b.store, all); err != nil {
					t.Fatal(err)
				}
				return next
			},
			// Nobody is registered, so everything may go that is older than the record after seq.
			Purge: func(t *testing.T, l event.LaneRef, seq event.Sequence) {
				next, err := b.store.ReadLane(t.Context(), l, seq, 1)
				if err != nil || len(next) == 0 {
					t.Fatalf("read the record after %s #%d: %v, %v", l, seq, next, err)
				}
				if n, err := b.store.Purge(t.Context(), next[0].Time, eventstore.MaxLimit); err != nil || n != int(seq) {
					t.Fatalf("purge: %d, %v", n, err)
				}
			},
		}
	})
}
