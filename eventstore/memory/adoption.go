package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Diverge implements [eventstore.Divergences].
func (s *Store) Diverge(ctx context.Context, held []eventstore.PartFence, v eventstore.Divergence) error {
	lanes := func(yield func(event.LaneRef) bool) { yield(v.Lane) }
	return s.noting(ctx, held, lanes, func(d *data) error {
		if _, known := d.diverged[v.Lane]; !known {
			d.diverged[v.Lane] = v
		}
		return nil
	})
}

// ListDiverged implements [eventstore.Divergences].
func (s *Store) ListDiverged(ctx context.Context, after event.LaneRef, limit int) ([]eventstore.Divergence, error) {
	if err := eventstore.CheckLane(after); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Divergence
	err := s.read(ctx, func(d *data) {
		for _, ref := range slices.SortedFunc(maps.Keys(d.diverged), event.LaneRef.Compare) {
			if ref.Compare(after) > 0 && len(found) < limit {
				found = append(found, d.diverged[ref])
			}
		}
	})
	return found, err
}

// Adopt implements [eventstore.Divergences].
func (s *Store) Adopt(ctx context.Context, seen event.Position, actor, reason string) (eventstore.ActRecord, error) {
	if err := eventstore.CheckLane(seen.Lane); err != nil {
		return eventstore.ActRecord{}, err
	}
	if err := event.CheckID("event id", seen.EventID); err != nil {
		return eventstore.ActRecord{}, err
	}
	ref := seen.Lane
	if err := eventstore.CheckAdopt(ref, actor, reason); err != nil {
		return eventstore.ActRecord{}, err
	}
	var done eventstore.ActRecord
	err := s.change(ctx, func(d *data) error {
		v, found := d.diverged[ref]
		if !found {
			return fmt.Errorf("adopt %s: it did not diverge: %w", ref, eventstore.ErrNotFound)
		}
		if err := v.Adopts(seen); err != nil {
			return err
		}
		l := d.lane(ref)
		now := now()
		state := eventstore.Diverged{Divergence: v, Published: l.noted, Tail: l.tail, First: l.first(), Applied: l.applied()}
		a := state.Adopt()
		if a.Shift > 0 {
			d.renumber(l, a)
			d.fill(l, a, &state, s.mu.storeID)
		}
		l.noted, l.tail = a.Published, a.Tail
		delete(d.diverged, ref)
		delete(d.parts[l.part].unpublished, l)
		if l.tail > l.noted {
			d.unpublish(l)
		}
		d.parts[l.part].looks[l] = look{due: now}
		done = d.record(state.Record(a, actor, reason, now))
		return nil
	})
	return done, err
}

// owns reports whether the record of a sequence is the event.
func (l *lane) owns(seq event.Sequence, id string) bool {
	at, found := l.at(seq)
	return found && l.records[at].ID == id
}

// applied gives the checkpoints above what is noted.
func (l *lane) applied() (found []eventstore.AppliedAt) {
	for _, m := range l.passed {
		if m.at > l.noted && m.id != "" {
			found = append(found, eventstore.AppliedAt{Sequence: m.at, Stored: l.owns(m.at, m.id)})
		}
	}
	return found
}

// renumber moves the records of a lane, and what follows them. What readers may hold is not changed but replaced.
func (d *data) renumber(l *lane, a eventstore.Adoption) {
	follows := func(ref event.LaneRef, seq event.Sequence, id string) bool {
		return ref == l.ref && seq > a.Common && l.owns(seq, id)
	}
	for i, m := range l.passed {
		if follows(l.ref, m.at, m.id) {
			l.passed[i].at += a.Shift
		}
	}
	for u, h := range d.halts {
		if follows(h.Lane, h.Sequence, h.EventID) {
			h.Sequence += a.Shift
			d.halts[u] = h
		}
	}
	for u, t := range d.tried {
		if follows(t.Lane, t.Sequence, t.EventID) {
			t.Sequence += a.Shift
			d.tried[u] = t
		}
	}
	for _, p := range d.parked {
		p.rows = slices.Clone(p.rows)
		for i := range p.rows {
			if r := &p.rows[i]; follows(r.Lane, r.Sequence, r.EventID) {
				r.Sequence += a.Shift
			}
		}
	}
	d.renumberLetters(follows, a.Shift)
	moved := make(map[place]eventstore.Abandoned)
	for p, r := range d.abandoned {
		if p.lane == l.ref && p.seq > a.Common {
			delete(d.abandoned, p)
			r.Record.Sequence += a.Shift
			moved[place{lane: p.lane, seq: p.seq + a.Shift}] = r
		}
	}
	maps.Copy(d.abandoned, moved)
	d.renumberRecords(l, a)
}

func (d *data) renumberLetters(follows func(event.LaneRef, event.Sequence, string) bool, shift event.Sequence) {
	var moved []*letter
	for k, l := range d.dead {
		if follows(l.Lane, l.Sequence, l.EventID) {
			delete(d.dead, k)
			l.Sequence += shift
			moved = append(moved, l)
		}
	}
	for _, l := range moved {
		d.dead[deadKey{name: l.Unit.Name, place: l.place()}] = l
	}
}

func (d *data) renumberRecords(l *lane, a eventstore.Adoption) {
	cut := l.after(a.Common)
	records := slices.Clone(l.records[:cut])
	streams := make(map[event.Stream]bool) // whose events are a copy
	for _, old := range l.records[cut:] {
		r := *old
		r.Sequence += a.Shift
		records = append(records, &r)
		if r.position > 0 { // a void of an adoption is not in the log
			d.log[d.logAfter(r.position-1)] = &r
		}
		if r.Stream.IsZero() {
			continue
		}
		st := d.streams[r.Stream]
		if !streams[r.Stream] {
			st.events, streams[r.Stream] = slices.Clone(st.events), true
		}
		kept := *st.events[r.StreamVersion-1] // not the void that the lane may have
		kept.Sequence = r.Sequence
		st.events[r.StreamVersion-1] = &kept
	}
	l.records = records
}

// fill puts voids between what is in common and what was renumbered.
func (d *data) fill(l *lane, a eventstore.Adoption, state *eventstore.Diverged, storeID string) {
	cut := l.after(a.Common)
	var voids []*record
	for seq := a.Common + 1; seq <= state.Sequence; seq++ {
		id := event.NewID()
		if seq == state.Sequence {
			id = state.EventID
		}
		voids = append(voids, &record{emptied: true, Envelope: event.Envelope{
			ID: id, Category: l.ref.Category, Key: l.ref.Key, Lane: l.ref.Lane, Time: now(), Sequence: seq, StoreID: storeID,
		}})
	}
	l.records = slices.Insert(l.records, cut, voids...)
}
