package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// assemble makes of what the streams gave what comes next for the unit: what they have lost is read from the store, and a lane that has it nowhere is a gap.
func (p *port) assemble(ctx context.Context, r *reading, entries [][]event.Envelope) (partitions.Fetched, error) {
	for _, kind := range []event.Lane{event.Primary, event.Backfill} {
		var runs [][]event.Envelope
		asks, answered := -1, false
		for i, l := range r.lanes {
			if l.ref.Lane != kind {
				continue
			}
			got, err := p.next(ctx, r, i, entries[i])
			switch {
			case err != nil:
				return partitions.Fetched{}, err
			case got.gone:
				return partitions.Fetched{Gap: true, Lane: l.ref}, nil
			case got.unanswered && asks < 0:
				asks = i
			case len(got.entries) > 0:
				runs, answered = append(runs, got.entries), answered || got.answer
			}
		}
		if asks >= 0 && !answered { // one at a time: the answer to another one would take the place of the one that is being read
			return partitions.Fetched{}, p.request(ctx, r, asks)
		}
		if len(runs) > 0 {
			return partitions.Fetched{Entries: merge(runs, r.most)}, nil
		}
	}
	return partitions.Fetched{}, nil
}

// next gives the run of one lane that follows its position. It is gone when there is something further up, and nobody has what comes before it.
func (p *port) next(ctx context.Context, r *reading, i int, entries []event.Envelope) (found, error) {
	l, after := r.lanes[i], r.above[i].Sequence
	if r.gone[i] {
		return p.asked(ctx, r, i)
	}
	if !r.held[i] {
		l.lost = 0
		if len(entries) == 0 {
			return found{}, nil
		}
		if entries[0].Sequence == after+1 && !p.early(r.unit, after, &entries[0]) {
			return found{entries: unbroken(entries, after)}, nil
		}
		l.lost = entries[0].Sequence
	}
	run, err := p.stored(ctx, l.ref, after, r.most)
	if err != nil {
		return found{}, fmt.Errorf("the stream of %s has lost what comes after %d: read it from the store: %w", l.ref, after, err)
	}
	if len(run) > 0 && !r.held[i] {
		if err := p.joins(ctx, l.ref, &entries[0]); err != nil {
			l.lost = 0 // it is compared again
			return found{}, err
		}
	}
	if len(run) == 0 {
		l.lost = 0 // whoever puts it back puts it into the stream
	}
	if len(run) == 0 && p.t.elsewhere(l.ref.Category) {
		return p.asked(ctx, r, i)
	}
	return found{entries: run, gone: len(run) == 0}, nil
}

// joins finds out whether what the store has below an entry of the stream is what the stream had there: if they have the same event at that place, they had the same
// below it. A store that went back in time tells another history, which must not be mixed with this one: the lane has diverged, and a person decides. A void
// is what that decision puts there.
func (p *port) joins(ctx context.Context, lane event.LaneRef, entry *event.Envelope) error {
	bound := p.t.bound.Load()
	if bound == nil || p.t.elsewhere(lane.Category) {
		return nil
	}
	run, err := bound.records.ReadLane(ctx, lane, entry.Sequence-1, 1)
	switch {
	case err != nil:
		return fmt.Errorf("compare the stream of %s with the store at %d: %w", lane, entry.Sequence, err)
	case len(run) == 0:
		return fmt.Errorf("%s: the stream has event %q at %d, and the store nothing: did it go back in time? Nothing is read across that until `keyhold lanes adopt`", lane, entry.ID, entry.Sequence)
	case run[0].Sequence == entry.Sequence && run[0].ID != entry.ID && !run[0].Void() && !entry.Void():
		return fmt.Errorf("%s: the stream has event %q at %d, and the store %q: did it go back in time? Nothing is read across that until `keyhold lanes adopt`",
			lane, entry.ID, entry.Sequence, run[0].ID)
	}
	return nil
}

// early reports whether a unit that has no place in a lane begins behind its first entry: that was there before, and is there again for others.
func (p *port) early(u event.Unit, after event.Sequence, first *event.Envelope) bool {
	if after > 0 {
		return false
	}
	begin := p.t.begin(u.Name, first.Category)
	return begin != nil && !lateEnough(first, *begin)
}

// asked gives what another application, which produces the category, has answered.
func (p *port) asked(ctx context.Context, r *reading, i int) (found, error) {
	lane, after := r.lanes[i].ref, r.above[i].Sequence
	got, err := p.c.answer(ctx, r.unit, lane, after, p.from(r, i), r.most)
	if err == nil && got.place > 0 {
		err = p.place(ctx, r, lane, got.place)
	}
	return got, err
}

// request asks that application. Until it answers the call is an error: the unit tries again, and is marked when there is an answer.
func (p *port) request(ctx context.Context, r *reading, i int) error {
	lane, after := r.lanes[i].ref, r.above[i].Sequence
	if err := p.c.request(ctx, r.unit, lane, after, p.from(r, i)); err != nil {
		return err
	}
	return fmt.Errorf("%s has lost what comes after %d: the application that produces it was asked for that", lane, after)
}

// from is the time from which on a unit begins in a lane in which it has no place yet; nil = it has one.
func (p *port) from(r *reading, i int) *time.Time {
	if r.above[i].Sequence > 0 {
		return nil
	}
	return p.t.begin(r.unit.Name, r.lanes[i].ref.Category)
}

// place sets where a unit begins in a lane in which it has no place, and gives the lease up: the unit takes it again, and recovers there.
func (p *port) place(ctx context.Context, r *reading, lane event.LaneRef, at event.Sequence) error {
	bound := p.t.bound.Load()
	if bound == nil {
		return errNotConnected
	}
	_, err := bound.places.Begin("place of "+r.unit.String()).Commit(ctx, eventstore.Changes{
		Fence:   eventstore.Fence{Unit: r.unit, Generation: r.generation},
		Advance: []eventstore.Advance{{Lane: lane, To: at}},
	})
	if moved := new(eventstore.CheckpointError); errors.As(err, &moved) {
		err = nil // it has one
	}
	h := partitions.Held{Unit: r.unit, Generation: r.generation}
	switch {
	case errors.Is(err, eventstore.ErrStale):
		return p.fenced(h)
	case err != nil:
		return fmt.Errorf("note that %s begins behind %d: %w", lane, at, err)
	}
	if err := p.Release(ctx, h, false); err != nil && !errors.Is(err, partitions.ErrFenced) {
		return err
	}
	return p.fenced(h)
}

// stored reads the store, which may have purged it, or never had it: the category may be another application's.
func (p *port) stored(ctx context.Context, lane event.LaneRef, after event.Sequence, most int) ([]event.Envelope, error) {
	bound := p.t.bound.Load()
	if bound == nil {
		return nil, nil
	}
	run, err := bound.records.ReadLane(ctx, lane, after, most)
	if err != nil {
		return nil, err
	}
	return unbroken(run, after), nil
}

// unbroken is the part of run that follows after without a gap.
func unbroken(run []event.Envelope, after event.Sequence) []event.Envelope {
	for i := range run {
		after++
		if run[i].Sequence != after {
			return run[:i]
		}
	}
	return run
}

// merge takes from the run with the earliest next entry, again and again, up to most.
func merge(runs [][]event.Envelope, most int) []event.Envelope {
	if len(runs) == 1 {
		return runs[0][:min(len(runs[0]), most)]
	}
	var merged []event.Envelope
	for len(runs) > 0 && len(merged) < most {
		next := 0
		for i := range runs {
			if before(&runs[i][0], &runs[next][0]) {
				next = i
			}
		}
		merged = append(merged, runs[next][0])
		if runs[next] = runs[next][1:]; len(runs[next]) == 0 {
			runs = append(runs[:next], runs[next+1:]...)
		}
	}
	return merged
}

func before(a, b *event.Envelope) bool {
	if c := a.Time.Compare(b.Time); c != 0 {
		return c < 0
	}
	return a.Ref().Compare(b.Ref()) < 0
}
