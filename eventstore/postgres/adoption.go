package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Diverge implements [eventstore.Divergences].
func (s *Store) Diverge(ctx context.Context, held []eventstore.PartFence, d eventstore.Divergence) error {
	return s.noting(ctx, "note a divergence", held, []event.LaneRef{d.Lane}, func(note *script, ids []int64) {
		note.add(`INSERT INTO keyhold_diverged (lane, sequence, event_id, stored_event_id, since) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
			[]any{ids[0], int64(d.Sequence), d.EventID, d.StoredEventID, millis(d.Since)}, nil)
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
			FROM keyhold_diverged v JOIN keyhold_lanes n ON n.id = v.lane
			WHERE (n.category, n.key, n.lane) > ($1, $2, $3) ORDER BY n.category, n.key, n.lane LIMIT $4`,
			laneArgs(after, limit), func(row rows) error {
				var d eventstore.Divergence
				var ms int64
				err := row.Scan(&d.Lane.Category, &d.Lane.Key, &d.Lane.Lane, &d.Sequence, &d.EventID, &d.StoredEventID, &ms)
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

// Adopt implements [eventstore.Divergences]. Nobody else writes meanwhile.
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
	err := s.changeAlone(ctx, "adopt", func(c *connection) error {
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
		c.writeAct(&done)
		return nil
	})
	if err != nil {
		return eventstore.ActRecord{}, err
	}
	return done, nil
}

// diverged gives how a lane stands that diverged.
func (c *connection) diverged(ref event.LaneRef) (d eventstore.Diverged, lane int64, err error) {
	var ms int64
	found, err := c.get(`SELECT n.id, n.last, coalesce(p.through, 0), v.sequence, v.event_id, v.stored_event_id, v.since,
		(SELECT coalesce(min(sequence), 0) FROM keyhold_log WHERE lane = n.id)
		FROM keyhold_lanes n JOIN keyhold_diverged v ON v.lane = n.id LEFT JOIN keyhold_published p ON p.lane = n.id
		WHERE n.category = $1 AND n.key = $2 AND n.lane = $3`,
		laneArgs(ref), &lane, &d.Tail, &d.Published, &d.Sequence, &d.EventID, &d.StoredEventID, &ms, &d.First)
	switch {
	case err != nil:
		return d, 0, err
	case !found:
		return d, 0, fmt.Errorf("adopt %s: it did not diverge: %w", ref, eventstore.ErrNotFound)
	}
	d.Lane, d.Since = ref, fromMillis(ms)
	err = each(c.ctx, c, `SELECT p.sequence, coalesce(l.id = p.event_id, false) FROM keyhold_checkpoints p LEFT JOIN keyhold_log l ON l.lane = p.lane AND l.sequence = p.sequence
		WHERE p.lane = $1 AND p.sequence > $2 AND p.event_id <> ''`, []any{lane, int64(d.Published)}, func(row rows) error {
		var at eventstore.AppliedAt
		err := row.Scan(&at.Sequence, &at.Stored)
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
	if _, err := c.exec(`UPDATE keyhold_lanes SET last = $2 WHERE id = $1`, lane, int64(a.Tail)); err != nil {
		return err
	}
	if _, err := c.exec(`INSERT INTO keyhold_published (lane, through) SELECT $1, $2::bigint WHERE $2::bigint > 0 ON CONFLICT (lane) DO UPDATE SET through = excluded.through`,
		lane, int64(a.Published)); err != nil {
		return err
	}
	if drawn := int(a.Tail - d.Tail); drawn > 0 {
		c.counts.drawn(d.Lane.Category, drawn, d.Tail == 0)
	}
	if err := c.run([]any{lane}, `DELETE FROM keyhold_diverged WHERE lane = $1`, `DELETE FROM keyhold_unpublished WHERE lane = $1`); err != nil {
		return err
	}
	part := int16(d.Lane.Part())
	if a.Tail > a.Published {
		if _, err := c.exec(`INSERT INTO keyhold_unpublished (part, lane, tail) VALUES ($1, $2, $3)`, part, lane, int64(a.Tail)); err != nil {
			return err
		}
	}
	_, err := c.exec(`INSERT INTO keyhold_looks (lane, part, due, gap, retire) VALUES ($1, $2, $3, 0, false)
		ON CONFLICT (lane) DO UPDATE SET due = excluded.due, gap = 0, retire = false`, lane, part, millis(now))
	return err
}

// following are the tables whose rows follow a record to its new sequence, the record last. Keys are compared row by row, so all go where nobody
// else is first.
var following = [...]struct{ table, id string }{
	{"keyhold_checkpoints", "event_id"}, {"keyhold_halts", "event_id"}, {"keyhold_tried", "event_id"},
	{"keyhold_dead", "event_id"}, {"keyhold_parked", "event_id"}, {"keyhold_abandoned", ""}, {"keyhold_log", ""},
}

// renumber moves the records of a lane, the last of all, and what follows them.
func (c *connection) renumber(lane int64, category string, a eventstore.Adoption) error {
	var moved []string
	if err := each(c.ctx, c, `SELECT p.name FROM keyhold_checkpoints p JOIN keyhold_log l ON l.lane = p.lane AND l.sequence = p.sequence AND l.id = p.event_id
		WHERE p.lane = $1 AND p.sequence > $2`, []any{lane, int64(a.Common)}, func(row rows) error {
		var name string
		err := row.Scan(&name)
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
		if _, err := c.exec(`UPDATE `+f.table+` SET sequence = -(sequence + $3) WHERE lane = $1 AND sequence > $2`+same, lane, int64(a.Common), int64(a.Shift)); err != nil {
			return err
		}
		if _, err := c.exec(`UPDATE `+f.table+` SET sequence = -sequence WHERE lane = $1 AND sequence < 0`, lane); err != nil {
			return err
		}
	}
	return nil
}

// fillAtOnce is how many voids go to the database in one piece.
const fillAtOnce = 1000

// fill puts voids between what is in common and what was renumbered. They are of the kind that a purge leaves; nobody reads them by position.
func (c *connection) fill(lane int64, d *eventstore.Diverged, a eventstore.Adoption, now time.Time) error {
	var voids script
	for seq := a.Common + 1; seq <= d.Sequence; seq++ {
		if len(voids.reads) == fillAtOnce {
			if err := voids.run(c.ctx, c.conn); err != nil {
				return err
			}
		}
		id := event.NewID()
		if seq == d.Sequence {
			id = d.EventID
		}
		voids.add(`INSERT INTO keyhold_log (position, lane, sequence, void, held, id, type, version, encoding, time)
			VALUES (nextval('keyhold_position'), $1, $2, true, true, $3, '', 0, '', $4)`, []any{lane, int64(seq), id, millis(now)}, nil)
	}
	if err := voids.run(c.ctx, c.conn); err != nil {
		return err
	}
	first, err := c.firstKept(lane)
	if err != nil {
		return err
	}
	return c.releaseFirst(lane, first)
}
