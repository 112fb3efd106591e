package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Unpassed implements [eventstore.Lanes].
func (s *Store) Unpassed(ctx context.Context, name, category string, after event.LaneRef, limit int) ([]event.LaneRef, error) {
	if err := errors.Join(event.CheckID("name", name), tellable(event.LaneRef{Category: category}), tellable(after)); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []event.LaneRef
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, `SELECT n.category, n.key, n.lane
			FROM keyhold_lanes n LEFT JOIN keyhold_checkpoints c ON c.name = $1 AND c.lane = n.id
			WHERE n.category = $2 AND (n.category, n.key, n.lane) > ($3, $4, $5) AND n.last > coalesce(c.sequence, 0)
			AND NOT EXISTS (SELECT 1 FROM keyhold_pauses p WHERE p.name = $1 AND p.key IN ('', n.key))
			AND NOT EXISTS (SELECT 1 FROM keyhold_halts h LEFT JOIN keyhold_checkpoints p ON p.name = h.name AND p.lane = h.lane
				WHERE h.name = $1 AND h.key = n.key AND h.sequence > coalesce(p.sequence, 0))
			ORDER BY n.category, n.key, n.lane LIMIT $6`,
			[]any{name, category, after.Category, after.Key, int16(after.Lane), limit}, func(row rows) error {
				var ref event.LaneRef
				err := row.Scan(&ref.Category, &ref.Key, &ref.Lane)
				found = append(found, ref)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("look for what %s has not passed in %s: %w", name, category, err)
	}
	return found, nil
}

// Purge implements [eventstore.Lanes]. Of several that purge at once, one does it at a time; what they take from lanes they take while nobody
// sets aside what they look at.
func (s *Store) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return 0, err
	}
	purged := 0
	err := s.change(ctx, "purge", func(c *connection) error {
		if _, err := c.exec(`SELECT pg_advisory_xact_lock('keyhold_abandoned'::regclass::oid::int4, 0)`); err != nil {
			return err
		}
		records, err := c.purgeRecords(before, limit)
		if err != nil {
			return err
		}
		replies, err := c.exec(`DELETE FROM keyhold_replies WHERE (stream_kind, stream_id, command_id) IN
			(SELECT stream_kind, stream_id, command_id FROM keyhold_replies WHERE time < $1 ORDER BY time LIMIT $2)`, millis(before), limit-records)
		if err != nil {
			return err
		}
		ids, err := c.purgeTaken(before, limit-records-int(replies))
		purged = records + int(replies) + int(ids)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("purge: %w", err)
	}
	return purged, nil
}

// purgeRecords deletes and empties records, up to limit in all.
func (c *connection) purgeRecords(before time.Time, limit int) (int, error) {
	old, err := c.oldRecords(before, limit)
	if err != nil {
		return 0, err
	}
	purged := 0
	firsts := make(map[int64]event.Sequence) // first record kept of each lane that was looked at
	for _, r := range old {
		first, seen := firsts[r.lane]
		if !seen {
			var n int
			if n, first, err = c.purgePrefix(r.lane, before, limit-purged); err != nil {
				return 0, err
			}
			purged += n
			firsts[r.lane] = first
		}
		if purged == limit {
			break
		}
		if r.sequence <= first {
			continue // deleted; or the first, where records before it were lost
		}
		n, err := c.emptyRecord(r)
		if err != nil {
			return 0, err
		}
		purged += n
	}
	return purged, nil
}

// oldRecord is one that goes, in one way or the other.
type oldRecord struct {
	position, lane int64
	sequence       event.Sequence
	void           bool
}

// isKept is true of a record l that something refers to which a handler set aside.
const isKept = `(EXISTS (SELECT 1 FROM keyhold_dead d WHERE d.lane = l.lane AND d.sequence = l.sequence)
	OR EXISTS (SELECT 1 FROM keyhold_parked p WHERE p.lane = l.lane AND p.sequence = l.sequence))`

// subscribes is true of a subscription s whose handler keeps its checkpoints here.
const subscribes = `EXISTS (SELECT 1 FROM keyhold_handlers o WHERE o.name = s.handler AND o.store_id = '')`

// isUnsent is true of a record l of a lane n that somebody subscribes to who keeps its checkpoints in another store, and that is not published yet.
const isUnsent = `(EXISTS (SELECT 1 FROM keyhold_subscriptions s WHERE s.category = n.category AND NOT ` + subscribes + `)
	AND l.sequence > coalesce((SELECT w.through FROM keyhold_published w WHERE w.lane = l.lane), 0))`

func (c *connection) oldRecords(before time.Time, limit int) (old []oldRecord, err error) {
	err = each(c.ctx, c, `SELECT l.position, l.lane, l.sequence, l.void FROM keyhold_log l JOIN keyhold_lanes n ON n.id = l.lane
		WHERE l.stream_version IS NULL AND NOT l.held AND l.time < $1
		AND NOT EXISTS (SELECT 1 FROM keyhold_subscriptions s LEFT JOIN keyhold_checkpoints p ON p.name = s.handler AND p.lane = l.lane
			WHERE s.category = n.category AND `+subscribes+` AND l.sequence > coalesce(p.sequence, 0))
		AND NOT `+isUnsent+` AND NOT `+isKept+` AND (l.void OR l.position <= `+projectionFloor+`)
		ORDER BY l.time LIMIT $2`, []any{millis(before), limit}, func(row rows) error {
		var r oldRecord
		err := row.Scan(&r.position, &r.lane, &r.sequence, &r.void)
		old = append(old, r)
		return err
	})
	return old, err
}

// purgePrefix deletes, up to limit, the old records of a lane that nothing else lies below, emptied ones among them. It tells how
// many, and the sequence of the first record that is left, the highest possible where none is.
func (c *connection) purgePrefix(lane int64, before time.Time, limit int) (purged int, first event.Sequence, err error) {
	if first, err = c.firstKept(lane); err != nil {
		return 0, 0, err
	}
	var passed event.Sequence
	if _, err := c.get(`SELECT coalesce(min(coalesce(p.sequence, 0)), 9223372036854775807)
		FROM keyhold_lanes n JOIN keyhold_subscriptions s ON s.category = n.category LEFT JOIN keyhold_checkpoints p ON p.name = s.handler AND p.lane = n.id
		WHERE n.id = $1 AND `+subscribes, []any{lane}, &passed); err != nil {
		return 0, 0, err
	}
	end := first + event.Sequence(limit)
	if _, err := c.get(`SELECT l.sequence FROM keyhold_log l JOIN keyhold_lanes n ON n.id = l.lane WHERE l.lane = $1 AND l.sequence < $2
		AND (l.stream_version IS NOT NULL OR (NOT l.void AND l.position > `+projectionFloor+`) OR l.sequence > $3 OR l.time >= $4 OR `+isUnsent+` OR `+isKept+`)
		ORDER BY l.sequence LIMIT 1`,
		[]any{lane, int64(end), int64(passed), millis(before)}, &end); err != nil || end == first {
		return 0, first, err
	}
	n, err := c.exec(`DELETE FROM keyhold_log WHERE lane = $1 AND sequence < $2`, lane, int64(end))
	if err != nil {
		return 0, 0, err
	}
	if _, err := c.exec(`DELETE FROM keyhold_abandoned WHERE lane = $1 AND sequence < $2`, lane, int64(end)); err != nil {
		return 0, 0, err
	}
	if first, err = c.firstKept(lane); err != nil {
		return 0, 0, err
	}
	return int(n), first, c.releaseFirst(lane, first)
}

// releaseFirst leaves an emptied record to the next purge, when it is the first of its lane.
func (c *connection) releaseFirst(lane int64, first event.Sequence) error {
	_, err := c.exec(`UPDATE keyhold_log SET held = false WHERE lane = $1 AND sequence = $2 AND held`, lane, int64(first))
	return err
}

func (c *connection) firstKept(lane int64) (first event.Sequence, err error) {
	_, err = c.get(`SELECT coalesce(min(sequence), 9223372036854775807) FROM keyhold_log WHERE lane = $1`, []any{lane}, &first)
	return first, err
}

// emptyRecord makes a void of a record that has something below it that stays.
func (c *connection) emptyRecord(r oldRecord) (int, error) {
	n, err := c.exec(`UPDATE keyhold_log SET void = true, held = true, type = '', version = 0, encoding = '', tenant = NULL, correlation = NULL,
		causation = NULL, trace_parent = NULL, trace_state = NULL, data = NULL WHERE position = $1`, r.position)
	if err == nil && r.void {
		_, err = c.exec(`DELETE FROM keyhold_abandoned WHERE lane = $1 AND sequence = $2`, r.lane, int64(r.sequence))
	}
	return int(n), err
}
