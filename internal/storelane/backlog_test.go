package storelane_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/transport"
)

var subscriptions = []transport.Subscription{
	{Name: "shipping", Category: "order"}, {Name: "billing", Category: "order"}, {Name: "billing", Category: "payment"},
}

func (b *bundle) unpassed() []storelane.Work {
	b.Helper()
	var all []storelane.Work
	for work, err := range storelane.Unpassed(b.Context(), b.store, subscriptions) {
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, work)
	}
	return all
}

func TestUnpassedGoesThroughAllPagesOfAllSubscriptions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const keys = 600 // more than two pages
	var want []storelane.Work
	for i := range keys {
		l := event.LaneRef{Category: "order", Key: fmt.Sprintf("c-%03d", i)}
		b.publish(l, 0)
		want = append(want, storelane.Work{Unit: event.Unit{Name: "shipping", Key: l.Key}, Lane: l})
	}
	for i := range keys {
		w := want[i]
		w.Unit.Name = "billing"
		want = append(want, w)
	}
	b.publish(backfill(payments), 0)
	want = append(want, storelane.Work{Unit: event.Unit{Name: "billing", Key: payments.Key}, Lane: backfill(payments)})
	if diff := cmp.Diff(want, b.unpassed()); diff != "" {
		t.Error(diff)
	}
}

func TestUnpassedLeavesOutWhatIsPassedAndWhoIsHalted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(orders, 0)
	billing := event.Unit{Name: "billing", Key: orders.Key}
	b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Advance: []eventstore.Advance{{Lane: orders, To: 1}}})
	b.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: billing}, Halt: &eventstore.Halt{Unit: billing, Lane: orders, Sequence: 1}})
	if got := b.unpassed(); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestUnpassedEndsWithAnErrorOrWhenNoMoreIsWanted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(orders, 0)
	seen := 0
	for range storelane.Unpassed(t.Context(), b.store, subscriptions) {
		seen++
		break
	}
	if seen != 1 {
		t.Errorf("went on %d times after a break", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for work, err := range storelane.Unpassed(ctx, b.store, subscriptions) {
		if work != (storelane.Work{}) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", work, err)
		}
		seen++
	}
	if seen != 2 {
		t.Errorf("went on %d times after an error", seen-1)
	}
}
