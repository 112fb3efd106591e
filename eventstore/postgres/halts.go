package postgres

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// selectHalts reads the halts that are not void.
const selectHalts = `SELECT h.name, h.key, n.category, n.key, n.lane, h.sequence, h.event_id, h.event_type, h.attempts, h.reason, h.error, h.since, h.generation
	FROM keyhold_halts h JOIN keyhold_lanes n ON n.id = h.lane LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
	WHERE h.sequence > coalesce(c.sequence, 0)`

func scanHalt(r rows) (h eventstore.Halt, err error) {
	var ms int64
	err = r.Scan(&h.Unit.Name, &h.Unit.Key, &h.Lane.Category, &h.Lane.Key, &h.Lane.Lane, &h.Sequence, &h.EventID, &h.EventType,
		&h.Attempts, &h.Reason, &h.Error, &ms, &h.Generation)
	h.Since = fromMillis(ms)
	return h, err
}

// halt gives the halt of a unit unless it is void.
func halt(ctx context.Context, q queryer, u event.Unit) (*eventstore.Halt, error) {
	var found *eventstore.Halt
	err := each(ctx, q, selectHalts+` AND h.name = $1 AND h.key = $2`, []any{u.Name, u.Key}, func(r rows) error {
		h, err := scanHalt(r)
		found = &h
		return err
	})
	return found, err
}

// ListHalts implements [eventstore.Halts].
func (s operations) ListHalts(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Halt, error) {
	if err := eventstore.CheckPage(name, after); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Halt
	var args arguments
	where := args.unitsAfter("h", name, after)
	query := selectHalts + ` AND ` + where + ` ORDER BY h.name, h.key LIMIT ` + args.add(limit)
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, query, args, func(r rows) error {
			h, err := scanHalt(r)
			found = append(found, h)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list halts of %q: %w", name, err)
	}
	return found, nil
}

// deadColumns are what scanDead reads: of dead letters as d and their lanes as n.
const deadColumns = `d.name, d.key, n.category, n.key, n.lane, d.sequence, d.event_id, d.event_type, d.attempts, d.reason, d.error, d.time`

func scanDead(r rows, more ...any) (d eventstore.Dead, err error) {
	var ms int64
	err = r.Scan(append([]any{&d.Unit.Name, &d.Unit.Key, &d.Lane.Category, &d.Lane.Key, &d.Lane.Lane, &d.Sequence, &d.EventID, &d.Type,
		&d.Attempts, &d.Reason, &d.Error, &ms}, more...)...)
	d.Time = fromMillis(ms)
	return d, err
}

// selectDead goes by the index on (name, key): the key of a unit is that of its lanes.
const selectDead = `SELECT ` + deadColumns + ` FROM keyhold_dead d JOIN keyhold_lanes n ON n.id = d.lane
	WHERE d.name = $1 AND d.key >= $2 AND (d.key, n.category, n.lane, d.sequence) > ($2, $3, $4, $5)
	ORDER BY d.key, n.category, n.lane, d.sequence LIMIT $6`

// ListDead implements [eventstore.Halts].
func (s operations) ListDead(ctx context.Context, name string, after event.Position, limit int) ([]eventstore.Dead, error) {
	if err := eventstore.CheckPage(name, event.Unit{}); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLane(after.Lane); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Dead
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, selectDead, []any{name, after.Lane.Key, after.Lane.Category, int16(after.Lane.Lane), int64(after.Sequence), limit}, func(r rows) error {
			d, err := scanDead(r)
			found = append(found, d)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list dead letters of %q: %w", name, err)
	}
	return found, nil
}
