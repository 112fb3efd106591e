package memory

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ReadLane implements [eventstore.Records].
func (s *Store) ReadLane(ctx context.Context, ref event.LaneRef, after event.Sequence, limit int) ([]event.Envelope, error) {
	if err := eventstore.CheckLane(ref); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []*record
	err := s.read(ctx, func(d *data) {
		if l := d.lanes[ref]; l != nil {
			found = slices.Clone(l.run(after, limit)) // Abandon and Purge change the lane in place
		}
	})
	if err != nil {
		return nil, err
	}
	return copies(found), nil
}

// run gives up to limit records above seq, ending where one is missing.
func (l *lane) run(seq event.Sequence, limit int) []*record {
	rest := l.records[l.after(seq):]
	rest = rest[:min(limit, len(rest))]
	for i, r := range rest {
		if r.Sequence != rest[0].Sequence+event.Sequence(i) {
			return rest[:i]
		}
	}
	return rest
}

// LaneTail implements [eventstore.Records].
func (s *Store) LaneTail(ctx context.Context, ref event.LaneRef) (event.Sequence, error) {
	if err := eventstore.CheckLane(ref); err != nil {
		return 0, err
	}
	var tail event.Sequence
	err := s.read(ctx, func(d *data) {
		if l := d.lanes[ref]; l != nil {
			tail = l.tail
		}
	})
	return tail, err
}

// Abandon implements [eventstore.Records].
func (s *Store) Abandon(ctx context.Context, ref event.LaneRef, seq event.Sequence, reason string) error {
	if err := eventstore.CheckLane(ref); err != nil {
		return err
	}
	return s.change(ctx, func(d *data) error {
		l := d.lanes[ref]
		if l == nil {
			return fmt.Errorf("abandon %s #%d: %w", ref, seq, eventstore.ErrNotFound)
		}
		at, found := l.at(seq)
		if !found {
			return fmt.Errorf("abandon %s #%d: %w", ref, seq, eventstore.ErrNotFound)
		}
		was := l.records[at]
		if was.Void() {
			return nil
		}
		d.empty(l, at, was.void())
		d.abandoned[place{lane: ref, seq: seq}] = eventstore.Abandoned{Record: was.Envelope, Reason: reason, Time: now()}
		return nil
	})
}

// empty puts a void in the place of its record, the lane's at that index.
func (d *data) empty(l *lane, at int, void *record) {
	l.records[at] = void
	d.log[d.logAfter(void.position-1)] = void
}

// void is what takes the record's place.
func (r *record) void() *record {
	return &record{position: r.position, Envelope: event.Envelope{
		ID: r.ID, Category: r.Category, Key: r.Key, Lane: r.Lane, Time: r.Time,
		Stream: r.Stream, StreamVersion: r.StreamVersion, Sequence: r.Sequence, StoreID: r.StoreID,
	}}
}

// Abandoned implements [eventstore.Records].
func (s *Store) Abandoned(ctx context.Context, after event.Position, limit int) ([]eventstore.Abandoned, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Abandoned
	from := place{lane: after.Lane, seq: after.Sequence}
	err := s.read(ctx, func(d *data) {
		for _, p := range slices.SortedFunc(maps.Keys(d.abandoned), place.compare) {
			if p.compare(from) > 0 && len(found) < limit {
				found = append(found, d.abandoned[p])
			}
		}
	})
	for i := range found {
		found[i].Record.Data = bytes.Clone(found[i].Record.Data)
	}
	return found, err
}

// now is the time as events have it.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
