package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// entriesPage is how many entries of a stream one call gives that looks for a time.
const entriesPage = 256

// Beginnings implements [transport.BrokerStreams]. It reads an entry of each stream, or goes through those that have older ones: it is for whoever begins.
func (t *Transport) Beginnings(ctx context.Context, category string, from *time.Time) ([]event.Position, error) {
	c := t.conn.Load()
	if c == nil {
		return nil, errNotConnected
	}
	fault := func(err error) ([]event.Position, error) {
		return nil, fmt.Errorf("look where the lanes of %s begin: %w", category, err)
	}
	index, err := c.name(event.NameIndex, category)
	if err != nil {
		return fault(err)
	}
	places := make(map[event.LaneRef]event.Position) // keys may come twice
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		scan := &call{keys: []string{index}, args: []any{"sscan", index, cursor, "count", busyPage}}
		if _, err := c.servers.run(ctx, onWork, scan); err != nil {
			return fault(err)
		}
		page, next, ok := scanned(scan.reply)
		if !ok {
			return fault(fmt.Errorf("odd reply %v", scan.reply))
		}
		cursor = next
		if err := c.beginnings(ctx, category, page, from, places); err != nil {
			return fault(err)
		}
	}
	all := make([]event.Position, 0, len(places))
	for _, at := range places {
		if at.Sequence > 0 {
			all = append(all, at)
		}
	}
	return all, nil
}

// beginnings finds the places in lanes of keys.
func (c *connection) beginnings(ctx context.Context, category string, keys []any, from *time.Time, places map[event.LaneRef]event.Position) error {
	var lanes []event.LaneRef
	var streams []string
	var calls []*call
	for _, key := range keys {
		for _, kind := range []event.Lane{event.Primary, event.Backfill} {
			lane := event.LaneRef{Category: category, Key: key.(string), Lane: kind}
			stream, err := c.names.Build(event.LaneName(lane))
			if err != nil {
				continue // nobody who keeps to docs/wire.md put it into the index
			}
			one := &call{keys: []string{stream}, args: []any{"xrevrange", stream, "+", "-", "count", 1}}
			if from != nil {
				one.args = []any{"xrange", stream, "-", "+", "count", 1}
			}
			lanes, streams, calls = append(lanes, lane), append(streams, stream), append(calls, one)
		}
	}
	c.servers.runAll(ctx, onWork, calls)
	for i, one := range calls {
		if one.err != nil {
			return one.err
		}
		entries, err := entriesOf(one.reply, lanes[i])
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			continue
		}
		at := event.Position{Lane: lanes[i], Sequence: entries[0].Sequence, EventID: entries[0].ID}
		switch {
		case from == nil:
		case lateEnough(&entries[0], *from): // what was before it may be, too: its producer knows
			continue
		default:
			if at, err = c.before(ctx, streams[i], at, *from); err != nil {
				return err
			}
		}
		places[lanes[i]] = at
	}
	return nil
}

// lateEnough reports whether whoever begins at a time gets an entry. One that tells no time is not withheld.
func lateEnough(e *event.Envelope, from time.Time) bool {
	return e.Time.IsZero() || !e.Time.Before(from)
}

// before gives the place before the first entry of a stream that is late enough, or of its newest.
func (c *connection) before(ctx context.Context, stream string, at event.Position, from time.Time) (event.Position, error) {
	for {
		one := &call{keys: []string{stream}, args: []any{"xrange", stream, entryID(at.Sequence + 1), "+", "count", entriesPage}}
		if _, err := c.servers.run(ctx, onWork, one); err != nil {
			return at, err
		}
		entries, err := entriesOf(one.reply, at.Lane)
		if err != nil {
			return at, err
		}
		for i := range entries {
			if lateEnough(&entries[i], from) {
				return at, nil
			}
			at.Sequence, at.EventID = entries[i].Sequence, entries[i].ID
		}
		if len(entries) < entriesPage {
			return at, nil
		}
	}
}

// entriesOf reads a range of a stream.
func entriesOf(reply any, lane event.LaneRef) ([]event.Envelope, error) {
	raw, ok := list(reply, 0)
	if !ok {
		return nil, fmt.Errorf("odd reply %v", reply)
	}
	entries := make([]event.Envelope, len(raw))
	for i, one := range raw {
		e, err := parseEntry(lane, one)
		if err != nil {
			return nil, err
		}
		entries[i] = e
	}
	return entries, nil
}
