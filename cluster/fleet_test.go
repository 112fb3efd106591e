package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/peertest"
)

const fleetTTL = 15 * time.Second

// fleet is nodes on a network whose entities do no more than count what was asked of them. Leases are in one place, as they are in a broker.
type fleet struct {
	t     *testing.T
	net   *peertest.Network
	nodes map[string]*station
	mu    struct {
		sync.Mutex
		members []transport.Member
		leases  map[event.Unit]*lease
	}
	done sync.Map // command id -> *atomic.Int64
}

type lease struct {
	owner      string
	generation event.Generation
	until      time.Time       // once its owner is gone; zero = it is renewed
	kept       map[string]bool // command ids that were done
}

// station is a node, or a client.
type station struct {
	*cluster.Router
	fleet *fleet
	name  string
	peers *peertest.Peers

	remembered, redirected, repeated, gaveUp, asked, looked atomic.Int64
	placement                                               atomic.Pointer[cluster.Placement]
	before                                                  func(q transport.PeerAsk) error // each ask, if set
}

func seed(t *testing.T) uint64 {
	s := uint64(time.Now().UnixNano())
	if v := os.Getenv("KEYHOLD_SEED"); v != "" {
		var err error
		if s, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEYHOLD_SEED=%d", s)
	return s
}

// fleetOf runs f in virtual time with nodes of those names.
func fleetOf(t *testing.T, f func(t *testing.T, w *fleet), names ...string) {
	t.Parallel()
	drawn := seed(t)
	synctest.Test(t, func(t *testing.T) {
		w := &fleet{t: t, net: peertest.NewNetwork(drawn), nodes: map[string]*station{}}
		w.mu.leases = map[event.Unit]*lease{}
		for _, name := range names {
			w.join(name)
		}
		w.tell()
		f(t, w)
	})
}

// open gives a station; a client has no service.
func (w *fleet) open(name string, node bool) *station {
	s := &station{fleet: w, name: name, peers: w.net.Peers(name, peertest.Limits{MaxInside: 64})}
	s.placement.Store(cluster.NewPlacement(nil))
	count := func(n *atomic.Int64) func() { return func() { n.Add(1) } }
	cfg := cluster.RouterConfig{Peers: s.peers, Placement: s.placement.Load, TTL: fleetTTL, Observer: cluster.RouterObserver{Remembered: count(&s.remembered), Redirected: count(&s.redirected),
		Repeated: count(&s.repeated), GaveUp: func(transport.PeerCode) { s.gaveUp.Add(1) }}}
	var service transport.PeerService
	if node {
		cfg.Self, cfg.Local, service = name, s.service(), s.service()
	}
	var err error
	if s.Router, err = cluster.NewRouter(cfg); err != nil {
		w.t.Fatal(err)
	}
	if err := s.peers.Start(w.t.Context(), transport.PeerIdentity{}, service); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.stop)
	w.nodes[name] = s
	return s
}

func (w *fleet) join(name string) *station {
	s := w.open(name, true)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.members = append(slices.Clone(w.mu.members), transport.Member{ID: name, Node: name, Names: []string{"order"}, Address: s.peers.Address()})
	return s
}

// tell has all know who is there.
func (w *fleet) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := cluster.NewPlacement(w.mu.members)
	for _, s := range w.nodes {
		s.placement.Store(p)
	}
}

// kill ends a node: its leases lapse a TTL later. Nobody is told.
func (w *fleet) kill(name string) {
	w.nodes[name].stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.members = slices.DeleteFunc(slices.Clone(w.mu.members), func(m transport.Member) bool { return m.ID == name })
	for _, l := range w.mu.leases {
		if l.owner == name {
			l.until = time.Now().Add(fleetTTL)
		}
	}
}

// give has a node have a unit.
func (w *fleet) give(u event.Unit, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lease(u)
	l.owner, l.until = name, time.Time{}
	l.generation++
}

func (w *fleet) lease(u event.Unit) *lease {
	l := w.mu.leases[u]
	if l == nil {
		l = &lease{kept: map[string]bool{}}
		w.mu.leases[u] = l
	}
	if !l.until.IsZero() && !time.Now().Before(l.until) {
		l.owner = ""
	}
	return l
}

func (s *station) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.peers.Stop(ctx) // what is cut off, is: that is what it is for
}

// answering is the service of a station.
type answering struct{ s *station }

func (s *station) service() transport.PeerService { return answering{s} }

func (a answering) Ask(_ context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	s := a.s
	s.asked.Add(1)
	if s.before != nil {
		if err := s.before(q); err != nil {
			return transport.PeerReply{}, err
		}
	}
	here := s.Here(q.To)
	w := s.fleet
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.lease(q.To)
	switch {
	case l.owner == s.name:
	case !here && !q.Decide:
		return transport.PeerReply{}, &transport.PeerError{Code: transport.PeerNotOwner, Text: "not here"}
	case l.owner != "":
		most := fleetTTL
		if !l.until.IsZero() {
			most = time.Until(l.until)
		}
		return transport.PeerReply{}, &transport.PeerError{Code: transport.PeerNotOwner, Text: "held", Owner: transport.PeerOwner{ID: l.owner, Generation: l.generation}, Most: most}
	default:
		l.owner, l.until = s.name, time.Time{}
		l.generation++
	}
	if q.CommandID == "" || !l.kept[q.CommandID] {
		l.kept[q.CommandID] = true
		n, _ := w.done.LoadOrStore(q.Type, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
	}
	return transport.PeerReply{Type: s.name, Generation: l.generation}, nil
}

func (a answering) Tell(ctx context.Context, q transport.PeerAsk) error {
	_, err := a.Ask(ctx, q)
	return err
}
func (answering) Wake([]event.Unit)           {}
func (answering) Probe([]transport.PeerProbe) {}
func (a answering) Status(context.Context) (transport.PeerStatus, error) {
	a.s.looked.Add(1)
	return transport.PeerStatus{Members: a.s.placement.Load().Members()}, nil
}

// times says how often an ask was done.
func (w *fleet) times(what string) int64 {
	n, ok := w.done.Load(what)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// asker is a router, or a client.
type asker interface {
	Ask(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) (transport.PeerReply, error)
}

// ask asks once, and gives who answered, and how long it took.
func ask(t *testing.T, from asker, q transport.PeerAsk) (by string, took time.Duration, fault *transport.PeerError) {
	t.Helper()
	begun := time.Now()
	reply, err := from.Ask(t.Context(), q, transport.PeerOwner{})
	if err != nil && !errors.As(err, &fault) {
		t.Errorf("the error is no peer's: %v", err)
	}
	return reply.Type, time.Since(begun), fault
}

func (s *station) ask(t *testing.T, q transport.PeerAsk) (by string, took time.Duration, fault *transport.PeerError) {
	t.Helper()
	return ask(t, s, q)
}

func asking(i int) transport.PeerAsk {
	return transport.PeerAsk{To: event.Unit{Name: "order", Key: strconv.Itoa(i)}, Type: fmt.Sprint("ask-", i)}
}

// looks says how often any node was asked who the members are.
func (w *fleet) looks() (n int64) {
	for _, s := range w.nodes {
		n += s.looked.Load()
	}
	return n
}

// client gives a client that knows these addresses.
func (w *fleet) client(cfg cluster.ClientConfig, nodes ...string) *cluster.Client {
	w.t.Helper()
	cfg.Nodes, cfg.TTL = nodes, fleetTTL
	if cfg.Peers == nil {
		cfg.Peers = w.net.Peers("client", peertest.Limits{})
	}
	c, err := cluster.NewClient(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			w.t.Error(err)
		}
	})
	return c
}

// elapse lets virtual time go by, of one goroutine among several.
func elapse(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}
