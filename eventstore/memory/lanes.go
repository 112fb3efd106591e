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
			if u := (event.Unit{Name: name, Key: l.ref.Key}); l.tail > l.checkpoint(name).at && d.halt(u) == nil && d.pause(u) == nil {
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
		purged += d.purgeTaken(before, limit-purged)
		return nil
	})
	return purged, err
}

func (d *data) purgeRecords(before time.Time, limit int) int {
	var gone []*record
	emptied := 0
	held := d.held()
	for name, c := range d.categories {
		handlers, elsewhere := d.registry.handlersOf(name), d.registry.readElsewhere(name)
		for _, l := range c.lanes {
			if !l.purgeable() || len(gone)+emptied == limit {
				continue
			}
			passed := l.passedBy(handlers)
			if elsewhere {
				passed = min(passed, l.noted)
			}
			old := func(r *record) bool {
				return r.Stream.IsZero() && r.Sequence <= passed && r.Time.Before(before) && !held[place{lane: l.ref, seq: r.Sequence}] && !d.unread(r)
			}
			prefix := l.cut(old, limit-len(gone)-emptied)
			gone = append(gone, prefix...)
			emptied += d.emptyOld(l, old, limit-len(gone)-emptied)
		}
	}
	d.forget(gone)
	return len(gone) + emptied
}

// purgeable reports whether a purge has anything to look for in the lane.
func (l *lane) purgeable() bool { return l.loose > 0 || len(l.records) > 0 && l.records[0].emptied }

// cut takes from the lane, up to limit, the old records that nothing else lies below.
func (l *lane) cut(old func(*record) bool, limit int) []*record {
	n := 0
	for n < min(limit, len(l.records)) && old(l.records[n]) {
		if !l.records[n].emptied {
			l.loose--
		}
		n++
	}
	prefix := slices.Clone(l.records[:n])
	l.records = slices.Delete(l.records, 0, n)
	return prefix
}

// emptyOld makes voids, up to limit, of the old records left in the lane, and tells how many.
func (d *data) emptyOld(l *lane, old func(*record) bool, limit int) int {
	n := 0
	for at, r := range l.records {
		if n == limit || l.loose == 0 {
			break
		}
		if r.emptied || !old(r) {
			continue
		}
		void := r.void()
		void.emptied = true
		d.empty(l, at, void)
		delete(d.abandoned, place{lane: l.ref, seq: r.Sequence})
		l.loose--
		n++
	}
	return n
}

// forget takes records that are in no lane any more out of everything else.
func (d *data) forget(gone []*record) {
	if len(gone) == 0 {
		return
	}
	set := make(map[*record]struct{}, len(gone))
	for _, r := range gone {
		set[r] = struct{}{}
		delete(d.abandoned, place{lane: r.Ref(), seq: r.Sequence})
	}
	d.log = slices.DeleteFunc(d.log, func(r *record) bool {
		_, is := set[r]
		return is
	})
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
