package actors_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/partitions/partitionstest"
)

const (
	leaseTTL   = 15 * time.Second
	heartbeat  = 3 * time.Second
	leaseGrace = 3 * time.Second // margin
	leaseLife  = leaseTTL - leaseGrace
)

// nodes is an application that runs on several nodes: a store that they share, and a broker that leases their units. To be used in a bubble.
type nodes struct {
	mem    *memory.Store
	broker *partitionstest.Broker
	start  time.Time
	mu     struct {
		sync.Mutex
		passed time.Duration // of the broker's clock
		joined int
		all    []*node
	}
}

func newNodes() *nodes {
	return &nodes{
		mem: memory.Open(), start: time.Now(),
		broker: partitionstest.NewBroker(partitions.Traits{TTL: leaseTTL, Heartbeat: heartbeat, Margin: leaseGrace}),
	}
}

// clock brings the broker's clock to the bubble's.
func (w *nodes) clock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.start)
	w.broker.Pass(now - w.mu.passed)
	w.mu.passed = now
}

// committed wakes everybody, as a broker does whose nodes do not know of one another.
func (w *nodes) committed(_ context.Context, tails []event.Tail) error {
	w.mu.Lock()
	all := slices.Clone(w.mu.all)
	w.mu.Unlock()
	for _, n := range all {
		for _, t := range tails {
			for _, s := range n.subscribed {
				if s.category == t.Lane.Category {
					n.Wake(event.Unit{Name: s.name, Key: t.Lane.Key})
				}
			}
		}
	}
	return nil
}

// node is one of them.
type node struct {
	*bundle
	id         string // of the owner
	port       *nodePort
	subscribed []subscribed
}

type subscribed struct{ name, category string }

// join starts a node.
func (w *nodes) join(t *testing.T, definitions []actors.Definition, opts ...option) *node {
	return w.joinOn(t, nil, definitions, opts...)
}

// joinOn is join with faults of the store.
func (w *nodes) joinOn(t *testing.T, plan faulty.Plan, definitions []actors.Definition, opts ...option) *node {
	t.Helper()
	mem := memory.Share(w.mem)
	n := &node{bundle: &bundle{store: mem, memory: mem, saw: new(recorder)}}
	if plan != nil {
		n.store = faulty.Wrap(mem, plan)
	}
	if _, err := n.store.Start(t.Context(), eventstore.StartOptions{Relayed: true}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.mu.joined++
	n.id = strconv.Itoa(w.mu.joined)
	w.mu.Unlock()
	n.port = &nodePort{Port: w.broker.Port(), nodes: w, records: mem, acked: map[event.LaneRef]event.Sequence{}}
	for _, d := range definitions {
		for _, c := range d.Describe().Categories {
			n.subscribed = append(n.subscribed, subscribed{d.Describe().Name, c})
		}
	}
	registry := types(t)
	cfg := actors.Config{
		Definitions: definitions, Store: n.store, Port: n.port, Codec: registry, Route: route(registry), Observer: n.saw.observer(t),
		Committed: w.committed,
	}
	for _, o := range opts {
		o(&cfg)
	}
	var err error
	if n.Runtime, err = actors.NewRuntime(cfg); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.mu.all = append(w.mu.all, n)
	w.mu.Unlock()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := n.store.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

// nodePort is the port of one node: leases of the broker, entries of the store, and the faults of one node's way to both.
type nodePort struct {
	partitions.Port
	nodes   *nodes
	records eventstore.Records

	renewals  atomic.Pointer[func(ctx context.Context, renew func() []error) []error] // in place of a renewal; nil = it is made
	slow      time.Duration                                                           // that a release takes to answer
	releasing chan struct{}                                                           // closed to let releases go on; nil = they do
	acquired  atomic.Int64                                                            // times that a lease was asked for
	released  atomic.Int64
	generated atomic.Uint64 // generation granted last

	mu struct {
		sync.Mutex
	}
	acked map[event.LaneRef]event.Sequence // guarded by mu
}

// freeze has renewals hang, and nothing else, until thaw.
func (p *nodePort) freeze() (thaw func()) {
	thawed := make(chan struct{})
	f := func(ctx context.Context, renew func() []error) []error {
		select {
		case <-thawed:
			return renew()
		case <-ctx.Done():
			return nil // no answers are no renewals
		}
	}
	p.renewals.Store(&f)
	return func() {
		p.renewals.Store(nil)
		close(thawed)
	}
}

func (p *nodePort) Acquire(ctx context.Context, u event.Unit, floor event.Generation) (partitions.Acquired, error) {
	p.nodes.clock()
	p.acquired.Add(1)
	got, err := p.Port.Acquire(ctx, u, floor)
	if got.Granted {
		p.generated.Store(uint64(got.Generation))
	}
	return got, err
}

func (p *nodePort) Renew(ctx context.Context, held []partitions.Held) []error {
	renew := func() []error {
		p.nodes.clock()
		return p.Port.Renew(ctx, held)
	}
	if f := p.renewals.Load(); f != nil {
		return (*f)(ctx, renew)
	}
	return renew()
}

func (p *nodePort) Release(ctx context.Context, h partitions.Held, ifIdle bool) error {
	if p.releasing != nil {
		<-p.releasing
	}
	p.nodes.clock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for ref, acked := range p.acked {
		if !ifIdle || ref.Key != h.Unit.Key {
			continue
		}
		if tail, err := p.records.(eventstore.Store).LaneTail(ctx, ref); err != nil || tail > acked {
			return fmt.Errorf("release %s: %w", h.Unit, partitions.ErrBusy)
		}
	}
	p.released.Add(1)
	err := p.Port.Release(ctx, h, ifIdle)
	if p.slow > 0 { // the answer is
		pass2(p.slow)
	}
	return err
}

func (p *nodePort) Fetch(ctx context.Context, h partitions.Held, above []event.Position, max int) (partitions.Fetched, error) {
	p.nodes.clock()
	if _, err := p.Port.Fetch(ctx, h, above, max); err != nil {
		return partitions.Fetched{}, err
	}
	return p.read(ctx, above, max)
}

func (p *nodePort) Advance(ctx context.Context, h partitions.Held, done []event.Position, max int) (partitions.Fetched, error) {
	p.nodes.clock()
	if _, err := p.Port.Fetch(ctx, h, done, max); err != nil {
		return partitions.Fetched{}, err
	}
	p.mu.Lock()
	for _, pos := range done {
		p.acked[pos.Lane] = pos.Sequence
	}
	p.mu.Unlock()
	return p.read(ctx, done, max)
}

func (p *nodePort) read(ctx context.Context, above []event.Position, max int) (partitions.Fetched, error) {
	var got partitions.Fetched
	for _, kind := range []event.Lane{event.Primary, event.Backfill} {
		for _, pos := range above {
			if pos.Lane.Lane != kind || len(got.Entries) >= max {
				continue
			}
			entries, err := p.records.ReadLane(ctx, pos.Lane, pos.Sequence, max-len(got.Entries))
			if err != nil {
				return partitions.Fetched{}, err
			}
			got.Entries = append(got.Entries, entries...)
		}
	}
	return got, nil
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	ctx, done := context.WithTimeout(context.Background(), d)
	defer done()
	<-ctx.Done()
	synctest.Wait()
}

// auditing is a handler that emits what it applied, and who did: so what was committed tells of order, and of what was done twice.
func auditing(by string, on func(c actors.Context, e Deposited) error) actors.Handler[*ledger] {
	h := ledgers(func(_ *ledger, c actors.Context, e Deposited) error {
		c.Emit(Audited{Client: e.Client, By: by, Of: fmt.Sprint(e.Amount)})
		if on == nil {
			return nil
		}
		return on(c, e)
	})
	h.Timeout = -1
	return h
}

// audits gives what auditing handlers committed for a client, such as "1 by A".
func (w *nodes) audits(t *testing.T, n *node, client string) []string {
	t.Helper()
	got, err := n.memory.ReadLane(t.Context(), event.LaneRef{Category: "audit", Key: client}, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range got {
		var a Audited
		decode(t, e.Data, &a)
		all = append(all, a.Of+" by "+a.By)
	}
	return all
}

func ledgerOf(client string) event.Unit { return event.Unit{Name: "ledger", Key: client} }
