package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Diverge implements [eventstore.Divergences].
func (s *Store) Diverge(ctx context.Context, held []eventstore.PartFence, d eventstore.Divergence) error {
	return s.noting(ctx, "note a divergence", held, []event.LaneRef{d.Lane}, func(c *connection) error {
		l, err := c.lane(d.Lane)
		if err != nil {
			return err
		}
		_, err = c.exec(`INSERT INTO keyhold_diverged (lane, sequence, event_id, stored_event_id, since) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			l.id, d.Sequence, d.EventID, d.StoredEventID, millis(d.Since))
		return err
	})
}

// ListDiverged implements [eventstore.Divergences].
func (s operations) ListDiverged(ctx context.Context, after event.LaneRef, limit int) ([]eventstore.Divergence, error) {
	if err := eventstore.CheckLane(after); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Divergence
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, `SELECT n.category, n.key, n.lane, v.sequence, v.event_id, v.stored_event_id, v.since
			FROM keyhold_diverged v CROSS JOIN keyhold_lanes n ON n.id = v.lane
			WHERE (n.category, n.key, n.lane) > (?, ?, ?) ORDER BY n.category, n.key, n.lane LIMIT ?`,
			[]any{after.Category, after.Key, after.Lane, limit}, func(rows *sql.Rows) error {
				var d eventstore.Divergence
				var ms int64
				err := rows.Scan(&d.Lane.Category, &d.Lane.Key, &d.Lane.Lane, &d.Sequence, &d.EventID, &d.StoredEventID, &ms)
				d.Since = fromMillis(ms)
				found = append(found, d)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("list divergences: %w", err)
	}
	return found, nil
}

// Adopt implements [eventstore.Divergences].
func (s operations) Adopt(ctx context.Context, seen event.Position, actor, reason string) (eventstore.ActRecord, error) {
	if err := eventstore.CheckLane(seen.Lane); err != nil {
		return eventstore.ActRecord{}, err
	}
	if err := event.CheckID("event id", seen.EventID); err != nil {
		return eventstore.ActRecord{}, err
	}
	ref := seen.Lane
	if err := eventstore.CheckAdopt(ref, actor, reason); err != nil {
		return eventstore.ActRecord{}, err
	}
	var done eventstore.ActRecord
	now := actTime(time.Time{})
	err := s.change(ctx, "adopt", func(c *connection) error {
		d, lane, err := c.diverged(ref)
		if err == nil {
			err = d.Adopts(seen)
		}
		if err != nil {
			return err
		}
		a := d.Adopt()
		if err := c.adopt(lane, &d, a, now); err != nil {
			return err
		}
		done = d.Record(a, actor, reason, now)
		return c.writeAct(&done)
	})
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	return done, nil
}

// diverged gives how a lane stands that diverged.
func (c *connection) diverged(ref event.LaneRef) (d eventstore.Diverged, lane int64, err error) {
	var ms int64
	found, err := c.get(`SELECT n.id, n.last, n.published, v.sequence, v.event_id, v.stored_event_id, v.since,
		(SELECT coalesce(min(sequence), 0) FROM keyhold_log WHERE lane = n.id)
		FROM keyhold_lanes n JOIN keyhold_diverged v ON v.lane = n.id WHERE n.category = ? AND n.key = ? AND n.lane = ?`,
		[]any{ref.Category, ref.Key, ref.Lane}, &lane, &d.Tail, &d.Published, &d.Sequence, &d.EventID, &d.StoredEventID, &ms, &d.First)
	switch {
	case err != nil:
		return d, 0, err
	case !found:
		return d, 0, fmt.Errorf("adopt %s: it did not diverge: %w", ref, eventstore.ErrNotFound)
	}
	d.Lane, d.Since = ref, fromMillis(ms)
	err = each(noContext, c, `SELECT p.sequence, coalesce(l.id = p.event_id, 0) FROM keyhold_checkpoints p LEFT JOIN keyhold_log l ON l.lane = p.lane AND l.sequence = p.sequence
		WHERE p.lane = ? AND p.sequence > ? AND p.event_id <> ''`, []any{lane, d.Published}, func(rows *sql.Rows) error {
		var at eventstore.AppliedAt
		err := rows.Scan(&at.Sequence, &at.Stored)
		d.Applied = append(d.Applied, at)
		return err
	})
	return d, lane, err
}

func (c *connection) adopt(lane int64, d *eventstore.Diverged, a eventstore.Adoption, now time.Time) error {
	if a.Shift > 0 {
		if err := c.renumber(lane, d.Lane.Category, a); err != nil {
			return err
		}
		if err := c.fill(lane, d, a, now); err != nil {
			return err
		}
	}
	if _, err := c.exec(`UPDATE keyhold_lanes SET last = ?, published = ? WHERE id = ?`, a.Tail, a.Published, lane); err != nil {
		return err
	}
	c.counts.drawn(d.Lane.Category, int(a.Tail-d.Tail), d.Tail == 0)
	if err := c.run([]any{lane}, `DELETE FROM keyhold_diverged WHERE lane = ?`, `DELETE FROM keyhold_unpublished WHERE lane = ?`); err != nil {
		return err
	}
	if a.Tail > a.Published {
		if err := c.unpublish(d.Lane, lane); err != nil {
			return err
		}
	}
	return c.putLook(&eventstore.Look{Lane: d.Lane, Due: now}, lane)
}

// following are the tables whose rows follow a record to its new sequence; SQLite compares keys row by row, so all go where nobody else is first.
var following = [...]struct{ table, id string }{
	{"keyhold_checkpoints", "event_id"}, {"keyhold_halts", "event_id"}, {"keyhold_tried", "event_id"},
	{"keyhold_dead", "event_id"}, {"keyhold_parked", "event_id"}, {"keyhold_abandoned", ""}, {"keyhold_log", ""},
}

// renumber moves the records of a lane, the last of all, and what follows them.
func (c *connection) renumber(lane int64, category string, a eventstore.Adoption) error {
	var moved []string
	if err := each(noContext, c, `SELECT p.name FROM keyhold_checkpoints p JOIN keyhold_log l ON l.lane = p.lane AND l.sequence = p.sequence AND l.id = p.event_id
		WHERE p.lane = ? AND p.sequence > ?`, []any{lane, a.Common}, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		moved = append(moved, name)
		return err
	}); err != nil {
		return err
	}
	for _, name := range moved {
		c.counts.placed(name, category, int64(a.Shift))
	}
	for _, f := range following {
		same := ``
		if f.id != "" {
			same = ` AND ` + f.id + ` = (SELECT l.id FROM keyhold_log l WHERE l.lane = ` + f.table + `.lane AND l.sequence = ` + f.table + `.sequence)`
		}
		if _, err := c.exec(`UPDATE `+f.table+` SET sequence = -(sequence + ?) WHERE lane = ? AND sequence > ?`+same, a.Shift, lane, a.Common); err != nil {
			return err
		}
		if _, err := c.exec(`UPDATE `+f.table+` SET sequence = -sequence WHERE lane = ? AND sequence < 0`, lane); err != nil {
			return err
		}
	}
	return nil
}

// fill puts voids between what is in common and what was renumbered. They are of the kind that a purge leaves.
func (c *connection) fill(lane int64, d *eventstore.Diverged, a eventstore.Adoption, now time.Time) error {
	for seq := a.Common + 1; seq <= d.Sequence; seq++ {
		id := event.NewID()
		if seq == d.Sequence {
			id = d.EventID
		}
		if _, err := c.exec(`INSERT INTO keyhold_log (lane, sequence, void, held, id, type, version, encoding, time) VALUES (?, ?, 1, 1, ?, '', 0, '', ?)`,
			lane, seq, id, millis(now)); err != nil {
			return err
		}
	}
	first, err := c.firstKept(lane)
	if err != nil {
		return err
	}
	return c.releaseFirst(lane, first)
}
