package transporttest

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// readAhead is how many entries a unit fetches: more than one, so that what is committed meanwhile can be missed.
const readAhead = 3

// unit is one unit of a node.
type unit struct {
	event.Unit
	turn         chan struct{} // filled by the goroutine that works on it
	woken, awake bool          // guarded by node.mu
}

// lanes are what the unit reads.
func (un *unit) lanes() []event.LaneRef {
	var lanes []event.LaneRef
	for _, s := range subscriptions {
		if s.Name == un.Name {
			lanes = append(lanes,
				event.LaneRef{Category: s.Category, Key: un.Key},
				event.LaneRef{Category: s.Category, Key: un.Key, Lane: event.Backfill})
		}
	}
	return lanes
}

// work applies what there is for a unit: up to seq in a lane, or all of it when seq is 0.
func (n *node) work(ctx context.Context, un *unit, lane event.LaneRef, seq event.Sequence) error {
	select {
	case un.turn <- struct{}{}:
		defer func() { <-un.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	granted, err := n.transport.Port().Acquire(ctx, un.Unit, 0)
	if err != nil {
		return err
	}
	if granted.Unclean {
		n.change(func() { n.mu.unclean = append(n.mu.unclean, un.Name+" "+un.Key) })
	}
	held := partitions.Held{Unit: un.Unit, Generation: granted.Generation}
	known, err := n.store.Recover(ctx, []eventstore.Ask{{Unit: un.Unit, Lanes: un.lanes()}})
	if err != nil || known[0].Halt != nil {
		return err
	}
	enough := func(at []event.Position) bool {
		for _, p := range at {
			if p.Lane == lane && seq != 0 && p.Sequence >= seq {
				return true
			}
		}
		return false
	}
	for {
		if err := n.applyAll(ctx, held, known[0].Checkpoints, enough); err != nil {
			return fmt.Errorf("unit %s: %w", un.Unit, err)
		}
		n.released(un.Unit)
		err := n.transport.Port().Release(ctx, held, seq == 0)
		if !errors.Is(err, partitions.ErrBusy) {
			return err
		}
	}
}

// applyAll fetches and applies until there is nothing left, it is enough, or the unit halts.
func (n *node) applyAll(ctx context.Context, h partitions.Held, at []event.Position, enough func([]event.Position) bool) error {
	for !enough(at) {
		got, err := n.transport.Port().Fetch(ctx, h, at, readAhead)
		switch {
		case err != nil:
			return err
		case got.Gap:
			return fmt.Errorf("gap in %s", got.Lane)
		case len(got.Entries) == 0:
			return nil
		}
		for i := range got.Entries {
			err := n.apply(ctx, h.Unit, &got.Entries[i], at)
			if errors.Is(err, errHalt) {
				return nil
			}
			if err != nil {
				return err
			}
			if enough(at) {
				return nil
			}
		}
	}
	return nil
}

// apply passes one event, in one commit with what it leads to, and moves at.
func (n *node) apply(ctx context.Context, u event.Unit, e *event.Envelope, at []event.Position) error {
	place := positionOf(at, e.Ref())
	if e.Sequence != place.Sequence+1 {
		return fmt.Errorf("%s: #%d was fetched after #%d", e.Ref(), e.Sequence, place.Sequence)
	}
	c := eventstore.Changes{
		Fence:   eventstore.Fence{Unit: u},
		Advance: []eventstore.Advance{{Lane: e.Ref(), From: place.Sequence, To: e.Sequence, EventID: e.ID}},
	}
	var verdict error
	if !e.Void() {
		c.Publish, verdict = n.enter(ctx, u, e)
	}
	switch {
	case errors.Is(verdict, errHalt):
		c.Advance, c.Halt = nil, &eventstore.Halt{Unit: u, Lane: e.Ref(), Sequence: e.Sequence, EventID: e.ID, Reason: "test"}
	case errors.Is(verdict, errDead):
		c.Dead = []eventstore.Dead{{Unit: u, Lane: e.Ref(), Sequence: e.Sequence, EventID: e.ID, Type: e.Type, Reason: "test"}}
	case verdict != nil:
		return verdict
	}
	done, err := n.store.Begin("test").Commit(ctx, c)
	if err != nil {
		return err
	}
	if c.Halt != nil {
		return errHalt
	}
	place.Sequence = e.Sequence
	n.change(func() { n.mu.applied = append(n.mu.applied, applied{unit: u, id: e.ID, void: e.Void()}) })
	if len(done.Tails) > 0 {
		if err := n.transport.Committed(transport.Nested(ctx), done.Tails); err != nil {
			n.fault(fmt.Errorf("commit of a unit at work: %w", err))
		}
	}
	return nil
}

// enter runs the behavior and counts who is inside.
func (n *node) enter(ctx context.Context, u event.Unit, e *event.Envelope) ([]event.Envelope, error) {
	n.change(func() {
		n.mu.inside++
		n.mu.together = max(n.mu.together, n.mu.inside)
	})
	defer n.change(func() { n.mu.inside-- })
	return n.behave(ctx, u, e)
}

func positionOf(at []event.Position, lane event.LaneRef) *event.Position {
	for i := range at {
		if at[i].Lane == lane {
			return &at[i]
		}
	}
	panic("an entry of " + lane.String() + ", which the unit does not read")
}
