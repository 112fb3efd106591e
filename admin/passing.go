package admin

import (
	"context"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// A checkpoint moves past what a handler does not handle together with what it does next, or when its key comes to rest. Until then such events are above
// the checkpoint and nothing waits for them: whoever asks how far the handler is should not be told that they are to be applied. Where no program has the handler nobody moves it past them, and they are kept for it like all others.

const (
	mostLooked = 100    // events above the checkpoint of a lane that are looked at; what comes after them counts as to be applied
	mostLanes  = 10_000 // of the categories of a handler, to look for those with something above the checkpoint
)

// handling is what a handler handles, as its registration says; nil for one that passes nothing over.
type handling []string

func handlingOf(h *eventstore.Handler) handling {
	switch h.Kind {
	case eventstore.EventHandler, eventstore.ProcessManager:
		return h.Types
	}
	return nil
}

// passes reports whether an event is passed over.
func (h handling) passes(e *event.Envelope) bool {
	return len(h) > 0 && (e.Void() || !slices.Contains(h, e.Type))
}

func (h handling) count(rows []event.Envelope) (n uint64) {
	for i := range rows {
		if h.passes(&rows[i]) {
			n++
		}
	}
	return n
}

// handlingBy gives what a handler handles.
func (d *Desk) handlingBy(ctx context.Context, name string) (handling, error) {
	r, err := d.store.LoadRegistry(ctx)
	if err != nil {
		return nil, err
	}
	for i := range r.Handlers {
		if r.Handlers[i].Name == name {
			return handlingOf(&r.Handlers[i]), nil
		}
	}
	return nil, nil
}

// passOver tells in a view of a unit what is to be applied from what is passed over.
func (d *Desk) passOver(ctx context.Context, s *eventstore.UnitState, v *Unit) (handling, error) {
	if v.Lag == 0 || v.Absent {
		return nil, nil
	}
	handles, err := d.handlingBy(ctx, v.Handler)
	if err != nil || len(handles) == 0 {
		return nil, err
	}
	for i := range s.Lanes {
		l := &v.Lanes[i]
		if l.Lag == 0 {
			continue
		}
		rows, err := d.store.ReadLane(ctx, s.Lanes[i].Lane, s.Lanes[i].Checkpoint.Sequence, mostLooked)
		if err != nil {
			return nil, err
		}
		n := min(handles.count(rows), l.Lag)
		l.Lag, l.PassedOver = l.Lag-n, n
		v.Lag, v.PassedOver = v.Lag-n, v.PassedOver+n
		for j := range rows {
			if !handles.passes(&rows[j]) {
				l.NextType = rows[j].Type
				break
			}
		}
	}
	return handles, nil
}

// passOverAll does so for a handler, where that costs little: few lanes, and little above the checkpoints. Of stopped keys it does not look.
func (d *Desk) passOverAll(ctx context.Context, o *eventstore.Overview, h *eventstore.HandlerOverview, v *Handler) error {
	handles := handlingOf(&h.Handler)
	if len(handles) == 0 || v.Lag == 0 || v.Lag > mostLooked || !h.Running {
		return nil
	}
	var lanes uint64
	for i := range o.Categories {
		if slices.Contains(h.Categories, o.Categories[i].Name) {
			lanes += o.Categories[i].Partitions
		}
	}
	if lanes > mostLanes {
		return nil
	}
	behind, err := d.store.ListPartitions(ctx, eventstore.PartitionQuery{Name: h.Name, Status: eventstore.StatusBehind, Limit: mostLooked})
	if err != nil {
		return err
	}
	var n uint64
	for i := range behind {
		rows, err := d.store.ReadLane(ctx, behind[i].Lane, behind[i].Checkpoint, mostLooked)
		if err != nil {
			return err
		}
		n += handles.count(rows)
	}
	n = min(n, v.Lag) // some came since the overview was made
	v.Lag, v.PassedOver = v.Lag-n, n
	v.Words = d.handlerWords(v)
	return nil
}
