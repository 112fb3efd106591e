package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Taken implements [eventstore.Intake].
func (s *Store) Taken(ctx context.Context, asked []eventstore.TakenAsk) ([]eventstore.Taken, error) {
	found := make([]eventstore.Taken, len(asked))
	var categories, keys, sources []string
	var ofAsked, atID []int32 // of each id: who asked, and at which place
	var ids []string
	for i := range asked {
		a := &asked[i]
		categories, keys, sources = append(categories, a.Category), append(keys, a.Key), append(sources, a.Source)
		if len(a.IDs) > 0 {
			found[i].Known = make([]bool, len(a.IDs))
		}
		for at, id := range a.IDs {
			ofAsked, atID, ids = append(ofAsked, int32(i)), append(atID, int32(at)), append(ids, id)
		}
	}
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			if err := each(ctx, q, `SELECT a.i - 1, t.revision, t.entry, t.added, t.lost FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS a (category, key, source, i)
				JOIN keyhold_taken t ON t.category = a.category AND t.key = a.key AND t.source = a.source`, []any{categories, keys, sources}, func(row rows) error {
				var i int
				var t eventstore.Taken
				err := row.Scan(&i, &t.Revision, &t.Place.Entry, &t.Place.Added, &t.Lost)
				t.Known = found[i].Known
				found[i] = t
				return err
			}); err != nil || len(ids) == 0 {
				return err
			}
			return each(ctx, q, `SELECT d.of, d.at FROM unnest($1::int4[], $2::int4[], $3::text[]) AS d (of, at, id)
				JOIN keyhold_taken_ids t ON t.category = ($4::text[])[d.of + 1] AND t.key = ($5::text[])[d.of + 1] AND t.id = d.id`,
				[]any{ofAsked, atID, ids, categories, keys}, func(row rows) error {
					var of, at int
					err := row.Scan(&of, &at)
					if err == nil {
						found[of].Known[at] = true
					}
					return err
				})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("ask what was taken in: %w", err)
	}
	return found, nil
}

// A place is compared and set in one statement, as a checkpoint is.
const (
	moveTaken = `UPDATE keyhold_taken SET revision = revision + 1, entry = $5, added = $6, lost = lost + $7, lost_at = greatest(lost_at, $8)
		WHERE category = $1 AND key = $2 AND source = $3 AND revision = $4`
	makeTaken = `INSERT INTO keyhold_taken (category, key, source, revision, entry, added, lost, lost_at) VALUES ($1, $2, $3, $4 + 1, $5, $6, $7, $8) ON CONFLICT DO NOTHING`
)

// take moves places, in one order for everybody.
func (w *work) take() error {
	order := slices.Clone(w.changes.Take)
	slices.SortFunc(order, func(a, b eventstore.Take) int {
		return cmp.Or(strings.Compare(a.Category, b.Category), strings.Compare(a.Key, b.Key), strings.Compare(a.Source, b.Source))
	})
	for i := range order {
		t := &order[i]
		query, lostAt := moveTaken, int64(0)
		if t.Revision == 0 {
			query = makeTaken
		}
		if t.Lost > 0 {
			lostAt = millis(t.Time)
		}
		n, err := w.exec(query, t.Category, t.Key, t.Source, int64(t.Revision), t.To.Entry, int64(t.To.Added), int64(t.Lost), lostAt)
		if err == nil && n == 0 {
			refused := &eventstore.TakenError{Source: t.SourceRef, Expected: t.Revision}
			if _, err = w.get(`SELECT revision FROM keyhold_taken WHERE category = $1 AND key = $2 AND source = $3`, []any{t.Category, t.Key, t.Source}, &refused.Actual); err == nil {
				err = refused
			}
		}
		if err != nil {
			return err
		}
		if len(t.IDs) > 0 {
			if _, err := w.exec(`INSERT INTO keyhold_taken_ids (category, key, id, time) SELECT $1, $2, id, $4 FROM unnest($3::text[]) AS a (id) ON CONFLICT DO NOTHING`,
				t.Category, t.Key, t.IDs, millis(t.Time)); err != nil {
				return err
			}
		}
	}
	return nil
}

// purgeTaken forgets event ids, up to limit.
func (c *connection) purgeTaken(before time.Time, limit int) (int64, error) {
	return c.exec(`DELETE FROM keyhold_taken_ids WHERE (category, key, id) IN
		(SELECT category, key, id FROM keyhold_taken_ids WHERE time < $1 ORDER BY time LIMIT $2)`, millis(before), limit)
}

// lostEntries tells, by category, what was gone before it was taken in.
func lostEntries(ctx context.Context, q queryer, of map[string]*eventstore.CategoryOverview) error {
	return each(ctx, q, `SELECT category, sum(lost)::bigint, max(lost_at) FROM keyhold_taken WHERE lost > 0 GROUP BY category`, nil, func(row rows) error {
		var category string
		var lost uint64
		var at int64
		err := row.Scan(&category, &lost, &at)
		if c := of[category]; c != nil && err == nil {
			c.Lost, c.LostAt = lost, fromMillis(at)
		}
		return err
	})
}
