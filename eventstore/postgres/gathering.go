package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/signal"
)

const (
	// groupSize is how many units of work share a transaction at most.
	groupSize = 128
	// groupEvents is how many events a transaction that is shared writes at most, and groupBytes how much of their data.
	groupEvents, groupBytes = 512, 1 << 20
	// leastSlots is how many transactions of units that could share one are under way, at least, before others gather.
	leastSlots = 2
	// slotTime is after which one does not count any more: it waits for somebody's lock, or for a slow disk, and nobody else is to wait for that.
	slotTime = 25 * time.Millisecond
)

// gathering has units of work that have no SQL of the application's share transactions. Nothing is delayed for it: one that comes while few are under way
// goes at once, in a transaction of its own; others gather until one of those is over, and go together then.
//
// What two transactions would wait for each other for, they do not do at once: lanes, units and streams that one has under way are left to the next.
type gathering struct {
	slots    int
	patience time.Duration // slotTime
	mu       sync.Mutex
	// Guarded by mu.
	busy     int
	underWay map[*together]struct{}
	waiting  []*member           // in order of arrival
	claimed  map[claim]*together // by what is under way

	signals struct {
		waiting   signal.Signal[int] // members, when one more does
		committed signal.Signal[int] // members of a transaction that several share
	}
}

// newGathering has half of the connections go at once: where there are as many units of work as that, the database has enough to write together, and the
// other half is for those with SQL.
func newGathering(conns int) *gathering {
	return &gathering{slots: max(leastSlots, conns/2), patience: slotTime, claimed: make(map[claim]*together), underWay: make(map[*together]struct{})}
}

// claim is something that transactions take turns at.
type claim struct {
	what byte // 'l' lane, 'u' unit, 's' stream, 'c' checkpoint
	a, b string
	lane event.Lane
}

// member is a unit of work that could share a transaction.
type member struct {
	work   *work
	gone   func() error                        // why its caller does not wait any more; nil = he does
	onGone func(f func()) (detach func() bool) // calls f then
	claims []claim
	events int
	bytes  int

	lead  chan *together // it is the one that carries the transaction out
	done  chan struct{}  // closed: answered
	apart bool           // it is to commit alone
	err   error
}

// together are the members of one transaction.
type together struct {
	members []*member
	began   time.Time
	free    bool // it has given its slot to others
}

// shares reports whether changes can share a transaction with others: they are nothing but what [shared] writes.
func (w *work) shares() bool {
	return !w.setsAside() && w.changes.Projection == nil && len(w.changes.Take) == 0
}

func newMember(ctx context.Context, w *work) *member {
	m := &member{work: w, lead: make(chan *together, 1), done: make(chan struct{})}
	m.gone = func() error { return context.Cause(ctx) }
	m.onGone = func(f func()) func() bool { return context.AfterFunc(ctx, f) }
	streams := make([]event.Stream, 0, 3)
	for i := range w.changes.Append {
		a := &w.changes.Append[i]
		streams = append(streams, a.Stream)
		m.weigh(a.Events)
	}
	m.weigh(w.changes.Publish)
	if s := w.changes.Snapshot; s != nil {
		streams = append(streams, s.Stream)
		m.bytes += len(s.Data)
	}
	if r := w.changes.Reply; r != nil {
		streams = append(streams, r.Stream)
		m.bytes += len(r.Data)
	}
	for _, s := range streams {
		m.claim(claim{what: 's', a: s.Kind, b: s.ID})
	}
	if u := w.changes.Fence.Unit; u.Name != "" {
		m.claim(claim{what: 'u', a: u.Name, b: u.Key})
	}
	for i := range w.changes.Advance {
		ref := w.changes.Advance[i].Lane
		m.claim(claim{what: 'c', a: w.changes.Fence.Unit.Name + "\x00" + ref.Category, b: ref.Key, lane: ref.Lane})
	}
	for i := range w.grown {
		ref := w.grown[i].ref
		m.claim(claim{what: 'l', a: ref.Category, b: ref.Key, lane: ref.Lane})
	}
	return m
}

func (m *member) weigh(events []event.Envelope) {
	m.events += len(events)
	for i := range events {
		m.bytes += len(events[i].Data)
	}
}

func (m *member) claim(c claim) {
	if !slices.Contains(m.claims, c) {
		m.claims = append(m.claims, c)
	}
}

func (m *member) answer(err error) {
	m.err = err
	close(m.done)
}

// join has a member wait for its turn. It gives the transaction that the caller is to carry out, or nil when another one has answered. An error is that of
// the context, and it takes part in nothing then.
func (g *gathering) join(ctx context.Context, m *member) (*together, error) {
	g.mu.Lock()
	g.waiting = append(g.waiting, m)
	g.next()
	waiting := len(g.waiting)
	g.mu.Unlock()
	g.signals.waiting.Send(waiting)
	if t, over := g.wait(ctx, m); over {
		return t, nil
	}
	g.mu.Lock()
	at := slices.Index(g.waiting, m)
	if at >= 0 {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	g.mu.Unlock()
	if at >= 0 {
		return nil, context.Cause(ctx)
	}
	select { // it was taken meanwhile
	case t := <-m.lead:
		return t, nil
	case <-m.done:
		return nil, nil
	}
}

// wait waits for a member's turn; over is false where the context ends before. Whoever waits sees to it that what is slow gives up its slot.
func (g *gathering) wait(ctx context.Context, m *member) (t *together, over bool) {
	select {
	case t := <-m.lead:
		return t, true
	default: // a timer is for who does not go at once
	}
	ticker := time.NewTicker(g.patience)
	defer ticker.Stop()
	for {
		select {
		case t := <-m.lead:
			return t, true
		case <-m.done:
			return nil, true
		case <-ctx.Done():
			return nil, false
		case now := <-ticker.C:
			g.pass(now)
		}
	}
}

// pass has what is slow give up its slot.
func (g *gathering) pass(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for t := range g.underWay {
		if now.Sub(t.began) >= g.patience {
			g.free(t)
		}
	}
	g.next()
}

// free gives a slot up. g.mu is held.
func (g *gathering) free(t *together) {
	if !t.free {
		t.free = true
		g.busy--
	}
}

// next has members go whose turn it is. g.mu is held.
func (g *gathering) next() {
	for g.busy < g.slots {
		t := g.pick()
		if t == nil {
			return
		}
		g.busy++
		t.began, g.underWay[t] = time.Now(), struct{}{}
		t.members[0].lead <- t
	}
}

// pick takes members that can go together now out of those that wait. Nobody overtakes another one with whom he takes turns.
func (g *gathering) pick() *together {
	t := new(together)
	passed := map[claim]bool{}
	events, bytes := 0, 0
	rest := g.waiting[:0]
	for _, m := range g.waiting {
		first := len(t.members) == 0
		if (first || len(t.members) < groupSize && events+m.events <= groupEvents && bytes+m.bytes <= groupBytes) && g.suits(t, m, passed) {
			for _, c := range m.claims {
				g.claimed[c] = t
			}
			t.members = append(t.members, m)
			events, bytes = events+m.events, bytes+m.bytes
			continue
		}
		for _, c := range m.claims {
			passed[c] = true
		}
		rest = append(rest, m)
	}
	clear(g.waiting[len(rest):])
	if g.waiting = rest; len(t.members) == 0 {
		return nil
	}
	return t
}

// suits reports whether nothing that m claims is under way; one transaction may add to a lane for many.
func (g *gathering) suits(t *together, m *member, passed map[claim]bool) bool {
	return !slices.ContainsFunc(m.claims, func(c claim) bool {
		by := g.claimed[c]
		return by != nil && (by != t || c.what != 'l') || passed[c]
	})
}

// leave ends what was under way.
func (g *gathering) leave(t *together) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range t.members {
		for _, c := range m.claims {
			if g.claimed[c] == t {
				delete(g.claimed, c)
			}
		}
	}
	delete(g.underWay, t)
	g.free(t)
	g.next()
}

// commit commits changes that come without SQL of the application's: in a transaction of their own, or in one that others share.
func (o *opened) commit(ctx context.Context, c *eventstore.Changes) (eventstore.Committed, error) {
	ctx, stop := within(ctx, o.ending())
	defer stop()
	w := &work{connection: o.connection(ctx), changes: c}
	if !w.shares() || w.lookUpLanes() != nil { // what is wrong with the lanes is told to who goes alone
		return o.commitAlone(ctx, c)
	}
	m := newMember(ctx, w)
	t, err := o.gathering.join(ctx, m)
	if err != nil {
		return eventstore.Committed{}, trouble(err)
	}
	if t != nil && len(t.members) == 1 {
		defer o.gathering.leave(t)
		return o.commitAlone(ctx, c)
	}
	if t != nil {
		o.commitTogether(ctx, t.members)
		o.gathering.leave(t)
	}
	switch {
	case m.apart:
		return o.commitAlone(ctx, c)
	case m.err != nil:
		return eventstore.Committed{}, m.err
	}
	return w.done, nil
}
