package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// mostStops is how many units a job acts on in one commit: each is locked, and its owner waits.
const mostStops = 250

// StepJob implements [eventstore.Jobs].
func (s operations) StepJob(ctx context.Context, id int64, max int) (eventstore.Job, []event.Unit, error) {
	if err := eventstore.CheckLimit(max); err != nil {
		return eventstore.Job{}, nil, err
	}
	var stepped eventstore.Job
	var units []event.Unit
	err := s.change(ctx, "step job", func(c *connection) (err error) {
		stepped, units, err = c.stepJob(id, max)
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

func (c *connection) stepJob(id int64, max int) (eventstore.Job, []event.Unit, error) {
	if err := c.stepping(id); err != nil {
		return eventstore.Job{}, nil, err
	}
	before, at, err := readJob(c.ctx, c, id)
	if err != nil || before.State != eventstore.JobRunning {
		return before, nil, err
	}
	step := jobStep{c: c, job: &before, at: at, time: actTime(time.Time{})}
	more := false
	if before.Kind.OfDead() {
		more, err = step.takeDead(max)
	} else {
		more, err = step.takeStops(min(max, mostStops))
	}
	if err != nil {
		return before, nil, err
	}
	now, err := c.lockJob(id) // outcomes of what it handed out were counted meanwhile
	if err != nil {
		return before, nil, err
	}
	now.Handed, now.Through, now.Failed = now.Handed+step.handed, now.Through+step.through, now.Failed+step.failed
	now = now.Stepped(more, step.time)
	if err := c.updateJob(&now); err != nil {
		return before, nil, err
	}
	_, err = c.exec(`UPDATE keyhold_jobs SET at_key = $2, at_category = $3, at_lane = $4, at_sequence = $5 WHERE id = $1`,
		id, step.at.Lane.Key, step.at.Lane.Category, int16(step.at.Lane.Lane), int64(step.at.Sequence))
	return now, step.units, err
}

// jobStep is one commit of a job.
type jobStep struct {
	c     *connection
	job   *eventstore.Job
	at    event.Position // of the row taken last
	time  time.Time
	units []event.Unit

	handed, through, failed int
}

func (s *jobStep) took(u event.Unit) {
	s.handed++
	if !slices.Contains(s.units, u) {
		s.units = append(s.units, u)
	}
}

// takeDead hands dead letters out, or deletes them. One that is due for a replay is through with it when it goes.
func (s *jobStep) takeDead(max int) (more bool, err error) {
	found, err := deadOf(s.c.ctx, s.c, s.job.Kind, s.job.Filter, s.job.Began, s.at, max+1, ` FOR UPDATE OF d`)
	if err != nil {
		return false, err
	}
	more = len(found) > max
	found = found[:min(max, len(found))]
	lanes, sequences, replays := make([]int64, len(found)), make([]int64, len(found)), []int64(nil)
	for i, d := range found {
		s.at = event.Position{Lane: event.LaneRef{Category: d.Lane.Category, Key: d.Unit.Key, Lane: d.Lane.Lane}, Sequence: d.Sequence}
		s.took(d.Unit)
		lanes[i], sequences[i] = d.lane, int64(d.Sequence)
		if d.due > 0 {
			replays = append(replays, d.due)
		}
	}
	const rows = ` WHERE d.name = $1 AND (d.lane, d.sequence) IN (SELECT * FROM unnest($2::bigint[], $3::bigint[]))`
	if s.job.Kind == eventstore.JobReplay {
		_, err := s.c.exec(`UPDATE keyhold_dead d SET due = $4`+rows, s.job.Filter.Handler, lanes, sequences, s.job.ID)
		return more, err
	}
	s.through += len(found)
	slices.Sort(replays)
	for len(replays) > 0 {
		id := replays[0]
		n := slices.IndexFunc(replays, func(other int64) bool { return other != id })
		if n < 0 {
			n = len(replays)
		}
		replays = replays[n:]
		if _, err := s.c.exec(`UPDATE keyhold_jobs SET through = through + $2, changed = $3 WHERE id = $1`, id, n, millis(s.time)); err != nil {
			return false, err
		}
	}
	_, err = s.c.exec(`DELETE FROM keyhold_dead d`+rows, s.job.Filter.Handler, lanes, sequences)
	return more, err
}

// takeStops acts on what has stopped units. An act that is refused has failed, and the job goes on.
func (s *jobStep) takeStops(max int) (more bool, err error) {
	stops, err := stopsOf(s.c.ctx, s.c, s.job.Filter, s.job.Began, s.at, max+1)
	if err != nil {
		return false, err
	}
	more = len(stops) > max
	stops = stops[:min(max, len(stops))]
	if len(stops) == 0 {
		return false, nil
	}
	units := make([]event.Unit, len(stops))
	for i := range stops {
		units[i] = stops[i].unit
	}
	if err := s.c.lockUnits(units...); err != nil { // all at once; each act finds its unit locked
		return false, err
	}
	for _, stop := range stops {
		s.at = event.Position{Lane: event.LaneRef{Key: stop.unit.Key}, Sequence: stop.kind}
		act, found, err := s.actOn(stop)
		if err != nil {
			return false, err
		}
		if !found {
			continue
		}
		s.took(stop.unit)
		switch err := s.c.actOnUnit(&act, s.job.ID, new(eventstore.ActRecord)); {
		case err == nil:
			s.through++
		case isOwn(err):
			s.failed++
		default:
			return false, err
		}
	}
	return more, nil
}

func (s *jobStep) actOn(stop stop) (act eventstore.Act, found bool, err error) {
	if stop.kind == stopHalt {
		h, err := halt(s.c.ctx, s.c, stop.unit)
		if err != nil || h == nil {
			return act, false, err
		}
		return s.job.OnHalt(h, s.time), true, nil
	}
	p, err := parking(s.c.ctx, s.c, stop.unit)
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
func deadOf(ctx context.Context, q queryer, kind eventstore.JobKind, f eventstore.Filter, began time.Time, after event.Position, limit int, locking string) (found []deadRow, err error) {
	var args arguments
	where := args.rowsOf(&f, "d", "time", began)
	if kind == eventstore.JobReplay {
		where += ` AND d.due = 0`
	}
	key := args.add(after.Lane.Key)
	query := `SELECT ` + deadColumns + `, d.lane, d.due FROM keyhold_dead d JOIN keyhold_lanes n ON n.id = d.lane WHERE ` + where + `
		AND d.key >= ` + key + ` AND (d.key, n.category, n.lane, d.sequence) > (` + key + `, ` + args.add(after.Lane.Category) + `, ` + args.add(int16(after.Lane.Lane)) + `, ` +
		args.add(int64(after.Sequence)) + `) ORDER BY d.key, n.category, n.lane, d.sequence LIMIT ` + args.add(limit) + locking
	err = each(ctx, q, query, args, func(r rows) error {
		var d deadRow
		var err error
		d.Dead, err = scanDead(r, &d.lane, &d.due)
		found = append(found, d)
		return err
	})
	return found, err
}

// rowsOf is the condition of what a filter selects at a time: at is the column that tells when a row of the table was set aside or stopped.
func (a *arguments) rowsOf(f *eventstore.Filter, table, at string, began time.Time) (where string) {
	where = table + `.name = ` + a.add(f.Handler) + ` AND ` + table + `.` + at + ` <= ` + a.add(millis(began))
	and := func(condition string, arg any) {
		where += ` AND ` + table + `.` + condition + a.add(arg)
	}
	if f.Key != "" {
		and(`key = `, f.Key)
	}
	if f.Type != "" {
		and(`event_type = `, f.Type)
	}
	if f.Reason != "" {
		and(`reason = `, words(f.Reason))
	}
	if f.EventID != "" {
		and(`event_id = `, f.EventID)
	}
	if !f.From.IsZero() {
		and(at+` >= `, millis(f.From))
	}
	if !f.Until.IsZero() {
		and(at+` < `, millis(f.Until))
	}
	return where
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
func (a *arguments) stopsQuery(f *eventstore.Filter, began time.Time) string {
	return `SELECT h.key AS key, 1 AS kind FROM keyhold_halts h LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
			WHERE ` + a.rowsOf(f, "h", "since", began) + ` AND h.sequence > coalesce(c.sequence, 0)
		UNION ALL SELECT p.key, 2 FROM keyhold_parked p WHERE ` + a.rowsOf(f, "p", "time", began) + ` AND NOT p.due
			AND p.ordinal = (SELECT min(ordinal) FROM keyhold_parked WHERE name = p.name AND key = p.key)`
}

// stopsOf reads the stops that a job takes next. It begins at its place in both tables and reads no more of either than may be needed.
func stopsOf(ctx context.Context, q queryer, f eventstore.Filter, began time.Time, after event.Position, limit int) (found []stop, err error) {
	var args arguments
	name, key, kind, most := args.add(f.Handler), args.add(after.Lane.Key), args.add(int64(after.Sequence)), args.add(limit)
	query := `WITH RECURSIVE keys (key) AS (SELECT min(key) FROM keyhold_parked WHERE name = ` + name + ` AND key >= ` + key + `
			UNION ALL SELECT (SELECT min(key) FROM keyhold_parked WHERE name = ` + name + ` AND key > k.key) FROM keys k WHERE k.key IS NOT NULL)
		SELECT key, kind FROM (
			(SELECT h.key AS key, 1 AS kind FROM keyhold_halts h LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
				WHERE ` + args.rowsOf(&f, "h", "since", began) + ` AND h.sequence > coalesce(c.sequence, 0) AND h.key >= ` + key + ` AND (h.key, 1) > (` + key + `, ` + kind + `::bigint)
				ORDER BY h.key LIMIT ` + most + `)
			UNION ALL (SELECT p.key, 2 FROM keys k CROSS JOIN LATERAL (SELECT * FROM keyhold_parked WHERE name = ` + name + ` AND key = k.key ORDER BY ordinal LIMIT 1) p
				WHERE k.key IS NOT NULL AND ` + args.rowsOf(&f, "p", "time", began) + ` AND NOT p.due AND (p.key, 2) > (` + key + `, ` + kind + `::bigint) LIMIT ` + most + `)) s
		ORDER BY key, kind LIMIT ` + most
	err = each(ctx, q, query, args, func(r rows) error {
		s := stop{unit: event.Unit{Name: f.Handler}}
		err := r.Scan(&s.unit.Key, &s.kind)
		found = append(found, s)
		return err
	})
	return found, err
}

// countRows counts what a job would take.
func countRows(ctx context.Context, q queryer, kind eventstore.JobKind, f eventstore.Filter, began time.Time) (count int, err error) {
	var args arguments
	var query string
	if kind.OfDead() {
		query = `SELECT 1 FROM keyhold_dead d WHERE ` + args.rowsOf(&f, "d", "time", began)
		if kind == eventstore.JobReplay {
			query += ` AND d.due = 0`
		}
	} else {
		query = args.stopsQuery(&f, began)
	}
	_, err = get(ctx, q, `SELECT count(*) FROM (`+query+`) s`, args, &count)
	return count, err
}
