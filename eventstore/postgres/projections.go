package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ListProjections implements [eventstore.Projections].
func (s operations) ListProjections(ctx context.Context) (all []eventstore.Projection, err error) {
	err = s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			all, err = loadProjections(ctx, q, "")
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list projections: %w", err)
	}
	return all, nil
}

// ReadProjection implements [eventstore.Projections].
func (s operations) ReadProjection(ctx context.Context, name string) (p eventstore.Projection, err error) {
	if err := event.CheckID("projection", name); err != nil {
		return eventstore.Projection{}, err
	}
	err = s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			p, err = loadProjection(ctx, q, name)
			return err
		})
	})
	if err != nil {
		return eventstore.Projection{}, fmt.Errorf("projection %q: %w", name, err)
	}
	return p, nil
}

// loadProjection gives one; its name is "" beside the error that says that there is none.
func loadProjection(ctx context.Context, q queryer, name string) (eventstore.Projection, error) {
	all, err := loadProjections(ctx, q, name)
	if err == nil && len(all) == 0 {
		err = eventstore.ErrNotFound
	}
	if err != nil {
		return eventstore.Projection{}, err
	}
	return all[0], nil
}

// loadProjections gives that of a name, or all of them for "".
func loadProjections(ctx context.Context, q queryer, name string) (all []eventstore.Projection, err error) {
	err = each(ctx, q, `SELECT name, version, categories, since, declared, last,
			pause_actor IS NOT NULL, coalesce(pause_actor, ''), coalesce(pause_reason, ''), coalesce(pause_since, 0)
			FROM keyhold_projections WHERE $1 IN ('', name) ORDER BY name`, []any{name}, func(r rows) error {
		var p eventstore.Projection
		var pause eventstore.Pause
		var paused bool
		var since, pausedSince int64
		err := r.Scan(&p.Name, &p.Version, list{&p.Categories}, &since, &p.Declared, &p.Last, &paused, &pause.Actor, &pause.Reason, &pausedSince)
		p.Since = fromMillis(since)
		if paused {
			pause.Unit, pause.Since = event.Unit{Name: p.Name}, fromMillis(pausedSince)
			p.Pause = &pause
		}
		if len(p.Categories) == 0 {
			p.Categories = nil
		}
		all = append(all, p)
		return err
	})
	for i := range all {
		if err != nil {
			return nil, err
		}
		if all[i].Builds, err = loadBuilds(ctx, q, all[i].Name); err == nil {
			all[i].Left, err = loadLeft(ctx, q, all[i].Name)
		}
	}
	return all, err
}

func loadBuilds(ctx context.Context, q queryer, name string) (all []eventstore.ProjectionBuild, err error) {
	err = each(ctx, q, `SELECT number, version, state, set_up, tables, position, event_id, event_time, moved, applied, passed, skipped, began, switched,
			stopped, attempts, suspicions, reason, error, changed, again, at_id, at_type, at_category, at_key, at_lane, at_sequence, at_position, at_time
			FROM keyhold_projection_builds WHERE name = $1 ORDER BY number`, []any{name}, func(r rows) error {
		var (
			b            eventstore.ProjectionBuild
			at           eventstore.ProjectionEvent
			h            eventstore.ProjectionHalt
			stopped      int
			suspicions   int
			changed      time.Time
			again        time.Time
			pos, atPlace int64
		)
		err := r.Scan(&b.Number, &b.Version, &b.State, &b.SetUp, list{&b.Tables}, &pos, &b.EventID, moment{&b.EventTime}, moment{&b.Moved},
			&b.Applied, &b.Passed, &b.Skipped, moment{&b.Began}, moment{&b.Switched},
			&stopped, &h.Attempts, &suspicions, &h.Reason, &h.Error, moment{&changed}, moment{&again},
			&at.ID, &at.Type, &at.Place.Lane.Category, &at.Place.Lane.Key, &at.Place.Lane.Lane, &at.Place.Sequence, &atPlace, moment{&at.Time})
		b.Position, at.Position, at.Place.EventID = position(pos), position(atPlace), at.ID
		switch stopped {
		case stoppedTrying:
			b.Tried = &eventstore.ProjectionTried{Event: at, Attempts: h.Attempts, Error: h.Error, Time: changed, Again: again, Suspicions: suspicions}
		case stoppedHalted:
			h.Event, h.Since = at, changed
			b.Halt = &h
		}
		if len(b.Tables) == 0 {
			b.Tables = nil
		}
		all = append(all, b)
		return err
	})
	return all, err
}

// keyhold_projection_builds.stopped
const (
	stoppedTrying = 1
	stoppedHalted = 2
)

// position is a place in the log as the port has it.
func position(n int64) eventstore.Position {
	if n == 0 {
		return ""
	}
	return eventstore.Position(strconv.FormatInt(n, 10))
}

// moment is a column with a time, 0 for the zero one.
type moment struct{ into *time.Time }

// ScanInt64 implements [pgtype.Int64Scanner].
func (m moment) ScanInt64(ms pgtype.Int8) error {
	*m.into = time.Time{}
	if ms.Int64 != 0 {
		*m.into = fromMillis(ms.Int64)
	}
	return nil
}

// momentOf is how moment is kept.
func momentOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return millis(t)
}

// saveProjection writes a projection and all its builds.
func (c *connection) saveProjection(p *eventstore.Projection) error {
	categories, err := json.Marshal(append([]string{}, p.Categories...))
	if err != nil {
		return err
	}
	var actor, reason, since any
	if p.Pause != nil {
		actor, reason, since = words(p.Pause.Actor), words(p.Pause.Reason), millis(p.Pause.Since)
	}
	if _, err := c.exec(`INSERT INTO keyhold_projections (name, version, categories, since, declared, last, pause_actor, pause_reason, pause_since)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (name) DO UPDATE SET version = excluded.version, categories = excluded.categories,
		since = excluded.since, declared = excluded.declared, last = excluded.last, pause_actor = excluded.pause_actor, pause_reason = excluded.pause_reason,
		pause_since = excluded.pause_since`,
		p.Name, p.Version, string(categories), millis(p.Since), p.Declared, p.Last, actor, reason, since); err != nil {
		return err
	}
	for i := range p.Builds {
		if err := c.saveBuild(p.Name, &p.Builds[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) saveBuild(name string, b *eventstore.ProjectionBuild) error {
	tables, err := json.Marshal(append([]string{}, b.Tables...))
	if err != nil {
		return err
	}
	at, err := parsePosition(b.Position)
	if err != nil {
		return err
	}
	var (
		stopped        int
		suspicions     int
		h              eventstore.ProjectionHalt
		changed, again time.Time
	)
	switch {
	case b.Halt != nil:
		stopped, h, changed = stoppedHalted, *b.Halt, b.Halt.Since
	case b.Tried != nil:
		t := b.Tried
		stopped, changed, again, suspicions = stoppedTrying, t.Time, t.Again, t.Suspicions
		h = eventstore.ProjectionHalt{Event: t.Event, Attempts: t.Attempts, Error: t.Error}
	}
	place, err := parsePosition(h.Event.Position)
	if err != nil {
		return err
	}
	lane := h.Event.Place.Lane
	_, err = c.exec(`INSERT INTO keyhold_projection_builds
		(name, number, version, state, set_up, tables, position, event_id, event_time, moved, applied, passed, skipped, began, switched,
		stopped, attempts, suspicions, reason, error, changed, again, at_id, at_type, at_category, at_key, at_lane, at_sequence, at_position, at_time)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30)
		ON CONFLICT (name, number) DO UPDATE SET version = excluded.version, state = excluded.state, set_up = excluded.set_up, tables = excluded.tables,
		position = excluded.position, event_id = excluded.event_id, event_time = excluded.event_time, moved = excluded.moved,
		applied = excluded.applied, passed = excluded.passed, skipped = excluded.skipped, began = excluded.began,
		switched = excluded.switched, stopped = excluded.stopped, attempts = excluded.attempts, suspicions = excluded.suspicions,
		reason = excluded.reason, error = excluded.error, changed = excluded.changed, again = excluded.again, at_id = excluded.at_id,
		at_type = excluded.at_type, at_category = excluded.at_category, at_key = excluded.at_key, at_lane = excluded.at_lane,
		at_sequence = excluded.at_sequence, at_position = excluded.at_position, at_time = excluded.at_time`,
		name, b.Number, b.Version, string(b.State), b.SetUp, string(tables), at, b.EventID, momentOf(b.EventTime), momentOf(b.Moved),
		int64(b.Applied), int64(b.Passed), int64(b.Skipped), momentOf(b.Began), momentOf(b.Switched),
		stopped, h.Attempts, suspicions, words(h.Reason), words(h.Error), momentOf(changed), momentOf(again),
		h.Event.ID, h.Event.Type, lane.Category, lane.Key, int16(lane.Lane), int64(h.Event.Place.Sequence), place, momentOf(h.Event.Time))
	return err
}

// lockProjection keeps a projection as it is until the transaction ends. One that is not there is not locked: only DeclareProjections makes one.
func (c *connection) lockProjection(name string) error {
	_, err := c.exec(`SELECT FROM keyhold_projections WHERE name = $1 FOR UPDATE`, name)
	return err
}

// lockedProjection gives a projection as it is, and keeps it so; the error is [eventstore.ErrNotFound] when there is none.
func (c *connection) lockedProjection(name string) (eventstore.Projection, error) {
	if err := c.lockProjection(name); err != nil {
		return eventstore.Projection{}, err
	}
	return loadProjection(c.ctx, c, name)
}

// ActOnProjection implements [eventstore.Projections].
func (s operations) ActOnProjection(ctx context.Context, a eventstore.ProjectionAct) (done eventstore.ActRecord, err error) {
	if err := a.Validate(); err != nil {
		return done, err
	}
	a.Time = actTime(a.Time)
	err = s.change(ctx, string(a.Kind), func(c *connection) error {
		p, err := c.lockedProjection(a.Name)
		if err != nil {
			return fmt.Errorf("%s projection %q: %w", a.Kind, a.Name, err)
		}
		detail, at, turn, err := p.Act(&a)
		if err != nil {
			return err
		}
		left, err := c.turn(&p, &turn)
		if err != nil {
			return err
		}
		if left != nil {
			detail += fmt.Sprintf("; tables are left, and it is tried again to drop them at the next start: %v", left)
		}
		if a.Kind == eventstore.ActRemove {
			_, err = c.exec(`DELETE FROM keyhold_projections WHERE name = $1`, p.Name)
		} else {
			err = c.saveProjection(&p)
		}
		if err != nil {
			return err
		}
		done = eventstore.ActRecord{
			Kind: a.Kind, Unit: event.Unit{Name: a.Name}, Event: at, Actor: a.Actor, Reason: a.Reason, Detail: detail, Time: a.Time,
		}
		c.writeAct(&done)
		return nil
	})
	if err != nil && !isOwn(err) {
		err = fmt.Errorf("%s projection %q: %w", a.Kind, a.Name, err)
	}
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	return done, nil
}
