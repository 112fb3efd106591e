package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// toRelay is what is kept for a relay.
type toRelay struct {
	relayed bool // as the last Start was
	parts   [event.Parts]struct {
		unpublished map[*lane]struct{} // those whose tail is above what is noted
		looks       map[*lane]look
	}
	diverged map[event.LaneRef]eventstore.Divergence
}

type look struct {
	due    time.Time
	gap    time.Duration
	retire bool
}

func newToRelay() toRelay {
	r := toRelay{diverged: make(map[event.LaneRef]eventstore.Divergence)}
	for i := range r.parts {
		r.parts[i].unpublished, r.parts[i].looks = make(map[*lane]struct{}), make(map[*lane]look)
	}
	return r
}

// relay says whether what is committed from now on is relayed. What was committed while it was not is found here.
func (d *data) relay(on bool) {
	was := d.relayed
	d.relayed = on
	if was || !on {
		return
	}
	for _, l := range d.lanes {
		if l.tail > l.noted {
			d.unpublish(l)
		} else if l.tail > l.passedBy(d.registry.handlersOf(l.ref.Category)) {
			d.lookAt(l, now())
		}
	}
}

func (r *toRelay) unpublish(l *lane) { r.parts[l.part].unpublished[l] = struct{}{} }

// lookAt sets a look, if none is set that is earlier and does more than retire.
func (r *toRelay) lookAt(l *lane, due time.Time) {
	looks := r.parts[l.part].looks
	if known, found := looks[l]; !found || known.retire || due.Before(known.due) {
		looks[l] = look{due: due}
	}
}

// lookBehind sets looks at the lanes of a category that a handler has not passed.
func (d *data) lookBehind(name, category string) {
	if !d.relayed {
		return
	}
	for _, l := range d.lanesOf(category) {
		if l.tail > l.checkpoint(name).at {
			d.lookAt(l, now())
		}
	}
}

// Unpublished implements [eventstore.Relays].
func (s *Store) Unpublished(ctx context.Context, parts []event.Part, limit int) ([]eventstore.Unpublished, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Unpublished
	err := s.read(ctx, func(d *data) {
		if !d.relayed {
			return
		}
		for _, part := range parts {
			for l := range d.parts[part].unpublished {
				if len(found) == limit {
					return
				}
				if _, is := d.diverged[l.ref]; !is {
					found = append(found, eventstore.Unpublished{Lane: l.ref, Published: l.noted, Tail: l.tail})
				}
			}
		}
	})
	return found, err
}

// ReadLanes implements [eventstore.Relays].
func (s *Store) ReadLanes(ctx context.Context, asked []eventstore.LaneRead) ([][]event.Envelope, error) {
	for i := range asked {
		if err := eventstore.CheckLimit(asked[i].Limit); err != nil {
			return nil, err
		}
	}
	found := make([][]*record, len(asked))
	err := s.read(ctx, func(d *data) {
		for i, a := range asked {
			if l := d.lanes[a.Lane]; l != nil {
				run, size := l.run(a.After, a.Limit), 0
				for n, r := range run {
					if !a.Fits(n, len(r.Data), &size) {
						run = run[:n]
						break
					}
				}
				found[i] = slices.Clone(run)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	runs := make([][]event.Envelope, len(asked))
	for i := range found {
		runs[i] = copies(found[i])
	}
	return runs, nil
}

// noting runs f with the data, if the caller holds the parts, and the lanes are of them.
func (s *Store) noting(ctx context.Context, held []eventstore.PartFence, lanes func(yield func(event.LaneRef) bool), f func(*data) error) error {
	return s.change(ctx, func(d *data) error {
		if !d.relayed {
			return eventstore.ErrNotRelayed
		}
		for _, p := range held {
			if g := d.generations[p.Part.Unit()]; g == 0 || g != p.Generation {
				return fmt.Errorf("part %s: %w", p.Part, eventstore.ErrStale)
			}
		}
		for l := range lanes {
			if !eventstore.Holds(held, l) {
				return fmt.Errorf("lane %s is in part %s: %w", l, l.Part(), eventstore.ErrStale)
			}
		}
		return f(d)
	})
}

// lanesOf gives the lanes of rows.
func lanesOf[T any](rows []T, lane func(*T) event.LaneRef) func(func(event.LaneRef) bool) {
	return func(yield func(event.LaneRef) bool) {
		for i := range rows {
			if !yield(lane(&rows[i])) {
				return
			}
		}
	}
}

// NotePublished implements [eventstore.Relays].
func (s *Store) NotePublished(ctx context.Context, held []eventstore.PartFence, notes []eventstore.Published) error {
	lanes := lanesOf(notes, func(n *eventstore.Published) event.LaneRef { return n.Lane })
	return s.noting(ctx, held, lanes, func(d *data) error {
		for _, n := range notes {
			tail := event.Sequence(0)
			if l := d.lanes[n.Lane]; l != nil {
				tail = l.tail
			}
			if n.Through > tail {
				return fmt.Errorf("note %s as published up to #%d: its last record is #%d", n.Lane, n.Through, tail)
			}
		}
		for _, n := range notes {
			l := d.lane(n.Lane)
			if l.noted = max(l.noted, n.Through); l.noted == l.tail {
				delete(d.parts[l.part].unpublished, l)
			}
			if !n.Look.IsZero() {
				d.lookAt(l, n.Look)
			}
		}
		return nil
	})
}

// DueLooks implements [eventstore.Relays].
func (s *Store) DueLooks(ctx context.Context, parts []event.Part, now time.Time, limit int) ([]eventstore.Look, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Look
	err := s.read(ctx, func(d *data) {
		if !d.relayed {
			return
		}
		for _, part := range parts {
			for l, k := range d.parts[part].looks {
				if !k.due.After(now) {
					found = append(found, eventstore.Look{Lane: l.ref, Published: l.noted, Due: k.due, Gap: k.gap, Retire: k.retire})
				}
			}
		}
	})
	slices.SortFunc(found, func(a, b eventstore.Look) int { return cmp.Or(a.Due.Compare(b.Due), a.Lane.Compare(b.Lane)) })
	return found[:min(limit, len(found))], err
}

// SetLooks implements [eventstore.Relays].
func (s *Store) SetLooks(ctx context.Context, held []eventstore.PartFence, looks []eventstore.Look) error {
	lanes := lanesOf(looks, func(k *eventstore.Look) event.LaneRef { return k.Lane })
	return s.noting(ctx, held, lanes, func(d *data) error {
		for _, k := range looks {
			l := d.lane(k.Lane)
			switch all := d.parts[l.part].looks; {
			case l.noted > k.Published:
			case k.Due.IsZero():
				delete(all, l)
			default:
				all[l] = look{due: k.Due, gap: k.Gap, retire: k.Retire}
			}
		}
		return nil
	})
}

// AllLooksDue implements [eventstore.Relays].
func (s *Store) AllLooksDue(ctx context.Context, held []eventstore.PartFence, now time.Time) error {
	return s.noting(ctx, held, lanesOf(nil, func(l *event.LaneRef) event.LaneRef { return *l }), func(d *data) error {
		for _, p := range held {
			looks := d.parts[p.Part].looks
			for l, k := range looks {
				if k.due.After(now) {
					k.due = now
					looks[l] = k
				}
			}
		}
		return nil
	})
}

// Passing implements [eventstore.Relays].
func (s *Store) Passing(ctx context.Context, lanes []event.LaneRef) ([]eventstore.Passing, error) {
	found := make([]eventstore.Passing, len(lanes))
	err := s.read(ctx, func(d *data) {
		for i, ref := range lanes {
			found[i] = d.passing(ref)
		}
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func (d *data) passing(ref event.LaneRef) eventstore.Passing {
	p := eventstore.Passing{Lane: ref}
	if l := d.lanes[ref]; l != nil {
		p.Published, p.Tail, p.First = l.noted, l.tail, l.first()
	}
	for name, h := range d.registry.handlers {
		if !slices.Contains(h.Categories, ref.Category) {
			continue
		}
		s := eventstore.Passed{Name: name, Foreign: h.StoreID != ""}
		if u := (event.Unit{Name: name, Key: ref.Key}); !s.Foreign {
			s.Checkpoint = d.checkpoint(name, ref).at
			s.Stopped = d.halt(u) != nil || d.pause(u) != nil
		}
		p.Subscribers = append(p.Subscribers, s)
	}
	slices.SortFunc(p.Subscribers, func(a, b eventstore.Passed) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// first gives the first record kept, 0 when none is.
func (l *lane) first() event.Sequence {
	if len(l.records) == 0 {
		return 0
	}
	return l.records[0].Sequence
}
