package postgres

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// parkedColumns are what scanParked reads: of parked events as p and their lanes as n.
const parkedColumns = `p.name, p.key, n.category, n.key, n.lane, p.sequence, p.event_id, p.event_type, p.attempts, p.reason, p.error, p.time, p.ordinal, p.due`

func scanParked(r rows, more ...any) (p eventstore.Parked, err error) {
	var ms int64
	err = r.Scan(append([]any{&p.Unit.Name, &p.Unit.Key, &p.Lane.Category, &p.Lane.Key, &p.Lane.Lane, &p.Sequence, &p.EventID, &p.Type,
		&p.Attempts, &p.Reason, &p.Error, &ms, &p.Ordinal, &p.Due}, more...)...)
	p.Time = fromMillis(ms)
	return p, err
}

// DueAsides implements [eventstore.Asides].
func (s operations) DueAsides(ctx context.Context, u event.Unit, limit int) ([]eventstore.Aside, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Aside
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			var err error
			if found, err = dueParked(ctx, q, r.storeID, u, limit); err != nil || len(found) == limit {
				return err
			}
			dead, err := dueDead(ctx, q, r.storeID, u, limit-len(found))
			found = append(found, dead...)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read what unit %q set aside: %w", u, err)
	}
	return found, nil
}

func dueParked(ctx context.Context, q queryer, storeID string, u event.Unit, limit int) (found []eventstore.Aside, err error) {
	return asides(ctx, q, storeID, eventstore.AsideParked, `SELECT `+asideColumns+` FROM keyhold_parked a
		JOIN keyhold_lanes n ON n.id = a.lane LEFT JOIN keyhold_log l ON l.lane = a.lane AND l.sequence = a.sequence
		WHERE a.name = $1 AND a.key = $2 AND EXISTS (SELECT 1 FROM keyhold_parked WHERE name = $1 AND key = $2 AND due)
		ORDER BY a.ordinal LIMIT $3`, u, limit)
}

func dueDead(ctx context.Context, q queryer, storeID string, u event.Unit, limit int) (found []eventstore.Aside, err error) {
	return asides(ctx, q, storeID, eventstore.AsideDead, `SELECT `+asideColumns+` FROM keyhold_dead a
		JOIN keyhold_lanes n ON n.id = a.lane LEFT JOIN keyhold_log l ON l.lane = a.lane AND l.sequence = a.sequence
		WHERE a.name = $1 AND a.key = $2 AND a.due > 0 ORDER BY n.category, n.key, n.lane, a.sequence LIMIT $3`, u, limit)
}

// asideColumns are the attempts at a row set aside, as a, and its record, a void where there is none: of the log as l and its lanes as n.
const asideColumns = `n.category, n.key, n.lane, a.sequence, coalesce(l.void, TRUE), coalesce(l.id, a.event_id), coalesce(l.type, ''), coalesce(l.version, 0),
	coalesce(l.encoding, ''), coalesce(l.time, a.time), coalesce(l.stream_kind, ''), coalesce(l.stream_id, ''), coalesce(l.stream_version, 0),
	coalesce(l.tenant, ''), coalesce(l.correlation, ''), coalesce(l.causation, ''), coalesce(l.trace_parent, ''), coalesce(l.trace_state, ''), l.data, a.attempts, a.suspicions`

func asides(ctx context.Context, q queryer, storeID string, kind eventstore.AsideKind, query string, u event.Unit, limit int) (found []eventstore.Aside, err error) {
	err = each(ctx, q, query, []any{u.Name, u.Key, limit}, func(r rows) error {
		var a eventstore.Aside
		e, void, err := scanEnvelope(r, storeID, &a.Attempts, &a.Suspicions)
		if void {
			e = emptied(e)
		}
		a.Record, a.AsideRef = e, eventstore.AsideRef{Kind: kind, Lane: e.Ref(), Sequence: e.Sequence}
		found = append(found, a)
		return err
	})
	return found, err
}

// DueUnits implements [eventstore.Asides].
func (s operations) DueUnits(ctx context.Context, after event.Unit, limit int) ([]event.Unit, error) {
	if words(after.Name) != after.Name || words(after.Key) != after.Key {
		return nil, eventstore.CheckUnit(after)
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []event.Unit
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, selectDueUnits, []any{after.Name, after.Key, limit}, func(r rows) error {
			var u event.Unit
			err := r.Scan(&u.Name, &u.Key)
			found = append(found, u)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look for what was set aside and is due: %w", err)
	}
	return found, nil
}

const selectDueUnits = `SELECT u.name, u.key FROM (
		SELECT name, key FROM keyhold_parked WHERE due AND (name, key) > ($1, $2)
		UNION SELECT name, key FROM keyhold_dead WHERE due > 0 AND (name, key) > ($1, $2)) u
	WHERE NOT EXISTS (SELECT 1 FROM keyhold_pauses p WHERE p.name = u.name AND p.key IN ('', u.key))
	AND NOT EXISTS (SELECT 1 FROM keyhold_halts h LEFT JOIN keyhold_checkpoints c ON c.name = h.name AND c.lane = h.lane
		WHERE h.name = u.name AND h.key = u.key AND h.sequence > coalesce(c.sequence, 0))
	ORDER BY u.name, u.key LIMIT $3`

// ListParked implements [eventstore.Asides].
func (s operations) ListParked(ctx context.Context, u event.Unit, after int64, limit int) ([]eventstore.Parked, error) {
	if err := eventstore.CheckUnit(u); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Parked
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, selectParked, []any{u.Name, u.Key, after, limit}, func(r rows) error {
			p, err := scanParked(r)
			found = append(found, p)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list parked events of unit %q: %w", u, err)
	}
	return found, nil
}

const selectParked = `SELECT ` + parkedColumns + ` FROM keyhold_parked p JOIN keyhold_lanes n ON n.id = p.lane
	WHERE p.name = $1 AND p.key = $2 AND p.ordinal > $3 ORDER BY p.ordinal LIMIT $4`

// ListParking implements [eventstore.Asides].
func (s operations) ListParking(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Parking, error) {
	if err := eventstore.CheckPage(name, after); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Parking
	var args arguments
	where := args.unitsAfter("a", name, after)
	query := `SELECT ` + parkedColumns + `, u.count FROM
		(SELECT min(a.ordinal) AS first, count(*) AS count FROM keyhold_parked a WHERE ` + where + ` GROUP BY a.name, a.key ORDER BY a.name, a.key LIMIT ` + args.add(limit) + `) u
		JOIN keyhold_parked p ON p.ordinal = u.first JOIN keyhold_lanes n ON n.id = p.lane ORDER BY p.name, p.key`
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, query, args, func(r rows) error {
			var p eventstore.Parking
			var err error
			p.First, err = scanParked(r, &p.Count)
			p.Unit = p.First.Unit
			found = append(found, p)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list units of %q that have parked events: %w", name, err)
	}
	return found, nil
}

// parking gives what a unit has parked, nil when that is nothing.
func parking(ctx context.Context, q queryer, u event.Unit) (*eventstore.Parking, error) {
	var found *eventstore.Parking
	err := each(ctx, q, `SELECT `+parkedColumns+`, (SELECT count(*) FROM keyhold_parked WHERE name = $1 AND key = $2)
		FROM keyhold_parked p JOIN keyhold_lanes n ON n.id = p.lane WHERE p.name = $1 AND p.key = $2 ORDER BY p.ordinal LIMIT 1`,
		[]any{u.Name, u.Key}, func(r rows) error {
			found = &eventstore.Parking{Unit: u}
			var err error
			found.First, err = scanParked(r, &found.Count)
			return err
		})
	return found, err
}

// parkedIn counts the parked events of a unit by category.
func parkedIn(ctx context.Context, q queryer, u event.Unit) (found []eventstore.ParkedIn, err error) {
	err = each(ctx, q, `SELECT n.category, count(*) FROM keyhold_parked p JOIN keyhold_lanes n ON n.id = p.lane
		WHERE p.name = $1 AND p.key = $2 GROUP BY n.category ORDER BY n.category`, []any{u.Name, u.Key}, func(r rows) error {
		var p eventstore.ParkedIn
		err := r.Scan(&p.Category, &p.Count)
		found = append(found, p)
		return err
	})
	return found, err
}
