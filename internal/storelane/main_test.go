package storelane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/partitions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a started store with a port over it.
type bundle struct {
	*testing.T
	store eventstore.Store
	id    eventstore.Identity
	port  *storelane.Port
	made  int // events
}

func setup(t *testing.T) *bundle {
	t.Helper()
	store := memory.Open()
	id, err := store.Start(t.Context(), eventstore.StartOptions{Node: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Stop(context.Background()) })
	return &bundle{T: t, store: store, id: id, port: storelane.New(store, id, event.KeyRules{})}
}

var (
	shipping = event.Unit{Name: "shipping", Key: "c-1"}
	orders   = event.LaneRef{Category: "order", Key: "c-1"}
	payments = event.LaneRef{Category: "payment", Key: "c-1"}
	noon     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

func backfill(l event.LaneRef) event.LaneRef {
	l.Lane = event.Backfill
	return l
}

func (b *bundle) envelope(l event.LaneRef, at time.Duration) event.Envelope {
	b.made++
	return event.Envelope{
		ID: fmt.Sprintf("e%d", b.made), Type: "thing.happened", Version: 1, Encoding: event.JSON, Data: []byte("{}"),
		Category: l.Category, Key: l.Key, Lane: l.Lane, Time: noon.Add(at),
	}
}

// publish commits one event of no stream at a time after noon.
func (b *bundle) publish(l event.LaneRef, at time.Duration) {
	b.Helper()
	b.commit(eventstore.Changes{Publish: []event.Envelope{b.envelope(l, at)}})
}

// emit commits one event of a stream.
func (b *bundle) emit(l event.LaneRef, at time.Duration, s event.Stream, expected uint64) {
	b.Helper()
	b.commit(eventstore.Changes{Append: []eventstore.Append{{
		Stream: s, Expected: expected, Events: []event.Envelope{b.envelope(l, at)},
	}}})
}

func (b *bundle) commit(c eventstore.Changes) {
	b.Helper()
	if _, err := b.store.Begin("test").Commit(b.Context(), c); err != nil {
		b.Fatal(err)
	}
}

// purge deletes every record that is of no stream: no handler is registered.
func (b *bundle) purge() {
	b.Helper()
	if n, err := b.store.Purge(b.Context(), noon.AddDate(1, 0, 0), eventstore.MaxLimit); err != nil || n == 0 {
		b.Fatalf("purge: %d, %v", n, err)
	}
}

func (b *bundle) held(u event.Unit) partitions.Held {
	return partitions.Held{Unit: u, Generation: b.id.StartGeneration}
}

// above gives positions from pairs of lane and sequence.
func above(pairs ...any) []event.Position {
	var positions []event.Position
	for i := 0; i < len(pairs); i += 2 {
		positions = append(positions, event.Position{Lane: pairs[i].(event.LaneRef), Sequence: event.Sequence(pairs[i+1].(int))})
	}
	return positions
}

func (b *bundle) fetch(max int, positions []event.Position) partitions.Fetched {
	b.Helper()
	got, err := b.port.Fetch(b.Context(), b.held(shipping), positions, max)
	if err != nil {
		b.Fatal(err)
	}
	return got
}

// read is what was fetched, in short: "order:c-1 #1".
func read(f partitions.Fetched) []string {
	var out []string
	for i := range f.Entries {
		e := &f.Entries[i]
		s := fmt.Sprintf("%s #%d", e.Ref(), e.Sequence)
		if e.Void() {
			s += " void"
		}
		out = append(out, s)
	}
	if f.Gap {
		out = append(out, "gap in "+f.Lane.String())
	}
	return out
}
