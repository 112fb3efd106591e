package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ReadStream implements [eventstore.Streams].
func (s operations) ReadStream(ctx context.Context, ref event.Stream, after uint64, limit int) ([]event.Envelope, error) {
	if err := eventstore.CheckStream(ref); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []event.Envelope
	err := s.read(ctx, func(r *readers) error {
		return each(ctx, r, `SELECT `+envelopeColumns+` FROM keyhold_log l JOIN keyhold_lanes n ON n.id = l.lane
			WHERE l.stream_kind = ? AND l.stream_id = ? AND l.stream_version > ? ORDER BY l.stream_version LIMIT ?`,
			[]any{ref.Kind, ref.ID, after, limit}, func(rows *sql.Rows) error {
				e, _, err := scanEnvelope(rows, r.storeID)
				found = append(found, e)
				return err
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read stream %q: %w", ref, err)
	}
	return found, nil
}

// ReadSnapshot implements [eventstore.Streams].
func (s operations) ReadSnapshot(ctx context.Context, ref event.Stream) (*eventstore.Snapshot, error) {
	if err := eventstore.CheckStream(ref); err != nil {
		return nil, err
	}
	snapshot := &eventstore.Snapshot{Stream: ref}
	var found bool
	err := s.read(ctx, func(r *readers) (err error) {
		found, err = get(ctx, r, `SELECT version, state_version, encoding, data FROM keyhold_snapshots WHERE stream_kind = ? AND stream_id = ?`,
			[]any{ref.Kind, ref.ID}, &snapshot.Version, &snapshot.StateVersion, &snapshot.Encoding, &snapshot.Data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read snapshot of stream %q: %w", ref, err)
	}
	if !found {
		return nil, nil
	}
	return snapshot, nil
}

// ReadReply implements [eventstore.Streams].
func (s operations) ReadReply(ctx context.Context, ref event.Stream, commandID string) (*eventstore.Reply, error) {
	if err := eventstore.CheckStream(ref); err != nil {
		return nil, err
	}
	if err := event.CheckID("command id", commandID); err != nil {
		return nil, err
	}
	reply := &eventstore.Reply{Stream: ref, CommandID: commandID}
	var found bool
	var ms int64
	err := s.read(ctx, func(r *readers) (err error) {
		found, err = get(ctx, r, `SELECT command, type, version, encoding, rejected, time, data FROM keyhold_replies
			WHERE stream_kind = ? AND stream_id = ? AND command_id = ?`, []any{ref.Kind, ref.ID, commandID},
			&reply.Command, &reply.Type, &reply.Version, &reply.Encoding, &reply.Rejected, &ms, &reply.Data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read reply to command %q of stream %q: %w", commandID, ref, err)
	}
	if !found {
		return nil, nil
	}
	reply.Time = fromMillis(ms)
	return reply, nil
}

// scanRun is how many places of the log ReadAll looks at in one read transaction. A search for what is rare goes through
// the whole log, and one long transaction would let the write-ahead log grow.
const scanRun = 4096

// ReadAll implements [eventstore.Streams]. Its positions are those of the log.
func (s operations) ReadAll(ctx context.Context, after eventstore.Position, categories []string, limit int) ([]event.Envelope, eventstore.Position, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, after, err
	}
	from, err := parsePosition(after)
	if err != nil {
		return nil, after, err
	}
	var found []event.Envelope
	last := from
	err = s.read(ctx, func(r *readers) error {
		var end int64
		if _, err := get(ctx, r, `SELECT coalesce(max(position), 0) FROM keyhold_log`, nil, &end); err != nil {
			return err
		}
		for at := from; at < end && len(found) < limit; at += scanRun {
			run, position, err := scanAll(ctx, r, at, categories, limit-len(found))
			if err != nil {
				return err
			}
			if len(run) > 0 {
				found, last = append(found, run...), position
			}
		}
		return nil
	})
	if err != nil {
		return nil, after, fmt.Errorf("read all after position %q: %w", after, err)
	}
	if len(found) == 0 {
		return nil, after, nil
	}
	return found, eventstore.Position(strconv.FormatInt(last, 10)), nil
}

// scanAll reads what is wanted of one run of the log, and gives the position of the last event.
func scanAll(ctx context.Context, r *readers, after int64, categories []string, limit int) (found []event.Envelope, last int64, err error) {
	// CROSS JOIN keeps SQLite from beginning with the lanes.
	wanted, arg := `NOT IN (SELECT name FROM keyhold_categories WHERE commands)`, any(nil)
	if len(categories) > 0 {
		names, err := json.Marshal(categories)
		if err != nil {
			return nil, 0, err
		}
		wanted, arg = `IN (SELECT value FROM json_each(?))`, string(names)
	}
	args := []any{after, after + scanRun}
	if arg != nil {
		args = append(args, arg)
	}
	err = each(ctx, r, `SELECT `+envelopeColumns+`, l.position FROM keyhold_log l CROSS JOIN keyhold_lanes n ON n.id = l.lane
		WHERE l.position > ? AND l.position <= ? AND l.void = 0 AND n.category `+wanted+` ORDER BY l.position LIMIT ?`,
		append(args, limit), func(rows *sql.Rows) error {
			e, _, err := scanEnvelope(rows, r.storeID, &last)
			found = append(found, e)
			return err
		})
	return found, last, err
}

func parsePosition(p eventstore.Position) (int64, error) {
	if p == "" {
		return 0, nil
	}
	position, err := strconv.ParseInt(string(p), 10, 64)
	if err != nil || position < 0 {
		return 0, fmt.Errorf("read all: %q is no position of this store", p)
	}
	return position, nil
}
