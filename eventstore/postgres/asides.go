package postgres

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// unitLocks is how many locks there are for units: units share them, as a transaction that locks many would else fill the database's table of locks.
const unitLocks = 1024

// lockUnits waits until nobody else changes what stands in the way of these units (halts, what is set aside, attempts, pauses), and keeps
// others from it until the transaction ends: what is not there is locked, too. Whoever decides by any of that locks first, and reads in a
// statement after that. A transaction that locks several units does so in one call, or two could wait for one another. Dead
// letters are also changed by jobs, which lock row by row and no units.
func (c *connection) lockUnits(units ...event.Unit) error {
	keys := make([]int32, len(units))
	for i, u := range units {
		keys[i] = unitLock(u)
	}
	slices.Sort(keys)
	_, err := c.exec(`SELECT pg_advisory_xact_lock('keyhold_units'::regclass::oid::int4, k) FROM unnest($1::int4[]) k`, slices.Compact(keys))
	return err
}

func unitLock(u event.Unit) int32 {
	h := fnv.New32a()
	h.Write([]byte(u.Name + "\x00" + u.Key)) // never an error
	return int32(h.Sum32() % unitLocks)
}

// checkAsides locks the units whose rows changes are about, and reports what is not as they believe it. Most changes are about none, and cost nothing here.
func (c *connection) checkAsides(changes *eventstore.Changes) error {
	u := changes.Fence.Unit
	var units []event.Unit
	if changes.Halt != nil || len(changes.Dead) > 0 || len(changes.Park) > 0 || changes.Settle != nil || changes.Suspect != nil || changes.Tried != nil || changes.Untry {
		units = append(units, u)
	}
	if changes.LiftHalt != nil {
		units = append(units, changes.LiftHalt.Unit)
	}
	if len(units) == 0 {
		return nil
	}
	if err := c.lockUnits(units...); err != nil {
		return err
	}
	if changes.LiftHalt != nil {
		if err := c.checkHalt(*changes.LiftHalt); err != nil {
			return err
		}
	}
	if err := c.checkParked(u, changes.Park); err != nil {
		return err
	}
	if changes.Suspect != nil {
		if err := c.checkDue("suspect", u, changes.Suspect.AsideRef); err != nil {
			return err
		}
	}
	if changes.Settle != nil {
		return c.checkDue("settle", u, changes.Settle.AsideRef)
	}
	return nil
}

// writeAsides makes halts, what a unit sets aside, and what is known of its attempts, part of the transaction.
func (c *connection) writeAsides(changes *eventstore.Changes) error {
	if err := c.writeHalts(changes); err != nil {
		return err
	}
	for i := range changes.Park {
		if err := c.writeParked(&changes.Park[i]); err != nil {
			return err
		}
	}
	if changes.Settle != nil {
		if err := c.settleAside(changes.Fence.Unit, changes.Settle); err != nil {
			return err
		}
	}
	if changes.Suspect != nil {
		if err := c.suspectAside(changes.Fence.Unit, changes.Suspect); err != nil {
			return err
		}
	}
	if changes.Untry {
		return c.untry(changes.Fence.Unit)
	}
	if changes.Tried != nil {
		return c.writeTried(changes.Tried)
	}
	return nil
}

// checkHalt reports that a unit is not halted there.
func (c *connection) checkHalt(wanted eventstore.HaltRef) error {
	now, err := halt(c.ctx, c, wanted.Unit)
	if err == nil && (now == nil || now.Ref() != wanted) {
		err = &eventstore.HaltMovedError{Wanted: wanted, Now: now}
	}
	return err
}

func (c *connection) writeHalts(changes *eventstore.Changes) error {
	if ref := changes.LiftHalt; ref != nil {
		if err := c.lift(ref.Unit); err != nil {
			return err
		}
	}
	if h := changes.Halt; h != nil {
		lane, err := c.lane(h.Lane)
		if err != nil {
			return err
		}
		if _, err := c.exec(`INSERT INTO keyhold_halts (name, key, lane, sequence, event_id, event_type, attempts, reason, error, since, generation)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (name, key) DO UPDATE SET lane = excluded.lane, sequence = excluded.sequence,
			event_id = excluded.event_id, event_type = excluded.event_type, attempts = excluded.attempts, reason = excluded.reason, error = excluded.error,
			since = excluded.since, generation = excluded.generation`,
			h.Unit.Name, h.Unit.Key, lane, int64(h.Sequence), h.EventID, h.EventType, h.Attempts, words(h.Reason), words(h.Error), millis(h.Since), int64(h.Generation)); err != nil {
			return err
		}
	}
	for i := range changes.Dead {
		if err := c.writeDead(&changes.Dead[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) lift(u event.Unit) error {
	_, err := c.exec(`DELETE FROM keyhold_halts WHERE name = $1 AND key = $2`, u.Name, u.Key)
	return err
}

func (c *connection) writeParked(p *eventstore.Parked) error {
	lane, err := c.lane(p.Lane)
	if err != nil {
		return err
	}
	_, err = c.exec(`INSERT INTO keyhold_parked (name, key, lane, sequence, event_id, event_type, attempts, reason, error, time)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		p.Unit.Name, p.Unit.Key, lane, int64(p.Sequence), p.EventID, p.Type, p.Attempts, words(p.Reason), words(p.Error), millis(p.Time))
	return err
}

// writeDead replaces a row that is there already: if it was due, it has failed.
func (c *connection) writeDead(d *eventstore.Dead) error {
	lane, err := c.lane(d.Lane)
	if err != nil {
		return err
	}
	for {
		n, err := c.exec(`INSERT INTO keyhold_dead (name, lane, sequence, key, event_id, event_type, attempts, reason, error, time)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`,
			d.Unit.Name, lane, int64(d.Sequence), d.Unit.Key, d.EventID, d.Type, d.Attempts, words(d.Reason), words(d.Error), millis(d.Time))
		if err != nil || n == 1 {
			return err
		}
		there, err := c.get(`SELECT FROM keyhold_dead WHERE name = $1 AND lane = $2 AND sequence = $3 FOR UPDATE`, []any{d.Unit.Name, lane, int64(d.Sequence)})
		if err != nil {
			return err
		}
		if there {
			break
		} // else a purge deleted it in between
	}
	if _, err := c.exec(jobFailed, millis(time.Now()), d.Unit.Name, lane, int64(d.Sequence)); err != nil {
		return err
	}
	_, err = c.exec(`UPDATE keyhold_dead SET due = 0, suspicions = 0, key = $4, event_id = $5, event_type = $6, attempts = $7, reason = $8, error = $9, time = $10
		WHERE name = $1 AND lane = $2 AND sequence = $3`,
		d.Unit.Name, lane, int64(d.Sequence), d.Unit.Key, d.EventID, d.Type, d.Attempts, words(d.Reason), words(d.Error), millis(d.Time))
	return err
}

// What becomes of a dead letter counts for the job that handed it out, if one did. The row is locked.
const (
	jobThrough = `UPDATE keyhold_jobs SET through = through + 1, changed = $1 WHERE id = (SELECT due FROM keyhold_dead WHERE name = $2 AND lane = $3 AND sequence = $4)`
	jobFailed  = `UPDATE keyhold_jobs SET failed = failed + 1, changed = $1 WHERE id = (SELECT due FROM keyhold_dead WHERE name = $2 AND lane = $3 AND sequence = $4)`
)

func (c *connection) writeTried(t *eventstore.Tried) error {
	lane, err := c.lane(t.Lane)
	if err != nil {
		return err
	}
	_, err = c.exec(`INSERT INTO keyhold_tried (name, key, lane, sequence, event_id, event_type, attempts, error, time, again, suspicions, alone)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (name, key) DO UPDATE SET lane = excluded.lane, sequence = excluded.sequence,
		event_id = excluded.event_id, event_type = excluded.event_type, attempts = excluded.attempts, error = excluded.error, time = excluded.time,
		again = excluded.again, suspicions = excluded.suspicions, alone = excluded.alone`,
		t.Unit.Name, t.Unit.Key, lane, int64(t.Sequence), t.EventID, t.EventType, t.Attempts, words(t.Error), millis(t.Time), millis(t.Again), t.Suspicions, t.Alone)
	return err
}

func (c *connection) untry(u event.Unit) error {
	_, err := c.exec(`DELETE FROM keyhold_tried WHERE name = $1 AND key = $2`, u.Name, u.Key)
	return err
}

// checkParked reports an event that is parked for another of its category where none is parked.
func (c *connection) checkParked(u event.Unit, parked []eventstore.Parked) error {
	for i := range parked {
		category := parked[i].Lane.Category
		if parked[i].Reason != "" || slices.ContainsFunc(parked[:i], func(p eventstore.Parked) bool { return p.Lane.Category == category }) {
			continue
		}
		there, err := c.get(`SELECT FROM keyhold_parked p JOIN keyhold_lanes n ON n.id = p.lane WHERE p.name = $1 AND p.key = $2 AND n.category = $3 LIMIT 1`,
			[]any{u.Name, u.Key, category})
		if err == nil && !there {
			err = fmt.Errorf("park %s #%d of unit %q: nothing of its category is parked: %w", parked[i].Lane, parked[i].Sequence, u, eventstore.ErrAsideMoved)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkDue reports a row that is not there, or not due: a parked one must be the first of its unit.
func (c *connection) checkDue(what string, u event.Unit, s eventstore.AsideRef) error {
	query := `SELECT FROM keyhold_dead d JOIN keyhold_lanes n ON n.id = d.lane
		WHERE d.name = $1 AND d.key = $2 AND d.due > 0 AND n.category = $3 AND n.key = $4 AND n.lane = $5 AND d.sequence = $6 FOR UPDATE OF d`
	if s.Kind == eventstore.AsideParked {
		query = `SELECT FROM (SELECT lane, sequence, due FROM keyhold_parked WHERE name = $1 AND key = $2 ORDER BY ordinal LIMIT 1) p
			JOIN keyhold_lanes n ON n.id = p.lane WHERE p.due AND n.category = $3 AND n.key = $4 AND n.lane = $5 AND p.sequence = $6`
	}
	due, err := c.get(query, []any{u.Name, u.Key, s.Lane.Category, s.Lane.Key, int16(s.Lane.Lane), int64(s.Sequence)})
	if err == nil && !due {
		err = fmt.Errorf("%s %s #%d of unit %q: %w", what, s.Lane, s.Sequence, u, eventstore.ErrAsideMoved)
	}
	return err
}

// settleAside ends the attempt at a row that checkDue found.
func (c *connection) settleAside(u event.Unit, s *eventstore.Settle) error {
	switch {
	case s.Kind == eventstore.AsideDead:
		return c.settleDead(u, s)
	case s.Failed == nil:
		if err := c.dropFirst(u); err != nil {
			return err
		}
		return c.dueFirst(u)
	}
	_, err := c.exec(`UPDATE keyhold_parked SET due = FALSE, suspicions = 0, attempts = $3, reason = $4, error = $5, time = $6 WHERE ordinal = `+firstParked,
		u.Name, u.Key, s.Failed.Attempts, words(s.Failed.Reason), words(s.Failed.Error), millis(s.Failed.Time))
	return err
}

func (c *connection) suspectAside(u event.Unit, s *eventstore.Suspect) error {
	if s.Kind == eventstore.AsideParked {
		_, err := c.exec(`UPDATE keyhold_parked SET suspicions = $3 WHERE ordinal = `+firstParked, u.Name, u.Key, s.Suspicions)
		return err
	}
	lane, err := c.lane(s.Lane)
	if err == nil {
		_, err = c.exec(`UPDATE keyhold_dead SET suspicions = $4 WHERE name = $1 AND lane = $2 AND sequence = $3`, u.Name, lane, int64(s.Sequence), s.Suspicions)
	}
	return err
}

// firstParked is the ordinal of the first parked event of a unit.
const firstParked = `(SELECT min(ordinal) FROM keyhold_parked WHERE name = $1 AND key = $2)`

// dropFirst deletes the first parked event of a unit.
func (c *connection) dropFirst(u event.Unit) error {
	_, err := c.exec(`DELETE FROM keyhold_parked WHERE ordinal = `+firstParked, u.Name, u.Key)
	return err
}

// dueFirst has a unit apply its parked events, if it has any.
func (c *connection) dueFirst(u event.Unit) error {
	_, err := c.exec(`UPDATE keyhold_parked SET due = TRUE WHERE ordinal = `+firstParked, u.Name, u.Key)
	return err
}

func (c *connection) settleDead(u event.Unit, s *eventstore.Settle) error {
	lane, err := c.lane(s.Lane)
	if err != nil {
		return err
	}
	outcome := jobThrough
	if s.Failed != nil {
		outcome = jobFailed
	}
	if _, err := c.exec(outcome, millis(time.Now()), u.Name, lane, int64(s.Sequence)); err != nil {
		return err
	}
	if s.Failed == nil {
		_, err := c.exec(`DELETE FROM keyhold_dead WHERE name = $1 AND lane = $2 AND sequence = $3`, u.Name, lane, int64(s.Sequence))
		return err
	}
	_, err = c.exec(`UPDATE keyhold_dead SET due = 0, suspicions = 0, attempts = $4, reason = $5, error = $6, time = $7 WHERE name = $1 AND lane = $2 AND sequence = $3`,
		u.Name, lane, int64(s.Sequence), s.Failed.Attempts, words(s.Failed.Reason), words(s.Failed.Error), millis(s.Failed.Time))
	return err
}
