package storelane

import (
	"context"
	"fmt"
	"iter"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// Work is a lane in which a unit has something to do.
type Work struct {
	Unit event.Unit
	Lane event.LaneRef
}

// page is how many lanes are read at once.
const page = 256

// Unpassed goes through the lanes that hold something their subscribers have not passed: subscription by subscription in the
// order given, and in lane order within each. Halted units are left out. Pages are read as the caller gets to them. An error
// comes with a zero Work and ends the sequence.
func Unpassed(ctx context.Context, store eventstore.Lanes, subscriptions []transport.Subscription) iter.Seq2[Work, error] {
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
