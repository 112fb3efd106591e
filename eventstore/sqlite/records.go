package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ReadLane implements [eventstore.Records].
func (s operations) ReadLane(ctx context.Context, ref event.LaneRef, after event.Sequence, limit int) ([]event.Envelope, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []event.Envelope
	err := s.read(ctx, func(r *readers) (err error) {
		found, err = readLane(ctx, r, r.storeID, eventstore.LaneRead{Lane: ref, After: after, Limit: limit})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read lane %s: %w", ref, err)
	}
	if len(found) == 0 {
		return nil, eventstore.CheckLane(ref)
	}
	return found, nil
}

// errEnough ends the reading of rows.
var errEnough = errors.New("enough is read")

func readLane(ctx context.Context, q queryer, storeID string, a eventstore.LaneRead) (found []event.Envelope, err error) {
	size := 0
	if err := each(ctx, q, `SELECT `+envelopeColumns+` FROM keyhold_lanes n JOIN keyhold_log l ON l.lane = n.id
		WHERE n.category = ? AND n.key = ? AND n.lane = ? AND l.sequence > ? ORDER BY l.sequence LIMIT ?`,
		[]any{a.Lane.Category, a.Lane.Key, a.Lane.Lane, a.After, a.Limit}, func(rows *sql.Rows) error {
			e, void, err := scanEnvelope(rows, storeID)
			if void {
				e = emptied(e)
			}
			if err == nil && !a.Fits(len(found), len(e.Data), &size) {
				return errEnough
			}
			found = append(found, e)
			return err
		}); err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	for i := range found {
		if found[i].Sequence != found[0].Sequence+event.Sequence(i) {
			return found[:i], nil // the next one is lost
		}
	}
	return found, nil
}

// LaneTail implements [eventstore.Records].
func (s operations) LaneTail(ctx context.Context, ref event.LaneRef) (event.Sequence, error) {
	var last event.Sequence
	err := s.read(ctx, func(r *readers) error {
		_, err := get(ctx, r, `SELECT last FROM keyhold_lanes WHERE category = ? AND key = ? AND lane = ?`,
			[]any{ref.Category, ref.Key, ref.Lane}, &last)
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
	err := s.change(ctx, "abandon", func(c *connection) error {
		var lane int64
		var void bool
		found, err := c.get(`SELECT l.lane, l.void FROM keyhold_lanes n JOIN keyhold_log l ON l.lane = n.id
			WHERE n.category = ? AND n.key = ? AND n.lane = ? AND l.sequence = ?`, []any{ref.Category, ref.Key, ref.Lane, seq}, &lane, &void)
		switch {
		case err != nil:
			return err
		case !found:
			return eventstore.ErrNotFound
		case void:
			return nil
		}
		if _, err := c.exec(`UPDATE keyhold_log SET void = 1 WHERE lane = ? AND sequence = ?`, lane, seq); err != nil {
			return err
		}
		_, err = c.exec(`INSERT INTO keyhold_abandoned (lane, sequence, reason, time) VALUES (?, ?, ?, ?)`, lane, seq, reason, millis(time.Now()))
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
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []eventstore.Abandoned
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, `SELECT `+envelopeColumns+`, a.reason, a.time
			FROM keyhold_abandoned a JOIN keyhold_lanes n ON n.id = a.lane JOIN keyhold_log l ON l.lane = a.lane AND l.sequence = a.sequence
			WHERE (n.category, n.key, n.lane, a.sequence) > (?, ?, ?, ?) ORDER BY n.category, n.key, n.lane, a.sequence LIMIT ?`,
			[]any{after.Lane.Category, after.Lane.Key, after.Lane.Lane, after.Sequence, limit}, func(rows *sql.Rows) error {
				var a eventstore.Abandoned
				var ms int64
				var err error
				a.Record, _, err = scanEnvelope(rows, r.storeID, &a.Reason, &ms)
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
