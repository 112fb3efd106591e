package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

const readLane = `SELECT ` + envelopeColumns + ` FROM keyhold_lanes n JOIN keyhold_log l ON l.lane = n.id
	WHERE n.category = $1 AND n.key = $2 AND n.lane = $3 AND l.sequence > $4 ORDER BY l.sequence LIMIT $5`

func laneArgs(ref event.LaneRef, more ...any) []any {
	return append([]any{ref.Category, ref.Key, int16(ref.Lane)}, more...)
}

// run collects the records of a lane, up to the first that is missing.
type run struct {
	storeID string
	found   []event.Envelope
}

func (r *run) add(row rows) error {
	e, void, err := scanEnvelope(row, r.storeID)
	if void {
		e = emptied(e)
	}
	r.found = append(r.found, e)
	return err
}

func (r *run) whole() []event.Envelope {
	for i := range r.found {
		if r.found[i].Sequence != r.found[0].Sequence+event.Sequence(i) {
			return r.found[:i] // the next one is lost
		}
	}
	return r.found
}

// tellable reports a lane that PostgreSQL has no text for. What else no lane can be called it may have, and is asked for.
func tellable(ref event.LaneRef) error {
	if words(ref.Category) == ref.Category && words(ref.Key) == ref.Key {
		return nil
	}
	return eventstore.CheckLane(ref)
}

// ReadLane implements [eventstore.Records].
func (s operations) ReadLane(ctx context.Context, ref event.LaneRef, after event.Sequence, limit int) ([]event.Envelope, error) {
	if err := tellable(ref); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found run
	err := s.read(ctx, func(r *readers) error {
		found.storeID = r.storeID
		return each(ctx, r, readLane, laneArgs(ref, int64(after), limit), found.add)
	})
	if err != nil {
		return nil, fmt.Errorf("read lane %s: %w", ref, err)
	}
	if len(found.found) == 0 {
		return nil, eventstore.CheckLane(ref)
	}
	return found.whole(), nil
}

// LaneTail implements [eventstore.Records].
func (s operations) LaneTail(ctx context.Context, ref event.LaneRef) (event.Sequence, error) {
	if err := tellable(ref); err != nil {
		return 0, err
	}
	var last event.Sequence
	err := s.read(ctx, func(r *readers) error {
		_, err := get(ctx, r, `SELECT last FROM keyhold_lanes WHERE category = $1 AND key = $2 AND lane = $3`, laneArgs(ref), &last)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("tail of lane %s: %w", ref, err)
	}
	if last == 0 {
		return 0, eventstore.CheckLane(ref)
	}
	return last, nil
}

// Abandon implements [eventstore.Records].
func (s operations) Abandon(ctx context.Context, ref event.LaneRef, seq event.Sequence, reason string) error {
	if err := tellable(ref); err != nil {
		return err
	}
	err := s.change(ctx, "abandon", func(c *connection) error {
		var lane int64
		var void bool
		found, err := c.get(`SELECT l.lane, l.void FROM keyhold_lanes n JOIN keyhold_log l ON l.lane = n.id
			WHERE n.category = $1 AND n.key = $2 AND n.lane = $3 AND l.sequence = $4 FOR UPDATE OF l`, laneArgs(ref, int64(seq)), &lane, &void)
		switch {
		case err != nil:
			return err
		case !found:
			return eventstore.ErrNotFound
		case void:
			return nil
		}
		if _, err := c.exec(`UPDATE keyhold_log SET void = true WHERE lane = $1 AND sequence = $2`, lane, int64(seq)); err != nil {
			return err
		}
		_, err = c.exec(`INSERT INTO keyhold_abandoned (lane, sequence, reason, time) VALUES ($1, $2, $3, $4)`, lane, int64(seq), words(reason), millis(time.Now()))
		return err
	})
	if unfit := eventstore.CheckLane(ref); unfit != nil && errors.Is(err, eventstore.ErrNotFound) {
		return fmt.Errorf("abandon #%d: %w: %w", seq, err, unfit)
	}
	if err != nil {
		return fmt.Errorf("abandon %s #%d: %w", ref, seq, err)
	}
	return nil
}

// Abandoned implements [eventstore.Records].
func (s operations) Abandoned(ctx context.Context, after event.Position, limit int) ([]eventstore.Abandoned, error) {
	if err := tellable(after.Lane); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Abandoned
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, `SELECT `+envelopeColumns+`, a.reason, a.time
			FROM keyhold_abandoned a JOIN keyhold_lanes n ON n.id = a.lane JOIN keyhold_log l ON l.lane = a.lane AND l.sequence = a.sequence
			WHERE (n.category, n.key, n.lane, a.sequence) > ($1, $2, $3, $4) ORDER BY n.category, n.key, n.lane, a.sequence LIMIT $5`,
			laneArgs(after.Lane, int64(after.Sequence), limit), func(row rows) error {
				var a eventstore.Abandoned
				var ms int64
				var err error
				a.Record, _, err = scanEnvelope(row, r.storeID, &a.Reason, &ms)
				a.Time = fromMillis(ms)
				found = append(found, a)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("list abandoned records: %w", err)
	}
	return found, nil
}
