package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Unpassed implements [eventstore.Lanes].
func (s *Store) Unpassed(ctx context.Context, name, category string, after event.LaneRef, limit int) ([]event.LaneRef, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []event.LaneRef
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, `SELECT n.category, n.key, n.lane
			FROM keyhold_lanes n LEFT JOIN keyhold_checkpoints c ON c.name = ?1 AND c.lane = n.id
			WHERE n.category = ?2 AND (n.category, n.key, n.lane) > (?3, ?4, ?5) AND n.last > coalesce(c.sequence, 0)
			AND NOT EXISTS (SELECT 1 FROM keyhold_halts h LEFT JOIN keyhold_checkpoints p ON p.name = h.name AND p.lane = h.lane
				WHERE h.name = ?1 AND h.key = n.key AND h.sequence > coalesce(p.sequence, 0))
			ORDER BY n.category, n.key, n.lane LIMIT ?6`,
			[]any{name, category, after.Category, after.Key, after.Lane, limit}, func(rows *sql.Rows) error {
				var ref event.LaneRef
				err := rows.Scan(&ref.Category, &ref.Key, &ref.Lane)
				found = append(found, ref)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("look for what %s has not passed in %s: %w", name, category, err)
	}
	return found, nil
}

// Purge implements [eventstore.Lanes].
func (s *Store) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return 0, err
	}
	purged := 0
	err := s.change(ctx, "purge", func(c *connection) error {
		records, err := c.purgeRecords(before, limit)
		if err != nil {
			return err
		}
		replies, err := c.exec(`DELETE FROM keyhold_replies WHERE (stream_kind, stream_id, command_id) IN
			(SELECT stream_kind, stream_id, command_id FROM keyhold_replies WHERE time < ? ORDER BY time LIMIT ?)`, millis(before), limit-records)
		purged = records + int(replies)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	return purged, nil
}

func (c *connection) purgeRecords(before time.Time, limit int) (int, error) {
	type record struct {
		position, lane, sequence int64
		void                     bool
	}
	var old []record
	err := each(noContext, c, `SELECT l.position, l.lane, l.sequence, l.void FROM keyhold_log l CROSS JOIN keyhold_lanes n ON n.id = l.lane
		WHERE l.stream_version IS NULL AND l.time < ?
		AND NOT EXISTS (SELECT 1 FROM keyhold_subscriptions s LEFT JOIN keyhold_checkpoints p ON p.name = s.handler AND p.lane = l.lane
			WHERE s.category = n.category AND l.sequence > coalesce(p.sequence, 0))
		ORDER BY l.time LIMIT ?`, []any{millis(before), limit}, func(rows *sql.Rows) error {
		var r record
		err := rows.Scan(&r.position, &r.lane, &r.sequence, &r.void)
		old = append(old, r)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, r := range old {
		if _, err := c.exec(`DELETE FROM keyhold_log WHERE position = ?`, r.position); err != nil {
			return 0, err
		}
		if !r.void {
			continue
		}
		if _, err := c.exec(`DELETE FROM keyhold_abandoned WHERE lane = ? AND sequence = ?`, r.lane, r.sequence); err != nil {
			return 0, err
		}
	}
	return len(old), nil
}
