package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// Lag is what the broker is not known to have.
type Lag struct {
	Lanes   int       // with something; the count ends at [eventstore.MaxLimit]
	Records uint64    // in these
	Oldest  time.Time // when the oldest of them was emitted, of a hundred of the lanes; zero = there is none
}

// Lag tells what is not published yet of the parts that are held. Lanes that diverged are left out. It asks the store twice, whatever there is.
func (r *Relay) Lag(ctx context.Context) (Lag, error) {
	const looked = 100
	r.mu.Lock()
	of := r.holding()
	r.mu.Unlock()
	if of == 0 {
		return Lag{}, nil
	}
	lanes, err := r.cfg.Store.Unpublished(ctx, of.list(), eventstore.MaxLimit)
	if err != nil || len(lanes) == 0 {
		return Lag{}, wrap("look for what is unpublished", err)
	}
	lag := Lag{Lanes: len(lanes)}
	var first []eventstore.LaneRead
	for i, u := range lanes {
		lag.Records += uint64(u.Tail - min(u.Tail, u.Published))
		if i < looked {
			first = append(first, eventstore.LaneRead{Lane: u.Lane, After: u.Published, Limit: 1})
		}
	}
	runs, err := r.cfg.Store.ReadLanes(ctx, first)
	if err != nil {
		return Lag{}, wrap("read what is unpublished", err)
	}
	for _, run := range runs {
		for i := range run {
			if t := run[i].Time; lag.Oldest.IsZero() || t.Before(lag.Oldest) {
				lag.Oldest = t
			}
		}
	}
	return lag, nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("relay: %s: %w", what, err)
}
