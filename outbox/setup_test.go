package outbox_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a store and a broker, with the handlers shipping and billing on the category order, and nobody on the category note.
type world struct {
	testing.TB
	store  *memory.Store
	faults *faulty.Store // the same, as relays see it
	id     eventstore.Identity
	server *brokertest.Server
	made   int
	after  func(time.Duration) // lets time pass, and waits until nobody has anything to do at once
}

var (
	orders   = event.LaneRef{Category: "order", Key: "k-1"}
	others   = event.LaneRef{Category: "order", Key: "k-2"}
	payments = event.LaneRef{Category: "payment", Key: "k-1"}
	notes    = event.LaneRef{Category: "note", Key: "k-1"}
)

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	inBubble(t, test)
}

// inBubble is inWorld for a part of a test.
func inBubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, brokertest.Config{RealTime: true})
		w.after = func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		test(w)
	})
}

func newWorld(t testing.TB, c brokertest.Config) *world {
	t.Helper()
	w := &world{TB: t, store: memory.Open(), server: brokertest.NewServer(c)}
	id, err := w.store.Start(t.Context(), eventstore.StartOptions{Relayed: true})
	w.must("start store", err)
	w.id, w.faults = id, faulty.Wrap(w.store, nil)
	t.Cleanup(func() { w.must("stop store", w.store.Stop(context.WithoutCancel(t.Context()))) })
	w.register(eventstore.Handler{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order"}},
		eventstore.Handler{Name: "billing", Kind: eventstore.EventHandler, Categories: []string{"order"}})
	return w
}

func (w *world) must(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

func (w *world) same(what string, want, got any) {
	w.Helper()
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (w *world) register(handlers ...eventstore.Handler) {
	w.Helper()
	had, err := w.store.LoadRegistry(w.Context())
	w.must("load registry", err)
	had.Handlers = handlers
	w.must("save registry", w.store.SaveRegistry(w.Context(), had, nil))
}

// commit commits n events to each lane.
func (w *world) commit(n int, lanes ...event.LaneRef) []event.Tail {
	w.Helper()
	var c eventstore.Changes
	for _, lane := range lanes {
		for range n {
			w.made++
			c.Publish = append(c.Publish, event.Envelope{
				ID: fmt.Sprintf("e-%d", w.made), Type: lane.Category + ".happened", Version: 1, Encoding: event.JSON, Data: []byte("{}"),
				Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Time: time.Now().UTC(),
			})
		}
	}
	done, err := w.store.Begin("test").Commit(w.Context(), c)
	w.must("commit", err)
	return done.Tails
}

// pass moves the checkpoint of a handler.
func (w *world) pass(name string, lane event.LaneRef, from, to event.Sequence) {
	w.Helper()
	u := event.Unit{Name: name, Key: lane.Key}
	_, err := w.store.Begin("test").Commit(w.Context(), eventstore.Changes{
		Fence: eventstore.Fence{Unit: u}, Advance: []eventstore.Advance{{Lane: lane, From: from, To: to, EventID: fmt.Sprint(lane, to)}},
	})
	w.must("advance", err)
}

// records gives what the store has of a lane.
func (w *world) records(lane event.LaneRef) []event.Envelope {
	w.Helper()
	all, err := w.store.ReadLane(w.Context(), lane, 0, 10_000)
	w.must("read lane", err)
	return all
}

// published checks that the stream of a lane is what the store has above a sequence, and that it is noted.
func (w *world) published(lane event.LaneRef, above event.Sequence) {
	w.Helper()
	all := w.records(lane)
	at, _ := slices.BinarySearchFunc(all, above+1, func(e event.Envelope, seq event.Sequence) int { return cmp.Compare(e.Sequence, seq) })
	w.same("stream of "+lane.String(), places(all[at:]), places(w.server.Stream(lane)))
	w.noted(lane, event.Sequence(len(all)))
}

func places(run []event.Envelope) []event.Position {
	all := make([]event.Position, len(run))
	for i := range run {
		all[i] = event.Position{Lane: run[i].Ref(), Sequence: run[i].Sequence, EventID: run[i].ID}
	}
	return all
}

func (w *world) noted(lane event.LaneRef, want event.Sequence) {
	w.Helper()
	if p := w.passing(lane); p.Published != want {
		w.Errorf("%s is noted as published up to %d, want %d", lane, p.Published, want)
	}
}

func (w *world) passing(lane event.LaneRef) eventstore.Passing {
	w.Helper()
	all, err := w.store.Passing(w.Context(), []event.LaneRef{lane})
	w.must("passing", err)
	return all[0]
}

// looks gives all looks that are set, due or not.
func (w *world) looks() []eventstore.Look {
	w.Helper()
	all, err := w.store.DueLooks(w.Context(), partsAll(), time.Now().AddDate(100, 0, 0), 10_000)
	w.must("looks", err)
	return all
}

// node is a relay with its broker, and what it was heard to say.
type node struct {
	*outbox.Relay
	w      *world
	broker *brokertest.Broker
	held   map[event.Part]event.Generation
	mu     struct {
		sync.Mutex
		told      []event.Part
		diverged  []eventstore.Divergence
		abandoned []string
		healed    []event.LaneRef
		served    []int
		trouble   int
		stale     []event.Part
		retired   int
		relayed   map[string]int
	}
}

// node starts a relay on a store that may go wrong; it holds nothing.
func (w *world) node(name string, change ...func(*outbox.Config)) *node {
	w.Helper()
	n := &node{w: w, broker: w.server.Node(name), held: make(map[event.Part]event.Generation)}
	n.mu.relayed = make(map[string]int)
	n.broker.Bind(w.store, w.id)
	w.must("connect", n.broker.Connect(w.Context()))
	cfg := outbox.Config{Store: w.faults, Broker: n.broker, StoreID: w.id.StoreID, Tell: func(p []event.Part) { n.note(func() { n.mu.told = append(n.mu.told, p...) }) }}
	cfg.Observer = outbox.Observer{
		Relayed:  func(category string, k int) { n.note(func() { n.mu.relayed[category] += k }) },
		Diverged: func(d eventstore.Divergence) { n.note(func() { n.mu.diverged = append(n.mu.diverged, d) }) },
		Abandoned: func(lane event.LaneRef, seq event.Sequence, reason string) {
			n.note(func() { n.mu.abandoned = append(n.mu.abandoned, fmt.Sprintf("%s #%d: %s", lane, seq, reason)) })
		},
		Healed:  func(lane event.LaneRef) { n.note(func() { n.mu.healed = append(n.mu.healed, lane) }) },
		Served:  func(_ transport.Wanted, k int) { n.note(func() { n.mu.served = append(n.mu.served, k) }) },
		Trouble: func(string, error) { n.note(func() { n.mu.trouble++ }) },
		Stale:   func(p event.Part) { n.note(func() { n.mu.stale = append(n.mu.stale, p) }) },
		Retired: func(_ string, k int) { n.note(func() { n.mu.retired += k }) },
	}
	for _, f := range change {
		f(&cfg)
	}
	relay, err := outbox.New(cfg)
	w.must("new relay", err)
	n.Relay = relay
	w.must("start relay", relay.Start(w.Context()))
	w.Cleanup(func() {
		ctx := context.WithoutCancel(w.Context())
		w.must("stop relay", relay.Stop(ctx))
		w.must("stop broker", n.broker.Stop(ctx))
	})
	return n
}

func (n *node) note(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// holder is a node that holds all parts.
func (w *world) holder(name string, change ...func(*outbox.Config)) *node {
	w.Helper()
	n := w.node(name, change...)
	for p := range event.Parts {
		n.take(event.Part(p))
	}
	return n
}

// take has a part held, above whoever held it before.
func (n *node) take(p event.Part) {
	n.w.Helper()
	ask := []eventstore.Ask{{Unit: p.Unit()}}
	now, err := n.w.store.Recover(n.w.Context(), ask)
	n.w.must("recover", err)
	ask[0].Generation = now[0].Generation + 1
	_, err = n.w.store.Raise(n.w.Context(), ask)
	n.w.must("raise", err)
	n.held[p] = ask[0].Generation
	n.Hold(p, ask[0].Generation)
}

// settle waits until nobody has anything to do at once.
func settle() { synctest.Wait() }

// count counts calls by kind.
type count struct {
	mu    sync.Mutex
	calls map[string]int
}

func (w *world) counting() *count {
	c := &count{calls: make(map[string]int)}
	w.server.Break(func(call brokertest.Call) brokertest.Fault {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls[call.Op]++
		return brokertest.None
	})
	return c
}

func (c *count) of(op string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[op]
}

func holding(u event.Unit, g event.Generation) partitions.Held {
	return partitions.Held{Unit: u, Generation: g}
}
