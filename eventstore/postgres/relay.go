package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// relay notes what was committed, and what was not passed, while nobody relayed: in the transaction of a start for which nobody else writes.
func relay(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `INSERT INTO keyhold_unpublished (part, lane, tail) SELECT n.part, n.id, n.last FROM keyhold_lanes n
		LEFT JOIN keyhold_published p ON p.lane = n.id WHERE n.last > coalesce(p.through, 0) ON CONFLICT DO NOTHING`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO keyhold_looks AS k (lane, part, due, gap, retire) SELECT n.id, n.part, $1, 0, false
		FROM keyhold_lanes n JOIN keyhold_published p ON p.lane = n.id AND p.through >= n.last
		WHERE n.last > 0 AND EXISTS (SELECT 1 FROM keyhold_subscriptions s LEFT JOIN keyhold_checkpoints c ON c.name = s.handler AND c.lane = n.id
			WHERE s.category = n.category AND `+subscribes+` AND n.last > coalesce(c.sequence, 0)) `+laterLook, millis(time.Now()))
	return err
}

// laterLook has a look stay that is set already, is earlier, and does more than retire.
const laterLook = `ON CONFLICT (lane) DO UPDATE SET due = excluded.due, gap = 0, retire = false WHERE k.retire OR excluded.due < k.due`

func numbers(parts []event.Part) []int16 {
	list := make([]int16, len(parts))
	for i, p := range parts {
		list[i] = int16(p)
	}
	return list
}

// ofParts reads rows of parts, none where the store is not started for a relay.
func (s *Store) ofParts(ctx context.Context, query string, args []any, row func(rows) error) error {
	return s.read(ctx, func(r *readers) error {
		if o := s.opened.Load(); o == nil || !o.relayed {
			return nil
		}
		return each(ctx, r, query, args, row)
	})
}

// unpublished goes from one lane to the next by the index, past all but the first row of each, and ends when it has enough: behind a long outage there are millions of rows.
const unpublished = `SELECT n.category, n.key, n.lane, coalesce(p.through, 0), n.last FROM (
		SELECT g.lane FROM unnest($1::int2[]) AS a (part) CROSS JOIN LATERAL (
			WITH RECURSIVE grown (lane) AS (
				(SELECT u.lane FROM keyhold_unpublished u WHERE u.part = a.part ORDER BY u.lane LIMIT 1)
				UNION ALL SELECT (SELECT u.lane FROM keyhold_unpublished u WHERE u.part = a.part AND u.lane > w.lane ORDER BY u.lane LIMIT 1) FROM grown w WHERE w.lane IS NOT NULL)
			SELECT w.lane FROM grown w WHERE w.lane IS NOT NULL AND NOT EXISTS (SELECT 1 FROM keyhold_diverged v WHERE v.lane = w.lane)) g
		LIMIT $2) g
	JOIN keyhold_lanes n ON n.id = g.lane LEFT JOIN keyhold_published p ON p.lane = g.lane`

// Unpublished implements [eventstore.Relays].
func (s *Store) Unpublished(ctx context.Context, parts []event.Part, limit int) ([]eventstore.Unpublished, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Unpublished
	from := numbers(parts)
	rand.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] }) // or the last ones would wait for the first
	err := s.ofParts(ctx, unpublished, []any{from, limit}, func(row rows) error {
		var u eventstore.Unpublished
		err := row.Scan(&u.Lane.Category, &u.Lane.Key, &u.Lane.Lane, &u.Published, &u.Tail)
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
	err := s.ofParts(ctx, `SELECT n.category, n.key, n.lane, coalesce(p.through, 0), k.due, k.gap, k.retire
		FROM keyhold_looks k JOIN keyhold_lanes n ON n.id = k.lane LEFT JOIN keyhold_published p ON p.lane = k.lane
		WHERE k.part = ANY($1) AND k.due <= $2 ORDER BY k.due, n.category, n.key, n.lane LIMIT $3`,
		[]any{numbers(parts), millis(now), limit}, func(row rows) error {
			var k eventstore.Look
			var due, gap int64
			err := row.Scan(&k.Lane.Category, &k.Lane.Key, &k.Lane.Lane, &k.Published, &due, &gap, &k.Retire)
			k.Due, k.Gap = fromMillis(due), time.Duration(gap)
			found = append(found, k)
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("look for lanes to look at: %w", err)
	}
	return found, nil
}

// noting makes a change by whoever holds the parts; the lanes must be of them, and their numbers are given to f, which adds statements. The rows of the parts
// are locked, in one order by everybody, until the transaction ends: so what these statements read, nobody else who notes something of these parts changes.
func (s *Store) noting(ctx context.Context, what string, held []eventstore.PartFence, lanes []event.LaneRef, f func(note *script, ids []int64)) error {
	held = slices.SortedFunc(slices.Values(held), func(a, b eventstore.PartFence) int { return cmp.Compare(a.Part.Unit().Key, b.Part.Unit().Key) }) // as Raise has it
	err := s.change(ctx, what, func(c *connection) error {
		if !c.relayed {
			return eventstore.ErrNotRelayed
		}
		for _, l := range lanes {
			if !eventstore.Holds(held, l) {
				return fmt.Errorf("lane %s is in part %s: %w", l, l.Part(), eventstore.ErrStale)
			}
		}
		ids, err := c.lanes.of(c.ctx, lanes)
		if err != nil {
			return err
		}
		var note script
		for _, p := range held {
			u, now := p.Part.Unit(), new(event.Generation)
			note.get(lockUnit, []any{u.Name, u.Key}, func(bool) error {
				if *now == 0 || *now != p.Generation {
					return fmt.Errorf("part %s is at generation %d, not at %d: %w", p.Part, *now, p.Generation, eventstore.ErrStale)
				}
				return nil
			}, now)
		}
		c.lanes.compare(&note, lanes, ids)
		f(&note, ids)
		return note.run(c.ctx, c.conn)
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

// NotePublished implements [eventstore.Relays].
func (s *Store) NotePublished(ctx context.Context, held []eventstore.PartFence, notes []eventstore.Published) error {
	lanes := lanesOf(notes, func(n *eventstore.Published) event.LaneRef { return n.Lane })
	return s.noting(ctx, "note what is published", held, lanes, func(note *script, ids []int64) {
		for i := range notes {
			n, last := &notes[i], new(event.Sequence)
			note.get(`SELECT last FROM keyhold_lanes WHERE id = $1`, []any{ids[i]}, func(bool) error {
				if n.Through > *last {
					return fmt.Errorf("%s up to #%d: its last record is #%d", n.Lane, n.Through, *last)
				}
				return nil
			}, last)
			note.add(`INSERT INTO keyhold_published AS p (lane, through) SELECT $1, $2::bigint WHERE $2::bigint > 0
				ON CONFLICT (lane) DO UPDATE SET through = excluded.through WHERE excluded.through > p.through`, []any{ids[i], int64(n.Through)}, nil)
			note.add(`DELETE FROM keyhold_unpublished WHERE part = $1 AND lane = $2 AND tail <= $3`, []any{int16(n.Lane.Part()), ids[i], int64(n.Through)}, nil)
			if !n.Look.IsZero() {
				note.add(`INSERT INTO keyhold_looks AS k (lane, part, due, gap, retire) VALUES ($1, $2, $3, 0, false) `+laterLook,
					[]any{ids[i], int16(n.Lane.Part()), millis(n.Look)}, nil)
			}
		}
	})
}

// SetLooks implements [eventstore.Relays].
func (s *Store) SetLooks(ctx context.Context, held []eventstore.PartFence, looks []eventstore.Look) error {
	lanes := lanesOf(looks, func(k *eventstore.Look) event.LaneRef { return k.Lane })
	return s.noting(ctx, "set looks", held, lanes, func(set *script, ids []int64) {
		for i := range looks {
			k := &looks[i]
			const unmoved = `coalesce((SELECT through FROM keyhold_published WHERE lane = $1), 0) <= $2`
			if k.Due.IsZero() {
				set.add(`DELETE FROM keyhold_looks WHERE lane = $1 AND `+unmoved, []any{ids[i], int64(k.Published)}, nil)
				continue
			}
			set.add(`INSERT INTO keyhold_looks (lane, part, due, gap, retire) SELECT $1, $3, $4, $5, $6 WHERE `+unmoved+`
				ON CONFLICT (lane) DO UPDATE SET due = excluded.due, gap = excluded.gap, retire = excluded.retire`,
				[]any{ids[i], int64(k.Published), int16(k.Lane.Part()), millis(k.Due), int64(k.Gap), k.Retire}, nil)
		}
	})
}

// AllLooksDue implements [eventstore.Relays].
func (s *Store) AllLooksDue(ctx context.Context, held []eventstore.PartFence, now time.Time) error {
	return s.noting(ctx, "make all looks due", held, nil, func(note *script, _ []int64) {
		parts := make([]int16, len(held))
		for i, p := range held {
			parts[i] = int16(p.Part)
		}
		note.add(`UPDATE keyhold_looks SET due = $1 WHERE part = ANY($2) AND due > $1`, []any{millis(now), parts}, nil)
	})
}
