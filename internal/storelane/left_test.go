package storelane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// backlog is a store that only tells what there is to do.
type backlog struct {
	lanes []event.LaneRef
	due   []event.Unit
	err   error
	reads int
}

func (b *backlog) Unpassed(_ context.Context, _, category string, after event.LaneRef, _ int) ([]event.LaneRef, error) {
	b.reads++
	if category != "order" || after != (event.LaneRef{}) {
		return nil, nil
	}
	return b.lanes, nil
}

func (b *backlog) DueUnits(_ context.Context, after event.Unit, _ int) ([]event.Unit, error) {
	b.reads++
	if b.err != nil || after != (event.Unit{}) {
		return nil, b.err
	}
	return b.due, nil
}

var takers = []transport.Subscription{{Name: "shipping", Category: "order"}}

func takeOver(t *testing.T, unclean bool, b *backlog) *Port {
	t.Helper()
	p := New(nil, eventstore.Identity{StartGeneration: 7, Unclean: unclean}, event.KeyRules{})
	if err := p.TakeOver(t.Context(), b, takers); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *Port) grantsUnclean(t *testing.T, u event.Unit) bool {
	t.Helper()
	got, err := p.Acquire(t.Context(), u, 0)
	if err != nil || !got.Granted {
		t.Errorf("acquire %s: %+v, %v", u, got, err)
	}
	return got.Unclean
}

func TestNothingIsRememberedOnceAllUncleanUnitsWereAcquired(t *testing.T) {
	t.Parallel()
	b := &backlog{
		lanes: []event.LaneRef{{Category: "order", Key: "a"}, {Category: "order", Key: "b"}},
		due:   []event.Unit{{Name: "shipping", Key: "b"}, {Name: "shipping", Key: "c"}, {Name: "strange", Key: "d"}},
	}
	p := takeOver(t, true, b)
	for _, key := range []string{"a", "b", "c"} {
		if p.left.Load() == nil || !p.Unsettled() {
			t.Fatalf("forgotten before %s was acquired", key)
		}
		if !p.grantsUnclean(t, event.Unit{Name: "shipping", Key: key}) {
			t.Errorf("%s is clean", key)
		}
	}
	if p.left.Load() != nil || p.Unsettled() {
		t.Error("all were acquired, and something is remembered")
	}
	if p := takeOver(t, true, &backlog{}); p.left.Load() != nil {
		t.Error("there was nothing to do, and something is remembered")
	}
}

func TestAfterACleanEndNobodyLooksAndNobodyIsUnclean(t *testing.T) {
	t.Parallel()
	b := &backlog{lanes: []event.LaneRef{{Category: "order", Key: "a"}}}
	p := takeOver(t, false, b)
	if b.reads > 0 || p.left.Load() != nil || p.grantsUnclean(t, event.Unit{Name: "shipping", Key: "a"}) {
		t.Errorf("%d reads, remembered: %v", b.reads, p.left.Load() != nil)
	}
}

// A unit that somebody acquires before anybody has looked may be the one: it is unclean, and not a second time.
func TestAUnitAcquiredBeforeTheTakeoverIsUncleanOnce(t *testing.T) {
	t.Parallel()
	p := New(nil, eventstore.Identity{Unclean: true}, event.KeyRules{})
	u := event.Unit{Name: "shipping", Key: "a"}
	if !p.grantsUnclean(t, u) || p.grantsUnclean(t, u) {
		t.Error("before: want unclean, then clean")
	}
	failing := &backlog{err: errors.New("disk error")}
	if err := p.TakeOver(t.Context(), failing, takers); !errors.Is(err, failing.err) {
		t.Errorf("a look that failed: %v", err)
	}
	good := &backlog{lanes: []event.LaneRef{{Category: "order", Key: "a"}, {Category: "order", Key: "b"}}}
	for range 2 { // the second finds nothing out
		if err := p.TakeOver(t.Context(), good, takers); err != nil {
			t.Fatal(err)
		}
		if p.grantsUnclean(t, u) {
			t.Error("unclean again")
		}
	}
	if !p.grantsUnclean(t, event.Unit{Name: "shipping", Key: "b"}) {
		t.Error("b is clean")
	}
}

func TestManyThatAcquireAtOnceSeeAnUncleanUnitOnce(t *testing.T) {
	t.Parallel()
	const keys, each = 20, 8
	b := &backlog{}
	for k := range keys {
		b.lanes = append(b.lanes, event.LaneRef{Category: "order", Key: fmt.Sprint(k)})
	}
	p := takeOver(t, true, b)
	var seen atomic.Int32
	var all sync.WaitGroup
	for range each {
		for k := range keys {
			all.Go(func() {
				if p.grantsUnclean(t, event.Unit{Name: "shipping", Key: fmt.Sprint(k)}) {
					seen.Add(1)
				}
			})
		}
	}
	all.Wait()
	if seen.Load() != keys || p.left.Load() != nil {
		t.Errorf("%d were unclean, want %d; remembered: %v", seen.Load(), keys, p.left.Load() != nil)
	}
}
