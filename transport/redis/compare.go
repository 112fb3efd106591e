package redis

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
)

// compare finds out whether streams have the history that the unit has applied: the event that its place names, at that sequence. Only of categories that another store produces: where the
// store is the unit's own, both went back together, and the relay compares. A producer whose store went back in time, after its lane had left the broker, cannot know of the readers that
// were further, for only they know where they are; it draws their sequences a second time, and they would pass those over.
//
// It is done at the first read of a lane, and after each one that had to make the group: then the stream may be another than before.
func (p *port) compare(ctx context.Context, r *reading) (found event.Position, diverged bool, err error) {
	for i, l := range r.lanes {
		at := r.above[i]
		if l.agreed || at.Sequence == 0 || at.EventID == "" || !p.t.elsewhere(l.ref.Category) {
			continue
		}
		there, newest, err := p.c.entryAt(ctx, l, at.Sequence)
		switch {
		case err != nil:
			return found, false, fmt.Errorf("compare the stream of %s with what was applied at %d: %w", l.ref, at.Sequence, err)
		case newest > 0 && newest < at.Sequence:
			return found, false, fmt.Errorf("the stream of %s ends at %d, and what was applied goes up to %d: it has lost its end, which its producer publishes again, or the store of that went back in time",
				l.ref, newest, at.Sequence)
		case there != nil && there.ID != at.EventID && !there.Void():
			return event.Position{Lane: l.ref, Sequence: at.Sequence, EventID: there.ID}, true, nil
		}
		l.agreed = true // also where the stream does not tell, for it is gone, or trimmed up to there
	}
	return found, false, nil
}

// entryAt gives the entry of a stream at a sequence, nil if there is none, and the newest sequence that the stream has, 0 if it is empty.
func (c *connection) entryAt(ctx context.Context, l *laneTenure, seq event.Sequence) (there *event.Envelope, newest event.Sequence, err error) {
	calls := []*call{
		{keys: []string{l.stream}, args: []any{"xrange", l.stream, entryID(seq), entryID(seq), "count", 1}},
		{keys: []string{l.stream}, args: []any{"xrevrange", l.stream, "+", "-", "count", 1}},
	}
	c.servers.runAll(ctx, onWork, calls)
	var entries [2]*event.Envelope
	for i, one := range calls {
		if one.err != nil {
			return nil, 0, outcome(one.err)
		}
		found, ok := list(one.reply, 0)
		if !ok {
			return nil, 0, fmt.Errorf("odd reply %v", one.reply)
		}
		if len(found) > 0 {
			e, err := parseEntry(l.ref, found[0])
			if err != nil {
				return nil, 0, err
			}
			entries[i] = &e
		}
	}
	if entries[1] == nil {
		return nil, 0, nil
	}
	return entries[0], entries[1].Sequence, nil
}
