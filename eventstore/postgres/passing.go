package postgres

import (
	"context"
	"fmt"
	"math"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ReadLanes implements [eventstore.Relays].
func (s operations) ReadLanes(ctx context.Context, asked []eventstore.LaneRead) ([][]event.Envelope, error) {
	var lanes laneList
	afters, limits, bytes := make([]int64, len(asked)), make([]int32, len(asked)), make([]int64, len(asked))
	for i, a := range asked {
		if err := eventstore.CheckLimit(a.Limit); err != nil {
			return nil, err
		}
		lanes.add(a.Lane)
		afters[i], limits[i], bytes[i] = int64(a.After), int32(a.Limit), int64(a.Bytes)
		if a.Bytes == 0 {
			bytes[i] = math.MaxInt64
		}
	}
	runs := make([]run, len(asked))
	if len(asked) == 0 {
		return [][]event.Envelope{}, nil
	}
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, `SELECT r.*, a.i FROM unnest($1::int4[], $2::text[], $3::text[], $4::int2[], $5::bigint[], $6::int4[], $7::bigint[]) AS a (i, category, key, lane, after, most, bytes)
			CROSS JOIN LATERAL (SELECT s.*, coalesce(sum(octet_length(s.data)) OVER (ORDER BY s.sequence ROWS UNBOUNDED PRECEDING), 0) AS size,
					row_number() OVER (ORDER BY s.sequence) AS nth
				FROM (SELECT `+envelopeColumns+` FROM keyhold_lanes n JOIN keyhold_log l ON l.lane = n.id
					WHERE n.category = a.category AND n.key = a.key AND n.lane = a.lane AND l.sequence > a.after ORDER BY l.sequence LIMIT a.most) s) r
			WHERE r.nth = 1 OR r.size <= a.bytes ORDER BY a.i, r.sequence`, append(lanes.args(), afters, limits, bytes), func(row rows) error {
			var i, nth int
			var size int64
			e, void, err := scanEnvelope(row, r.storeID, &size, &nth, &i)
			if void {
				e = emptied(e)
			}
			if err == nil {
				runs[i].found = append(runs[i].found, e)
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read %d lanes: %w", len(asked), err)
	}
	found := make([][]event.Envelope, len(asked))
	for i := range runs {
		found[i] = runs[i].whole()
	}
	return found, nil
}

// Passing implements [eventstore.Relays].
func (s operations) Passing(ctx context.Context, lanes []event.LaneRef) ([]eventstore.Passing, error) {
	found := make([]eventstore.Passing, len(lanes))
	if len(lanes) == 0 {
		return found, nil
	}
	var asked laneList
	for i, ref := range lanes {
		found[i].Lane = ref
		asked.add(ref)
	}
	const those = `FROM unnest($1::int4[], $2::text[], $3::text[], $4::int2[]) AS a (i, category, key, lane) `
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			if err := each(ctx, q, `SELECT a.i, coalesce(p.through, 0), n.last, coalesce((SELECT min(l.sequence) FROM keyhold_log l WHERE l.lane = n.id), 0) `+those+`
				JOIN keyhold_lanes n ON n.category = a.category AND n.key = a.key AND n.lane = a.lane
				LEFT JOIN keyhold_published p ON p.lane = n.id`, asked.args(), func(row rows) error {
				var i int
				var p eventstore.Passing
				err := row.Scan(&i, &p.Published, &p.Tail, &p.First)
				p.Lane, found[i] = found[i].Lane, p
				found[i].Lane = p.Lane
				return err
			}); err != nil {
				return err
			}
			return each(ctx, q, `SELECT a.i, s.handler, h.store_id <> '', coalesce(c.sequence, 0),
					EXISTS (SELECT 1 FROM keyhold_pauses u WHERE u.name = s.handler AND u.key IN ('', a.key))
					OR EXISTS (SELECT 1 FROM keyhold_halts u LEFT JOIN keyhold_checkpoints k ON k.name = u.name AND k.lane = u.lane
						WHERE u.name = s.handler AND u.key = a.key AND u.sequence > coalesce(k.sequence, 0)) `+those+`
				JOIN keyhold_subscriptions s ON s.category = a.category JOIN keyhold_handlers h ON h.name = s.handler
				LEFT JOIN keyhold_lanes n ON n.category = a.category AND n.key = a.key AND n.lane = a.lane
				LEFT JOIN keyhold_checkpoints c ON c.name = s.handler AND c.lane = n.id ORDER BY a.i, s.handler`, asked.args(), func(row rows) error {
				var i int
				var p eventstore.Passed
				err := row.Scan(&i, &p.Name, &p.Foreign, &p.Checkpoint, &p.Stopped)
				if p.Foreign {
					p.Checkpoint, p.Stopped = 0, false
				}
				found[i].Subscribers = append(found[i].Subscribers, p)
				return err
			})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("look how far %d lanes are passed: %w", len(lanes), err)
	}
	return found, nil
}
