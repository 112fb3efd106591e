package gossiptest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/keyhold/keyhold/transport"
)

// Net is a network on which nodes of one application hear of one another at once, whoever joins it. The zero value is ready.
type Net struct {
	mu struct {
		sync.Mutex
		nodes []*Node
		last  int
		apart map[[2]string]bool // ids that do not hear one another
	}
}

// Node implements [transport.Gossip] on a [Net].
type Node struct {
	net     *Net
	started bool
	address string
	self    transport.Member
	changed func()
	heard   map[string]transport.Heard
}

// Node makes one that is not started.
func (n *Net) Node() *Node { return &Node{net: n} }

// Cut has two members, by id, hear one another no more, or again.
func (n *Net) Cut(a, b string, cut bool) {
	n.mu.Lock()
	if n.mu.apart == nil {
		n.mu.apart = map[[2]string]bool{}
	}
	n.mu.apart[[2]string{a, b}], n.mu.apart[[2]string{b, a}] = cut, cut
	tell := n.spread()
	n.mu.Unlock()
	call(tell)
}

// spread gives everybody what is to be heard, and returns whom to tell.
func (n *Net) spread() (tell []func()) {
	for _, x := range n.mu.nodes {
		moved := false
		for _, y := range n.mu.nodes {
			if x == y || x.self.StoreID != y.self.StoreID {
				continue
			}
			was, known := x.heard[y.self.ID]
			now := transport.Heard{Member: y.self, State: transport.HeardAlive}
			if n.mu.apart[[2]string{x.self.ID, y.self.ID}] {
				if !known {
					continue
				}
				now = transport.Heard{Member: was.Member, State: transport.HeardUnreachable}
			}
			if fmt.Sprint(was) != fmt.Sprint(now) || !known {
				x.heard[y.self.ID], moved = now, true
			}
		}
		if moved {
			tell = append(tell, x.changed)
		}
	}
	return tell
}

func call(all []func()) {
	for _, f := range all {
		f()
	}
}

// Start implements [transport.Gossip].
func (g *Node) Start(ctx context.Context, self transport.Member, _ func(context.Context) []string, changed func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n := g.net
	n.mu.Lock()
	if g.started {
		n.mu.Unlock()
		return errors.New("gossip: already started")
	}
	n.mu.last++
	g.started, g.address, g.changed, g.heard = true, "node:"+strconv.Itoa(n.mu.last), changed, map[string]transport.Heard{}
	g.take(self)
	n.mu.nodes = append(n.mu.nodes, g)
	tell := n.spread()
	n.mu.Unlock()
	call(tell)
	return nil
}

func (g *Node) take(self transport.Member) {
	self.Names, self.Wants, self.Gossip = slices.Clone(self.Names), nil, g.address
	g.self = self
}

// Address implements [transport.Gossip].
func (g *Node) Address() string {
	g.net.mu.Lock()
	defer g.net.mu.Unlock()
	return g.address
}

// Update implements [transport.Gossip].
func (g *Node) Update(self transport.Member) {
	n := g.net
	n.mu.Lock()
	var tell []func()
	if g.started {
		g.take(self)
		tell = n.spread()
	}
	n.mu.Unlock()
	call(tell)
}

// Heard implements [transport.Gossip].
func (g *Node) Heard() []transport.Heard {
	g.net.mu.Lock()
	defer g.net.mu.Unlock()
	var all []transport.Heard
	for _, h := range g.heard {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b transport.Heard) int { return cmp.Compare(a.Member.ID, b.Member.ID) })
	return all
}

// Stop implements [transport.Gossip].
func (g *Node) Stop(context.Context) error { g.end(true); return nil }

// Vanish ends it without a word.
func (g *Node) Vanish() { g.end(false) }

func (g *Node) end(said bool) {
	n := g.net
	n.mu.Lock()
	var tell []func()
	if g.started {
		g.started, g.address = false, ""
		n.mu.nodes = slices.DeleteFunc(n.mu.nodes, func(o *Node) bool { return o == g })
		for _, o := range n.mu.nodes {
			h, known := o.heard[g.self.ID]
			if !known {
				continue
			}
			h.State = transport.HeardUnreachable
			if said && !n.mu.apart[[2]string{o.self.ID, g.self.ID}] {
				h.State = transport.HeardLeft
			}
			o.heard[g.self.ID] = h
			tell = append(tell, o.changed)
		}
	}
	n.mu.Unlock()
	call(tell)
}
