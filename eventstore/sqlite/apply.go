package sqlite

import (
	"cmp"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// apply makes changes part of the transaction: first all checks, then all writes.
func (c *connection) apply(changes *eventstore.Changes) (eventstore.Committed, error) {
	if err := c.check(changes); err != nil {
		return eventstore.Committed{}, err
	}
	if err := c.writeTakes(changes.Take); err != nil {
		return eventstore.Committed{}, err
	}
	if err := c.writeState(changes); err != nil {
		return eventstore.Committed{}, err
	}
	if err := c.writeHalts(changes); err != nil {
		return eventstore.Committed{}, err
	}
	if err := c.writeAsides(changes); err != nil {
		return eventstore.Committed{}, err
	}
	if err := c.writeCheckpoints(changes); err != nil {
		return eventstore.Committed{}, err
	}
	if err := c.writeStep(changes.Projection); err != nil {
		return eventstore.Committed{}, err
	}
	return c.writeEvents(changes)
}

func (c *connection) check(changes *eventstore.Changes) error {
	if err := c.checkFence(changes.Fence); err != nil {
		return err
	}
	if changes.Listed != 0 {
		if err := c.checkListed(changes.Listed); err != nil {
			return err
		}
	}
	for i := range changes.Append {
		if err := c.checkVersion(&changes.Append[i]); err != nil {
			return err
		}
	}
	for i := range changes.Advance {
		if err := c.checkCheckpoint(changes.Fence.Unit.Name, &changes.Advance[i]); err != nil {
			return err
		}
	}
	if changes.LiftHalt != nil {
		if err := c.checkHalt(*changes.LiftHalt); err != nil {
			return err
		}
	}
	if err := c.checkTakes(changes.Take); err != nil {
		return err
	}
	if err := c.checkParked(changes.Fence.Unit, changes.Park); err != nil {
		return err
	}
	if changes.Suspect != nil {
		if err := c.checkDue("suspect", changes.Fence.Unit, changes.Suspect.AsideRef); err != nil {
			return err
		}
	}
	if changes.Settle != nil {
		if err := c.checkDue("settle", changes.Fence.Unit, changes.Settle.AsideRef); err != nil {
			return err
		}
	}
	_, _, err := c.checkStep(changes.Projection)
	return err
}

func (c *connection) checkFence(f eventstore.Fence) error {
	if f.Generation == 0 {
		return nil
	}
	now, err := generation(noContext, c, f.Unit)
	if err == nil && now != f.Generation {
		err = eventstore.ErrStale
	}
	return err
}

func (c *connection) checkListed(read uint64) error {
	now, err := revision(noContext, c)
	if err == nil && now != read {
		err = &eventstore.ListMovedError{Read: read, Actual: now}
	}
	return err
}

func (c *connection) checkVersion(a *eventstore.Append) error {
	var actual uint64
	_, err := c.get(`SELECT stream_version FROM keyhold_log WHERE stream_kind = ? AND stream_id = ? AND stream_version > 0
		ORDER BY stream_version DESC LIMIT 1`, []any{a.Stream.Kind, a.Stream.ID}, &actual)
	if err == nil && actual != a.Expected {
		err = &eventstore.VersionError{Stream: a.Stream, Expected: a.Expected, Actual: actual}
	}
	return err
}

func (c *connection) checkCheckpoint(name string, a *eventstore.Advance) error {
	now, err := checkpoint(noContext, c, name, a.Lane)
	if err == nil && now.Sequence != a.From {
		err = &eventstore.CheckpointError{Name: name, Lane: a.Lane, From: a.From, Actual: now.Sequence}
	}
	return err
}

func (c *connection) checkHalt(wanted eventstore.HaltRef) error {
	now, err := halt(noContext, c, wanted.Unit)
	if err == nil && (now == nil || now.Ref() != wanted) {
		err = &eventstore.HaltMovedError{Wanted: wanted, Now: now}
	}
	return err
}

func (c *connection) writeState(changes *eventstore.Changes) error {
	if r := changes.Reply; r != nil {
		if _, err := c.exec(`INSERT INTO keyhold_replies (stream_kind, stream_id, command_id, command, type, version, encoding, rejected, time, data)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			r.Stream.Kind, r.Stream.ID, r.CommandID, r.Command, r.Type, r.Version, string(r.Encoding), r.Rejected, millis(r.Time), r.Data); err != nil {
			return err
		}
	}
	if s := changes.Snapshot; s != nil {
		if _, err := c.exec(`INSERT INTO keyhold_snapshots (stream_kind, stream_id, version, state_version, encoding, data)
			VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (stream_kind, stream_id) DO UPDATE SET
			version = excluded.version, state_version = excluded.state_version, encoding = excluded.encoding, data = excluded.data
			WHERE excluded.version >= version`,
			s.Stream.Kind, s.Stream.ID, s.Version, s.StateVersion, string(s.Encoding), s.Data); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) writeHalts(changes *eventstore.Changes) error {
	if ref := changes.LiftHalt; ref != nil {
		if err := c.lift(ref.Unit); err != nil {
			return err
		}
	}
	if h := changes.Halt; h != nil {
		lane, err := c.lane(h.Lane)
		if err != nil {
			return err
		}
		if _, err := c.exec(`INSERT OR REPLACE INTO keyhold_halts
			(name, key, lane, sequence, event_id, event_type, attempts, reason, error, since, generation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			h.Unit.Name, h.Unit.Key, lane.id, h.Sequence, h.EventID, h.EventType, h.Attempts, h.Reason, h.Error, millis(h.Since), h.Generation); err != nil {
			return err
		}
	}
	for i := range changes.Dead {
		if err := c.writeDead(&changes.Dead[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *connection) writeCheckpoints(changes *eventstore.Changes) error {
	for i := range changes.Advance {
		a := &changes.Advance[i]
		lane, err := c.lane(a.Lane)
		if err != nil {
			return err
		}
		if err := c.setCheckpoint(changes.Fence.Unit.Name, lane.id, a.To, a.EventID); err != nil {
			return err
		}
		c.counts.moved(changes.Fence.Unit.Name, a.Lane.Category, int64(a.To-a.From))
	}
	return nil
}

func (c *connection) setCheckpoint(name string, lane int64, to event.Sequence, eventID string) error {
	_, err := c.exec(`INSERT INTO keyhold_checkpoints (name, lane, sequence, event_id) VALUES (?, ?, ?, ?)
		ON CONFLICT (name, lane) DO UPDATE SET sequence = excluded.sequence, event_id = excluded.event_id`, name, lane, to, eventID)
	return err
}

// drawn is where the next event of a lane goes.
type drawn struct {
	ref  event.LaneRef
	lane int64
	next event.Sequence
}

// drawAll takes sequences for all events from the counters of their lanes.
func (c *connection) drawAll(changes *eventstore.Changes) ([]drawn, error) {
	var few [4]eventstore.Growth
	grown := changes.AppendGrowth(few[:0])
	all := make([]drawn, len(grown))
	for i, g := range grown {
		id, first, err := c.draw(g.Lane, g.Count)
		if err != nil {
			return nil, err
		}
		all[i] = drawn{ref: g.Lane, lane: id, next: first}
		if c.relayed {
			if err := c.unpublish(g.Lane, id); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

func (c *connection) writeEvents(changes *eventstore.Changes) (eventstore.Committed, error) {
	lanes, err := c.drawAll(changes)
	if err != nil || len(lanes) == 0 {
		return eventstore.Committed{}, err
	}
	done := eventstore.Committed{Tails: make([]event.Tail, len(lanes))}
	for i, l := range lanes {
		done.Tails[i] = event.Tail{Lane: l.ref, First: l.next}
	}
	if len(changes.Append) > 0 {
		done.Versions = make([]uint64, len(changes.Append))
	}
	for i := range changes.Append {
		a := &changes.Append[i]
		for j := range a.Events {
			if err := c.insert(&a.Events[j], lanes, a.Stream, a.Expected+uint64(j)+1); err != nil {
				return eventstore.Committed{}, err
			}
		}
		done.Versions[i] = a.Expected + uint64(len(a.Events))
	}
	for i := range changes.Publish {
		if err := c.insert(&changes.Publish[i], lanes, event.Stream{}, 0); err != nil {
			return eventstore.Committed{}, err
		}
	}
	for i, l := range lanes {
		done.Tails[i].Last = l.next - 1
	}
	return done, nil
}

// insert writes one event at the next place of its lane.
func (c *connection) insert(e *event.Envelope, lanes []drawn, s event.Stream, version uint64) error {
	at := 0
	if len(lanes) > 1 {
		at, _ = slices.BinarySearchFunc(lanes, e.Ref(), func(d drawn, ref event.LaneRef) int { return d.ref.Compare(ref) })
	}
	l := &lanes[at]
	_, err := c.exec(`INSERT INTO keyhold_log (lane, sequence, id, type, version, encoding, time,
			stream_kind, stream_id, stream_version, tenant, correlation, causation, trace_parent, trace_state, data)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		l.lane, int64(l.next), e.ID, e.Type, e.Version, string(e.Encoding), millis(e.Time),
		null(s.Kind), null(s.ID), null(version), null(e.Tenant), null(e.CorrelationID), null(e.CausationID),
		null(e.Trace.Parent), null(e.Trace.State), e.Data)
	l.next++
	return err
}

// null is NULL for a zero value.
func null[T cmp.Ordered](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}
