package postgres

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ListPartitions implements [eventstore.Overviews].
func (s operations) ListPartitions(ctx context.Context, query eventstore.PartitionQuery) ([]eventstore.Partition, error) {
	if err := query.Validate(); err != nil {
		return nil, err
	}
	var found []eventstore.Partition
	err := s.read(ctx, func(r *readers) error {
		return r.snapshot(ctx, func(q queryer) error {
			pairs, err := subscriptions(ctx, q, &query)
			for _, p := range pairs {
				if err != nil || len(found) == query.Limit {
					break
				}
				page := partitionPage{q: q, status: query.Status, subscription: p, limit: query.Limit}
				found, err = page.read(ctx, found)
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list partitions: %w", err)
	}
	return found, nil
}

// subscription is a handler and a category of it, and where in the category a page begins.
type subscription struct {
	name, category string
	key            string // after this key and lane
	lane           int16
}

// subscriptions gives those that a page may be about, in order.
func subscriptions(ctx context.Context, q queryer, query *eventstore.PartitionQuery) (found []subscription, err error) {
	after := query.After
	err = each(ctx, q, `SELECT handler, category FROM keyhold_subscriptions WHERE (handler, category) >= ($1, $2)
		AND NOT EXISTS (SELECT 1 FROM keyhold_handlers h WHERE h.name = handler AND h.store_id <> '') -- which keeps its checkpoints elsewhere
		AND ($3 = '' OR handler = $3) AND ($4 = '' OR category = $4) ORDER BY handler, category`,
		[]any{after.Name, after.Lane.Category, query.Name, query.Category}, func(r rows) error {
			s := subscription{lane: -1}
			err := r.Scan(&s.name, &s.category)
			if s.name == after.Name && s.category == after.Lane.Category {
				s.key, s.lane = after.Lane.Key, int16(after.Lane.Lane)
			}
			found = append(found, s)
			return err
		})
	return found, err
}

// partitionPage reads what a page has of one subscription.
type partitionPage struct {
	subscription
	q      queryer
	status eventstore.Status
	limit  int // of the page

	whole *eventstore.Pause   // of the handler
	unit  event.Unit          // the one looked at last, and what is in its way
	now   eventstore.Standing // lanes of one unit follow one another
}

// candidate is a lane that may be on the page; there tells whether something may be in the way of its unit.
type candidate struct {
	eventstore.Partition
	there bool
}

// candidates of each status: those that cost no more than what is in that state come from its table, lanes in order. The others are all lanes.
var candidates = map[eventstore.Status]string{
	eventstore.StatusHalted: `SELECT key FROM keyhold_halts WHERE name = $1 AND key >= $3`,
	eventstore.StatusPaused: `SELECT key FROM keyhold_pauses WHERE name = $1 AND key >= $3 AND key <> ''`,
	eventstore.StatusTrying: `SELECT key FROM keyhold_tried WHERE name = $1 AND key >= $3`,
	eventstore.StatusParking: `WITH RECURSIVE keys (key) AS (
		SELECT min(key) FROM keyhold_parked WHERE name = $1 AND key >= $3
		UNION ALL SELECT (SELECT min(key) FROM keyhold_parked WHERE name = $1 AND key > k.key) FROM keys k WHERE k.key IS NOT NULL)
		SELECT key FROM keys WHERE key IS NOT NULL`,
}

// sql is the query of candidates, for name, category, key, lane and limit.
func (p *partitionPage) sql() string {
	from, and := `keyhold_lanes n`, ``
	keys, few := candidates[p.status]
	if few && (p.status != eventstore.StatusPaused || p.whole == nil) {
		from = `(` + keys + `) k JOIN keyhold_lanes n ON n.key = k.key`
	}
	switch p.status {
	case eventstore.StatusDone:
		and = ` AND n.last <= coalesce(c.sequence, 0)`
	case eventstore.StatusBehind:
		and = ` AND n.last > coalesce(c.sequence, 0)`
	}
	return `SELECT n.key, n.lane, n.last, coalesce(c.sequence, 0),
		EXISTS (SELECT 1 FROM keyhold_halts WHERE name = $1 AND key = n.key) OR EXISTS (SELECT 1 FROM keyhold_pauses WHERE name = $1 AND key = n.key)
		OR EXISTS (SELECT 1 FROM keyhold_parked WHERE name = $1 AND key = n.key) OR EXISTS (SELECT 1 FROM keyhold_tried WHERE name = $1 AND key = n.key)
		FROM ` + from + ` LEFT JOIN keyhold_checkpoints c ON c.name = $1 AND c.lane = n.id
		WHERE n.category = $2 AND (n.key, n.lane) > ($3, $4) AND (n.last > 0 OR c.sequence > 0)` + and + ` ORDER BY n.key, n.lane LIMIT $5`
}

// read adds the subscription's partitions to a page until it is full.
func (p *partitionPage) read(ctx context.Context, page []eventstore.Partition) (_ []eventstore.Partition, err error) {
	if _, p.whole, err = pauses(ctx, p.q, event.Unit{Name: p.name}); err != nil {
		return nil, err
	}
	for len(page) < p.limit {
		run, err := p.run(ctx, p.limit-len(page))
		if err != nil {
			return nil, err
		}
		for i := range run {
			c := &run[i]
			if err := p.judge(ctx, c); err != nil {
				return nil, err
			}
			if p.status == "" || p.status == c.Status {
				page = append(page, c.Partition)
			}
		}
		if len(run) == 0 {
			break
		}
		last := run[len(run)-1].Lane
		p.key, p.lane = last.Key, int16(last.Lane)
	}
	return page, nil
}

func (p *partitionPage) run(ctx context.Context, limit int) (found []candidate, err error) {
	err = each(ctx, p.q, p.sql(), []any{p.name, p.category, p.key, p.lane, limit}, func(r rows) error {
		c := candidate{Partition: eventstore.Partition{Unit: event.Unit{Name: p.name}, Lane: event.LaneRef{Category: p.category}}}
		err := r.Scan(&c.Lane.Key, &c.Lane.Lane, &c.Tail, &c.Checkpoint, &c.there)
		c.Unit.Key = c.Lane.Key
		found = append(found, c)
		return err
	})
	return found, err
}

// judge says what a lane's unit is doing.
func (p *partitionPage) judge(ctx context.Context, c *candidate) (err error) {
	if c.Unit != p.unit {
		p.unit, p.now = c.Unit, eventstore.Standing{HandlerPause: p.whole}
		if c.there {
			if p.now, err = standing(ctx, p.q, c.Unit); err != nil {
				return err
			}
		}
	}
	c.Status, c.Since, c.Summary = p.now.Status(c.Lane, c.Tail, c.Checkpoint)
	return nil
}
