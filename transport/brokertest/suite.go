package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// patience is how long a test waits for what must happen, on a busy machine.
const patience = 20 * time.Second

// Leasing is a broker with the port of its units.
type Leasing interface {
	transport.Broker
	Port() partitions.Port
}

// Harness is a broker and the world behind it. Each test has one of its own. What the harness opened it stops itself, at cleanup.
type Harness struct {
	// Broker is one node's, bound to the store that the suite gave, and neither connected nor started.
	Broker Leasing
	// Other gives that of another node on the same broker, bound to the same store.
	Other func(t *testing.T) Leasing
	// Foreign gives that of a node of another application, bound to the store that the suite gives, of another id. nil: those are not tested.
	Foreign func(t *testing.T, store eventstore.Store, id string) Leasing
	// Pass lets d pass for leases and members.
	Pass func(t *testing.T, d time.Duration)
	// Forget makes the broker lose its memory.
	Forget func(t *testing.T)
	// Delete takes one stream; LoseTail its newest n entries. Nobody is told. nil: not tested.
	Delete   func(t *testing.T, lane event.LaneRef)
	LoseTail func(t *testing.T, lane event.LaneRef, n int)
	// Fill has the broker refuse what needs memory; nil: not tested.
	Fill func(t *testing.T, full bool)
	// Producer is a program that knows nothing of Keyhold.
	Producer Producer
	// MaxAhead is how many entries a stream keeps at most; 0: not tested.
	MaxAhead int
}

// Open makes a broker over a store, which is started and empty. The key rules are the default ones.
type Open func(t *testing.T, store eventstore.Store, id eventstore.Identity) Harness

type check struct {
	name string
	run  func(s *suite)
}

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for _, g := range []struct {
		name   string
		checks []check
	}{
		{"Append", appends},
		{"Newest", newest},
		{"Trim", trims},
		{"Retire", retires},
		{"Missing", missing},
		{"Registrations", registrations},
		{"Work", unitWork},
		{"Membership", memberships},
		{"Lifetime", lifetime},
		{"Polling", polled},
	} {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(setup(t, open))
				})
			}
		})
	}
}

// suite is one test with its world.
type suite struct {
	*testing.T
	Harness
	id    eventstore.Identity
	store eventstore.Store
}

var (
	orders   = event.LaneRef{Category: "order", Key: "k-1"}
	others   = event.LaneRef{Category: "order", Key: "k-2"}
	payments = event.LaneRef{Category: "payment", Key: "k-1"}
	shipping = event.Unit{Name: "shipping", Key: "k-1"}
	billing  = event.Unit{Name: "billing", Key: "k-1"}
)

func backfill(lane event.LaneRef) event.LaneRef {
	lane.Lane = event.Backfill
	return lane
}

// setup gives a broker that is connected.
func setup(t *testing.T, open Open) *suite {
	t.Helper()
	store := memory.Open()
	id, err := store.Start(t.Context(), eventstore.StartOptions{Node: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{T: t, id: id, store: store}
	t.Cleanup(func() { s.stopped("the store", store.Stop) })
	s.Harness = open(t, store, id)
	t.Cleanup(func() { s.stopped("the broker", s.Broker.Stop) })
	s.must("connect", s.Broker.Connect(t.Context()))
	return s
}

func (s *suite) stopped(what string, stop func(context.Context) error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := stop(ctx); err != nil {
		s.Errorf("stop %s: %v", what, err)
	}
}

func (s *suite) must(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

func (s *suite) same(what string, want, got any) {
	s.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// connected gives a node that is.
func (s *suite) connected(b Leasing) Leasing {
	s.Helper()
	s.must("connect", b.Connect(s.Context()))
	s.Cleanup(func() { s.stopped("a node", b.Stop) })
	return b
}

func (s *suite) other() Leasing { return s.connected(s.Other(s.T)) }

// entries are those of a lane from first to last.
func (s *suite) entries(lane event.LaneRef, first, last event.Sequence) []event.Envelope {
	var all []event.Envelope
	for seq := first; seq <= last; seq++ {
		all = append(all, event.Envelope{
			ID: entryID(lane, seq), Type: lane.Category + ".happened", Version: 2, Encoding: event.JSON, Data: []byte(`{"n":` + seq.String() + `}`),
			Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Tenant: "acme", CorrelationID: "c", CausationID: "d",
			Trace: event.Trace{Parent: "00-1-2-01", State: "a=b"}, Time: time.UnixMilli(int64(seq)).UTC(),
			Stream: event.Stream{Kind: lane.Category, ID: lane.Key}, StreamVersion: uint64(seq), Sequence: seq, StoreID: s.id.StoreID,
		})
	}
	return all
}

func entryID(lane event.LaneRef, seq event.Sequence) string {
	return lane.String() + "#" + seq.String()
}

// start appends to a lane that may be empty, for the subscribers named, and fails unless all went well.
func (s *suite) start(lane event.LaneRef, first, last event.Sequence, subscribers ...string) {
	s.Helper()
	got := s.append(transport.Append{Lane: lane, Entries: s.entries(lane, first, last), Start: true, Subscribers: subscribers})
	s.same("append", told(transport.AppendOK, lane, last), got)
}

// told is what an append answers.
func told(outcome transport.AppendOutcome, lane event.LaneRef, newest event.Sequence) transport.Appended {
	got := transport.Appended{Outcome: outcome, Newest: newest}
	if newest > 0 {
		got.NewestID = entryID(lane, newest)
	}
	return got
}

func (s *suite) append(run transport.Append) transport.Appended {
	s.Helper()
	got := s.Broker.Append(s.Context(), []transport.Append{run})
	if len(got) != 1 {
		s.Fatalf("%d answers for one run", len(got))
	}
	s.must("append", got[0].Err)
	return got[0]
}

// run appends first to last without Start.
func (s *suite) run(lane event.LaneRef, first, last event.Sequence) transport.Appended {
	s.Helper()
	return s.append(transport.Append{Lane: lane, Entries: s.entries(lane, first, last)})
}

// ask asks for the newest entry.
func (s *suite) ask(lane event.LaneRef) transport.Appended {
	s.Helper()
	return s.append(transport.Append{Lane: lane})
}

// acquire has a unit granted.
func (s *suite) acquire(b Leasing, u event.Unit) partitions.Held {
	s.Helper()
	got, err := b.Port().Acquire(s.Context(), u, 0)
	s.must("acquire", err)
	if !got.Granted {
		s.Fatalf("acquire %s: not granted: %+v", u, got)
	}
	return partitions.Held{Unit: u, Generation: got.Generation}
}

// pass has a unit read a lane up to a sequence and acknowledge it, then gives it back.
func (s *suite) pass(u event.Unit, lane event.LaneRef, through event.Sequence) {
	s.Helper()
	h := s.acquire(s.Broker, u)
	_, err := s.Broker.Port().Fetch(s.Context(), h, []event.Position{{Lane: lane}}, 10)
	s.must("fetch", err)
	_, err = s.Broker.Port().Advance(s.Context(), h, []event.Position{{Lane: lane, Sequence: through, EventID: entryID(lane, through)}}, 10)
	s.must("advance", err)
	s.must("release", s.Broker.Port().Release(s.Context(), h, false))
}

// read gives what a unit of its own finds in a lane above a sequence: nothing, where there is a gap.
func (s *suite) read(lane event.LaneRef, above event.Sequence) []event.Envelope {
	s.Helper()
	u := event.Unit{Name: "reader", Key: lane.Key}
	h := s.acquire(s.Broker, u)
	defer func() { s.must("release", s.Broker.Port().Release(s.Context(), h, false)) }()
	pos := []event.Position{{Lane: lane, Sequence: above}}
	var all []event.Envelope
	for {
		got, err := s.Broker.Port().Fetch(s.Context(), h, pos, 100)
		s.must("fetch", err)
		if len(got.Entries) == 0 {
			return all
		}
		all = append(all, got.Entries...)
		pos[0].Sequence, pos[0].EventID = all[len(all)-1].Sequence, all[len(all)-1].ID
	}
}

// busy gives the keys of a subscriber that have work, in order, each once.
func (s *suite) busy(name string) []string {
	s.Helper()
	return s.paged(func(cursor uint64) ([]string, uint64, error) { return s.Broker.Busy(s.Context(), name, cursor) })
}

func (s *suite) resting(name string) []string {
	s.Helper()
	return s.paged(func(cursor uint64) ([]string, uint64, error) { return s.Broker.Resting(s.Context(), name, cursor) })
}

func (s *suite) paged(page func(cursor uint64) (keys []string, next uint64, err error)) (all []string) {
	s.Helper()
	for cursor := uint64(0); ; {
		keys, next, err := page(cursor)
		s.must("page", err)
		if all = append(all, keys...); next == 0 {
			slices.Sort(all)
			return slices.Compact(all)
		}
		cursor = next
	}
}

// listener is a node that writes down what it is told.
type listener struct {
	mu      sync.Mutex
	wakes   []event.Unit // since the last one that was awaited
	all     []event.Unit
	forgot  int
	changed chan struct{}
}

// listen starts a node.
func (s *suite) listen(b transport.Broker, names ...string) *listener {
	s.Helper()
	l := &listener{changed: make(chan struct{}, 1)}
	node := transport.Node{
		Wake:   func(u event.Unit) { l.note(func() { l.wakes, l.all = append(l.wakes, u), append(l.all, u) }) },
		Forgot: func() { l.note(func() { l.forgot++ }) },
		Report: func(err error) { s.Logf("reported: %v", err) },
	}
	for _, name := range names {
		node.Subscriptions = append(node.Subscriptions, transport.Subscription{Name: name, Category: "order"})
	}
	s.must("start", b.Start(s.Context(), node))
	return l
}

func (l *listener) note(f func()) {
	l.mu.Lock()
	f()
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// await waits until holds, which runs under the listener's lock, comes true.
func (l *listener) await(s *suite, what string, holds func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for {
		l.mu.Lock()
		done := holds()
		l.mu.Unlock()
		if done {
			return
		}
		select {
		case <-l.changed:
		case <-ctx.Done():
			s.Fatalf("waited in vain for %s; woken: %v", what, l.wakes)
		}
	}
}

func (l *listener) awaitWake(s *suite, u event.Unit) {
	s.Helper()
	l.await(s, fmt.Sprintf("a wake of %s", u), func() bool {
		at := slices.Index(l.wakes, u)
		if at >= 0 {
			l.wakes = l.wakes[at+1:]
		}
		return at >= 0
	})
}

// each checks that there is one answer for each element, and that exactly those wanted are errors of the kind.
func (s *suite) each(what string, errs []error, want ...error) {
	s.Helper()
	if len(errs) != len(want) {
		s.Fatalf("%s: %d answers for %d elements", what, len(errs), len(want))
	}
	for i := range errs {
		if !errors.Is(errs[i], want[i]) {
			s.Errorf("%s, element %d: got %v, want %v", what, i, errs[i], want[i])
		}
	}
}
