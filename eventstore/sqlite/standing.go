package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// there tells of which kinds of rows a unit has any, void ones included: nearly all units have none, and one look finds that.
type there struct{ halt, pause, parked, due, tried bool }

func lookAt(ctx context.Context, q queryer, u event.Unit) (t there, err error) {
	_, err = get(ctx, q, `SELECT
		EXISTS (SELECT 1 FROM keyhold_halts WHERE name = ?1 AND key = ?2),
		EXISTS (SELECT 1 FROM keyhold_pauses WHERE name = ?1 AND key IN (?2, '')),
		EXISTS (SELECT 1 FROM keyhold_parked WHERE name = ?1 AND key = ?2),
		EXISTS (SELECT 1 FROM keyhold_parked WHERE name = ?1 AND key = ?2 AND due > 0) OR EXISTS (SELECT 1 FROM keyhold_dead WHERE name = ?1 AND key = ?2 AND due > 0),
		EXISTS (SELECT 1 FROM keyhold_tried WHERE name = ?1 AND key = ?2)`, []any{u.Name, u.Key}, &t.halt, &t.pause, &t.parked, &t.due, &t.tried)
	return t, err
}

// standing tells what is in the way of a unit.
func standing(ctx context.Context, q queryer, u event.Unit) (s eventstore.Standing, err error) {
	t, err := lookAt(ctx, q, u)
	if err == nil && t.halt {
		s.Halt, err = halt(ctx, q, u)
	}
	if err == nil && t.pause {
		s.Pause, s.HandlerPause, err = pauses(ctx, q, u)
	}
	if err == nil && t.parked {
		s.Parking, err = parking(ctx, q, u)
	}
	if err == nil && t.tried {
		s.Tried, err = tried(ctx, q, u)
	}
	return s, err
}

// selectTried reads what is known of attempts and is not void.
const selectTried = `SELECT t.name, t.key, n.category, n.key, n.lane, t.sequence, t.event_id, t.event_type, t.attempts, t.error, t.time, t.again, t.suspicions, t.alone
	FROM keyhold_tried t JOIN keyhold_lanes n ON n.id = t.lane LEFT JOIN keyhold_checkpoints c ON c.name = t.name AND c.lane = t.lane
	WHERE t.sequence > coalesce(c.sequence, 0)`

// tried gives what is known of attempts at the next event of a unit, nil when that is nothing.
func tried(ctx context.Context, q queryer, u event.Unit) (*eventstore.Tried, error) {
	var t eventstore.Tried
	var ms, again int64
	found, err := get(ctx, q, selectTried+` AND t.name = ? AND t.key = ?`, []any{u.Name, u.Key},
		&t.Unit.Name, &t.Unit.Key, &t.Lane.Category, &t.Lane.Key, &t.Lane.Lane, &t.Sequence, &t.EventID, &t.EventType,
		&t.Attempts, &t.Error, &ms, &again, &t.Suspicions, &t.Alone)
	if err != nil || !found {
		return nil, err
	}
	t.Time, t.Again = fromMillis(ms), fromMillis(again)
	return &t, nil
}

const selectPauses = `SELECT p.name, p.key, p.actor, p.reason, p.since FROM keyhold_pauses p`

func scanPause(rows *sql.Rows) (p eventstore.Pause, err error) {
	var ms int64
	err = rows.Scan(&p.Unit.Name, &p.Unit.Key, &p.Actor, &p.Reason, &ms)
	p.Since = fromMillis(ms)
	return p, err
}

// pauses gives the pause of a unit and that of its whole handler. Key "" has the latter alone.
func pauses(ctx context.Context, q queryer, u event.Unit) (own, whole *eventstore.Pause, err error) {
	err = each(ctx, q, selectPauses+` WHERE p.name = ? AND p.key IN (?, '')`, []any{u.Name, u.Key}, func(rows *sql.Rows) error {
		p, err := scanPause(rows)
		if p.Unit.Key == "" {
			whole = &p
		} else {
			own = &p
		}
		return err
	})
	return own, whole, err
}

// ListPauses implements [eventstore.Overviews].
func (s operations) ListPauses(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Pause, error) {
	if err := eventstore.CheckPage(name, after); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Pause
	where, args := unitsAfter("p", name, after)
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, selectPauses+` WHERE `+where+` ORDER BY p.name, p.key LIMIT ?`, append(args, limit), func(rows *sql.Rows) error {
			p, err := scanPause(rows)
			found = append(found, p)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list pauses of %q: %w", name, err)
	}
	return found, nil
}

// UnitState implements [eventstore.Acts].
func (s operations) UnitState(ctx context.Context, u event.Unit) (eventstore.UnitState, error) {
	if err := eventstore.CheckUnit(u); err != nil {
		return eventstore.UnitState{}, err
	}
	var found eventstore.UnitState
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			var err error
			found, err = unitState(ctx, q, r.storeID, u)
			return err
		})
	})
	if err != nil {
		return eventstore.UnitState{}, fmt.Errorf("state of unit %q: %w", u, err)
	}
	return found, nil
}

func unitState(ctx context.Context, q queryer, storeID string, u event.Unit) (eventstore.UnitState, error) {
	s := eventstore.UnitState{Unit: u}
	if _, err := get(ctx, q, `SELECT coalesce((SELECT kind FROM keyhold_handlers WHERE name = ?1), ''),
		coalesce((SELECT generation FROM keyhold_units WHERE name = ?1 AND key = ?2), start_generation),
		(SELECT count(*) FROM (SELECT 1 FROM keyhold_dead WHERE name = ?1 AND key = ?2 LIMIT 1000)) FROM keyhold_store`,
		[]any{u.Name, u.Key}, &s.Kind, &s.Generation, &s.Dead); err != nil {
		return s, err
	}
	now, err := standing(ctx, q, u)
	if err != nil {
		return s, err
	}
	s.Halt, s.Pause, s.HandlerPause, s.Parking, s.Tried = now.Halt, now.Pause, now.HandlerPause, now.Parking, now.Tried
	if u.Key == "" {
		return s, nil
	}
	s.Lanes, err = laneStates(ctx, q, storeID, u)
	return s, err
}

func laneStates(ctx context.Context, q queryer, storeID string, u event.Unit) (found []eventstore.LaneState, err error) {
	var ids []int64
	err = each(ctx, q, `SELECT n.id, n.category, n.key, n.lane, n.last, coalesce(c.sequence, 0), coalesce(c.event_id, '')
		FROM keyhold_subscriptions s CROSS JOIN keyhold_lanes n ON n.category = s.category AND n.key = ?2
		LEFT JOIN keyhold_checkpoints c ON c.name = ?1 AND c.lane = n.id
		WHERE s.handler = ?1 AND (n.last > 0 OR c.sequence > 0) ORDER BY n.category, n.lane`, []any{u.Name, u.Key}, func(rows *sql.Rows) error {
		var l eventstore.LaneState
		var id int64
		err := rows.Scan(&id, &l.Lane.Category, &l.Lane.Key, &l.Lane.Lane, &l.Tail, &l.Checkpoint.Sequence, &l.Checkpoint.EventID)
		l.Checkpoint.Lane = l.Lane
		found, ids = append(found, l), append(ids, id)
		return err
	})
	for i := range found {
		if err != nil {
			return nil, err
		}
		l := &found[i]
		err = each(ctx, q, `SELECT `+envelopeHead+`, NULL FROM keyhold_log l JOIN keyhold_lanes n ON n.id = l.lane
			WHERE l.lane = ? AND l.sequence > ? ORDER BY l.sequence LIMIT 1`, []any{ids[i], l.Checkpoint.Sequence}, func(rows *sql.Rows) error {
			e, void, err := scanEnvelope(rows, storeID)
			if void {
				e = emptied(e)
			}
			l.Next = &e
			return err
		})
	}
	return found, err
}
