package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

const selectJobs = `SELECT id, kind, handler, key, type, cause, event_id, since, until, state, rate, total, handed, through, failed, actor, reason, began, changed,
	at_key, at_category, at_lane, at_sequence FROM keyhold_jobs `

func scanJob(r rows) (j eventstore.Job, at event.Position, err error) {
	var from, until, began, changed int64
	f := &j.Filter
	err = r.Scan(&j.ID, &j.Kind, &f.Handler, &f.Key, &f.Type, &f.Reason, &f.EventID, &from, &until, &j.State, &j.Rate,
		&j.Total, &j.Handed, &j.Through, &j.Failed, &j.Actor, &j.Reason, &began, &changed, &at.Lane.Key, &at.Lane.Category, &at.Lane.Lane, &at.Sequence)
	f.From, f.Until, j.Began, j.Changed = fromMillis(from), fromMillis(until), fromMillis(began), fromMillis(changed)
	return j, at, err
}

// readJob gives a job and the row that it took last, whose place is a lane and a sequence, or a unit and a [stop].
func readJob(ctx context.Context, q queryer, id int64) (eventstore.Job, event.Position, error) {
	return oneJob(ctx, q, id, ``)
}

func oneJob(ctx context.Context, q queryer, id int64, locking string) (j eventstore.Job, at event.Position, err error) {
	found := false
	err = each(ctx, q, selectJobs+`WHERE id = $1`+locking, []any{id}, func(r rows) error {
		found = true
		j, at, err = scanJob(r)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("job %d: %w", id, eventstore.ErrNotFound)
	}
	return j, at, err
}

// stepping keeps others from taking rows for a job, or acting on it, until the transaction ends. It is not the job's row, which whoever settles a
// dead letter that the job handed out changes while that is locked: rows set aside come first, then rows of jobs.
func (c *connection) stepping(id int64) error {
	_, err := c.exec(`SELECT pg_advisory_xact_lock('keyhold_jobs'::regclass::oid::int4, $1::bigint::int4)`, id&0x7FFF_FFFF)
	return err
}

// lockJob gives a job as it is, and keeps it so.
func (c *connection) lockJob(id int64) (eventstore.Job, error) {
	j, _, err := oneJob(c.ctx, c, id, ` FOR NO KEY UPDATE`)
	return j, err
}

func (c *connection) updateJob(j *eventstore.Job) error {
	_, err := c.exec(`UPDATE keyhold_jobs SET state = $2, handed = $3, through = $4, failed = $5, changed = $6 WHERE id = $1`,
		j.ID, string(j.State), j.Handed, j.Through, j.Failed, millis(j.Changed))
	return err
}

// registered reports the name of no handler.
func registered(ctx context.Context, q queryer, name string) error {
	there, err := get(ctx, q, `SELECT FROM keyhold_handlers WHERE name = $1`, []any{name})
	if err == nil && !there {
		err = fmt.Errorf("no handler or entity kind is called %q: %w", name, eventstore.ErrNotFound)
	}
	return err
}

// StartJob implements [eventstore.Jobs].
func (s operations) StartJob(ctx context.Context, j eventstore.Job) (eventstore.Job, error) {
	if err := j.Validate(); err != nil {
		return eventstore.Job{}, err
	}
	var begun eventstore.Job
	err := s.change(ctx, "start job", func(c *connection) error {
		if err := registered(c.ctx, c, j.Filter.Handler); err != nil {
			return err
		}
		began := actTime(time.Time{})
		total, err := countRows(c.ctx, c, j.Kind, j.Filter, began)
		if err != nil {
			return err
		}
		begun = j.Begun(total, began)
		begun.Filter.From, begun.Filter.Until = fromMillis(millis(j.Filter.From)), fromMillis(millis(j.Filter.Until))
		return c.insertJob(&begun)
	})
	if err != nil {
		return eventstore.Job{}, fmt.Errorf("start job: %w", err)
	}
	return begun, nil
}

// insertJob writes a job that begins, and the row of that act, and sets its id.
func (c *connection) insertJob(j *eventstore.Job) error {
	f := &j.Filter
	if _, err := c.get(`INSERT INTO keyhold_jobs (kind, handler, key, type, cause, event_id, since, until, state, rate, total, actor, reason, began, changed)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) RETURNING id`,
		[]any{string(j.Kind), f.Handler, f.Key, f.Type, words(f.Reason), f.EventID, millis(f.From), millis(f.Until), string(j.State), j.Rate, j.Total,
			words(j.Actor), words(j.Reason), millis(j.Began), millis(j.Changed)}, &j.ID); err != nil {
		return err
	}
	act := j.Record(eventstore.ActStartJob, j.Actor, j.Reason, j.Began)
	c.writeAct(&act)
	return nil
}

// CountJob implements [eventstore.Jobs].
func (s operations) CountJob(ctx context.Context, kind eventstore.JobKind, f eventstore.Filter) (count int, few []eventstore.Dead, err error) {
	if err := kind.Validate(); err != nil {
		return 0, nil, err
	}
	if err := f.Validate(); err != nil {
		return 0, nil, err
	}
	err = s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			if err := registered(ctx, q, f.Handler); err != nil {
				return err
			}
			now := actTime(time.Time{})
			if count, err = countRows(ctx, q, kind, f, now); err != nil || !kind.OfDead() {
				return err
			}
			found, err := deadOf(ctx, q, kind, f, now, event.Position{}, eventstore.FewDead, ``)
			for _, d := range found {
				few = append(few, d.Dead)
			}
			return err
		})
	})
	if err != nil {
		return 0, nil, fmt.Errorf("count for a job: %w", err)
	}
	return count, few, nil
}

// ListJobs implements [eventstore.Jobs].
func (s operations) ListJobs(ctx context.Context, before int64, open bool, limit int) ([]eventstore.Job, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var args arguments
	query := selectJobs + `WHERE TRUE`
	if before > 0 {
		query += ` AND id < ` + args.add(before)
	}
	if open {
		query += ` AND state IN ('running', 'paused')`
	}
	query += ` ORDER BY id DESC LIMIT ` + args.add(limit)
	var found []eventstore.Job
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, query, args, func(r rows) error {
			j, _, err := scanJob(r)
			found = append(found, j)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return found, nil
}

// ReadJob implements [eventstore.Jobs].
func (s operations) ReadJob(ctx context.Context, id int64) (eventstore.Job, error) {
	var found eventstore.Job
	err := s.read(ctx, func(r *readers) (err error) {
		found, _, err = readJob(ctx, r, id)
		return err
	})
	return found, err
}

// ActOnJob implements [eventstore.Jobs].
func (s operations) ActOnJob(ctx context.Context, id int64, kind eventstore.ActKind, actor, reason string) (eventstore.Job, error) {
	if err := eventstore.CheckJobAct(kind, actor); err != nil {
		return eventstore.Job{}, err
	}
	var acted eventstore.Job
	err := s.change(ctx, string(kind), func(c *connection) error {
		if err := c.stepping(id); err != nil {
			return err
		}
		if kind == eventstore.ActCancelJob { // before the job's row; nobody hands out more for it meanwhile
			if _, err := c.exec(`SELECT FROM keyhold_dead WHERE due = $1 AND due > 0 ORDER BY name, key, lane, sequence FOR NO KEY UPDATE`, id); err != nil {
				return err
			}
		}
		now, err := c.lockJob(id)
		if err != nil {
			return err
		}
		if acted, err = now.Acted(kind, actTime(time.Time{})); err != nil {
			return err
		}
		if acted.State == eventstore.JobCancelled {
			if _, err := c.exec(`UPDATE keyhold_dead SET due = 0, suspicions = 0 WHERE due = $1 AND due > 0`, id); err != nil {
				return err
			}
		}
		if err := c.updateJob(&acted); err != nil {
			return err
		}
		act := acted.Record(kind, actor, reason, acted.Changed)
		c.writeAct(&act)
		return nil
	})
	if err != nil && !isOwn(err) {
		err = fmt.Errorf("%s %d: %w", kind, id, err)
	}
	if err != nil {
		return eventstore.Job{}, err
	}
	return acted, nil
}
