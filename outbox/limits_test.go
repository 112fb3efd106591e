package outbox_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// sizes writes down how much each append has.
type sizes struct {
	outbox.Broker
	mu            sync.Mutex
	runs, entries int // of bytes in a run, of entries in a call, at most
	calls         []int
}

func (s *sizes) Append(ctx context.Context, runs []transport.Append) []transport.Appended {
	s.mu.Lock()
	total, entries := 0, 0
	for _, r := range runs {
		size := 0
		for i := range r.Entries {
			size += len(r.Entries[i].Data)
		}
		s.runs = max(s.runs, size)
		total, entries = total+size, entries+len(r.Entries)
	}
	s.entries = max(s.entries, entries)
	s.calls = append(s.calls, total)
	s.mu.Unlock()
	return s.Broker.Append(ctx, runs)
}

func TestACallIsNoLargerThanABrokerLikes(t *testing.T) {
	inWorld(t, func(w *world) {
		var c eventstore.Changes
		for i := range 12 {
			for range 4 {
				c.Publish = append(c.Publish, event.Envelope{ID: "big-" + event.Sequence(len(c.Publish)).String(), Type: "order.happened", Version: 1, Encoding: event.JSON,
					Data: make([]byte, 400<<10), Category: "order", Key: event.Sequence(i).String(), Time: time.Now().UTC()})
			}
		}
		_, err := w.store.Begin("test").Commit(w.Context(), c)
		w.must("commit", err)
		big := &sizes{}
		w.holder("a", func(c *outbox.Config) { big.Broker, c.Broker = c.Broker, big })
		settle()
		for i := range 12 {
			w.published(event.LaneRef{Category: "order", Key: event.Sequence(i).String()}, 0)
		}
		if big.runs > 1<<20 {
			t.Errorf("a run has %d bytes", big.runs)
		}
		for _, n := range big.calls {
			if n > 4<<20 {
				t.Errorf("a call has %d bytes", n)
			}
		}
	})
}

func TestAnEntryThatIsLargerThanARunGoesAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		var c eventstore.Changes
		for i := range 3 {
			c.Publish = append(c.Publish, event.Envelope{ID: "big-" + event.Sequence(i).String(), Type: "order.happened", Version: 1, Encoding: event.JSON,
				Data: make([]byte, 3<<20), Category: "order", Key: "k-1", Time: time.Now().UTC()})
		}
		_, err := w.store.Begin("test").Commit(w.Context(), c)
		w.must("commit", err)
		w.holder("a")
		settle()
		w.published(orders, 0)
	})
}

func TestACallHasNoMoreEntriesThanABrokerLikes(t *testing.T) {
	inWorld(t, func(w *world) {
		var lanes []event.LaneRef
		for i := range 20 {
			lanes = append(lanes, event.LaneRef{Category: "order", Key: event.Sequence(i).String()})
		}
		w.commit(200, lanes...)
		many := &sizes{}
		w.holder("a", func(c *outbox.Config) { many.Broker, c.Broker = c.Broker, many })
		settle()
		for _, l := range lanes {
			w.published(l, 0)
		}
		if many.entries > 2_000 {
			t.Errorf("a call has %d entries", many.entries)
		}
	})
}

func TestNoMoreLanesAreAtWorkThanSaid(t *testing.T) {
	inWorld(t, func(w *world) {
		var lanes []event.LaneRef
		for i := range 24 {
			lanes = append(lanes, event.LaneRef{Category: "order", Key: event.Sequence(i).String()})
		}
		w.commit(600, lanes...) // more than goes in one round
		store := &asked{Store: w.store}
		w.holder("a", func(c *outbox.Config) { c.Store, c.Lanes, c.MaxAhead = store, 4, 1000 })
		settle()
		for _, l := range lanes {
			w.noted(l, 600)
		}
		if store.most > 4 {
			t.Errorf("%d lanes were read at once", store.most)
		}
	})
}

// asked writes down how many lanes are read at once.
type asked struct {
	outbox.Store
	most int
}

func (s *asked) ReadLanes(ctx context.Context, lanes []eventstore.LaneRead) ([][]event.Envelope, error) {
	s.most = max(s.most, len(lanes))
	return s.Store.ReadLanes(ctx, lanes)
}

// More lanes than are kept in mind grow while the relay does not come to it: the store is asked for the rest.
func TestMoreLanesThanAreKeptInMindAreFound(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", func(c *outbox.Config) { c.Look = time.Hour })
		settle()
		w.must("stop", n.Stop(w.Context()))
		var lanes []event.LaneRef
		for i := range 10_100 {
			lanes = append(lanes, event.LaneRef{Category: "note", Key: event.Sequence(i).String()})
		}
		n.Committed(w.commit(1, lanes...))
		w.must("start", n.Start(w.Context()))
		settle()
		all, err := w.store.Unpublished(w.Context(), partsAll(), 10_000)
		if err != nil || len(all) > 0 {
			t.Errorf("%d are unpublished, %v", len(all), err)
		}
	})
}

func partsAll() []event.Part {
	var all []event.Part
	for p := range event.Parts {
		all = append(all, event.Part(p))
	}
	return all
}

func TestAnIdleRelayAsksTheStoreAndNobodyElse(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		w.send(n, 1, orders)
		w.pass("shipping", orders, 0, 1)
		w.pass("billing", orders, 0, 1)
		w.after(time.Minute)
		calls := 0
		w.server.Break(func(brokertest.Call) brokertest.Fault { calls++; return brokertest.None })
		w.after(time.Minute)
		w.same("calls of the broker in a minute", 0, calls)
	})
}
