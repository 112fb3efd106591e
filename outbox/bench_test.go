package outbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// BenchmarkRelay: from the commit of one record to the note that it is published, with a store and a broker in memory. What is left is the relay's own.
func BenchmarkRelay(b *testing.B) {
	for _, lanes := range []int{1, 16, 500} {
		b.Run(fmt.Sprint("lanes=", lanes), func(b *testing.B) {
			w := newWorld(b, brokertest.Config{RealTime: true, Limits: transport.Limits{MaxAhead: 100}})
			var refs []event.LaneRef
			for i := range lanes {
				refs = append(refs, event.LaneRef{Category: "order", Key: fmt.Sprint("k-", i)})
			}
			done := make(chan int, 1024)
			n := w.holder("a", func(c *outbox.Config) { c.Store = noting{c.Store, done} })
			b.ReportAllocs()
			b.ResetTimer()
			noted := 0
			for sent := 0; sent < b.N; {
				k := min(lanes, b.N-sent)
				b.StopTimer()
				tails := w.commit(1, refs[:k]...)
				b.StartTimer()
				n.Committed(tails)
				for sent += k; noted < sent; {
					noted += <-done
				}
			}
		})
	}
}

// noting tells how many lanes were noted.
type noting struct {
	outbox.Store
	done chan<- int
}

func (s noting) NotePublished(ctx context.Context, held []eventstore.PartFence, notes []eventstore.Published) error {
	err := s.Store.NotePublished(ctx, held, notes)
	if err == nil {
		s.done <- len(notes)
	}
	return err
}
