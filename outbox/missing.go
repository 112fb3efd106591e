package outbox

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// mostServed is how many records are served at once.
const mostServed = 1_000

// serve gives subscribers with a store of their own the runs that they miss in streams.
func (r *Relay) serve(ctx context.Context) {
	now := r.cfg.Now()
	if now.Sub(r.served) < wantedEvery {
		return
	}
	r.mu.Lock()
	of := r.holding()
	r.mu.Unlock()
	if of == 0 {
		return
	}
	r.served = now
	if now.Sub(r.listed) >= r.cfg.HealAfter {
		if err := r.list(ctx, of); err != nil {
			r.trouble(ctx, "ask who subscribes from other applications", err)
			return
		}
		r.listed = now
	}
	for _, category := range r.abroad {
		if err := r.serveCategory(ctx, of, category); err != nil {
			r.trouble(ctx, "serve what subscribers miss", err)
			return
		}
	}
}

// list finds the categories that other applications subscribe to.
func (r *Relay) list(ctx context.Context, of parts) error {
	return r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) error {
		registry, err := r.cfg.Store.LoadRegistry(ctx)
		if err != nil {
			return err
		}
		r.abroad = r.abroad[:0]
		seen := make(map[string]bool)
		for i := range registry.Handlers {
			if registry.Handlers[i].StoreID == "" {
				continue
			}
			for _, category := range registry.Handlers[i].Categories {
				if !seen[category] {
					seen[category] = true
					r.abroad = append(r.abroad, category)
				}
			}
		}
		return nil
	})
}

func (r *Relay) serveCategory(ctx context.Context, of parts, category string) error {
	var wanted []transport.Wanted
	err := r.during(ctx, of, func(ctx context.Context, held []eventstore.PartFence) error {
		all, err := r.cfg.Broker.Wanted(ctx, category)
		for _, w := range all {
			if eventstore.Holds(held, w.Lane) {
				wanted = append(wanted, w)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, w := range wanted {
		if err := r.serveOne(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// serveOne reads the run; one that does not begin right above is nowhere any more.
func (r *Relay) serveOne(ctx context.Context, w transport.Wanted) error {
	return r.during(ctx, 1<<w.Lane.Part(), func(ctx context.Context, _ []eventstore.PartFence) error {
		runs, err := r.cfg.Store.ReadLanes(ctx, []eventstore.LaneRead{{Lane: w.Lane, After: w.After, Limit: mostServed}})
		if err != nil {
			return fmt.Errorf("read %s above %d: %w", w.Lane, w.After, err)
		}
		var run []event.Envelope
		if len(runs) == 1 && len(runs[0]) > 0 && runs[0][0].Sequence == w.After+1 {
			run = within(runs[0])
		}
		if err := r.cfg.Broker.Serve(ctx, w, run); err != nil {
			return fmt.Errorf("serve %s above %d to %s: %w", w.Lane, w.After, w.Unit, err)
		}
		if f := r.cfg.Observer.Served; f != nil {
			f(w, len(run))
		} else if len(run) == 0 {
			r.cfg.Logger.Error("a subscriber of another application misses events that are kept no longer", "unit", w.Unit, "lane", w.Lane, "after", w.After)
		}
		return nil
	})
}
