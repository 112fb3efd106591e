package sqlite

import (
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// writeAsides makes what a unit sets aside, and what is known of its attempts, part of the transaction.
func (c *connection) writeAsides(changes *eventstore.Changes) error {
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

func (c *connection) writeParked(p *eventstore.Parked) error {
	lane, err := c.lane(p.Lane)
	if err != nil {
		return err
	}
	_, err = c.exec(`INSERT INTO keyhold_parked (name, key, lane, sequence, event_id, event_type, attempts, reason, error, time)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		p.Unit.Name, p.Unit.Key, lane.id, p.Sequence, p.EventID, p.Type, p.Attempts, p.Reason, p.Error, millis(p.Time))
	return err
}

// writeDead replaces a row that is there already: if it was due, it has failed.
func (c *connection) writeDead(d *eventstore.Dead) error {
	lane, err := c.lane(d.Lane)
	if err != nil {
		return err
	}
	n, err := c.exec(`INSERT INTO keyhold_dead (name, lane, sequence, key, event_id, event_type, attempts, reason, error, time)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		d.Unit.Name, lane.id, d.Sequence, d.Unit.Key, d.EventID, d.Type, d.Attempts, d.Reason, d.Error, millis(d.Time))
	if err != nil || n == 1 {
		return err
	}
	if _, err := c.exec(jobFailed, millis(time.Now()), d.Unit.Name, lane.id, d.Sequence); err != nil {
		return err
	}
	_, err = c.exec(`UPDATE keyhold_dead SET due = 0, suspicions = 0, key = ?, event_id = ?, event_type = ?, attempts = ?, reason = ?, error = ?, time = ?
		WHERE name = ? AND lane = ? AND sequence = ?`,
		d.Unit.Key, d.EventID, d.Type, d.Attempts, d.Reason, d.Error, millis(d.Time), d.Unit.Name, lane.id, d.Sequence)
	return err
}

// What becomes of a dead letter counts for the job that handed it out, if one did.
const (
	jobThrough = `UPDATE keyhold_jobs SET through = through + 1, changed = ? WHERE id = (SELECT due FROM keyhold_dead WHERE name = ? AND lane = ? AND sequence = ?)`
	jobFailed  = `UPDATE keyhold_jobs SET failed = failed + 1, changed = ? WHERE id = (SELECT due FROM keyhold_dead WHERE name = ? AND lane = ? AND sequence = ?)`
)

func (c *connection) writeTried(t *eventstore.Tried) error {
	lane, err := c.lane(t.Lane)
	if err != nil {
		return err
	}
	_, err = c.exec(`INSERT OR REPLACE INTO keyhold_tried
		(name, key, lane, sequence, event_id, event_type, attempts, error, time, again, suspicions, alone) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		t.Unit.Name, t.Unit.Key, lane.id, t.Sequence, t.EventID, t.EventType, t.Attempts, t.Error, millis(t.Time), millis(t.Again), t.Suspicions, t.Alone)
	return err
}

func (c *connection) untry(u event.Unit) error {
	_, err := c.exec(`DELETE FROM keyhold_tried WHERE name = ? AND key = ?`, u.Name, u.Key)
	return err
}

// checkParked reports an event that is parked for another of its category where none is parked.
func (c *connection) checkParked(u event.Unit, parked []eventstore.Parked) error {
	for i := range parked {
		category := parked[i].Lane.Category
		if parked[i].Reason != "" || slices.ContainsFunc(parked[:i], func(p eventstore.Parked) bool { return p.Lane.Category == category }) {
			continue
		}
		var there bool
		_, err := c.get(`SELECT EXISTS (SELECT 1 FROM keyhold_parked p JOIN keyhold_lanes n ON n.id = p.lane WHERE p.name = ? AND p.key = ? AND n.category = ?)`,
			[]any{u.Name, u.Key, category}, &there)
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
	query := `SELECT EXISTS (SELECT 1 FROM keyhold_dead d JOIN keyhold_lanes n ON n.id = d.lane
		WHERE d.name = ?1 AND d.key = ?2 AND d.due > 0 AND n.category = ?3 AND n.key = ?4 AND n.lane = ?5 AND d.sequence = ?6)`
	if s.Kind == eventstore.AsideParked {
		query = `SELECT EXISTS (SELECT 1 FROM (SELECT lane, sequence, due FROM keyhold_parked WHERE name = ?1 AND key = ?2 ORDER BY ordinal LIMIT 1) p
			JOIN keyhold_lanes n ON n.id = p.lane WHERE p.due > 0 AND n.category = ?3 AND n.key = ?4 AND n.lane = ?5 AND p.sequence = ?6)`
	}
	var due bool
	_, err := c.get(query, []any{u.Name, u.Key, s.Lane.Category, s.Lane.Key, s.Lane.Lane, s.Sequence}, &due)
	if err == nil && !due {
		err = fmt.Errorf("%s %s #%d of unit %q: %w", what, s.Lane, s.Sequence, u, eventstore.ErrAsideMoved)
	}
	return err
}

// settleAside ends the attempt at a row that checkDue found.
func (c *connection) settleAside(u event.Unit, s *eventstore.Settle) error {
	lane, err := c.lane(s.Lane)
	switch {
	case err != nil:
		return err
	case s.Kind == eventstore.AsideDead:
		return c.settleDead(u, lane.id, s)
	case s.Failed == nil:
		if err := c.dropFirst(u); err != nil {
			return err
		}
		return c.dueFirst(u)
	}
	_, err = c.exec(`UPDATE keyhold_parked SET due = 0, suspicions = 0, attempts = ?, reason = ?, error = ?, time = ?
		WHERE ordinal = (SELECT min(ordinal) FROM keyhold_parked WHERE name = ? AND key = ?)`,
		s.Failed.Attempts, s.Failed.Reason, s.Failed.Error, millis(s.Failed.Time), u.Name, u.Key)
	return err
}

func (c *connection) suspectAside(u event.Unit, s *eventstore.Suspect) error {
	if s.Kind == eventstore.AsideParked {
		_, err := c.exec(`UPDATE keyhold_parked SET suspicions = ? WHERE ordinal = (SELECT min(ordinal) FROM keyhold_parked WHERE name = ? AND key = ?)`,
			s.Suspicions, u.Name, u.Key)
		return err
	}
	lane, err := c.lane(s.Lane)
	if err == nil {
		_, err = c.exec(`UPDATE keyhold_dead SET suspicions = ? WHERE name = ? AND lane = ? AND sequence = ?`, s.Suspicions, u.Name, lane.id, s.Sequence)
	}
	return err
}

// dropFirst deletes the first parked event of a unit.
func (c *connection) dropFirst(u event.Unit) error {
	_, err := c.exec(`DELETE FROM keyhold_parked WHERE ordinal = (SELECT min(ordinal) FROM keyhold_parked WHERE name = ? AND key = ?)`, u.Name, u.Key)
	return err
}

// dueFirst has a unit apply its parked events, if it has any.
func (c *connection) dueFirst(u event.Unit) error {
	_, err := c.exec(`UPDATE keyhold_parked SET due = 1 WHERE ordinal = (SELECT min(ordinal) FROM keyhold_parked WHERE name = ? AND key = ?)`, u.Name, u.Key)
	return err
}

func (c *connection) settleDead(u event.Unit, lane int64, s *eventstore.Settle) error {
	outcome := jobThrough
	if s.Failed != nil {
		outcome = jobFailed
	}
	if _, err := c.exec(outcome, millis(time.Now()), u.Name, lane, s.Sequence); err != nil {
		return err
	}
	if s.Failed == nil {
		_, err := c.exec(`DELETE FROM keyhold_dead WHERE name = ? AND lane = ? AND sequence = ?`, u.Name, lane, s.Sequence)
		return err
	}
	_, err := c.exec(`UPDATE keyhold_dead SET due = 0, suspicions = 0, attempts = ?, reason = ?, error = ?, time = ? WHERE name = ? AND lane = ? AND sequence = ?`,
		s.Failed.Attempts, s.Failed.Reason, s.Failed.Error, millis(s.Failed.Time), u.Name, lane, s.Sequence)
	return err
}
