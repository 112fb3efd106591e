package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
)

// Each of many lanes that cannot be sent costs a call of the store. One that hangs is not followed by the same for all others, while everything else waits.
func TestAStoreThatHangsIsNotAskedForOneLaneAfterTheOther(t *testing.T) {
	inWorld(t, func(w *world) {
		hangs := make(chan struct{})
		w.faults = faulty.Wrap(w.store, func(op faulty.Op) faulty.Fault {
			if op.Call == faulty.Abandon {
				return faulty.Fault{Wait: hangs}
			}
			return faulty.Fault{}
		})
		n := w.holder("a", rarely)
		settle()
		var bad []event.LaneRef
		for i := range 50 {
			bad = append(bad, event.LaneRef{Category: "order", Key: fmt.Sprintf("a:%d", i)})
		}
		n.Committed(w.commit(1, bad...))
		settle()
		n.Committed(w.commit(1, orders))
		w.after(30 * time.Second)
		w.published(orders, 0)
		close(hangs)
		w.after(time.Minute)
		n.note(func() { w.same("abandoned", len(bad), len(n.mu.abandoned)) })
	})
}

// hanging is a store in which what is to be done to one lane hangs, for somebody has locked its row.
type hanging struct {
	outbox.Store
	lane event.LaneRef
}

func (h hanging) Abandon(ctx context.Context, lane event.LaneRef, seq event.Sequence, reason string) error {
	if lane == h.lane {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.Store.Abandon(ctx, lane, seq, reason)
}

func (h hanging) Diverge(ctx context.Context, held []eventstore.PartFence, d eventstore.Divergence) error {
	if d.Lane == h.lane {
		<-ctx.Done()
		return ctx.Err()
	}
	return h.Store.Diverge(ctx, held, d)
}

func TestALaneThatHangsIsInTheWayOfNoOther(t *testing.T) {
	for what, key := range map[string]string{"abandon": "a:%d", "diverge": "a-%d"} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(w *world) {
				var bad []event.LaneRef
				for i := range 10 {
					bad = append(bad, event.LaneRef{Category: "order", Key: fmt.Sprintf(key, i)})
				}
				n := w.holder("a", func(c *outbox.Config) { c.Store = hanging{c.Store, bad[0]} })
				settle()
				if what == "diverge" {
					for _, lane := range bad {
						n.broker.Append(w.Context(), []transport.Append{{Lane: lane, Start: true, Entries: []event.Envelope{{ID: "of-before", Category: "order", Key: lane.Key, Sequence: 3}}}})
					}
				}
				n.Committed(w.commit(1, bad[0]))
				settle()
				n.Committed(w.commit(1, bad[1:]...))
				w.after(15 * time.Second)
				n.note(func() { w.same("done", len(bad)-1, len(n.mu.abandoned)+len(n.mu.diverged)) })
				for range 10 { // now and then it is tried again
					n.Committed(w.commit(1, orders))
					w.after(15 * time.Second)
					w.published(orders, 0)
				}
			})
		})
	}
}
