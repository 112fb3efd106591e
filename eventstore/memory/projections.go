package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ListProjections implements [eventstore.Projections].
func (s *Store) ListProjections(ctx context.Context) (all []eventstore.Projection, err error) {
	err = s.read(ctx, func(d *data) {
		for _, name := range slices.Sorted(maps.Keys(d.projections)) {
			all = append(all, d.projections[name].Clone())
		}
	})
	return all, err
}

// ReadProjection implements [eventstore.Projections].
func (s *Store) ReadProjection(ctx context.Context, name string) (p eventstore.Projection, err error) {
	if err := event.CheckID("projection", name); err != nil {
		return eventstore.Projection{}, err
	}
	var known bool
	err = s.read(ctx, func(d *data) {
		p, known = d.projections[name]
		p = p.Clone()
	})
	if err == nil && !known {
		err = fmt.Errorf("projection %q: %w", name, eventstore.ErrNotFound)
	}
	return p, err
}

// ProjectionLag implements [eventstore.Projections].
func (s *Store) ProjectionLag(ctx context.Context, after eventstore.Position, categories []string) (lag eventstore.ProjectionLag, err error) {
	lag.End = after
	for {
		page, err := s.ReadPlaced(ctx, nil, lag.End, categories, eventstore.MaxLimit)
		if err != nil {
			return eventstore.ProjectionLag{}, err
		}
		if len(page) == 0 {
			return lag, nil
		}
		if lag.Behind == 0 {
			lag.First = page[0].Time
		}
		lag.Behind += uint64(len(page))
		lag.End = page[len(page)-1].Position
	}
}

// ReadPlaced implements [eventstore.ProjectionBuilds].
func (s *Store) ReadPlaced(ctx context.Context, db eventstore.SQL, after eventstore.Position, categories []string, limit int) ([]eventstore.Placed, error) {
	if db != nil {
		return nil, eventstore.ErrNoSQL
	}
	found, err := s.findAll(ctx, after, categories, limit)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	all := make([]eventstore.Placed, len(found))
	for i, e := range copies(found) {
		all[i] = eventstore.Placed{Envelope: e, Position: eventstore.Position(strconv.FormatUint(found[i].position, 10))}
	}
	return all, nil
}

// Barren implements [eventstore.ProjectionBuilds].
func (s *Store) Barren(ctx context.Context, after eventstore.Position, categories []string) (end eventstore.Position, err error) {
	const far = 4096
	from, err := parsePosition(after)
	if err != nil {
		return after, err
	}
	end = after
	err = s.read(ctx, func(d *data) {
		p := eventstore.Projection{ProjectionDeclared: eventstore.ProjectionDeclared{Categories: categories}}
		rest := d.log[d.logAfter(from):]
		if len(rest) > far && !slices.ContainsFunc(rest, func(r *record) bool { return !r.Void() && d.isRead(&p, r.Category) }) {
			end = eventstore.Position(strconv.FormatUint(rest[len(rest)-1].position, 10))
		}
	})
	return end, err
}

// DeclareProjections implements [eventstore.ProjectionBuilds].
func (s *Store) DeclareProjections(ctx context.Context, declared []eventstore.ProjectionDeclared) (all []eventstore.Projection, err error) {
	err = s.change(ctx, func(d *data) error {
		now := maps.Clone(d.projections)
		for name, p := range now {
			p.Declared = false
			now[name] = p
		}
		for _, one := range declared {
			if h, ok := d.registry.handlers[one.Name]; ok {
				return eventstore.ProjectionNameTaken(one.Name, h.Kind)
			}
			p := now[one.Name].Clone()
			if _, err := p.Declare(one, time.Now().UTC()); err != nil {
				return err
			}
			now[one.Name] = p
			all = append(all, p.Clone())
		}
		d.projections = now
		return nil
	})
	return all, err
}

// DropBuild implements [eventstore.ProjectionBuilds].
func (s *Store) DropBuild(ctx context.Context, name string, number int) error {
	return s.change(ctx, func(d *data) error {
		p := d.projections[name].Clone()
		if b := p.Build(number); b != nil && b.State == eventstore.BuildOld {
			p.Forget(number)
			d.projections[name] = p
		}
		return nil
	})
}

// DropLeft implements [eventstore.ProjectionBuilds]. There are no tables.
func (s *Store) DropLeft(ctx context.Context) error { return s.read(ctx, func(*data) {}) }

// ActOnProjection implements [eventstore.Projections].
func (s *Store) ActOnProjection(ctx context.Context, a eventstore.ProjectionAct) (done eventstore.ActRecord, err error) {
	if err := a.Validate(); err != nil {
		return done, err
	}
	if a.Time.IsZero() {
		a.Time = time.Now().UTC()
	}
	err = s.change(ctx, func(d *data) error {
		p, known := d.projections[a.Name]
		if !known {
			return fmt.Errorf("%s projection %q: %w", a.Kind, a.Name, eventstore.ErrNotFound)
		}
		p = p.Clone()
		detail, at, _, err := p.Act(&a)
		if err != nil {
			return err
		}
		d.projections[a.Name] = p
		if a.Kind == eventstore.ActRemove {
			delete(d.projections, a.Name)
		}
		done = d.record(eventstore.ActRecord{
			Kind: a.Kind, Unit: event.Unit{Name: a.Name}, Event: at, Actor: a.Actor, Reason: a.Reason, Detail: detail, Time: a.Time,
		})
		return nil
	})
	return done, err
}

func (d *data) checkStep(s *eventstore.ProjectionStep) error {
	_, err := d.stepped(s)
	return err
}

// applyStep changes a projection by a step that was checked.
func (d *data) applyStep(s *eventstore.ProjectionStep) {
	if p, err := d.stepped(s); s != nil && err == nil {
		d.projections[s.Name] = p
	}
}

// stepped gives a projection as it is after a step, or why the step is refused.
func (d *data) stepped(s *eventstore.ProjectionStep) (p eventstore.Projection, err error) {
	if s == nil {
		return p, nil
	}
	p = d.projections[s.Name].Clone()
	_, err = p.Step(s, func() (bool, error) {
		position, err := parsePosition(s.To)
		return err == nil && !slices.ContainsFunc(d.log[d.logAfter(position):], func(r *record) bool {
			return !r.Void() && d.isRead(&p, r.Category)
		}), err
	})
	return p, err
}

// isRead reports whether a projection is given the events of a category.
func (d *data) isRead(p *eventstore.Projection, category string) bool {
	if len(p.Categories) > 0 {
		return slices.Contains(p.Categories, category)
	}
	return !d.registry.categories[category].Commands
}

// unread reports whether a build of a projection has still to be given a record, be it by a program of another version that is put back.
func (d *data) unread(r *record) bool {
	if r.Void() {
		return false
	}
	for _, p := range d.projections {
		for i := range p.Builds {
			b := &p.Builds[i]
			if at, err := parsePosition(b.Position); b.State != eventstore.BuildOld && (err != nil || at < r.position) && d.isRead(&p, r.Category) {
				return true
			}
		}
	}
	return false
}
