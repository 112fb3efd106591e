package cluster_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// marking is a broker that may hang.
type marking struct {
	*brokertest.Broker
	f *fake
}

func (m marking) Mark(ctx context.Context, units []event.Unit) error {
	if m.f.hangs.CompareAndSwap(true, false) {
		<-ctx.Done()
		return ctx.Err()
	}
	return m.Broker.Mark(ctx, units)
}

func TestWhoDrainsGoesForNothingAndKeepsWhatItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(10 * time.Second)
		u := a.owned(1)[0]
		held := a.partCount()
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.take()
		b.take()
		w.mark(b, u)
		if diff := cmp.Diff([]event.Unit{u}, b.take()); diff != "" {
			t.Error(diff)
		}
		if a.partCount() > held || a.partCount() == 0 {
			t.Errorf("holds %d parts, %d before: they are relayed until it stops", a.partCount(), held)
		}
		a.leave()
		b.leave()
	})
}

func TestMarksUnderWayWhenANodeStopsAreNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		pass(10 * time.Second)
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.take()
		a.hangs.Store(true)
		a.Mark(unit(1))
		synctest.Wait()
		if err := errors.Join(a.Stop(t.Context()), a.broker.Stop(t.Context())); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]event.Unit{unit(1)}, b.take()); diff != "" {
			t.Error(diff)
		}
		b.leave()
	})
}
