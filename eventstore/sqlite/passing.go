package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ReadLanes implements [eventstore.Relays].
func (s operations) ReadLanes(ctx context.Context, asked []eventstore.LaneRead) ([][]event.Envelope, error) {
	for i := range asked {
		if err := eventstore.CheckLimit(asked[i].Limit); err != nil {
			return nil, err
		}
	}
	runs := make([][]event.Envelope, len(asked))
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) (err error) {
			for i, a := range asked {
				if runs[i], err = readLane(ctx, q, r.storeID, a); err != nil {
					return fmt.Errorf("read lane %s: %w", a.Lane, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// Passing implements [eventstore.Relays].
func (s operations) Passing(ctx context.Context, lanes []event.LaneRef) ([]eventstore.Passing, error) {
	found := make([]eventstore.Passing, len(lanes))
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) (err error) {
			for i, ref := range lanes {
				if found[i], err = passingOf(ctx, q, ref); err != nil {
					return fmt.Errorf("look who passed lane %s: %w", ref, err)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

func passingOf(ctx context.Context, q queryer, ref event.LaneRef) (eventstore.Passing, error) {
	p := eventstore.Passing{Lane: ref}
	var lane int64
	if _, err := get(ctx, q, `SELECT id, last, published, (SELECT coalesce(min(sequence), 0) FROM keyhold_log WHERE lane = n.id)
		FROM keyhold_lanes n WHERE category = ? AND key = ? AND lane = ?`,
		[]any{ref.Category, ref.Key, ref.Lane}, &lane, &p.Tail, &p.Published, &p.First); err != nil {
		return p, err
	}
	err := each(ctx, q, `SELECT s.handler, NOT s.own, CASE WHEN s.own THEN coalesce(c.sequence, 0) ELSE 0 END,
		s.own AND (EXISTS (SELECT 1 FROM keyhold_pauses WHERE name = s.handler AND key IN ('', ?2))
			OR EXISTS (SELECT 1 FROM keyhold_halts h LEFT JOIN keyhold_checkpoints p ON p.name = h.name AND p.lane = h.lane
				WHERE h.name = s.handler AND h.key = ?2 AND h.sequence > coalesce(p.sequence, 0)))
		FROM keyhold_subscriptions s LEFT JOIN keyhold_checkpoints c ON c.name = s.handler AND c.lane = ?3
		WHERE s.category = ?1 ORDER BY s.handler`, []any{ref.Category, ref.Key, lane}, func(rows *sql.Rows) error {
		var s eventstore.Passed
		err := rows.Scan(&s.Name, &s.Foreign, &s.Checkpoint, &s.Stopped)
		p.Subscribers = append(p.Subscribers, s)
		return err
	})
	return p, err
}
