package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ReadStream implements [eventstore.Streams].
func (s *Store) ReadStream(ctx context.Context, ref event.Stream, after uint64, limit int) ([]event.Envelope, error) {
	if err := eventstore.CheckStream(ref); err != nil {
		return nil, err
	}
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	var found []*record
	err := s.read(ctx, func(d *data) {
		if st := d.streams[ref]; st != nil && after < uint64(len(st.events)) {
			rest := st.events[after:]
			found = rest[:min(limit, len(rest))] // events of a stream are never moved, nor replaced in place
		}
	})
	if err != nil {
		return nil, err
	}
	return copies(found), nil
}

// ReadSnapshot implements [eventstore.Streams].
func (s *Store) ReadSnapshot(ctx context.Context, ref event.Stream) (*eventstore.Snapshot, error) {
	if err := eventstore.CheckStream(ref); err != nil {
		return nil, err
	}
	var found *eventstore.Snapshot
	err := s.read(ctx, func(d *data) {
		if st := d.streams[ref]; st != nil {
			found = st.snapshot
		}
	})
	if err != nil || found == nil {
		return nil, err
	}
	snapshot := *found
	snapshot.Data = bytes.Clone(found.Data)
	return &snapshot, nil
}

// ReadReply implements [eventstore.Streams].
func (s *Store) ReadReply(ctx context.Context, ref event.Stream, commandID string) (*eventstore.Reply, error) {
	if err := eventstore.CheckStream(ref); err != nil {
		return nil, err
	}
	if err := event.CheckID("command id", commandID); err != nil {
		return nil, err
	}
	var found *eventstore.Reply
	err := s.read(ctx, func(d *data) {
		if st := d.streams[ref]; st != nil {
			found = st.replies[commandID]
		}
	})
	if err != nil || found == nil {
		return nil, err
	}
	reply := *found
	reply.Data = bytes.Clone(found.Data)
	return &reply, nil
}

// ReadAll implements [eventstore.Streams]. Its positions are those of the log.
func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, categories []string, limit int) ([]event.Envelope, eventstore.Position, error) {
	found, err := s.findAll(ctx, after, categories, limit)
	if err != nil || len(found) == 0 {
		return nil, after, err
	}
	return copies(found), eventstore.Position(strconv.FormatUint(found[len(found)-1].position, 10)), nil
}

func (s *Store) findAll(ctx context.Context, after eventstore.Position, categories []string, limit int) ([]*record, error) {
	if err := eventstore.CheckLimit(limit); err != nil {
		return nil, err
	}
	position, err := parsePosition(after)
	if err != nil {
		return nil, err
	}
	wanted := func(name string) bool { return slices.Contains(categories, name) }
	if len(categories) == 0 {
		commands, err := s.commandCategories(ctx)
		if err != nil {
			return nil, err
		}
		wanted = func(name string) bool { return !slices.Contains(commands, name) }
	}
	var found []*record
	for len(found) < limit {
		run, err := s.readLog(ctx, position)
		if err != nil {
			return nil, err
		}
		if len(run) == 0 {
			break
		}
		for _, r := range run {
			position = r.position
			if len(found) < limit && wanted(r.Category) && !r.Void() {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// readLog gives some of what follows a position, nothing at the end. It is a bounded run, so that a search through a
// long log holds no commit up.
func (s *Store) readLog(ctx context.Context, position uint64) ([]*record, error) {
	const run = 1024
	var found []*record
	err := s.read(ctx, func(d *data) {
		rest := d.log[d.logAfter(position):]
		found = slices.Clone(rest[:min(run, len(rest))])
	})
	return found, err
}

func (s *Store) commandCategories(ctx context.Context) ([]string, error) {
	var names []string
	err := s.read(ctx, func(d *data) {
		for name, c := range d.registry.categories {
			if c.Commands {
				names = append(names, name)
			}
		}
	})
	return names, err
}

func parsePosition(p eventstore.Position) (uint64, error) {
	if p == "" {
		return 0, nil
	}
	position, err := strconv.ParseUint(string(p), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("read all: %q is no position of this store", p)
	}
	return position, nil
}
