package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Overview implements [eventstore.Overviews].
func (s *Store) Overview(ctx context.Context) (eventstore.Overview, error) {
	var o eventstore.Overview
	err := s.read(ctx, func(d *data) {
		o = eventstore.Overview{
			StoreID: s.mu.storeID, StartGeneration: d.generation, Owners: slices.Clone(d.starts),
		}
		o.Owner = &o.Owners[len(o.Owners)-1] // whoever reads has it open
		for _, name := range slices.Sorted(maps.Keys(d.registry.handlers)) {
			o.Handlers = append(o.Handlers, d.handlerOverview(d.registry.handlers[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(d.registry.categories)) {
			o.Categories = append(o.Categories, d.categoryOverview(d.registry.categories[name]))
		}
		for _, j := range d.jobs {
			if j.Open() {
				o.Jobs++
			}
		}
	})
	return o, err
}

func (d *data) categoryOverview(c eventstore.Category) eventstore.CategoryOverview {
	o := eventstore.CategoryOverview{Category: c}
	for _, l := range d.lanesOf(c.Name) {
		if l.tail > 0 {
			o.Partitions++
			o.Records += uint64(l.tail)
		}
	}
	d.lostEntries(&o)
	return o
}

// lanesOf gives the lanes of a category in no order.
func (d *data) lanesOf(category string) []*lane {
	if c := d.categories[category]; c != nil {
		return c.lanes
	}
	return nil
}

func (d *data) handlerOverview(h eventstore.Handler) eventstore.HandlerOverview {
	h.Categories, h.Types = slices.Clone(h.Categories), slices.Clone(h.Types)
	o := eventstore.HandlerOverview{
		Handler: h, Running: d.runs(h), Moved: d.moved[h.Name], Pause: d.handlerPause(h.Name),
	}
	for _, category := range sortedSet(h.Categories) {
		if h.StoreID != "" {
			break // how far it is, only the other store knows
		}
		for _, l := range d.lanesOf(category) {
			o.Lag += uint64(l.tail - min(l.tail, l.checkpoint(h.Name).at))
		}
	}
	stopped := func(at time.Time) {
		if o.Oldest.IsZero() || at.Before(o.Oldest) {
			o.Oldest = at
		}
	}
	for _, u := range ofName(d.halts, h.Name) {
		if halt := d.halt(u); halt != nil {
			o.Halted++
			stopped(halt.Since)
		}
	}
	for _, u := range ofName(d.parked, h.Name) {
		o.Parking++
		stopped(d.parked[u].rows[0].Time)
	}
	for _, u := range ofName(d.pauses, h.Name) {
		if u.Key != "" {
			o.Paused++
		}
	}
	for _, u := range ofName(d.tried, h.Name) {
		if d.attempts(u) != nil {
			o.Trying++
		}
	}
	for _, u := range ofName(d.tallies, h.Name) {
		o.Dead += d.tallies[u].all
	}
	for _, n := range []*int{&o.Halted, &o.Parking, &o.Paused, &o.Trying, &o.Dead} {
		*n = min(*n, eventstore.MaxCount)
	}
	return o
}

// ListPauses implements [eventstore.Overviews].
func (s *Store) ListPauses(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Pause, error) {
	if err := eventstore.CheckPage(name, after); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Pause
	err := s.read(ctx, func(d *data) {
		for _, u := range slices.SortedFunc(maps.Keys(d.pauses), compareUnits) {
			if (name == "" || u.Name == name) && compareUnits(u, after) > 0 && len(found) < limit {
				found = append(found, d.pauses[u])
			}
		}
	})
	return found, err
}

// ListPartitions implements [eventstore.Overviews].
func (s *Store) ListPartitions(ctx context.Context, q eventstore.PartitionQuery) ([]eventstore.Partition, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	var found []eventstore.Partition
	err := s.change(ctx, func(d *data) error { // sorts the lanes when new ones came
		for _, name := range slices.Sorted(maps.Keys(d.registry.handlers)) {
			if (q.Name == "" || q.Name == name) && name >= q.After.Name && d.registry.handlers[name].StoreID == "" {
				found = d.appendPartitions(found, &q, name)
			}
		}
		return nil
	})
	return found, err
}

func (d *data) appendPartitions(found []eventstore.Partition, q *eventstore.PartitionQuery, name string) []eventstore.Partition {
	for _, category := range sortedSet(d.registry.handlers[name].Categories) {
		if q.Category != "" && q.Category != category {
			continue
		}
		for _, l := range d.sortedLanes(category) {
			if len(found) == q.Limit {
				return found
			}
			if l.tail == 0 || cmp.Or(cmp.Compare(name, q.After.Name), l.ref.Compare(q.After.Lane)) <= 0 {
				continue
			}
			if p := d.partition(name, l); q.Status == "" || q.Status == p.Status {
				found = append(found, p)
			}
		}
	}
	return found
}

func (d *data) partition(name string, l *lane) eventstore.Partition {
	p := eventstore.Partition{
		Unit: event.Unit{Name: name, Key: l.ref.Key}, Lane: l.ref, Tail: l.tail, Checkpoint: l.checkpoint(name).at,
	}
	standing := d.standing(p.Unit)
	p.Status, p.Since, p.Summary = standing.Status(l.ref, p.Tail, p.Checkpoint)
	return p
}
