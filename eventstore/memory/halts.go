package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ListHalts implements [eventstore.Halts].
func (s *Store) ListHalts(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Halt, error) {
	if err := eventstore.CheckPage(name, after); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Halt
	err := s.read(ctx, func(d *data) {
		for _, u := range slices.SortedFunc(maps.Keys(d.halts), compareUnits) {
			if (name != "" && u.Name != name) || compareUnits(u, after) <= 0 || len(found) == limit {
				continue
			}
			if h := d.halt(u); h != nil {
				found = append(found, *h)
			}
		}
	})
	return found, err
}

func compareUnits(a, b event.Unit) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
}

// ListDead implements [eventstore.Halts].
func (s *Store) ListDead(ctx context.Context, name string, after event.Position, limit int) ([]eventstore.Dead, error) {
	if err := eventstore.CheckPage(name, event.Unit{}); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLane(after.Lane); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Dead
	from := place{lane: after.Lane, seq: after.Sequence}
	err := s.read(ctx, func(d *data) {
		rows := d.lettersOf(name, func(l *letter) bool { return compareByKey(l.place(), from) > 0 })
		for _, l := range rows[:min(limit, len(rows))] {
			found = append(found, l.Dead)
		}
	})
	return found, err
}

// compareByKey orders by key first, so that the dead letters of one unit stand together.
func compareByKey(a, b place) int {
	return cmp.Or(cmp.Compare(a.lane.Key, b.lane.Key), a.compare(b))
}
