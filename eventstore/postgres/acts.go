package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
	var err error
	switch a.Kind {
	case eventstore.ActRename, eventstore.ActRemove, eventstore.ActReset:
		err = s.changeAlone(ctx, string(a.Kind), func(c *connection) error { return c.actOnHandler(&a, &done) })
	default:
		err = s.change(ctx, string(a.Kind), func(c *connection) error { return c.actOnUnit(&a, 0, &done) })
	}
	if err != nil && !isOwn(err) {
		err = fmt.Errorf("%s %q: %w", a.Kind, a.Unit, err)
	}
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	return done, nil
}

// actOnUnit locks, decides on the present state, and carries out.
func (c *connection) actOnUnit(a *eventstore.Act, job int64, done *eventstore.ActRecord) error {
	if err := c.lockUnits(a.Unit); err != nil {
		return err
	}
	at, err := c.lockCheckpoint(a.Unit.Name, a.Seen.Lane)
	if err != nil {
		return err
	}
	now, err := unitState(c.ctx, c, c.storeID, a.Unit)
	if err != nil {
		return err
	}
	deed, err := a.Decide(now, at) // a halt in another lane than the one locked is not the one seen
	if err != nil {
		return err
	}
	if err := c.carryOut(a.Unit, &deed); err != nil {
		return err
	}
	*done = a.Record(deed)
	done.Job = job
	c.writeAct(done)
	return nil
}

// lockCheckpoint gives how far a name is with a lane, and keeps it there. Where it has no row yet there is nothing to lock, and pass sees to that.
func (c *connection) lockCheckpoint(name string, lane event.LaneRef) (at event.Sequence, err error) {
	if lane.Category == "" {
		return 0, nil
	}
	_, err = c.get(`SELECT c.sequence FROM keyhold_checkpoints c JOIN keyhold_lanes n ON n.id = c.lane
		WHERE c.name = $1 AND n.category = $2 AND n.key = $3 AND n.lane = $4 FOR NO KEY UPDATE OF c`, []any{name, lane.Category, lane.Key, int16(lane.Lane)}, &at)
	return at, err
}

func (c *connection) carryOut(u event.Unit, d *eventstore.Deed) error {
	var steps []func() error
	if d.LiftHalt {
		steps = append(steps, func() error { return c.lift(u) }, func() error { return c.untry(u) })
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
	if d.Advance != nil {
		steps = append(steps, func() error { return c.pass(u.Name, d.Advance) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// pass moves a checkpoint by compare-and-set.
func (c *connection) pass(name string, a *eventstore.Advance) error {
	lane, err := c.lane(a.Lane)
	if err != nil {
		return err
	}
	n, err := c.exec(`INSERT INTO keyhold_checkpoints AS c (name, lane, sequence, event_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name, lane) DO UPDATE SET sequence = excluded.sequence, event_id = excluded.event_id WHERE c.sequence = $5`,
		name, lane, int64(a.To), a.EventID, int64(a.From))
	if err == nil && n == 0 { // it had no row when it was decided, and now it has one
		err = fmt.Errorf("somebody moved the checkpoint of %s meanwhile, look again: %w", a.Lane, eventstore.ErrTrouble)
	}
	if err != nil {
		return err
	}
	c.counts.moved(name, a.Lane.Category, int64(a.To-a.From))
	return nil
}

func (c *connection) writePause(p *eventstore.Pause) error {
	_, err := c.exec(`INSERT INTO keyhold_pauses (name, key, actor, reason, since) VALUES ($1, $2, $3, $4, $5)`,
		p.Unit.Name, p.Unit.Key, words(p.Actor), words(p.Reason), millis(p.Since))
	return err
}

func (c *connection) deletePause(u event.Unit) error {
	_, err := c.exec(`DELETE FROM keyhold_pauses WHERE name = $1 AND key = $2`, u.Name, u.Key)
	return err
}

// writeAct has the transaction leave the row that tells what was done, when it ends; the row's id is set then.
func (c *connection) writeAct(r *eventstore.ActRecord) { c.acts = append(c.acts, r) }

// flush makes part of the transaction what is written at its end: counts, on which one may have to wait, so that nobody is to wait for what
// comes after; and rows of acts. From there to the commit nobody else draws an id of an act, so that the order of ids is the order of
// commits, and whoever has seen one has seen all below it.
func (c *connection) flush() error {
	if err := c.writeCounts(); err != nil || len(c.acts) == 0 {
		return err
	}
	lanes := make([]int64, len(c.acts))
	for i, r := range c.acts {
		if r.Event.Sequence == 0 {
			continue
		}
		lane, err := c.lane(r.Event.Lane)
		if err != nil {
			return err
		}
		lanes[i] = lane
	}
	if _, err := c.exec(`SELECT pg_advisory_xact_lock('keyhold_acts'::regclass::oid::int4, 0)`); err != nil {
		return err
	}
	batch := new(pgx.Batch)
	for i, r := range c.acts {
		batch.Queue(`INSERT INTO keyhold_acts (kind, name, key, lane, sequence, event_id, job, actor, reason, detail, time)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING id`,
			string(r.Kind), r.Unit.Name, r.Unit.Key, lanes[i], int64(r.Event.Sequence), r.Event.EventID, r.Job, words(r.Actor), words(r.Reason), words(r.Detail), millis(r.Time),
		).QueryRow(func(row pgx.Row) error { return row.Scan(&r.ID) })
	}
	c.acts = nil
	return c.conn.SendBatch(c.ctx, batch).Close()
}

const selectActs = `SELECT a.id, a.kind, a.name, a.key, coalesce(n.category, ''), coalesce(n.key, ''), coalesce(n.lane, 0), a.sequence, a.event_id,
	a.job, a.actor, a.reason, a.detail, a.time FROM keyhold_acts a LEFT JOIN keyhold_lanes n ON n.id = a.lane `

func (s operations) acts(ctx context.Context, where string, args ...any) (found []eventstore.ActRecord, err error) {
	err = s.read(ctx, func(r *readers) error {
		return each(ctx, r, selectActs+where, args, func(r rows) error {
			var a eventstore.ActRecord
			var ms int64
			err := r.Scan(&a.ID, &a.Kind, &a.Unit.Name, &a.Unit.Key, &a.Event.Lane.Category, &a.Event.Lane.Key, &a.Event.Lane.Lane,
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
	return s.acts(ctx, `WHERE a.id > $1 ORDER BY a.id LIMIT $2`, id, limit)
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
	var args arguments
	where := `WHERE TRUE`
	if q.Name != "" {
		where += ` AND a.name = ` + args.add(q.Name)
	}
	if q.Key != "" {
		where += ` AND a.key = ` + args.add(q.Key)
	}
	if q.Before > 0 {
		where += ` AND a.id < ` + args.add(q.Before)
	}
	where += ` ORDER BY a.id DESC LIMIT ` + args.add(q.Limit)
	return s.acts(ctx, where, args...)
}
