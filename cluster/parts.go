package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/leases"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/partitions"
)

// parts holds the node's share of the parts. A part is leased and raised like a unit; whoever holds it relays its lanes, and looks after what only the store knows.
type parts struct {
	n  *Node
	mu struct {
		sync.Mutex
		held    map[event.Part]event.Generation
		left    map[event.Part]bool             // of those held: whoever had it before did not give it back
		floor   map[event.Part]event.Generation // that the next acquisition must be above: the store has it
		free    map[event.Part]time.Time        // this node only stands by for it and finds it free, since when
		until   map[event.Part]time.Time        // somebody's lease lasts, as this node saw it last
		wanted  map[event.Part]time.Time        // this node is first for it, another holds it, since when that is so
		going   map[event.Part]bool             // asked for by whoever ranks first
		lost    map[event.Part]event.Generation // not held any more, and the relay does not know yet
		unsure  map[event.Part]time.Time        // asked for without an answer: until then a lease that somebody has may be this node's
		suspect map[event.Part]bool             // that it was left unclean was said already, once, to this node; or in an answer that is lost
	}
}

func newParts(n *Node) *parts {
	p := &parts{n: n}
	p.mu.held, p.mu.floor = map[event.Part]event.Generation{}, map[event.Part]event.Generation{}
	p.mu.free, p.mu.wanted, p.mu.going = map[event.Part]time.Time{}, map[event.Part]time.Time{}, map[event.Part]bool{}
	p.mu.until, p.mu.left = map[event.Part]time.Time{}, map[event.Part]bool{}
	p.mu.lost, p.mu.unsure, p.mu.suspect = map[event.Part]event.Generation{}, map[event.Part]time.Time{}, map[event.Part]bool{}
	return p
}

// partUnit is the unit that stands for a part where it is leased. Each store has all parts, and several stores may be on one broker: a node of another
// application is no rival for them.
func (n *Node) partUnit(p event.Part) event.Unit {
	return event.Unit{Name: event.PartName, Key: n.cfg.Self.StoreID + "-" + p.String()}
}

// partOf gives the part of this store that a unit stands for.
func (n *Node) partOf(u event.Unit) (event.Part, bool) {
	number := strings.TrimPrefix(u.Key, n.cfg.Self.StoreID+"-")
	p, err := strconv.ParseUint(number, 10, 8)
	return event.Part(p), err == nil && p < event.Parts && u == n.partUnit(event.Part(p))
}

func (p *parts) holds(part event.Part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, held := p.mu.held[part]
	return held
}

func (p *parts) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.held)
}

func (p *parts) unclean(part event.Part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.left[part]
}

// letGo has a part released in the next turn, which comes at once; false when it is not held.
func (p *parts) letGo(part event.Part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, held := p.mu.held[part]; !held {
		return false
	}
	p.mu.going[part] = true
	return true
}

// GiveBack has the lease of a part given back at once: the store does not know that this node has it. Whoever comes for it next, be it this node, raises it anew. It
// never blocks.
func (n *Node) GiveBack(p event.Part) {
	if n.parts.letGo(p) {
		token(n.rebeat)
	}
}

// wanted gives the parts to ask their holders for.
func (p *parts) wanted(now time.Time) []event.Unit {
	p.mu.Lock()
	defer p.mu.Unlock()
	var units []event.Unit
	for part, since := range p.mu.wanted {
		if now.Sub(since) >= p.n.cfg.Debounce {
			units = append(units, p.n.partUnit(part))
		}
	}
	return units
}

// Renewed implements [leases.Holder].
func (p *parts) Renewed(partitions.Held, time.Time) {}

// Lost implements [leases.Holder].
func (p *parts) Lost(h partitions.Held, why leases.Loss) {
	part, ok := p.n.partOf(h.Unit)
	if !ok {
		return
	}
	p.mu.Lock()
	held := p.mu.held[part] == h.Generation
	if held {
		delete(p.mu.held, part)
		p.mu.lost[part] = h.Generation
	}
	p.mu.Unlock()
	if held {
		if f := p.n.cfg.Observer.PartLost; f != nil {
			f(part, why.String())
		} else {
			p.n.cfg.Logger.Warn("lost a part", "part", part, "why", why)
		}
		token(p.n.rebeat)
	}
}

// dropped ends the relay of a part. It is renewed until that is over, which may take as long as a call does.
func (p *parts) dropped(part event.Part, g event.Generation) {
	p.n.cfg.Relay.Drop(part)
	p.n.keeper.Remove(partitions.Held{Unit: p.n.partUnit(part), Generation: g})
	if f := p.n.cfg.Observer.PartHeld; f != nil {
		f(part, false)
	}
}

// turn releases what others asked for, goes for what is free and this node's, and tells when to look again at the latest.
func (p *parts) turn(ctx context.Context) time.Duration {
	p.dropLost()
	p.releaseAsked(ctx)
	soon := p.n.traits.Heartbeat
	ranks := map[event.Part]int{}
	var asked []event.Part
	var units []event.Unit
	for i := range event.Parts {
		part := event.Part(i)
		if r := p.n.rank(p.n.partUnit(part)); r < contenders && !p.holds(part) && (r == 0 || !p.isHeld(part)) {
			ranks[part] = r
			asked, units = append(asked, part), append(units, p.n.partUnit(part))
		}
	}
	if len(asked) == 0 {
		p.look(nil, nil, ranks)
		return soon
	}
	var left []time.Duration
	err := p.n.bounded(ctx, func(ctx context.Context) (err error) {
		left, err = p.n.cfg.Broker.Leases(ctx, units)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			p.n.trouble("ask who holds parts", err)
		}
		return soon
	}
	try, next := p.look(asked, left, ranks)
	soon = min(soon, next)
	for i, part := range asked {
		if ranks[part] == 0 && left[i] > 0 {
			soon = min(soon, left[i]+time.Millisecond)
		}
	}
	if p.acquire(ctx, try) {
		soon = min(soon, p.n.traits.Heartbeat/10)
	}
	return soon
}

// isHeld reports that a part is not worth a look of a node that only stands by for it: when it looked last, somebody else's lease lasted until later than now. Who comes
// first for the part looks all the same.
func (p *parts) isHeld(part event.Part) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.n.cfg.Now()
	return !now.Before(p.mu.unsure[part]) && now.Before(p.mu.until[part])
}

// standby is for how long a part must be free until a node goes for it that is not the first for it. The first looks once in a heartbeat: one that took what
// it had just handed over would have it hand over for ever.
func (p *parts) standby() time.Duration { return p.n.traits.Heartbeat + p.n.traits.Heartbeat/2 }

// look takes note of what was found and gives the parts to go for, and when to look again.
func (p *parts) look(asked []event.Part, left []time.Duration, ranks map[event.Part]int) (try []event.Part, soon time.Duration) {
	now := p.n.cfg.Now()
	soon = p.n.traits.Heartbeat
	p.mu.Lock()
	defer p.mu.Unlock()
	for part := range p.mu.wanted {
		if r, ok := ranks[part]; !ok || r > 0 {
			delete(p.mu.wanted, part)
		}
	}
	for part := range p.mu.free {
		if r, ok := ranks[part]; !ok || r == 0 {
			delete(p.mu.free, part)
		}
	}
	for i, part := range asked {
		free := left[i] <= 0
		switch {
		case ranks[part] == 0 && free, now.Before(p.mu.unsure[part]): // whose it is, the port knows
			try = append(try, part)
		case ranks[part] == 0:
			if _, known := p.mu.wanted[part]; !known {
				p.mu.wanted[part] = now
			}
		case free:
			since, known := p.mu.free[part]
			if !known {
				since = now
				p.mu.free[part] = now
			}
			if left := since.Add(p.standby()).Sub(now); left > 0 {
				soon = min(soon, left)
			} else { // and the first has not come
				try = append(try, part)
			}
		}
		if !free {
			delete(p.mu.free, part)
		}
		p.mu.until[part] = now.Add(left[i])
		if free {
			delete(p.mu.wanted, part)
		}
	}
	return try, soon
}

// acquire goes for parts: leases first, then their rows in the store, then they are held. It reports whether some are to be tried again soon.
func (p *parts) acquire(ctx context.Context, try []event.Part) (again bool) {
	type got struct {
		part     event.Part
		sent     time.Time
		asked    bool
		acquired partitions.Acquired
		err      error
	}
	answers := make([]got, len(try))
	done := make(chan struct{})
	asked := 0
	for i, part := range try {
		p.mu.Lock()
		floor := p.mu.floor[part]
		p.mu.Unlock()
		answers[i] = got{part: part, sent: p.n.cfg.Now(), err: lifecycle.ErrStopped}
		if p.n.calls.Go(func(context.Context) {
			defer func() { done <- struct{}{} }()
			answers[i].err = p.n.bounded(ctx, func(ctx context.Context) (err error) {
				answers[i].acquired, err = p.n.cfg.Port.Acquire(ctx, p.n.partUnit(part), floor)
				return err
			})
		}) {
			answers[i].asked = true
			asked++
		}
	}
	for range asked {
		<-done
	}
	p.mu.Lock()
	for _, a := range answers {
		switch {
		case !a.asked:
		case a.err != nil:
			p.mu.unsure[a.part], p.mu.suspect[a.part] = a.sent.Add(p.n.traits.TTL), true
		default:
			delete(p.mu.unsure, a.part)
			if !a.acquired.Granted { // whoever has it knows better
				delete(p.mu.suspect, a.part)
			} else if a.acquired.Unclean {
				p.mu.suspect[a.part] = true
			}
		}
	}
	p.mu.Unlock()
	var granted []got
	var ask []eventstore.Ask
	var errs []error
	for _, a := range answers {
		switch {
		case a.err != nil:
			errs = append(errs, a.err)
		case a.acquired.Granted:
			granted = append(granted, a)
			ask = append(ask, eventstore.Ask{Unit: a.part.Unit(), Generation: a.acquired.Generation})
		}
	}
	if len(errs) > 0 && ctx.Err() == nil {
		p.n.trouble("lease parts", errors.Join(errs...))
	}
	if len(granted) == 0 {
		return false
	}
	var raised []eventstore.Recovered
	err := p.n.bounded(ctx, func(ctx context.Context) (err error) {
		raised, err = p.n.cfg.Store.Raise(ctx, ask)
		return err
	})
	for i, a := range granted {
		held := partitions.Held{Unit: p.n.partUnit(a.part), Generation: a.acquired.Generation}
		switch {
		case err != nil:
			p.n.Unfit(held.Unit) // another node may reach the store
			p.release(ctx, held)
		case !raised[i].Raised:
			p.mu.Lock()
			p.mu.floor[a.part] = raised[i].Generation
			p.mu.Unlock()
			p.release(ctx, held)
			again = true
		default:
			p.hold(held, a.part, a.sent)
		}
	}
	if err != nil && ctx.Err() == nil {
		p.n.trouble("raise parts in the store", err)
	}
	return again
}

func (p *parts) hold(h partitions.Held, part event.Part, sent time.Time) {
	p.n.Fit(h.Unit)
	p.mu.Lock()
	p.mu.held[part], p.mu.left[part] = h.Generation, p.mu.suspect[part]
	delete(p.mu.suspect, part)
	delete(p.mu.wanted, part)
	delete(p.mu.going, part)
	delete(p.mu.free, part)
	p.mu.Unlock()
	p.n.keeper.Add(h, sent, p)
	p.n.cfg.Relay.Hold(part, h.Generation)
	if f := p.n.cfg.Observer.PartHeld; f != nil {
		f(part, true)
	}
}

// dropLost ends the relay of parts that are not held any more. What it still does is refused by the fence; it is ended before a part may be held again.
func (p *parts) dropLost() {
	p.mu.Lock()
	lost := p.mu.lost
	p.mu.lost = map[event.Part]event.Generation{}
	p.mu.Unlock()
	p.each(slices.Collect(maps.Keys(lost)), func(part event.Part) { p.dropped(part, lost[part]) })
}

// releaseAsked gives up the parts that others asked for.
func (p *parts) releaseAsked(ctx context.Context) {
	p.mu.Lock()
	going := p.mu.going
	p.mu.going = map[event.Part]bool{}
	p.mu.Unlock()
	p.each(slices.Collect(maps.Keys(going)), func(part event.Part) { p.giveUp(ctx, part) })
}

// releaseAll gives all parts up.
func (p *parts) releaseAll(ctx context.Context) {
	p.dropLost()
	all := make([]event.Part, event.Parts)
	for i := range all {
		all[i] = event.Part(i)
	}
	p.each(all, func(part event.Part) { p.giveUp(ctx, part) })
}

// each does something for all parts at once, and returns when it is done: one after the other, what hangs would take as long for each of them.
func (p *parts) each(all []event.Part, do func(event.Part)) {
	done := make(chan struct{}, len(all))
	for _, part := range all {
		one := func(context.Context) {
			do(part)
			done <- struct{}{}
		}
		if !p.n.calls.Go(one) {
			one(nil)
		}
	}
	for range all {
		<-done
	}
}

// giveUp ends the relay of a part, and then its lease: in this order, or two would relay it.
func (p *parts) giveUp(ctx context.Context, part event.Part) {
	p.mu.Lock()
	g, held := p.mu.held[part]
	delete(p.mu.held, part)
	p.mu.Unlock()
	if !held {
		return
	}
	p.dropped(part, g)
	p.release(ctx, partitions.Held{Unit: p.n.partUnit(part), Generation: g})
}

// release gives a lease back; one that cannot be reached lapses.
func (p *parts) release(ctx context.Context, h partitions.Held) {
	err := p.n.bounded(ctx, func(ctx context.Context) error { return p.n.cfg.Port.Release(ctx, h, false) })
	if err != nil && !errors.Is(err, partitions.ErrFenced) && ctx.Err() == nil {
		p.n.trouble("give a part back", err)
	}
}
