package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// runBeating keeps the node on the list, learns who else is, holds the node's share of the parts, and hands over what others ask for.
func (n *Node) runBeating(ctx context.Context) {
	timer := time.NewTimer(0) // parts at once
	defer timer.Stop()
	counts := n.cfg.Now()
	var beaten time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-n.rebeat:
		case <-n.stir: // as somebody came or went, who is to know of this node, and whose wants are to be known, before the next heartbeat
			if d := n.traits.Heartbeat/10 - n.cfg.Now().Sub(beaten); d > 0 {
				timer.Reset(d)
				continue
			}
		}
		beaten = n.cfg.Now()
		if err := n.bounded(ctx, n.beat); err != nil && ctx.Err() == nil {
			n.trouble("make the node known to the others", err)
		}
		soon := n.traits.Heartbeat
		if !n.isDraining() {
			soon = min(soon, n.parts.turn(ctx))
		}
		if now := n.cfg.Now(); !now.Before(counts) {
			n.count(ctx)
			n.forgetUnfit(now)
			counts = now.Add(time.Minute)
		}
		timer.Reset(soon)
	}
}

// bounded gives a call of the broker no longer than a heartbeat: what hangs must not keep the node off the list.
func (n *Node) bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, n.traits.Heartbeat)
	defer cancel()
	return call(ctx)
}

// self is this node as the others are to know it.
func (n *Node) self() transport.Member {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.cfg.Self
	m.Draining, m.Apart, m.Wants = n.mu.draining, n.mu.apart, slices.Clone(n.mu.wants)
	if m.Since.IsZero() {
		m.Since = n.cfg.Now()
		n.cfg.Self.Since = m.Since
	}
	return m
}

// beat makes this node known and learns who the others are. When the broker does not answer, those known before stay: who is gone shows when its leases lapse.
func (n *Node) beat(ctx context.Context) error {
	self := n.self()
	self.Beats = n.beats.Add(1)
	members, err := n.cfg.Broker.Beat(ctx, self, n.traits.TTL)
	if f := n.cfg.Observer.Beat; f != nil {
		f(err)
	}
	if err != nil {
		return err
	}
	n.settle(func(l *listed) { l.read(members, n.cfg.Now()) })
	n.handOver(members)
	return nil
}

// changed reports whether other units may belong to other members now.
func changed(p *Placement, members []transport.Member) bool {
	if len(p.members) != len(members) {
		return true
	}
	known := make(map[string]*transport.Member, len(p.members))
	for i := range p.members {
		known[p.members[i].ID] = &p.members[i].Member
	}
	for i := range members {
		m := &members[i]
		was := known[m.ID]
		if was == nil || was.Draining != m.Draining || was.Apart != m.Apart || was.Address != m.Address || was.Weight != m.Weight || was.Node != m.Node || !slices.Equal(was.Names, m.Names) {
			return true
		}
	}
	return false
}

// names tells members of one name apart by their processes.
func names(members []transport.Member) []string {
	same := map[string]int{}
	for i := range members {
		same[members[i].Node]++
	}
	var all []string
	for _, m := range members {
		name := m.Node
		if same[name] > 1 {
			name += fmt.Sprintf(" (process %d)", m.PID)
		}
		if m.Draining {
			name += " (draining)"
		}
		if m.Apart {
			name += " (its store or broker is out of reach)"
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// handOver lets go of units that members ask for who rank first for them, as many as the pace allows.
func (n *Node) handOver(members []transport.Member) {
	n.placement.Load().Asked(n.cfg.Self.ID, members, n.pace.Left(n.cfg.Now()), func(u event.Unit, by string) bool {
		if !n.letGo(u) {
			return false
		}
		n.pace.Take()
		if f := n.cfg.Observer.HandedOver; f != nil {
			f(u, by)
		}
		return true
	})
}

func (n *Node) letGo(u event.Unit) bool {
	if u.Name == event.PartName {
		p, ok := n.partOf(u)
		return ok && n.parts.letGo(p)
	}
	if !n.cfg.Units.Live(u) {
		return false
	}
	n.cfg.Units.HandOver(u)
	return true
}

// count warns of categories with more live keys than Redis carries lightly. One node counts each: the one that ranks first for it. It has a heartbeat for all of them; where one took what was left of
// that, the next time begins behind it.
func (n *Node) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.traits.Heartbeat)
	defer cancel()
	from := n.countFrom
	for i := range n.cfg.Categories {
		next := (from + i) % len(n.cfg.Categories)
		category := n.cfg.Categories[next]
		if n.placement.Load().First(event.PartOf(category, "").Unit()) != n.cfg.Self.ID {
			continue
		}
		live, err := n.cfg.Broker.Partitions(ctx, category)
		switch {
		case ctx.Err() != nil:
			n.countFrom = next + 1
			return
		case err != nil:
			continue // whatever it is, others have told
		}
		if f := n.cfg.Observer.Keys; f != nil {
			f(category, live)
		}
		n.mu.Lock()
		warned := n.mu.counted[category]
		n.mu.counted[category] = live > n.cfg.MaxPartitions
		n.mu.Unlock()
		if live <= n.cfg.MaxPartitions || warned {
			continue
		}
		if f := n.cfg.Observer.ManyPartitions; f != nil {
			f(category, live)
			continue
		}
		n.cfg.Logger.Warn("a category has very many live keys: each is a stream of its own; is its key a tenant or an account, or one of every order?",
			"category", category, "live", live, "warned above", n.cfg.MaxPartitions)
	}
}
