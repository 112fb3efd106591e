package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// startGossip makes the node known by gossip, and gives it the address by which others join it, before the list has it.
func (n *Node) startGossip(ctx context.Context) error {
	if n.cfg.Gossip == nil {
		return nil
	}
	err := n.cfg.Gossip.Start(ctx, n.self(), n.seeds, func() { token(n.news) })
	foreign := errors.Is(err, lifecycle.ErrStarted) // it is another node's, which still needs it
	n.mu.Lock()
	n.mu.talks = !foreign
	n.mu.Unlock()
	switch {
	case foreign:
		return fmt.Errorf("start gossip: another node of this process has it: give each node one of its own: %w", err)
	case err != nil:
		return fmt.Errorf("start gossip: %w", err)
	}
	n.mu.Lock()
	n.cfg.Self.Gossip = n.cfg.Gossip.Address()
	n.mu.Unlock()
	return nil
}

func (n *Node) stopGossip(ctx context.Context) error {
	n.mu.Lock()
	talks := n.mu.talks
	n.mu.Unlock()
	if !talks {
		return nil
	}
	if err := n.cfg.Gossip.Stop(ctx); err != nil {
		return fmt.Errorf("stop gossip: %w", err)
	}
	return nil
}

// seeds are the addresses of those on the list, as it last was.
func (n *Node) seeds(context.Context) []string {
	n.settling.Lock()
	defer n.settling.Unlock()
	var at []string
	for i := range n.listed.members {
		if m := &n.listed.members[i]; m.Gossip != "" && m.ID != n.cfg.Self.ID {
			at = append(at, m.Gossip)
		}
	}
	return at
}

// Unheard gives the members that take part in gossip and do not answer this node there, in order of name; none without gossip. They keep what they have: only their leases tell more.
func (n *Node) Unheard() []transport.Member {
	if n.cfg.Gossip == nil {
		return nil
	}
	alive := map[string]bool{n.cfg.Self.ID: true}
	for _, h := range n.cfg.Gossip.Heard() {
		alive[h.Member.ID] = h.State == transport.HeardAlive
	}
	return slices.DeleteFunc(n.placement.Load().Members(), func(m transport.Member) bool { return m.Gossip == "" || alive[m.ID] })
}

// gossip says what has changed of this node.
func (n *Node) gossip() {
	if n.cfg.Gossip != nil {
		n.cfg.Gossip.Update(n.self())
	}
}

// Apart says that the store or the broker has been out of reach of this node for more than a heartbeat, or answers again. While it is apart, the node ranks nowhere: it could run nothing.
// It never blocks.
func (n *Node) Apart(on bool) {
	n.mu.Lock()
	same := n.mu.apart == on
	n.mu.apart = on
	n.mu.Unlock()
	if same {
		return
	}
	n.gossip()
	token(n.news) // this node's own ranks
	token(n.rebeat)
}

// runHearing puts the members together anew when gossip has something to say: at once, even while the broker does not answer.
func (n *Node) runHearing(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.news:
		}
		if n.settle(func(*listed) {}) {
			token(n.stir)
		}
	}
}

// settle changes what is known of the list, puts the members together, and reports whether they have changed.
func (n *Node) settle(change func(l *listed)) bool {
	n.settling.Lock()
	change(&n.listed)
	members := n.listed.members
	var heard []transport.Heard
	if n.cfg.Gossip != nil {
		heard = n.cfg.Gossip.Heard()
		members = n.listed.joined(n.self(), heard, 2*n.traits.Heartbeat)
	}
	was := n.placement.Load()
	moved := changed(was, members)
	var why []string
	if moved {
		why = changes(was.Members(), members, func(id string) string { return n.listed.gone(id, heard) })
		n.placement.Store(NewPlacement(members))
	}
	n.settling.Unlock()
	if !moved {
		return false
	}
	now := n.placement.Load().Members() // the newest, whoever tells of it last
	n.cfg.Logger.Info("members changed", "why", why, "members", names(now))
	if f := n.cfg.Observer.Members; f != nil {
		f(now)
	}
	n.Rescan()
	return true
}
