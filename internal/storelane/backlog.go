package storelane

import (
	"context"
	"fmt"
	"iter"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// Work is a lane in which a unit has something to do.
type Work struct {
	Unit event.Unit
	Lane event.LaneRef
}

// Backlog is the part of a store that tells what there is to do.
type Backlog interface {
	Unpassed(ctx context.Context, name, category string, after event.LaneRef, limit int) ([]event.LaneRef, error)
	DueUnits(ctx context.Context, after event.Unit, limit int) ([]event.Unit, error)
}

// page is how many lanes, or units, are read at once.
const page = 256

// Unpassed goes through the lanes that hold something their subscribers have not passed: subscription by subscription in the
// order given, and in lane order within each. Halted units are left out. Pages are read as the caller gets to them. An error
// comes with a zero Work and ends the sequence.
func Unpassed(ctx context.Context, store Backlog, subscriptions []transport.Subscription) iter.Seq2[Work, error] {
	return func(yield func(Work, error) bool) {
		for _, s := range subscriptions {
			var last event.LaneRef
			for {
				lanes, err := store.Unpassed(ctx, s.Name, s.Category, last, page)
				if err != nil {
					yield(Work{}, fmt.Errorf("look for what %s has not passed in %s: %w", s.Name, s.Category, err))
					return
				}
				for _, lane := range lanes {
					if !yield(Work{Unit: event.Unit{Name: s.Name, Key: lane.Key}, Lane: lane}, nil) {
						return
					}
				}
				if len(lanes) < page {
					break
				}
				last = lanes[len(lanes)-1]
			}
		}
	}
}

// Due goes through the units of these subscriptions that set something aside which is to be applied now, in order of name and key.
// Otherwise it is like [Unpassed].
func Due(ctx context.Context, store Backlog, subscriptions []transport.Subscription) iter.Seq2[event.Unit, error] {
	ours := map[string]bool{}
	for _, s := range subscriptions {
		ours[s.Name] = true
	}
	return func(yield func(event.Unit, error) bool) {
		var last event.Unit
		for {
			units, err := store.DueUnits(ctx, last, page)
			if err != nil {
				yield(event.Unit{}, fmt.Errorf("look for what was set aside and is due: %w", err))
				return
			}
			for _, u := range units {
				if ours[u.Name] && !yield(u, nil) {
					return
				}
			}
			if len(units) < page {
				return
			}
			last = units[len(units)-1]
		}
	}
}

// Units goes through the units that have something to do: some of them several times. Otherwise it is like [Unpassed].
func Units(ctx context.Context, store Backlog, subscriptions []transport.Subscription) iter.Seq2[event.Unit, error] {
	return func(yield func(event.Unit, error) bool) {
		for work, err := range Unpassed(ctx, store, subscriptions) {
			if !yield(work.Unit, err) || err != nil {
				return
			}
		}
		for u, err := range Due(ctx, store, subscriptions) {
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}
