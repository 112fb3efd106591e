package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// relay notes what is committed from now on, if on; what was committed while nobody noted it is found here. It is part of the start.
func (c *connection) relay(on bool) error {
	var was bool
	if _, err := c.get(`SELECT relayed FROM keyhold_store`, nil, &was); err != nil {
		return err
	}
	c.relayed = on
	if was == on {
		return nil
	}
	if _, err := c.exec(`UPDATE keyhold_store SET relayed = ?`, on); err != nil || !on {
		return err
	}
	behind, err := c.lanesWhere(`n.last > n.published`)
	if err != nil {
		return err
	}
	for _, l := range behind {
		if err := c.unpublish(l.ref, l.lane); err != nil {
			return err
		}
	}
	return c.lookAtAll(`n.last = n.published AND EXISTS (SELECT 1 FROM keyhold_subscriptions s LEFT JOIN keyhold_checkpoints p ON p.name = s.handler AND p.lane = n.id
		WHERE s.category = n.category AND s.own AND n.last > coalesce(p.sequence, 0))`)
}

// lanesWhere gives lanes by a condition on their rows, as n.
func (c *connection) lanesWhere(where string, args ...any) (found []drawn, err error) {
	err = each(noContext, c, `SELECT n.id, n.category, n.key, n.lane FROM keyhold_lanes n WHERE `+where, args, func(rows *sql.Rows) error {
		var l drawn
		err := rows.Scan(&l.lane, &l.ref.Category, &l.ref.Key, &l.ref.Lane)
		found = append(found, l)
		return err
	})
	return found, err
}

func (c *connection) unpublish(ref event.LaneRef, lane int64) error {
	_, err := c.exec(`INSERT INTO keyhold_unpublished (part, lane) VALUES (?, ?) ON CONFLICT DO NOTHING`, int(ref.Part()), lane)
	return err
}

// lookAt sets a look, if none is set that is earlier and does more than retire.
func (c *connection) lookAt(ref event.LaneRef, lane int64, due time.Time) error {
	_, err := c.exec(`INSERT INTO keyhold_looks (lane, part, due, gap, retire) VALUES (?, ?, ?, 0, 0)
		ON CONFLICT (lane) DO UPDATE SET due = excluded.due, gap = 0, retire = 0 WHERE retire OR excluded.due < due`, lane, int(ref.Part()), millis(due))
	return err
}

// lookAtAll has lanes looked at now.
func (c *connection) lookAtAll(where string, args ...any) error {
	lanes, err := c.lanesWhere(where, args...)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		if err := c.lookAt(l.ref, l.lane, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// lookBehind sets looks at the lanes of a category that a handler has not passed, where the store is started for a relay or was so last.
func (c *connection) lookBehind(name, category string) error {
	var relayed bool
	if _, err := c.get(`SELECT relayed FROM keyhold_store`, nil, &relayed); err != nil || !relayed {
		return err
	}
	return c.lookAtAll(`n.category = ? AND n.last > coalesce((SELECT sequence FROM keyhold_checkpoints WHERE name = ? AND lane = n.id), 0)`, category, name)
}

// numbers is a list of parts as a query takes it.
func numbers(parts []event.Part) string {
	list := make([]int, len(parts)) // bytes would be text
	for i, p := range parts {
		list[i] = int(p)
	}
	text, _ := json.Marshal(list) // never an error
	return string(text)
}

// ofParts reads rows of parts, none where the store is not started for a relay.
func (s *Store) ofParts(ctx context.Context, query string, args []any, row func(*sql.Rows) error) error {
	return s.read(ctx, func(r *readers) error {
		if o := s.opened.Load(); o == nil || !o.writer.relayed {
			return nil
		}
		return each(ctx, r, query, args, row)
	})
}

// Unpublished implements [eventstore.Relays].
func (s *Store) Unpublished(ctx context.Context, parts []event.Part, limit int) ([]eventstore.Unpublished, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Unpublished
	err := s.ofParts(ctx, `SELECT n.category, n.key, n.lane, n.published, n.last FROM keyhold_unpublished u CROSS JOIN keyhold_lanes n ON n.id = u.lane
		WHERE u.part IN (SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 FROM keyhold_diverged v WHERE v.lane = u.lane) LIMIT ?`,
		[]any{numbers(parts), limit}, func(rows *sql.Rows) error {
			var u eventstore.Unpublished
			err := rows.Scan(&u.Lane.Category, &u.Lane.Key, &u.Lane.Lane, &u.Published, &u.Tail)
			found = append(found, u)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("look for unpublished records: %w", err)
	}
	return found, nil
}

// DueLooks implements [eventstore.Relays].
func (s *Store) DueLooks(ctx context.Context, parts []event.Part, now time.Time, limit int) ([]eventstore.Look, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Look
	err := s.ofParts(ctx, `SELECT n.category, n.key, n.lane, n.published, k.due, k.gap, k.retire FROM keyhold_looks k CROSS JOIN keyhold_lanes n ON n.id = k.lane
		WHERE k.part IN (SELECT value FROM json_each(?)) AND k.due <= ? ORDER BY k.due LIMIT ?`,
		[]any{numbers(parts), millis(now), limit}, func(rows *sql.Rows) error {
			var k eventstore.Look
			var due, gap int64
			err := rows.Scan(&k.Lane.Category, &k.Lane.Key, &k.Lane.Lane, &k.Published, &due, &gap, &k.Retire)
			k.Due, k.Gap = fromMillis(due), time.Duration(gap)*time.Millisecond
			found = append(found, k)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("look for lanes to look at: %w", err)
	}
	return found, nil
}

// noting makes a change by whoever holds the parts; the lanes must be of them.
func (s *Store) noting(ctx context.Context, what string, held []eventstore.PartFence, lanes []event.LaneRef, f func(*connection) error) error {
	err := s.change(ctx, what, func(c *connection) error {
		if !c.relayed {
			return eventstore.ErrNotRelayed
		}
		for _, p := range held {
			now, err := generation(noContext, c, p.Part.Unit())
			if err != nil {
				return err
			}
			if now == 0 || now != p.Generation {
				return fmt.Errorf("part %s is at generation %d, not at %d: %w", p.Part, now, p.Generation, eventstore.ErrStale)
			}
		}
		for _, l := range lanes {
			if !eventstore.Holds(held, l) {
				return fmt.Errorf("lane %s is in part %s: %w", l, l.Part(), eventstore.ErrStale)
			}
		}
		return f(c)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// lanesOf gives the lanes of rows.
func lanesOf[T any](rows []T, lane func(*T) event.LaneRef) []event.LaneRef {
	lanes := make([]event.LaneRef, len(rows))
	for i := range rows {
		lanes[i] = lane(&rows[i])
	}
	return lanes
}

// published gives the last sequence of a lane and what is noted of it; it makes no row.
func (c *connection) published(ref event.LaneRef) (last, published event.Sequence, err error) {
	_, err = c.get(`SELECT last, published FROM keyhold_lanes WHERE category = ? AND key = ? AND lane = ?`,
		[]any{ref.Category, ref.Key, ref.Lane}, &last, &published)
	return last, published, err
}

// NotePublished implements [eventstore.Relays].
func (s *Store) NotePublished(ctx context.Context, held []eventstore.PartFence, notes []eventstore.Published) error {
	lanes := lanesOf(notes, func(n *eventstore.Published) event.LaneRef { return n.Lane })
	return s.noting(ctx, "note what is published", held, lanes, func(c *connection) error {
		for i := range notes {
			last, _, err := c.published(notes[i].Lane)
			if err == nil && notes[i].Through > last {
				err = fmt.Errorf("%s up to #%d: its last record is #%d", notes[i].Lane, notes[i].Through, last)
			}
			if err != nil {
				return err
			}
		}
		for i := range notes {
			if err := c.note(&notes[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *connection) note(n *eventstore.Published) error {
	l, err := c.lane(n.Lane)
	if err != nil {
		return err
	}
	if _, err := c.exec(`UPDATE keyhold_lanes SET published = ?1 WHERE id = ?2 AND published < ?1`, n.Through, l.id); err != nil {
		return err
	}
	if _, err := c.exec(`DELETE FROM keyhold_unpublished WHERE part = ?1 AND lane = ?2 AND EXISTS (SELECT 1 FROM keyhold_lanes WHERE id = ?2 AND published = last)`,
		int(n.Lane.Part()), l.id); err != nil || n.Look.IsZero() {
		return err
	}
	return c.lookAt(n.Lane, l.id, n.Look)
}

// SetLooks implements [eventstore.Relays].
func (s *Store) SetLooks(ctx context.Context, held []eventstore.PartFence, looks []eventstore.Look) error {
	lanes := lanesOf(looks, func(k *eventstore.Look) event.LaneRef { return k.Lane })
	return s.noting(ctx, "set looks", held, lanes, func(c *connection) error {
		for i := range looks {
			if err := c.setLook(&looks[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *connection) setLook(k *eventstore.Look) error {
	_, published, err := c.published(k.Lane)
	if err != nil || published > k.Published {
		return err
	}
	l, err := c.lane(k.Lane)
	if err != nil {
		return err
	}
	if k.Due.IsZero() {
		_, err = c.exec(`DELETE FROM keyhold_looks WHERE lane = ?`, l.id)
		return err
	}
	return c.putLook(k, l.id)
}

// putLook sets a look in place of any other.
func (c *connection) putLook(k *eventstore.Look, lane int64) error {
	_, err := c.exec(`INSERT OR REPLACE INTO keyhold_looks (lane, part, due, gap, retire) VALUES (?, ?, ?, ?, ?)`,
		lane, int(k.Lane.Part()), millis(k.Due), k.Gap.Milliseconds(), k.Retire)
	return err
}

// AllLooksDue implements [eventstore.Relays].
func (s *Store) AllLooksDue(ctx context.Context, held []eventstore.PartFence, now time.Time) error {
	return s.noting(ctx, "make all looks due", held, nil, func(c *connection) error {
		for _, p := range held {
			if _, err := c.exec(`UPDATE keyhold_looks SET due = ?1 WHERE part = ?2 AND due > ?1`, millis(now), int(p.Part)); err != nil {
				return err
			}
		}
		return nil
	})
}
