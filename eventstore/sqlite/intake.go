package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Taken implements [eventstore.Intake].
func (s *Store) Taken(ctx context.Context, asked []eventstore.TakenAsk) ([]eventstore.Taken, error) {
	found := make([]eventstore.Taken, len(asked))
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			for i := range asked {
				if err := takenOf(ctx, q, &asked[i], &found[i]); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("ask what was taken in: %w", err)
	}
	return found, nil
}

func takenOf(ctx context.Context, q queryer, a *eventstore.TakenAsk, t *eventstore.Taken) error {
	if _, err := get(ctx, q, `SELECT revision, entry, added, lost FROM keyhold_taken WHERE category = ? AND key = ? AND source = ?`,
		[]any{a.Category, a.Key, a.Source}, &t.Revision, &t.Place.Entry, &t.Place.Added, &t.Lost); err != nil || len(a.IDs) == 0 {
		return err
	}
	ids, err := json.Marshal(a.IDs)
	if err != nil {
		return err
	}
	t.Known = make([]bool, len(a.IDs))
	return each(ctx, q, `SELECT a.key FROM json_each(?) a JOIN keyhold_taken_ids i ON i.category = ? AND i.key = ? AND i.id = a.value`,
		[]any{string(ids), a.Category, a.Key}, func(rows *sql.Rows) error {
			var at int
			err := rows.Scan(&at)
			if err == nil {
				t.Known[at] = true
			}
			return err
		})
}

func (c *connection) checkTakes(takes []eventstore.Take) error {
	for i := range takes {
		t := &takes[i]
		var actual uint64
		_, err := c.get(`SELECT revision FROM keyhold_taken WHERE category = ? AND key = ? AND source = ?`, []any{t.Category, t.Key, t.Source}, &actual)
		if err == nil && actual != t.Revision {
			err = &eventstore.TakenError{Source: t.SourceRef, Expected: t.Revision, Actual: actual}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) writeTakes(takes []eventstore.Take) error {
	for i := range takes {
		t := &takes[i]
		var lostAt int64
		if t.Lost > 0 {
			lostAt = millis(t.Time)
		}
		if _, err := c.exec(`INSERT INTO keyhold_taken (category, key, source, revision, entry, added, lost, lost_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (category, key, source) DO UPDATE SET revision = excluded.revision, entry = excluded.entry, added = excluded.added,
			lost = lost + excluded.lost, lost_at = max(lost_at, excluded.lost_at)`,
			t.Category, t.Key, t.Source, t.Revision+1, t.To.Entry, t.To.Added, t.Lost, lostAt); err != nil {
			return err
		}
		if len(t.IDs) == 0 {
			continue
		}
		ids, err := json.Marshal(t.IDs)
		if err != nil {
			return err
		}
		if _, err := c.exec(`INSERT INTO keyhold_taken_ids (category, key, id, time) SELECT ?, ?, value, ? FROM json_each(?) WHERE true ON CONFLICT DO NOTHING`,
			t.Category, t.Key, millis(t.Time), string(ids)); err != nil {
			return err
		}
	}
	return nil
}

// purgeTaken forgets event ids, up to limit.
func (c *connection) purgeTaken(before time.Time, limit int) (int64, error) {
	return c.exec(`DELETE FROM keyhold_taken_ids WHERE (category, key, id) IN
		(SELECT category, key, id FROM keyhold_taken_ids WHERE time < ? ORDER BY time LIMIT ?)`, millis(before), limit)
}

// lostEntries tells, by category, what was gone before it was taken in.
func lostEntries(ctx context.Context, q queryer, of map[string]*eventstore.CategoryOverview) error {
	return each(ctx, q, `SELECT category, sum(lost), max(lost_at) FROM keyhold_taken WHERE lost > 0 GROUP BY category`, nil, func(rows *sql.Rows) error {
		var category string
		var lost uint64
		var at int64
		err := rows.Scan(&category, &lost, &at)
		if c := of[category]; c != nil && err == nil {
			c.Lost, c.LostAt = lost, fromMillis(at)
		}
		return err
	})
}
