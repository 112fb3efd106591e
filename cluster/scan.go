package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
)

// wideEvery is in how many scans a node looks at the units as well that others rank first and second for.
const wideEvery = 5

// runScanning finds units that have work, and goes for those that are this node's to go for.
func (n *Node) runScanning(ctx context.Context) {
	timer := time.NewTimer(n.traits.Heartbeat)
	defer timer.Stop()
	contest := NewContest(n.cfg.Grace, n.cfg.Debounce)
	scan := newScan(n, contest)
	next := n.cfg.Now().Add(n.traits.Heartbeat) // scan of everything
	wide := n.cfg.Now().Add(wideEvery * n.traits.Heartbeat)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-n.rescan:
		case p := <-scan.pages:
			if err := scan.take(ctx, p); err != nil && ctx.Err() == nil {
				n.trouble("look for units that have work", err)
			}
		}
		units, all := n.takeWoken()
		scan.hasSeen(units...)
		now := n.cfg.Now()
		for u, until := range n.takeHeld() {
			scan.hasSeen(u)
			contest.See(now, Seen{Unit: u, Rank: n.rank(u), Unfit: n.isUnfit(u, now), Left: max(until.Sub(now), time.Millisecond)})
		}
		if all || !now.Before(next) {
			next = now.Add(n.traits.Heartbeat)
			how := looking{wide: !now.Before(wide)}
			if how.wide {
				wide = now.Add(wideEvery * n.traits.Heartbeat)
			}
			scan.begin(ctx, how)
		}
		if err := errors.Join(n.goFor(ctx, contest, units, looking{}), n.goFor(ctx, contest, contest.Due(now), looking{due: true})); err != nil && ctx.Err() == nil {
			n.trouble("ask who holds units that have work", err)
		}
		wants, more := contest.Wants(n.cfg.Now(), n.mostWants())
		n.setWants(wants)
		wait := next.Sub(n.cfg.Now())
		if !more.IsZero() {
			wait = min(wait, more.Sub(n.cfg.Now()))
		}
		if at, ok := contest.Next(); ok {
			wait = min(wait, at.Sub(n.cfg.Now()))
		}
		timer.Reset(max(wait, 0))
	}
}

// takeWoken gives the units that wakes named, and reports whether everything is to be looked for.
func (n *Node) takeWoken() (units []event.Unit, all bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for u := range n.mu.woken {
		if u.IsZero() {
			all = true
			continue
		}
		units = append(units, u)
	}
	clear(n.mu.woken)
	return units, all
}

func (n *Node) takeHeld() map[event.Unit]time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.mu.held) == 0 {
		return nil
	}
	held := n.mu.held
	n.mu.held = map[event.Unit]time.Time{}
	return held
}

// mostWants is how many units this node asks for at once: as many as all others may let go of until they read the list again.
func (n *Node) mostWants() int {
	return mostWants(n.cfg.Moves, n.traits.Heartbeat, len(n.placement.Load().members))
}

func (n *Node) setWants(units []event.Unit) {
	units = append(units, n.parts.wanted(n.cfg.Now())...)
	n.mu.Lock()
	had := len(n.mu.wants)
	n.mu.wants = units
	n.mu.Unlock()
	if len(units) > 0 && had == 0 {
		token(n.rebeat)
	}
}

// looking is how units are looked at: see [Seen].
type looking struct{ due, wide bool }

// goFor goes for those of the units that are free and this node's to go for, and remembers when to look at the others again. A unit that lives here is woken: the wake
// may have been lost.
func (n *Node) goFor(ctx context.Context, contest *Contest, units []event.Unit, how looking) error {
	ranks := map[event.Unit]int{}
	for _, u := range units {
		if n.cfg.Units.Live(u) {
			contest.Forget(u)
			n.cfg.Units.Wake(u)
			continue
		}
		if r := n.rank(u); (r < contenders || how.wide && !n.isUnfit(u, n.cfg.Now())) && !n.rests(u) {
			ranks[u] = r
		} else {
			contest.Forget(u)
		}
	}
	if len(ranks) == 0 {
		return nil
	}
	asked := slices.Collect(maps.Keys(ranks))
	var left []time.Duration
	err := n.bounded(ctx, func(ctx context.Context) (err error) {
		left, err = n.cfg.Broker.Leases(ctx, asked)
		return err
	})
	if err != nil {
		for _, u := range asked { // not forgotten: when it was their turn it still is
			contest.See(n.cfg.Now(), Seen{Unit: u, Rank: ranks[u], Left: n.cfg.Grace})
		}
		return err
	}
	now := n.cfg.Now()
	for i, u := range asked {
		if contest.See(now, Seen{Unit: u, Rank: ranks[u], Unfit: n.isUnfit(u, now), Left: left[i], Due: how.due, Wide: how.wide}) {
			n.cfg.Units.Wake(u)
		}
	}
	return nil
}

// runTelling sends marks and hints. While one call is under way the next ones gather.
func (n *Node) runTelling(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.tell:
		}
		n.sendMarks(ctx)
		n.sendRest(ctx)
	}
}

// sendMarks sends what is to be marked. What cannot be sent is lost but for the looks that follow: those of the store find it.
func (n *Node) sendMarks(ctx context.Context) {
	n.mu.Lock()
	units := slices.Collect(maps.Keys(n.mu.marks))
	clear(n.mu.marks)
	n.mu.Unlock()
	const batch = 1000
	for some := range slices.Chunk(units, batch) {
		err := n.bounded(ctx, func(ctx context.Context) error { return n.cfg.Broker.Mark(ctx, some) })
		if ctx.Err() != nil {
			n.Mark(units...) // whoever stops the loop sends them
			return
		}
		if err != nil {
			n.trouble("tell others that units have work", err)
			return
		}
	}
}

func (n *Node) sendRest(ctx context.Context) {
	n.mu.Lock()
	rest := maps.Clone(n.mu.rest)
	clear(n.mu.rest)
	n.mu.Unlock()
	for u, waits := range rest {
		if err := n.bounded(ctx, func(ctx context.Context) error { return n.cfg.Broker.Halted(ctx, u, waits) }); err != nil && ctx.Err() == nil {
			n.trouble("note which units wait for a person", err)
			return
		}
	}
}
