package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// actTime is when an act is done, as precisely as it is kept.
func actTime(t time.Time) time.Time {
	if t.IsZero() {
		t = time.Now()
	}
	return fromMillis(millis(t))
}

// Act implements [eventstore.Acts].
func (s operations) Act(ctx context.Context, a eventstore.Act) (eventstore.ActRecord, error) {
	if err := a.Validate(); err != nil {
		return eventstore.ActRecord{}, err
	}
	a.Time = actTime(a.Time)
	var done eventstore.ActRecord
	err := s.change(ctx, string(a.Kind), func(c *connection) (err error) {
		switch a.Kind {
		case eventstore.ActRename, eventstore.ActRemove, eventstore.ActReset:
			done, err = c.actOnHandler(&a)
		default:
			done, err = c.actOnUnit(&a, 0)
		}
		return err
	})
	if err != nil && !isOwn(err) {
		err = fmt.Errorf("%s %q: %w", a.Kind, a.Unit, err)
	}
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	return done, nil
}

// actOnUnit decides on the present state, and carries out.
func (c *connection) actOnUnit(a *eventstore.Act, job int64) (eventstore.ActRecord, error) {
	now, err := unitState(noContext, c, c.storeID, a.Unit)
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	var at event.Position
	if now.Halt != nil {
		if at, err = checkpoint(noContext, c, a.Unit.Name, now.Halt.Lane); err != nil {
			return eventstore.ActRecord{}, err
		}
	}
	deed, err := a.Decide(now, at.Sequence)
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	if err := c.carryOut(a.Unit, &deed); err != nil {
		return eventstore.ActRecord{}, err
	}
	done := a.Record(deed)
	done.Job = job
	return done, c.writeAct(&done)
}

func (c *connection) carryOut(u event.Unit, d *eventstore.Deed) error {
	var steps []func() error
	if d.LiftHalt {
		steps = append(steps, func() error { return c.lift(u) }, func() error { return c.untry(u) })
	}
	if d.Advance != nil {
		steps = append(steps, func() error {
			return c.writeCheckpoints(&eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Advance: []eventstore.Advance{*d.Advance}})
		})
	}
	if d.Dead != nil {
		steps = append(steps, func() error { return c.writeDead(d.Dead) })
	}
	if d.DropFirst {
		steps = append(steps, func() error { return c.dropFirst(u) })
	}
	if d.DueFirst {
		steps = append(steps, func() error { return c.dueFirst(u) })
	}
	if d.Pause != nil {
		steps = append(steps, func() error { return c.writePause(d.Pause) })
	}
	if d.Resume {
		steps = append(steps, func() error { return c.deletePause(u) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) lift(u event.Unit) error {
	_, err := c.exec(`DELETE FROM keyhold_halts WHERE name = ? AND key = ?`, u.Name, u.Key)
	return err
}

func (c *connection) writePause(p *eventstore.Pause) error {
	_, err := c.exec(`INSERT INTO keyhold_pauses (name, key, actor, reason, since) VALUES (?, ?, ?, ?, ?)`,
		p.Unit.Name, p.Unit.Key, p.Actor, p.Reason, millis(p.Since))
	return err
}

func (c *connection) deletePause(u event.Unit) error {
	_, err := c.exec(`DELETE FROM keyhold_pauses WHERE name = ? AND key = ?`, u.Name, u.Key)
	return err
}

// writeAct leaves the row that tells what was done, and sets its id.
func (c *connection) writeAct(r *eventstore.ActRecord) error {
	id := int64(0)
	if r.Event.Sequence > 0 {
		lane, err := c.lane(r.Event.Lane)
		if err != nil {
			return err
		}
		id = lane.id
	}
	_, err := c.get(`INSERT INTO keyhold_acts (kind, name, key, lane, sequence, event_id, job, actor, reason, detail, time)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id`,
		[]any{string(r.Kind), r.Unit.Name, r.Unit.Key, id, r.Event.Sequence, r.Event.EventID, r.Job, r.Actor, r.Reason, r.Detail, millis(r.Time)}, &r.ID)
	return err
}

const selectActs = `SELECT a.id, a.kind, a.name, a.key, coalesce(n.category, ''), coalesce(n.key, ''), coalesce(n.lane, 0), a.sequence, a.event_id,
	a.job, a.actor, a.reason, a.detail, a.time FROM keyhold_acts a LEFT JOIN keyhold_lanes n ON n.id = a.lane `

func (s operations) acts(ctx context.Context, where string, args ...any) (found []eventstore.ActRecord, err error) {
	err = s.read(ctx, func(r *readers) error {
		return each(ctx, r, selectActs+where, args, func(rows *sql.Rows) error {
			var a eventstore.ActRecord
			var ms int64
			err := rows.Scan(&a.ID, &a.Kind, &a.Unit.Name, &a.Unit.Key, &a.Event.Lane.Category, &a.Event.Lane.Key, &a.Event.Lane.Lane,
				&a.Event.Sequence, &a.Event.EventID, &a.Job, &a.Actor, &a.Reason, &a.Detail, &ms)
			a.Time = fromMillis(ms)
			found = append(found, a)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read acts: %w", err)
	}
	return found, nil
}

// ActsAfter implements [eventstore.Acts].
func (s operations) ActsAfter(ctx context.Context, id int64, limit int) ([]eventstore.ActRecord, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	return s.acts(ctx, `WHERE a.id > ? ORDER BY a.id LIMIT ?`, id, limit)
}

// LastAct implements [eventstore.Acts].
func (s operations) LastAct(ctx context.Context) (id int64, err error) {
	err = s.read(ctx, func(r *readers) error {
		_, err := get(ctx, r, `SELECT coalesce(max(id), 0) FROM keyhold_acts`, nil, &id)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("last act: %w", err)
	}
	return id, nil
}

// ListActs implements [eventstore.Acts].
func (s operations) ListActs(ctx context.Context, q eventstore.ActQuery) ([]eventstore.ActRecord, error) {
	if err := eventstore.CheckUnit(event.Unit{Name: q.Name, Key: q.Key}); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(q.Limit); err != nil {
		return nil, err
	}
	where, args := `WHERE TRUE`, []any(nil)
	if q.Name != "" {
		where, args = where+` AND a.name = ?`, append(args, q.Name)
	}
	if q.Key != "" {
		where, args = where+` AND a.key = ?`, append(args, q.Key)
	}
	if q.Before > 0 {
		where, args = where+` AND a.id < ?`, append(args, q.Before)
	}
	return s.acts(ctx, where+` ORDER BY a.id DESC LIMIT ?`, append(args, q.Limit)...)
}
