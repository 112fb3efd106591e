package peertest

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/keyhold/keyhold/transport"
)

// Network is a network in memory. What happens to messages is set by hand, and can be changed at any time; chances are drawn by seed. All methods may be called concurrently. A question
// or answer that is lost ends its call, not known, after [Silence]; a node behind a cut that is called anew is out of reach after [ConnectTime].
type Network struct {
	mu struct {
		sync.Mutex
		nodes       map[string]*Peers // by address, while started
		made        int
		rand        *rand.Rand
		lose, twice float64
		least, most time.Duration
		side        map[string]int
	}
}

const (
	// Silence is after how long a broken link is noticed.
	Silence = 6 * time.Second
	// ConnectTime is how long a call tries to reach a node that does not answer.
	ConnectTime = 3 * time.Second
)

// NewNetwork gives a network on which nothing goes wrong yet. The caller prints the seed.
func NewNetwork(seed uint64) *Network {
	n := &Network{}
	n.mu.nodes, n.mu.rand = map[string]*Peers{}, rand.New(rand.NewPCG(seed, 0))
	return n
}

// Peers gives a node service on this network. Its address is its name and a port; name "" = one is made up.
func (n *Network) Peers(name string, l Limits) *Peers {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.made++
	if name == "" {
		name = "node-" + strconv.Itoa(n.mu.made)
	}
	return newPeers(n, name, l)
}

// Lose has each message be lost with that chance, from 0 to 1.
func (n *Network) Lose(chance float64) { n.set(func() { n.mu.lose = chance }) }

// Duplicate has each question arrive twice with that chance. The first answer counts.
func (n *Network) Duplicate(chance float64) { n.set(func() { n.mu.twice = chance }) }

// Delay has each message take a time between the two, so that they overtake one another.
func (n *Network) Delay(least, most time.Duration) {
	n.set(func() { n.mu.least, n.mu.most = least, max(least, most) })
}

// Partition cuts groups of nodes, by name, off from one another; those that are not named are together. Messages under way are lost.
func (n *Network) Partition(groups ...[]string) {
	n.set(func() {
		n.mu.side = map[string]int{}
		for i, names := range groups {
			for _, name := range names {
				n.mu.side[name] = i + 1
			}
		}
	})
}

// Heal has all reach one another again, and nothing be lost, late or doubled.
func (n *Network) Heal() {
	n.set(func() { n.mu.side, n.mu.lose, n.mu.twice, n.mu.least, n.mu.most = nil, 0, 0, 0, 0 })
}

func (n *Network) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *Network) at(address string) *Peers {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.nodes[address]
}

func (n *Network) cut(a, b *Peers) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.side[a.name] != n.mu.side[b.name]
}

// travel brings a message from one node to the other; false = it does not arrive.
func (n *Network) travel(ctx context.Context, a, b *Peers) bool {
	n.mu.Lock()
	late, lost := n.mu.least, n.mu.rand.Float64() < n.mu.lose
	if spread := n.mu.most - n.mu.least; spread > 0 {
		late += time.Duration(n.mu.rand.Int64N(int64(spread) + 1))
	}
	n.mu.Unlock()
	return rest(ctx, late) && !lost && !n.cut(a, b)
}

func (n *Network) doubles() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.rand.Float64() < n.mu.twice
}

// rest waits for d; false = ctx was over before.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var _ transport.Peers = (*Peers)(nil)
