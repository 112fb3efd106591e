package gossip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	soonest = time.Second // between two looks for whom to join
	atOnce  = 16          // joins
)

// join looks for whom to join, again and again: seeds, because memberlist asks them once; members that were lost, because memberlist forgets them, and would leave two halves of a list
// apart after a partition. It also looks after this node's own network, and its keys.
func (g *Gossip) join(ctx context.Context, seeds func(ctx context.Context) []string) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	wait, turn := soonest, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.look:
			wait = soonest
		case <-g.brokenNet():
		case <-timer.C:
		}
		if g.mend(ctx) {
			wait = soonest
		}
		settling := g.lookAtKeys()
		g.logs.catchUp()
		turn++
		more, alone := g.lookRound(ctx, seeds, turn)
		switch {
		case more, settling:
			wait = soonest
		case alone:
			wait = min(2*wait, g.timing.rejoin)
		default:
			wait = g.timing.rejoin
		}
		timer.Reset(wait)
	}
}

// lookRound joins who is to be joined. more = somebody was reached who is not among the members yet: a member that was taken for dead learns of it in a first exchange, and says in a
// second one that it lives.
func (g *Gossip) lookRound(ctx context.Context, seeds func(ctx context.Context) []string, turn int) (more, alone bool) {
	own := g.Address()
	found := g.seeds(ctx, seeds)
	g.mu.Lock()
	g.mu.roster.forget(time.Now())
	members, others := g.mu.roster.due(own, found)
	reached := g.mu.roster.reached()
	g.mu.Unlock()
	all := slices.Concat(members, others)
	if g.cfg.Preset == TCPOnly && len(reached) > 0 { // what others are to know of this node has no other way
		all = append(all, reached[turn%len(reached)])
	}
	if len(all) > atOnce { // others the next time
		at := turn * atOnce % len(all)
		all = slices.Concat(all[at:], all[:at])[:atOnce]
	}
	list := g.current()
	if list == nil {
		return false, true
	}
	type result struct {
		address string
		err     error
	}
	results := make(chan result, len(all))
	begun := 0
	for _, address := range all {
		if g.calls.Go(func(context.Context) { _, err := list.Join([]string{address}); results <- result{address, err} }) {
			begun++
		}
	}
	for range begun {
		var r result
		select {
		case <-ctx.Done():
			return false, false
		case r = <-results:
		}
		if r.err != nil {
			g.logs.notJoined(r.address, r.err)
			continue
		}
		more = more || slices.Contains(members, r.address)
	}
	return more, len(reached) == 0
}

// seeds gives the addresses of all seeds, with names looked up.
func (g *Gossip) seeds(ctx context.Context, more func(ctx context.Context) []string) []string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	named := slices.Clone(g.cfg.Seeds)
	if more != nil {
		named = append(named, more(ctx)...)
	}
	var all []string
	for _, seed := range named {
		host, port, err := splitAddress(seed)
		if err != nil || port == 0 {
			g.logs.warn(badSeed, seed, "", "seed", seed)
			continue
		}
		found, err := lookUp(ctx, host, port)
		if err != nil {
			if ctx.Err() == nil {
				g.logs.warn(unknownSeed, seed, "; will look again", "seed", seed, "error", err)
			}
			continue
		}
		for _, a := range found {
			all = append(all, a.String())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lookUp gives at least one address.
func lookUp(ctx context.Context, host string, port int) ([]netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), uint16(port))}, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	var all []netip.AddrPort
	for _, ip := range found {
		all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("look up %s: no address", host)
	}
	slices.SortStableFunc(all, func(a, b netip.AddrPort) int { return a.Addr().BitLen() - b.Addr().BitLen() }) // of localhost the one of version 4
	return all, nil
}

// mend opens this node's network anew if it is gone, and reports whether it did.
func (g *Gossip) mend(ctx context.Context) bool {
	g.mu.Lock()
	list, n := g.mu.list, g.mu.net
	g.mu.Unlock()
	if list != nil && n.answers() {
		return false
	}
	if list != nil {
		g.logs.out.Load().Warn("the network of this node's gossip is gone: opens it anew", "address", g.Address())
		g.mu.Lock()
		g.mu.list, g.mu.delegate = nil, nil
		g.mu.Unlock()
		if err := list.Shutdown(); err != nil {
			g.logs.warn(ownNetwork, "close", ": closes what is left of it", "error", err)
		}
		g.note(func(r *roster, now time.Time) { r.allLost(now) })
	}
	if err := g.open(); err != nil {
		if ctx.Err() == nil {
			g.logs.warn(ownNetwork, "open", ": cannot open it anew; will try again", "error", err)
		}
		return true
	}
	return true
}

func (g *Gossip) brokenNet() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.list == nil {
		return nil
	}
	return g.mu.net.broken
}

// advice says what to do about a join that did not come about; "" = nothing, it may be gone.
func advice(err error) string {
	text := err.Error()
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
	switch {
	case has("encryption is not configured"):
		return "the other one has Keys, and this one has none: give them the same, in Config.Keys or Config.KeyFile"
	case has("not encrypted"):
		return "this one has Keys, and the other one has none: give them the same, in Config.Keys or Config.KeyFile"
	case has("No installed keys", "decrypt"):
		return "the two nodes have different Keys: give them the same; while keys are changed each node needs the old one and the new one"
	default:
		return ""
	}
}
