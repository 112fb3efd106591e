package postgres

import (
	"context"
	"fmt"

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
			WHERE l.stream_kind = $1 AND l.stream_id = $2 AND l.stream_version > $3 ORDER BY l.stream_version LIMIT $4`,
			[]any{ref.Kind, ref.ID, int64(min(after, 1<<63-1)), limit}, func(row rows) error {
				e, _, err := scanEnvelope(row, r.storeID)
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
		found, err = get(ctx, r, `SELECT version, state_version, encoding, data FROM keyhold_snapshots WHERE stream_kind = $1 AND stream_id = $2`,
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
			WHERE stream_kind = $1 AND stream_id = $2 AND command_id = $3`, []any{ref.Kind, ref.ID, commandID},
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

// scanRun is how many places of the log ReadAll looks at in one statement: a search for what is rare goes through the whole log.
const scanRun = 8192

// ReadAll implements [eventstore.Streams]. Its positions are those of the log.
func (s operations) ReadAll(ctx context.Context, after eventstore.Position, categories []string, limit int) ([]event.Envelope, eventstore.Position, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, after, err
	}
	from, err := parsePosition(after)
	if err != nil {
		return nil, after, err
	}
	var found []eventstore.Placed
	err = s.read(ctx, func(r *readers) (err error) {
		found, err = placed(ctx, r, r.storeID, from, categories, limit)
		return err
	})
	if err != nil {
		return nil, after, fmt.Errorf("read all after position %q: %w", after, err)
	}
	if len(found) == 0 {
		return nil, after, nil
	}
	events := make([]event.Envelope, len(found))
	for i := range found {
		events[i] = found[i].Envelope
	}
	return events, found[len(found)-1].Position, nil
}
