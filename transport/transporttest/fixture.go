package transporttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
)

// patience is how long a test waits for what must happen, on a busy machine.
const patience = 20 * time.Second

// fixture is one transport over an empty store, with a node for it, not started.
type fixture struct {
	*testing.T
	store     eventstore.Store
	transport Transport
	node      *node
	made      atomic.Int64 // events
}

func newFixture(t *testing.T, open Open, before func(*fixture)) *fixture {
	t.Helper()
	store := memory.Open()
	id, err := store.Start(t.Context(), eventstore.StartOptions{Node: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, store: store}
	if before != nil {
		before(f)
		id.Unclean = true
	}
	f.transport = open(t, store, id)
	f.node = newNode(store, f.transport)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(f.transport.Stop(ctx), f.node.group.Stop(ctx), store.Stop(ctx)); err != nil {
			t.Errorf("stop: %v", err)
		}
		if faults := f.faults(); len(faults) > 0 {
			t.Errorf("faults: %v", errors.Join(faults...))
		}
		if left := f.unclean(); before == nil && len(left) > 0 {
			t.Errorf("granted unclean, and no process died: %v", left)
		}
	})
	return f
}

func (f *fixture) start() {
	f.Helper()
	f.must(f.node.group.Start(f.Context()))
	f.must(f.transport.Start(f.Context(), f.node.reach()))
}

func (f *fixture) stop() {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	f.must(f.transport.Stop(ctx))
	f.must(f.node.group.Stop(ctx))
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// event makes an event whose id tells its lane: "order:c-1/7".
func (f *fixture) event(category, key string) event.Envelope {
	n := f.made.Add(1)
	return event.Envelope{
		ID: fmt.Sprintf("%s:%s/%d", category, key, n), Type: category + ".happened", Version: 1, Encoding: event.JSON,
		Data: []byte("{}"), Category: category, Key: key, Time: time.UnixMilli(n).UTC(),
	}
}

// commit makes one commit of events, and tells the transport nothing of it.
func (f *fixture) commit(events ...event.Envelope) []event.Tail {
	f.Helper()
	done, err := f.store.Begin("test").Commit(f.Context(), eventstore.Changes{Publish: events})
	f.must(err)
	return done.Tails
}

// publish commits and tells. It may be called from any goroutine.
func (f *fixture) publish(events ...event.Envelope) {
	f.Helper()
	if err := f.transport.Committed(f.Context(), f.commit(events...)); err != nil {
		f.Errorf("committed: %v", err)
	}
}

// await ends the test unless holds comes true; holds may read what node.mu guards.
func (f *fixture) await(what string, holds func() bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	if err := f.node.await(ctx, holds); err != nil {
		f.Fatalf("waited in vain for %s; applied: %v, faults: %v", what, f.applied(), f.faults())
	}
}

// awaitApplied waits until units have passed n events in all.
func (f *fixture) awaitApplied(n int) {
	f.Helper()
	f.await(fmt.Sprintf("%d events to be applied", n), func() bool { return len(f.node.mu.applied) >= n })
}

// applied gives what units passed, in order: "shipping order:c-1/7".
func (f *fixture) applied() []string {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	var out []string
	for _, a := range f.node.mu.applied {
		out = append(out, a.String())
	}
	return out
}

// appliedBy gives the ids of what one unit passed, in order.
func (f *fixture) appliedBy(u event.Unit) []string {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	var out []string
	for _, a := range f.node.mu.applied {
		if a.unit == u {
			out = append(out, a.id)
		}
	}
	return out
}

// reached gives the units that were woken or driven.
func (f *fixture) reached() []event.Unit {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return slices.Collect(maps.Keys(f.node.mu.reached))
}

func (f *fixture) forgetReached() {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	clear(f.node.mu.reached)
}

// unclean gives the units that were granted so, in order of name and key, as often as they were.
func (f *fixture) unclean() []string {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return sorted(f.node.mu.unclean)
}

// faults gives what went wrong so far, and forgets it.
func (f *fixture) faults() []error {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	faults := f.node.mu.faults
	f.node.mu.faults = nil
	return faults
}

// bytesWhole compares bytes as a whole: one by one, as cmp does by itself, large ones take seconds.
var bytesWhole = cmp.FilterValues(func(x, y []byte) bool { return len(x)+len(y) > 0 }, cmp.Comparer(bytes.Equal))

// same reports a difference. An empty slice and a nil one are the same.
func (f *fixture) same(what string, got, want any) {
	f.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), bytesWhole); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func ids(events ...event.Envelope) []string {
	out := make([]string, len(events))
	for i := range events {
		out[i] = events[i].ID
	}
	return out
}

func backfill(e event.Envelope) event.Envelope {
	e.Lane = event.Backfill
	return e
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// only makes a behavior that does something with the events of one id, for one name.
func only(name, id string, do behavior) behavior {
	return func(ctx context.Context, u event.Unit, e *event.Envelope) ([]event.Envelope, error) {
		if u.Name == name && e.ID == id {
			return do(ctx, u, e)
		}
		return nil, nil
	}
}

// fail is a behavior that always says the same.
func fail(err error) behavior {
	return func(context.Context, event.Unit, *event.Envelope) ([]event.Envelope, error) { return nil, err }
}
