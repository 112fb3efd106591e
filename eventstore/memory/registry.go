package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/keyhold/keyhold/eventstore"
)

// registry is what the application declared.
type registry struct {
	revision   uint64
	broker     string // the first one
	categories map[string]eventstore.Category
	handlers   map[string]eventstore.Handler
	types      map[typeKey]eventstore.Type
}

type typeKey struct {
	name    string
	version int
}

func newRegistry() registry {
	return registry{
		categories: make(map[string]eventstore.Category),
		handlers:   make(map[string]eventstore.Handler),
		types:      make(map[typeKey]eventstore.Type),
	}
}

// handlersOf gives the names of those that subscribe to a category and keep their checkpoints here.
func (r *registry) handlersOf(category string) []string {
	var names []string
	for name, h := range r.handlers {
		if h.StoreID == "" && slices.Contains(h.Categories, category) {
			names = append(names, name)
		}
	}
	return names
}

// readElsewhere reports whether anybody subscribes to a category who keeps its checkpoints in another store.
func (r *registry) readElsewhere(category string) bool {
	for _, h := range r.handlers {
		if h.StoreID != "" && slices.Contains(h.Categories, category) {
			return true
		}
	}
	return false
}

// LoadRegistry implements [eventstore.Registry].
func (s *Store) LoadRegistry(ctx context.Context) (eventstore.Registered, error) {
	var out eventstore.Registered
	err := s.read(ctx, func(d *data) {
		r := &d.registry
		out.Revision = r.revision
		out.Categories = slices.SortedFunc(maps.Values(r.categories), func(a, b eventstore.Category) int { return cmp.Compare(a.Name, b.Name) })
		out.Handlers = slices.SortedFunc(maps.Values(r.handlers), func(a, b eventstore.Handler) int { return cmp.Compare(a.Name, b.Name) })
		out.Types = slices.SortedFunc(maps.Values(r.types), func(a, b eventstore.Type) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
		})
	})
	for i := range out.Handlers {
		h := &out.Handlers[i]
		h.Categories, h.Types, h.Begins = slices.Clone(h.Categories), slices.Clone(h.Types), maps.Clone(h.Begins)
	}
	for i := range out.Types {
		t := &out.Types[i]
		t.Fields, t.Descriptor = slices.Clone(t.Fields), bytes.Clone(t.Descriptor)
	}
	return out, err
}

// Revision implements [eventstore.Registry].
func (s *Store) Revision(ctx context.Context) (revision uint64, err error) {
	err = s.read(ctx, func(d *data) { revision = d.registry.revision })
	return revision, err
}

// FirstBroker implements [eventstore.Registry].
func (s *Store) FirstBroker(ctx context.Context, memory string) (first string, err error) {
	err = s.change(ctx, func(d *data) error {
		if d.registry.broker == "" {
			d.registry.broker = memory
		}
		first = d.registry.broker
		return nil
	})
	return first, err
}

// SaveRegistry implements [eventstore.Registry].
func (s *Store) SaveRegistry(ctx context.Context, saved eventstore.Registered, starts []eventstore.Start) error {
	return s.change(ctx, func(d *data) error {
		r := &d.registry
		if saved.Revision != r.revision {
			return &eventstore.RegistryError{Expected: saved.Revision, Actual: r.revision}
		}
		r.revision++
		var begun []eventstore.Start // of handlers that are new to a category
		for _, c := range saved.Categories {
			r.categories[c.Name] = c
		}
		for _, h := range saved.Handlers {
			before := r.handlers[h.Name]
			h.Seen = max(before.Seen, s.generation) // another that runs may have started later
			r.handlers[h.Name] = h
			for _, category := range h.Categories {
				if (before.StoreID == "") != (h.StoreID == "") || !slices.Contains(before.Categories, category) {
					begun = append(begun, eventstore.Start{Handler: h.Name, Category: category})
				}
			}
		}
		for _, t := range saved.Types {
			r.types[typeKey{t.Name, t.Version}] = t
		}
		for _, start := range starts {
			d.start(start)
		}
		for _, b := range begun {
			d.lookBehind(b.Handler, b.Category)
		}
		return nil
	})
}

// start gives a new subscription its checkpoints.
func (d *data) start(s eventstore.Start) {
	if s.Foreign {
		for _, at := range s.Places {
			if l := d.lane(at.Lane); at.Sequence > 0 && l.checkpoint(s.Handler).at == 0 {
				l.pass(mark{name: s.Handler, at: at.Sequence, id: at.EventID})
			}
		}
		return
	}
	for _, l := range d.sortedLanes(s.Category) {
		if l.checkpoint(s.Handler).at == 0 {
			if m := l.before(s); m.at > 0 {
				l.pass(m)
			}
		}
	}
}

// before gives the checkpoint from which s begins in the lane.
func (l *lane) before(s eventstore.Start) mark {
	m := mark{name: s.Handler, at: l.tail}
	if !s.Now {
		if at := slices.IndexFunc(l.records, func(r *record) bool { return !r.Time.Before(s.From) }); at >= 0 {
			m.at = l.records[at].Sequence - 1
		}
	}
	if at, found := l.at(m.at); found {
		m.id = l.records[at].ID
	}
	return m
}

// CategoryHasEvents implements [eventstore.Registry].
func (s *Store) CategoryHasEvents(ctx context.Context, name string) (bool, error) {
	has := false
	err := s.read(ctx, func(d *data) {
		c := d.categories[name]
		has = c != nil && slices.ContainsFunc(c.lanes, func(l *lane) bool { return len(l.records) > 0 })
	})
	return has, err
}
