package transporttest

import (
	"context"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

var order = []check{
	{name: "A lane is applied in commit order", with: transport.Ordering, run: func(f *fixture) {
		const committers, each = 4, 25
		f.start()
		var wg sync.WaitGroup
		for range committers {
			wg.Go(func() {
				for i := range each {
					f.publish(f.event(orders, fmt.Sprintf("c-%d", i%3)))
				}
			})
		}
		wg.Wait()
		f.awaitApplied(2 * committers * each)
		for key := range 3 {
			lane := event.LaneRef{Category: orders, Key: fmt.Sprintf("c-%d", key)}
			committed, err := f.store.ReadLane(f.Context(), lane, 0, committers*each)
			f.must(err)
			for _, name := range []string{shipping, billing} {
				f.same(lane.String()+" of "+name, f.appliedBy(event.Unit{Name: name, Key: lane.Key}), ids(committed...))
			}
		}
	}},
	{name: "Backfill waits for the primary lane", run: func(f *fixture) {
		b1, p1, b2, p2 := f.event(orders, "c-1"), f.event(orders, "c-1"), f.event(orders, "c-1"), f.event(orders, "c-1")
		b1, b2 = backfill(b1), backfill(b2)
		f.commit(b1)
		f.commit(p1)
		f.start()
		f.awaitApplied(4)
		f.publish(b2, p2) // in one commit
		f.awaitApplied(8)
		f.same("shipping", f.appliedBy(event.Unit{Name: shipping, Key: "c-1"}), ids(p1, b1, p2, b2))
		f.same("billing", f.appliedBy(event.Unit{Name: billing, Key: "c-1"}), ids(p1, b1, p2, b2))
	}},
	{name: "What behaviors commit is carried in turn", run: func(f *fixture) {
		f.node.behave = countdown(f)
		f.start()
		f.publish(f.event(orders, "3"))
		f.awaitApplied(8)
		for key := range 4 {
			for _, name := range []string{shipping, billing} {
				if got := f.appliedBy(event.Unit{Name: name, Key: fmt.Sprint(key)}); len(got) != 1 {
					f.Errorf("%s applied %v under key %d", name, got, key)
				}
			}
		}
	}},
}

// countdown has shipping answer an order under key n with one under key n-1, down to 0.
func countdown(f *fixture) behavior {
	return func(_ context.Context, u event.Unit, e *event.Envelope) ([]event.Envelope, error) {
		var n int
		if _, err := fmt.Sscan(e.Key, &n); err != nil || n == 0 || u.Name != shipping {
			return nil, err
		}
		return []event.Envelope{f.event(orders, fmt.Sprint(n-1))}, nil
	}
}
