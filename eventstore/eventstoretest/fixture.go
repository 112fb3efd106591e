package eventstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// fixture is what a behaviour is tested with.
type fixture struct {
	*testing.T
	ctx     context.Context
	store   eventstore.Store
	id      eventstore.Identity
	harness Harness
	emitted atomic.Int64 // events made
}

func newFixture(t *testing.T, h Harness) *fixture {
	t.Helper()
	f := &fixture{T: t, ctx: t.Context(), store: h.Store, id: h.Identity, harness: h}
	t.Cleanup(func() {
		if err := f.store.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return f
}

// stop stops the store; a crash where the harness can.
func (f *fixture) restart(end func()) {
	f.Helper()
	f.restartAs(end, eventstore.StartOptions{Node: "next"})
}

func (f *fixture) restartAs(end func(), opts eventstore.StartOptions) {
	f.Helper()
	if f.harness.Reopen == nil {
		f.Skip("the data of this store does not outlive Stop")
	}
	end()
	next := f.harness.Reopen()
	id, err := next.Start(f.ctx, opts)
	if err != nil {
		f.Fatalf("start again: %v", err)
	}
	f.store, f.id = next, id
}

func (f *fixture) stop() {
	f.Helper()
	if err := f.store.Stop(f.ctx); err != nil {
		f.Fatalf("stop: %v", err)
	}
}

func (f *fixture) crash() {
	f.Helper()
	if f.harness.Crash == nil {
		f.stop()
		return
	}
	f.harness.Crash()
}

// base is the time of the first event; each later one is a second younger.
var base = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// event makes an event of a category with a fresh id and the next time.
func (f *fixture) event(category, key string) event.Envelope {
	n := f.emitted.Add(1)
	return event.Envelope{
		ID: fmt.Sprintf("e-%d", n), Type: category + ".happened", Version: 1, Encoding: event.JSON,
		Data: fmt.Appendf(nil, `{"n":%d}`, n), Category: category, Key: key,
		Time: base.Add(time.Duration(n) * time.Second),
	}
}

// events makes several.
func (f *fixture) events(category, key string, count int) []event.Envelope {
	out := make([]event.Envelope, count)
	for i := range out {
		out[i] = f.event(category, key)
	}
	return out
}

func backfill(events ...event.Envelope) []event.Envelope {
	for i := range events {
		events[i].Lane = event.Backfill
	}
	return events
}

func lane(category, key string) event.LaneRef {
	return event.LaneRef{Category: category, Key: key}
}

func backfillLane(category, key string) event.LaneRef {
	return event.LaneRef{Category: category, Key: key, Lane: event.Backfill}
}

// try commits c in a unit of work of its own.
func (f *fixture) try(c eventstore.Changes) (eventstore.Committed, error) {
	return f.store.Begin(f.Name()).Commit(f.ctx, c)
}

// commit commits c, which must succeed.
func (f *fixture) commit(c eventstore.Changes) eventstore.Committed {
	f.Helper()
	done, err := f.try(c)
	if err != nil {
		f.Fatalf("commit: %v", err)
	}
	return done
}

// refused commits c, which must be refused with an error of the kind wanted.
func (f *fixture) refused(c eventstore.Changes, want error) error {
	f.Helper()
	_, err := f.try(c)
	if !errors.Is(err, want) {
		f.Fatalf("commit gave %v, want %v", err, want)
	}
	return err
}

// publish commits events that no entity emitted.
func (f *fixture) publish(events ...event.Envelope) eventstore.Committed {
	f.Helper()
	return f.commit(eventstore.Changes{Publish: events})
}

// emit commits events of a stream.
func (f *fixture) emit(s event.Stream, expected uint64, events ...event.Envelope) eventstore.Committed {
	f.Helper()
	return f.commit(eventstore.Changes{Append: []eventstore.Append{{Stream: s, Expected: expected, Events: events}}})
}

// advance moves a checkpoint of a unit that is not leased.
func advance(u event.Unit, l event.LaneRef, from, to event.Sequence) eventstore.Changes {
	return eventstore.Changes{
		Fence:   eventstore.Fence{Unit: u},
		Advance: []eventstore.Advance{{Lane: l, From: from, To: to, EventID: fmt.Sprintf("at-%d", to)}},
	}
}

func (f *fixture) lane(l event.LaneRef) []event.Envelope {
	f.Helper()
	return f.laneAfter(l, 0)
}

func (f *fixture) laneAfter(l event.LaneRef, after event.Sequence) []event.Envelope {
	f.Helper()
	got, err := f.store.ReadLane(f.ctx, l, after, eventstore.MaxLimit)
	if err != nil {
		f.Fatalf("read lane %s: %v", l, err)
	}
	return got
}

func (f *fixture) stream(s event.Stream) []event.Envelope {
	f.Helper()
	got, err := f.store.ReadStream(f.ctx, s, 0, eventstore.MaxLimit)
	if err != nil {
		f.Fatalf("read stream %s: %v", s, err)
	}
	return got
}

func (f *fixture) tail(l event.LaneRef) event.Sequence {
	f.Helper()
	got, err := f.store.LaneTail(f.ctx, l)
	if err != nil {
		f.Fatalf("tail of lane %s: %v", l, err)
	}
	return got
}

// recover asks for one unit.
func (f *fixture) recover(u event.Unit, lanes ...event.LaneRef) eventstore.Recovered {
	f.Helper()
	got, err := f.store.Recover(f.ctx, []eventstore.Ask{{Unit: u, Lanes: lanes}})
	if err != nil || len(got) != 1 {
		f.Fatalf("recover %s: %v, %v", u, got, err)
	}
	return got[0]
}

// raise raises one unit, which must succeed.
func (f *fixture) raise(u event.Unit, g event.Generation, lanes ...event.LaneRef) eventstore.Recovered {
	f.Helper()
	got, err := f.store.Raise(f.ctx, []eventstore.Ask{{Unit: u, Generation: g, Lanes: lanes}})
	if err != nil || len(got) != 1 {
		f.Fatalf("raise %s: %v, %v", u, got, err)
	}
	if !got[0].Raised {
		f.Fatalf("raise %s to %d was refused: the row is at %d", u, g, got[0].Generation)
	}
	return got[0]
}

func (f *fixture) checkpoint(u event.Unit, l event.LaneRef) event.Sequence {
	f.Helper()
	return f.recover(u, l).Checkpoints[0].Sequence
}

func (f *fixture) unpassed(name, category string) []event.LaneRef {
	f.Helper()
	got, err := f.store.Unpassed(f.ctx, name, category, event.LaneRef{}, eventstore.MaxLimit)
	if err != nil {
		f.Fatalf("unpassed %q of %q: %v", name, category, err)
	}
	return got
}

// random gives random numbers, by a seed that is told and can be given in KEYHOLD_SEED.
func (f *fixture) random() *rand.Rand {
	f.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("KEYHOLD_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		f.must(err)
	}
	f.Logf("KEYHOLD_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// must ends the test on an error.
func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// bytesWhole compares bytes as a whole: one by one, as cmp does by itself, large ones take seconds.
var bytesWhole = cmp.FilterValues(func(x, y []byte) bool { return len(x)+len(y) > 0 }, cmp.Comparer(bytes.Equal))

// same reports a difference. An empty slice and a nil one are the same.
func (f *fixture) same(what string, got, want any) {
	f.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), bytesWhole); diff != "" {
		f.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// placed is what the store makes of events it puts in a lane: sequences from first on.
func (f *fixture) placed(first event.Sequence, events ...event.Envelope) []event.Envelope {
	out := make([]event.Envelope, len(events))
	for i, e := range events {
		e.Sequence, e.StoreID = first+event.Sequence(i), f.id.StoreID
		out[i] = e
	}
	return out
}

// ofStream is the same for events of a stream, with versions from version on.
func ofStream(s event.Stream, version uint64, events []event.Envelope) []event.Envelope {
	for i := range events {
		events[i].Stream, events[i].StreamVersion = s, version+uint64(i)
	}
	return events
}

func ids(events []event.Envelope) []string {
	out := make([]string, len(events))
	for i := range events {
		out[i] = events[i].ID
	}
	return out
}

func sequences(events []event.Envelope) []event.Sequence {
	out := make([]event.Sequence, len(events))
	for i := range events {
		out[i] = events[i].Sequence
	}
	return out
}

// upTo is 1, 2, 3, ... n.
func upTo(n int) []event.Sequence {
	out := make([]event.Sequence, n)
	for i := range out {
		out[i] = event.Sequence(i + 1)
	}
	return out
}

// is ends the test when err is not of the kind wanted.
func (f *fixture) is(err, want error) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Fatalf("got %v, want %v", err, want)
	}
}
