package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// StepJob implements [eventstore.Jobs].
func (s operations) StepJob(ctx context.Context, id int64, max int) (eventstore.Job, []event.Unit, error) {
	if err := eventstore.CheckLimit(max); err != nil {
		return eventstore.Job{}, nil, err
	}
	var stepped eventstore.Job
	var units []event.Unit
	err := s.change(ctx, "step job", func(c *connection) error {
		now, at, err := readJob(noContext, c, id)
		if stepped, units = now, nil; err != nil || now.State != eventstore.JobRunning {
			return err
		}
		step := jobStep{c: c, job: &now, at: at, time: actTime(time.Time{})}
		more := false
		if now.Kind.OfDead() {
			more, err = step.takeDead(max)
		} else {
			more, err = step.takeStops(max)
		}
		if err != nil {
			return err
		}
		stepped, units = now.Stepped(more, step.time), step.units
		if err := c.updateJob(&stepped); err != nil {
			return err
		}
		_, err = c.exec(`UPDATE keyhold_jobs SET at_key = ?, at_category = ?, at_lane = ?, at_sequence = ? WHERE id = ?`,
			step.at.Lane.Key, step.at.Lane.Category, step.at.Lane.Lane, step.at.Sequence, id)
		return err
	})
	if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
		err = fmt.Errorf("step job %d: %w", id, err)
	}
	if err != nil {
		return eventstore.Job{}, nil, err
	}
	return stepped, units, nil
}

// jobStep is one commit of a job.
type jobStep struct {
	c     *connection
	job   *eventstore.Job
	at    event.Position // of the row taken last
	time  time.Time
	units []event.Unit
}

func (s *jobStep) took(u event.Unit) {
	s.job.Handed++
	if !slices.Contains(s.units, u) {
		s.units = append(s.units, u)
	}
}

// takeDead hands dead letters out, or deletes them. One that is due for a replay is through with it when it goes.
func (s *jobStep) takeDead(max int) (more bool, err error) {
	rows, err := deadOf(noContext, s.c, s.job.Kind, s.job.Filter, s.job.Began, s.at, max+1)
	if err != nil {
		return false, err
	}
	for _, d := range rows[:min(max, len(rows))] {
		s.at = event.Position{Lane: event.LaneRef{Category: d.Lane.Category, Key: d.Unit.Key, Lane: d.Lane.Lane}, Sequence: d.Sequence}
		s.took(d.Unit)
		if s.job.Kind == eventstore.JobReplay {
			if _, err := s.c.exec(`UPDATE keyhold_dead SET due = ? WHERE name = ? AND lane = ? AND sequence = ?`, s.job.ID, d.Unit.Name, d.lane, d.Sequence); err != nil {
				return false, err
			}
			continue
		}
		s.job.Through++
		if d.due > 0 {
			if _, err := s.c.exec(`UPDATE keyhold_jobs SET through = through + 1, changed = ? WHERE id = ?`, millis(s.time), d.due); err != nil {
				return false, err
			}
		}
		if _, err := s.c.exec(`DELETE FROM keyhold_dead WHERE name = ? AND lane = ? AND sequence = ?`, d.Unit.Name, d.lane, d.Sequence); err != nil {
			return false, err
		}
	}
	return len(rows) > max, nil
}

// takeStops acts on what has stopped units. An act that is refused has failed, and the job goes on.
func (s *jobStep) takeStops(max int) (more bool, err error) {
	stops, err := stopsOf(noContext, s.c, s.job.Filter, s.job.Began, s.at, max+1)
	if err != nil {
		return false, err
	}
	for _, stop := range stops[:min(max, len(stops))] {
		s.at = event.Position{Lane: event.LaneRef{Key: stop.unit.Key}, Sequence: stop.kind}
		act, found, err := s.actOn(stop)
		if err != nil {
			return false, err
		}
		if !found {
			continue
		}
		s.took(stop.unit)
		switch _, err := s.c.actOnUnit(&act, s.job.ID); {
		case err == nil:
			s.job.Through++
		case isOwn(err):
			s.job.Failed++
		default:
			return false, err
		}
	}
	return len(stops) > max, nil
}

func (s *jobStep) actOn(stop stop) (act eventstore.Act, found bool, err error) {
	if stop.kind == stopHalt {
		h, err := halt(noContext, s.c, stop.unit)
		if err != nil || h == nil {
			return act, false, err
		}
		return s.job.OnHalt(h, s.time), true, nil
	}
	p, err := parking(noContext, s.c, stop.unit)
	if err != nil || p == nil {
		return act, false, err
	}
	return s.job.OnParking(p, s.time), true, nil
}

// deadRow is a dead letter as a job takes it.
type deadRow struct {
	eventstore.Dead
	lane, due int64
}

// deadOf reads dead letters that a job takes, in order, after the place given. What another replay has handed out is left to that.
func deadOf(ctx context.Context, q queryer, kind eventstore.JobKind, f eventstore.Filter, began time.Time, after event.Position, limit int) (found []deadRow, err error) {
	where, args := rowsOf(&f, "d", "time", began)
	if kind == eventstore.JobReplay {
		where += ` AND d.due = 0`
	}
	args = append(args, after.Lane.Key, after.Lane.Key, after.Lane.Category, after.Lane.Lane, after.Sequence, limit)
	err = each(ctx, q, `SELECT `+deadColumns+`, d.lane, d.due FROM keyhold_dead d CROSS JOIN keyhold_lanes n ON n.id = d.lane WHERE `+where+`
		AND d.key >= ? AND (d.key, n.category, n.lane, d.sequence) > (?, ?, ?, ?) ORDER BY d.key, n.category, n.lane, d.sequence LIMIT ?`, args, func(rows *sql.Rows) error {
		var d deadRow
		var err error
		d.Dead, err = scanDead(rows, &d.lane, &d.due)
		found = append(found, d)
		return err
	})
	return found, err
}

// rowsOf is the condition of what a filter selects at a time: at is the column that tells when a row of the table was set aside or stopped.
func rowsOf(f *eventstore.Filter, table, at string, began time.Time) (where string, args []any) {
	where, args = table+`.name = ? AND `+table+`.`+at+` <= ?`, []any{f.Handler, millis(began)}
	and := func(condition string, arg any) {
		where, args = where+` AND `+table+`.`+condition, append(args, arg)
	}
	if f.Key != "" {
		and(`key = ?`, f.Key)
	}
	if f.Type != "" {
		and(`event_type = ?`, f.Type)
	}
	if f.Reason != "" {
		and(`reason = ?`, f.Reason)
	}
	if f.EventID != "" {
		and(`event_id = ?`, f.EventID)
	}
	if !f.From.IsZero() {
		and(at+` >= ?`, millis(f.From))
	}
	if !f.Until.IsZero() {
		and(at+` < ?`, millis(f.Until))
	}
	return where, args
}

// stop is what has stopped a unit, as a job on units takes it.
type stop struct {
	unit event.Unit
	kind event.Sequence // in the place of a sequence among what a job keeps of its place
}

const (
	stopHalt event.Sequence = iota + 1
	stopParked
)

// stopsQuery selects halts that are not void, and the first of the parked events of each unit unless that is due, as (key, kind).
func stopsQuery(f *eventstore.Filter, began time.Time) (query string, args []any) {
	halts, args := rowsOf(f, "h", "since", began)
	parked, more := rowsOf(f, "p", "time", began)
	return `SELECT h.key AS key, 1 AS kind FROM keyhold_halts h LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
			WHERE ` + halts + ` AND h.sequence > coalesce(c.sequence, 0)
		UNION ALL SELECT p.key, 2 FROM keyhold_parked p WHERE ` + parked + ` AND p.due = 0
			AND p.ordinal = (SELECT min(ordinal) FROM keyhold_parked WHERE name = p.name AND key = p.key)`, append(args, more...)
}

// stopsOf reads the stops that a job takes next. It begins at its place in both tables and reads no more of either than may be needed, as the
// writer waits for it at each step.
func stopsOf(ctx context.Context, q queryer, f eventstore.Filter, began time.Time, after event.Position, limit int) (found []stop, err error) {
	halts, args := rowsOf(&f, "h", "since", began)
	parked, more := rowsOf(&f, "p", "time", began)
	key, kind := after.Lane.Key, after.Sequence
	args = append([]any{f.Handler, key, f.Handler}, args...)
	args = append(args, key, key, kind, limit, f.Handler)
	args = append(append(args, more...), key, kind, limit, limit)
	err = each(ctx, q, `WITH RECURSIVE keys (key) AS (SELECT min(key) FROM keyhold_parked WHERE name = ? AND key >= ?
			UNION ALL SELECT (SELECT min(key) FROM keyhold_parked WHERE name = ? AND key > k.key) FROM keys k WHERE k.key IS NOT NULL ORDER BY 1)
		SELECT key, kind FROM (
			SELECT * FROM (SELECT h.key AS key, 1 AS kind FROM keyhold_halts h LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
				WHERE `+halts+` AND h.sequence > coalesce(c.sequence, 0) AND h.key >= ? AND (h.key, 1) > (?, ?) ORDER BY h.key LIMIT ?)
			UNION ALL SELECT * FROM (SELECT p.key, 2 FROM keys k CROSS JOIN keyhold_parked p
				ON p.ordinal = (SELECT min(ordinal) FROM keyhold_parked WHERE name = ? AND key = k.key)
				WHERE k.key IS NOT NULL AND `+parked+` AND p.due = 0 AND (p.key, 2) > (?, ?) LIMIT ?))
		ORDER BY key, kind LIMIT ?`, args, func(rows *sql.Rows) error {
		s := stop{unit: event.Unit{Name: f.Handler}}
		err := rows.Scan(&s.unit.Key, &s.kind)
		found = append(found, s)
		return err
	})
	return found, err
}

// countRows counts what a job would take.
func countRows(ctx context.Context, q queryer, kind eventstore.JobKind, f eventstore.Filter, began time.Time) (count int, err error) {
	query, args := stopsQuery(&f, began)
	if kind.OfDead() {
		query, args = rowsOf(&f, "d", "time", began)
		query = `SELECT 1 FROM keyhold_dead d WHERE ` + query
		if kind == eventstore.JobReplay {
			query += ` AND d.due = 0`
		}
	}
	_, err = get(ctx, q, `SELECT count(*) FROM (`+query+`)`, args, &count)
	return count, err
}
