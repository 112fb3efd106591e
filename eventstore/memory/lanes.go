package memory

import (
	"context"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Unpassed implements [eventstore.Lanes].
func (s *Store) Unpassed(ctx context.Context, name, category string, after event.LaneRef, limit int) ([]event.LaneRef, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []event.LaneRef
	err := s.change(ctx, func(d *data) error { // sorts the lanes when new ones came
		lanes := d.sortedLanes(category)
		at, same := slices.BinarySearchFunc(lanes, after, func(l *lane, ref event.LaneRef) int { return l.ref.Compare(ref) })
		if same {
			at++
		}
		for _, l := range lanes[at:] {
			if len(found) == limit {
				return nil
			}
			if l.tail > l.checkpoint(name).at && d.halt(event.Unit{Name: name, Key: l.ref.Key}) == nil {
				found = append(found, l.ref)
			}
		}
		return nil
	})
	return found, err
}

// Purge implements [eventstore.Lanes].
func (s *Store) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return 0, err
	}
	purged := 0
	err := s.change(ctx, func(d *data) error {
		purged = d.purgeRecords(before, limit)
		purged += d.purgeReplies(before, limit-purged)
		return nil
	})
	return purged, err
}

func (d *data) purgeRecords(before time.Time, limit int) int {
	gone := make(map[*record]struct{})
	for name, c := range d.categories {
		handlers := d.registry.handlersOf(name)
		for _, l := range c.lanes {
			if l.loose == 0 || len(gone) == limit {
				continue
			}
			passed := l.passedBy(handlers)
			count := len(gone)
			l.records = slices.DeleteFunc(l.records, func(r *record) bool {
				if len(gone) == limit || !r.Stream.IsZero() || r.Sequence > passed || !r.Time.Before(before) {
					return false
				}
				gone[r] = struct{}{}
				delete(d.abandoned, place{lane: l.ref, seq: r.Sequence})
				return true
			})
			l.loose -= len(gone) - count
		}
	}
	if len(gone) > 0 {
		d.log = slices.DeleteFunc(d.log, func(r *record) bool {
			_, is := gone[r]
			return is
		})
	}
	return len(gone)
}

// passedBy gives the lowest checkpoint of the names; with no names everything is passed.
func (l *lane) passedBy(names []string) event.Sequence {
	lowest := l.tail
	for _, name := range names {
		lowest = min(lowest, l.checkpoint(name).at)
	}
	return lowest
}

func (d *data) purgeReplies(before time.Time, limit int) int {
	purged := 0
	for _, st := range d.streams {
		for id, r := range st.replies {
			if purged == limit {
				return purged
			}
			if r.Time.Before(before) {
				delete(st.replies, id)
				purged++
			}
		}
	}
	return purged
}
