package actors_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/peertest"
)

// joined are nodes that ask one another over a network in memory.
type joined struct {
	*nodes
	network *peertest.Network
	first   map[string]string // by id of an entity, the node that is to be asked for it first; "1" for others
	order   []string          // of all nodes
}

func newJoined() *joined {
	return &joined{nodes: newNodes(), network: peertest.NewNetwork(1), first: map[string]string{}}
}

// way is how one node, or a client, reaches the others: a router that knows no more than the tests need.
type way struct {
	world *joined
	peers *peertest.Peers
	self  string                // id of the node; "" for a client
	local transport.PeerService // nil for a client
	asked atomic.Int64          // questions that were given to it

	probed atomic.Int64 // probes that it was given to hand on
	older  bool         // the others do not know probes
	last   atomic.Pointer[transport.PeerAsk]
}

// peer is one of the nodes.
type peer struct {
	*node
	way *way
}

// serving is the node service of a node.
type serving struct{ *peer }

func (s serving) Ask(ctx context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	return s.ServeAsk(ctx, q)
}
func (s serving) Tell(ctx context.Context, q transport.PeerAsk) error { return s.ServeTell(ctx, q) }
func (serving) Wake([]event.Unit)                                     {}
func (s serving) Probe(probes []transport.PeerProbe)                  { s.ServeProbe(probes) }
func (serving) Status(context.Context) (transport.PeerStatus, error) {
	return transport.PeerStatus{}, nil
}

func address(node string) string { return "node-" + node + ":7000" }

// node starts a node. Its types have wire names, those of queries included.
func (w *joined) node(t *testing.T, definitions []actors.Definition, opts ...option) *peer {
	t.Helper()
	return w.nodeOn(t, nil, definitions, opts...)
}

// nodeOn is node with faults of the store.
func (w *joined) nodeOn(t *testing.T, plan faulty.Plan, definitions []actors.Definition, opts ...option) *peer {
	t.Helper()
	p := &peer{}
	id := string(rune('1' + len(w.order)))
	w.order = append(w.order, id)
	p.way = w.way(t, id, serving{p})
	p.node = w.joinOn(t, plan, definitions, append([]option{crossing(t), func(c *actors.Config) { c.Elsewhere = p.way }}, opts...)...)
	same(t, "id", id, p.id)
	if err := p.way.peers.Start(t.Context(), transport.PeerIdentity{}, serving{p}); err != nil {
		t.Fatal(err)
	}
	return p
}

// client is a process that runs nothing.
func (w *joined) client(t *testing.T) (*actors.Remote, *way) {
	t.Helper()
	e := w.way(t, "", nil)
	if err := e.peers.Start(t.Context(), transport.PeerIdentity{}, nil); err != nil {
		t.Fatal(err)
	}
	m, err := actors.NewRemote(actors.RemoteConfig{Codec: crossingTypes(t), Keys: keys, Elsewhere: e})
	if err != nil {
		t.Fatal(err)
	}
	return m, e
}

func (w *joined) way(t *testing.T, id string, local transport.PeerService) *way {
	name := ""
	if id != "" {
		name = "node-" + id
	}
	e := &way{world: w, peers: w.network.Peers(name, peertest.Limits{}), self: id, local: local}
	t.Cleanup(func() {
		if err := e.peers.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return e
}

func crossingTypes(t testing.TB) *codec.Registry {
	t.Helper()
	r, err := codec.NewRegistry(append(declarations(), codec.Of[Balance]("account.balance", 1)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func crossing(t testing.TB) option {
	return func(c *actors.Config) {
		c.Codec = crossingTypes(t)
		c.Route = route(c.Codec)
	}
}

func (e *way) Here(u event.Unit) bool { return e.firstOf(u) == e.self }

func (e *way) firstOf(u event.Unit) string {
	if id := e.world.first[u.Key]; id != "" {
		return id
	}
	return "1"
}

func (e *way) Ask(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) (reply transport.PeerReply, err error) {
	return reply, e.visit(ctx, q, hint, func(to string, q transport.PeerAsk) error {
		at := address(to)
		if to == e.self {
			at = ""
		}
		if q.Where != nil {
			q.Where.AskedAt(at)
		}
		if at == "" {
			reply, err = e.local.Ask(ctx, q)
		} else {
			reply, err = e.peers.Ask(ctx, at, q)
		}
		return err
	})
}

func (e *way) Tell(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) error {
	return e.visit(ctx, q, hint, func(to string, q transport.PeerAsk) error {
		if to == e.self {
			return e.local.Tell(ctx, q)
		}
		return e.peers.Tell(ctx, address(to), q)
	})
}

func (e *way) Probe(ctx context.Context, address string, probes []transport.PeerProbe) error {
	e.probed.Add(int64(len(probes)))
	if e.older {
		return &transport.PeerError{Code: transport.PeerUnknownType, Text: "it does not know the call: another release"}
	}
	return e.peers.Probe(ctx, address, probes)
}

// visit asks whoever is said to have the entity, then each node in turn, some times.
func (e *way) visit(_ context.Context, q transport.PeerAsk, hint transport.PeerOwner, ask func(to string, q transport.PeerAsk) error) error {
	e.asked.Add(1)
	e.last.Store(&q)
	to := hint.ID
	if to == "" {
		to = e.firstOf(q.To)
	}
	err := ask(to, q)
	next := 0
	for range 1000 {
		var p *transport.PeerError
		if !errors.As(err, &p) || p.Unknown {
			return err
		}
		switch p.Code {
		case transport.PeerNotOwner, transport.PeerUnavailable, transport.PeerStopping, transport.PeerUnknownKind:
		default:
			return err
		}
		again := q
		if to = p.Owner.ID; to == "" {
			if next == len(e.world.order) {
				pass2(100 * time.Millisecond)
				next = 0
			}
			to, again.Decide = e.world.order[next], true
			next++
		}
		err = ask(to, again)
	}
	return err
}
