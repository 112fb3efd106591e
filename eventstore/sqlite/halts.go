package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// selectHalts reads the halts that are not void.
const selectHalts = `SELECT h.name, h.key, n.category, n.key, n.lane, h.sequence, h.event_id, h.event_type, h.attempts, h.reason, h.error, h.since, h.generation
	FROM keyhold_halts h JOIN keyhold_lanes n ON n.id = h.lane LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
	WHERE h.sequence > coalesce(c.sequence, 0)`

func scanHalt(rows *sql.Rows) (h eventstore.Halt, err error) {
	var ms int64
	err = rows.Scan(&h.Unit.Name, &h.Unit.Key, &h.Lane.Category, &h.Lane.Key, &h.Lane.Lane, &h.Sequence, &h.EventID, &h.EventType,
		&h.Attempts, &h.Reason, &h.Error, &ms, &h.Generation)
	h.Since = fromMillis(ms)
	return h, err
}

// halt gives the halt of a unit unless it is void.
func halt(ctx context.Context, q queryer, u event.Unit) (*eventstore.Halt, error) {
	var found *eventstore.Halt
	err := each(ctx, q, selectHalts+` AND h.name = ? AND h.key = ?`, []any{u.Name, u.Key}, func(rows *sql.Rows) error {
		h, err := scanHalt(rows)
		found = &h
		return err
	})
	return found, err
}

// ListHalts implements [eventstore.Halts].
func (s *Store) ListHalts(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Halt, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Halt
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, selectHalts+` AND (?1 = '' OR h.name = ?1) AND (h.name, h.key) > (?2, ?3) ORDER BY h.name, h.key LIMIT ?4`,
			[]any{name, after.Name, after.Key, limit}, func(rows *sql.Rows) error {
				h, err := scanHalt(rows)
				found = append(found, h)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("list halts of %q: %w", name, err)
	}
	return found, nil
}

// ListDead implements [eventstore.Halts].
func (s *Store) ListDead(ctx context.Context, name string, after event.Position, limit int) ([]eventstore.Dead, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Dead
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, `SELECT d.name, d.key, n.category, n.key, n.lane, d.sequence, d.event_id, d.event_type, d.attempts, d.reason, d.error, d.time
			FROM keyhold_dead d JOIN keyhold_lanes n ON n.id = d.lane
			WHERE d.name = ? AND (n.key, n.category, n.lane, d.sequence) > (?, ?, ?, ?) ORDER BY n.key, n.category, n.lane, d.sequence LIMIT ?`,
			[]any{name, after.Lane.Key, after.Lane.Category, after.Lane.Lane, after.Sequence, limit}, func(rows *sql.Rows) error {
				var d eventstore.Dead
				var ms int64
				err := rows.Scan(&d.Unit.Name, &d.Unit.Key, &d.Lane.Category, &d.Lane.Key, &d.Lane.Lane, &d.Sequence, &d.EventID, &d.Type,
					&d.Attempts, &d.Reason, &d.Error, &ms)
				d.Time = fromMillis(ms)
				found = append(found, d)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("list dead letters of %q: %w", name, err)
	}
	return found, nil
}
