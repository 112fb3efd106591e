package sqlite

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Recover implements [eventstore.Units].
func (s *Store) Recover(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	found := make([]eventstore.Recovered, len(asked))
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error { return recoverUnits(ctx, q, asked, found) })
	})
	if err != nil {
		return nil, fmt.Errorf("recover units: %w", err)
	}
	return found, nil
}

// Raise implements [eventstore.Units].
func (s *Store) Raise(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	found := make([]eventstore.Recovered, len(asked))
	err := s.change(ctx, "raise", func(c *connection) error {
		for i := range asked {
			a := &asked[i]
			n, err := c.exec(`INSERT INTO keyhold_units (name, key, generation) SELECT ?1, ?2, ?3 WHERE ?3 > 0
				ON CONFLICT (name, key) DO UPDATE SET generation = excluded.generation WHERE excluded.generation > generation`,
				a.Unit.Name, a.Unit.Key, a.Generation)
			if err != nil {
				return err
			}
			found[i].Raised = n == 1
		}
		return recoverUnits(noContext, c, asked, found)
	})
	if err != nil {
		return nil, fmt.Errorf("raise units: %w", err)
	}
	return found, nil
}

// recoverUnits fills in what is known of the units asked for.
func recoverUnits(ctx context.Context, q queryer, asked []eventstore.Ask, found []eventstore.Recovered) (err error) {
	for i := range asked {
		a, r := &asked[i], &found[i]
		r.Unit = a.Unit
		if r.Generation, err = generation(ctx, q, a.Unit); err != nil {
			return err
		}
		r.Checkpoints = make([]event.Position, len(a.Lanes))
		for j, ref := range a.Lanes {
			if r.Checkpoints[j], err = checkpoint(ctx, q, a.Unit.Name, ref); err != nil {
				return err
			}
		}
		if err = recoverStanding(ctx, q, r); err != nil {
			return err
		}
	}
	return nil
}

// recoverStanding fills in what is in the way of a unit, and what it set aside.
func recoverStanding(ctx context.Context, q queryer, r *eventstore.Recovered) error {
	t, err := lookAt(ctx, q, r.Unit)
	r.Due = t.due
	if err == nil && t.halt {
		r.Halt, err = halt(ctx, q, r.Unit)
	}
	if err == nil && t.pause {
		var whole *eventstore.Pause
		if r.Pause, whole, err = pauses(ctx, q, r.Unit); r.Pause == nil {
			r.Pause = whole
		}
	}
	if err == nil && t.parked {
		r.Parked, err = parkedIn(ctx, q, r.Unit)
	}
	if err == nil && t.tried {
		r.Tried, err = tried(ctx, q, r.Unit)
	}
	return err
}

// generation gives the generation of a unit's row, 0 without one.
func generation(ctx context.Context, q queryer, u event.Unit) (g event.Generation, err error) {
	_, err = get(ctx, q, `SELECT generation FROM keyhold_units WHERE name = ? AND key = ?`, []any{u.Name, u.Key}, &g)
	return g, err
}

// checkpoint gives what a name has applied of a lane.
func checkpoint(ctx context.Context, q queryer, name string, ref event.LaneRef) (event.Position, error) {
	p := event.Position{Lane: ref}
	_, err := get(ctx, q, `SELECT c.sequence, c.event_id FROM keyhold_lanes n JOIN keyhold_checkpoints c ON c.lane = n.id AND c.name = ?
		WHERE n.category = ? AND n.key = ? AND n.lane = ?`, []any{name, ref.Category, ref.Key, ref.Lane}, &p.Sequence, &p.EventID)
	return p, err
}
