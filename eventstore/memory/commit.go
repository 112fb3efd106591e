package memory

import (
	"context"
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// tx is one unit of work.
type tx struct {
	store      *Store
	generation event.Generation // of the Start in which it began
	ended      bool

	// Room for what the usual unit of work draws, so that the answer costs no allocation of its own.
	version [1]uint64
	tail    [1]event.Tail
}

func (t *tx) SQL(context.Context) (eventstore.SQL, error) {
	if t.ended {
		return nil, eventstore.ErrEnded
	}
	return nil, eventstore.ErrNoSQL
}

func (t *tx) Begun() bool { return false }

func (t *tx) Rollback() error {
	t.ended = true
	return nil
}

func (t *tx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	if t.ended {
		return eventstore.Committed{}, eventstore.ErrEnded
	}
	t.ended = true
	if err := c.Validate(); err != nil {
		return eventstore.Committed{}, err
	}
	if err := ctx.Err(); err != nil {
		return eventstore.Committed{}, err
	}
	mu := t.store.mu
	mu.Lock()
	defer mu.Unlock()
	if t.store.generation == 0 {
		return eventstore.Committed{}, eventstore.ErrClosed
	}
	if t.generation != t.store.generation {
		return eventstore.Committed{}, eventstore.ErrStale
	}
	if err := mu.data.check(&c); err != nil {
		return eventstore.Committed{}, err
	}
	done := eventstore.Committed{Versions: t.version[:0], Tails: t.tail[:0]}
	mu.data.apply(&c, mu.storeID, &done)
	return done, nil
}

// check says why c cannot be applied. It changes nothing, so that apply needs no way back.
func (d *data) check(c *eventstore.Changes) error {
	if g := c.Fence.Generation; g != 0 && d.generations[c.Fence.Unit] != g {
		return eventstore.ErrStale
	}
	if c.Listed != 0 && c.Listed != d.registry.revision {
		return &eventstore.ListMovedError{Read: c.Listed, Actual: d.registry.revision}
	}
	for i := range c.Append {
		a := &c.Append[i]
		if actual := d.version(a.Stream); actual != a.Expected {
			return &eventstore.VersionError{Stream: a.Stream, Expected: a.Expected, Actual: actual}
		}
	}
	if ref := c.LiftHalt; ref != nil {
		if now := d.halt(ref.Unit); now == nil || now.Ref() != *ref {
			return &eventstore.HaltMovedError{Wanted: *ref, Now: now}
		}
	}
	for i := range c.Advance {
		a := &c.Advance[i]
		if m := d.checkpoint(c.Fence.Unit.Name, a.Lane); m.at != a.From {
			return &eventstore.CheckpointError{Name: m.name, Lane: a.Lane, From: a.From, Actual: m.at}
		}
	}
	if s := c.Suspect; s != nil && !d.isDue(c.Fence.Unit, s.AsideRef) {
		return fmt.Errorf("suspect %s #%d of %q: %w", s.Lane, s.Sequence, c.Fence.Unit, eventstore.ErrAsideMoved)
	}
	if s := c.Settle; s != nil && !d.isDue(c.Fence.Unit, s.AsideRef) {
		return fmt.Errorf("settle %s #%d of %q: %w", s.Lane, s.Sequence, c.Fence.Unit, eventstore.ErrAsideMoved)
	}
	if err := d.checkTakes(c.Take); err != nil {
		return err
	}
	if p := d.behindNothing(c); p != nil {
		return fmt.Errorf("park %s #%d of %q: nothing of its category is parked: %w", p.Lane, p.Sequence, c.Fence.Unit, eventstore.ErrAsideMoved)
	}
	if c.Projection == nil {
		return nil
	}
	return d.checkStep(c.Projection)
}

func (d *data) version(s event.Stream) uint64 {
	st := d.streams[s]
	if st == nil {
		return 0
	}
	return uint64(len(st.events))
}

// apply makes c part of the data, and adds to done what it drew; check has passed.
func (d *data) apply(c *eventstore.Changes, storeID string, done *eventstore.Committed) {
	d.applyState(c)
	d.applyTakes(c.Take)
	d.applyAsides(c)
	if len(c.Advance) > 0 {
		d.moved[c.Fence.Unit.Name] = now()
	}
	for i := range c.Advance {
		a := &c.Advance[i]
		d.lane(a.Lane).pass(mark{name: c.Fence.Unit.Name, at: a.To, id: a.EventID})
	}
	if c.Projection != nil {
		d.applyStep(c.Projection)
	}
	d.applyEvents(c, storeID, done)
}

func (d *data) applyState(c *eventstore.Changes) {
	if r := c.Reply; r != nil {
		d.stream(r.Stream).reply(*r)
	}
	if s := c.Snapshot; s != nil {
		d.stream(s.Stream).keep(*s)
	}
	if c.LiftHalt != nil {
		delete(d.halts, c.LiftHalt.Unit)
	}
	if c.Halt != nil {
		d.halts[c.Halt.Unit] = *c.Halt
	}
	if c.Tried != nil {
		d.tried[c.Tried.Unit] = *c.Tried
	}
	if c.Untry {
		delete(d.tried, c.Fence.Unit)
	}
}

func (st *stream) reply(r eventstore.Reply) {
	if _, known := st.replies[r.CommandID]; known {
		return
	}
	if st.replies == nil {
		st.replies = make(map[string]*eventstore.Reply)
	}
	st.replies[r.CommandID] = &r
}

func (st *stream) keep(s eventstore.Snapshot) {
	if st.snapshot == nil || st.snapshot.Version <= s.Version {
		st.snapshot = &s
	}
}

func (d *data) applyEvents(c *eventstore.Changes, storeID string, done *eventstore.Committed) {
	var (
		few   [4]eventstore.Growth
		grown = c.AppendGrowth(few[:0])
		total int
	)
	done.Tails = slices.Grow(done.Tails, len(grown))
	for _, g := range grown {
		tail := d.lane(g.Lane).tail
		done.Tails = append(done.Tails, event.Tail{Lane: g.Lane, First: tail + 1, Last: tail + event.Sequence(g.Count)})
		total += g.Count
	}
	records := make([]record, total) // one allocation for all
	next := func(e *event.Envelope) *record {
		r := &records[0]
		records = records[1:]
		r.Envelope = *e
		r.Stream, r.StreamVersion, r.StoreID = event.Stream{}, 0, storeID
		return r
	}
	for i := range c.Append {
		a := &c.Append[i]
		st := d.stream(a.Stream)
		for j := range a.Events {
			r := next(&a.Events[j])
			r.Stream, r.StreamVersion = a.Stream, uint64(len(st.events)+1)
			st.events = append(st.events, r)
			d.put(r)
		}
		done.Versions = append(done.Versions, uint64(len(st.events)))
	}
	for i := range c.Publish {
		d.put(next(&c.Publish[i]))
	}
}

// put gives a record its sequence and its position.
func (d *data) put(r *record) {
	l := d.lane(r.Ref())
	l.tail++
	if d.relayed {
		d.unpublish(l)
	}
	r.Sequence = l.tail
	l.records = append(l.records, r)
	if r.Stream.IsZero() {
		l.loose++
	}
	d.position++
	r.position = d.position
	d.log = append(d.log, r)
}
