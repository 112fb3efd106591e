package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

const (
	mostServed  = 1_000 // records of one run
	servedATurn = 16    // steps, each a request or a part of one, before what else there is to do has its turn
	turnServes  = 200 * time.Millisecond
)

// wants are requests of other applications that were read, and are still to be served.
type wants struct {
	left   []wanted
	of     int   // there were
	failed int   // of those served
	first  error // of the first that failed
}

// wanted is one of them.
type wanted struct {
	transport.Wanted
	begun       bool           // it is looked for where to begin
	after, tail event.Sequence // above which, and up to where
}

// serve gives subscribers with a store of their own the runs that they miss in streams: a few in each turn, for after a loss there may be very many, and what is committed now
// does not wait for them.
func (r *Relay) serve(ctx context.Context) {
	r.seekWanted(ctx)
	if !r.serves() {
		return
	}
	if err := r.serveSome(ctx); err != nil {
		r.unserved(ctx, "serve what subscribers miss", err)
		return
	}
	if len(r.wants.left) > 0 {
		return
	}
	if r.wants.failed > 0 {
		r.tell("serve what subscribers miss", fmt.Errorf("%d of %d requests: %w", r.wants.failed, r.wants.of, r.wants.first))
	}
	r.wants = wants{}
}

// serves reports whether there is somebody to be served now.
func (r *Relay) serves() bool { return len(r.wants.left) > 0 && !r.serving.resting(r.cfg.Now()) }

// unserved has serving rest longer than everything else, which would not have its turn where that alone takes its time to fail.
func (r *Relay) unserved(ctx context.Context, what string, err error) {
	r.serving = r.serving.longer(r.cfg.Now(), wantedEvery, 4*wantedEvery)
	r.trouble(ctx, what, err)
}

// seekWanted asks the broker for requests, when it is time and those from before are served.
func (r *Relay) seekWanted(ctx context.Context) {
	now := r.cfg.Now()
	if len(r.wants.left) > 0 || now.Sub(r.served) < wantedEvery || r.serving.resting(now) {
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
			r.unserved(ctx, "ask who subscribes from other applications", err)
			return
		}
		r.listed = now
	}
	if err := r.discover(ctx, of); err != nil {
		r.unserved(ctx, "ask who subscribes from other applications", err)
		return
	}
	for _, category := range r.abroad {
		if err := r.wantedOf(ctx, of, category); err != nil {
			r.unserved(ctx, "serve what subscribers miss", err)
			return
		}
	}
	if len(r.wants.left) == 0 {
		r.serving = rest{}
	}
}

// list finds the categories that other applications subscribe to.
func (r *Relay) list(ctx context.Context, of parts) error {
	return r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) error {
		registry, err := r.cfg.Store.LoadRegistry(ctx)
		if err != nil {
			return err
		}
		r.abroad, r.produced = r.abroad[:0], make(map[string][]string)
		for _, c := range registry.Categories {
			if c.StoreID == r.cfg.StoreID {
				r.produced[c.Name] = nil
			}
		}
		seen := make(map[string]bool)
		for i := range registry.Handlers {
			if registry.Handlers[i].StoreID == "" {
				continue
			}
			for _, category := range registry.Handlers[i].Categories {
				if names, ours := r.produced[category]; ours {
					r.produced[category] = append(names, registry.Handlers[i].Name)
				}
				if !seen[category] {
					seen[category] = true
					r.abroad = append(r.abroad, category)
				}
			}
		}
		return nil
	})
}

// discover finds subscribers of other applications that are new: they want what was published before, and nothing is on the broker of what nobody subscribed to. One node
// asks for each category.
func (r *Relay) discover(ctx context.Context, of parts) error {
	var categories []string
	for category := range r.produced {
		if of.has(event.PartOf(event.PartName, category)) {
			categories = append(categories, category)
		}
	}
	if len(categories) == 0 {
		return nil
	}
	slices.Sort(categories)
	var found map[string][]transport.Subscriber
	err := r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) (err error) {
		found, err = r.cfg.Broker.Subscribers(ctx, categories)
		return err
	})
	if err != nil {
		return err
	}
	unknown := r.unknown(r.produced, found)
	if len(unknown) == 0 {
		return nil
	}
	known, err := r.remember(ctx, of, unknown)
	if err != nil {
		return err
	}
	for _, s := range unknown {
		r.produced[s.Category] = append(r.produced[s.Category], s.Name) // be it that it could not be remembered: that is said now and then
	}
	for _, s := range known {
		delete(r.heard, s.Category)
		r.again = true // its lanes are due
	}
	return nil
}

// wantedOf adds what is missed of a category in lanes of parts that are held.
func (r *Relay) wantedOf(ctx context.Context, of parts, category string) error {
	return r.during(ctx, of, func(ctx context.Context, held []eventstore.PartFence) error {
		all, err := r.cfg.Broker.Wanted(ctx, category)
		for _, w := range all {
			if !eventstore.Holds(held, w.Lane) {
				continue
			}
			if err := r.askable(w); err != nil {
				r.cfg.Logger.Debug("a request of another application is none", "unit", w.Unit, "lane", w.Lane, "error", err)
				continue
			}
			r.wants.left = append(r.wants.left, wanted{Wanted: w})
			r.wants.of++
		}
		return err
	})
}

// serveSome serves the next requests. An error is no single one's, for nothing else is to wait for that: whoever does not answer in time answers the next one no sooner.
func (r *Relay) serveSome(ctx context.Context) error {
	start := r.cfg.Now()
	for steps, failed := 0, 0; len(r.wants.left) > 0 && steps < servedATurn && r.cfg.Now().Sub(start) < turnServes; steps++ {
		w := &r.wants.left[0]
		over, err := true, error(nil)
		switch {
		case w.Over:
			err = r.forgetReader(ctx, w.Wanted)
		case w.Begin:
			over, err = r.serveBeginning(ctx, w)
		default:
			err = r.serveOne(ctx, w.Wanted)
		}
		if over || err != nil {
			r.wants.left = r.wants.left[1:]
		}
		switch {
		case ctx.Err() != nil || err != nil && isLate(err):
			return err
		case errors.Is(err, errDropped):
		case err != nil:
			r.wants.failed++
			r.wants.first = cmp.Or(r.wants.first, err)
			if failed++; failed == servedATurn {
				return err
			}
		default:
			r.serving = rest{}
		}
	}
	return nil
}

// isLate reports whether an error is that something took too long: by the context, or by a connection of its own accord.
func isLate(err error) bool {
	timeout, is := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return errors.Is(err, context.DeadlineExceeded) || is && timeout.Timeout()
}

// askable tells whether a broker can have what a request is about. Whoever wrote it may have other rules for keys than this application.
func (r *Relay) askable(w transport.Wanted) error {
	if w.Over {
		return event.CheckName(w.Unit.Name)
	}
	return errors.Join(event.CheckName(w.Unit.Name), r.cfg.Keys.Check(w.Unit.Key), r.nameable(w.Lane))
}

// serveOne reads the run; one that does not begin right above is nowhere any more.
func (r *Relay) serveOne(ctx context.Context, w transport.Wanted) error {
	return r.during(ctx, 1<<w.Lane.Part(), func(ctx context.Context, _ []eventstore.PartFence) error {
		runs, err := r.cfg.Store.ReadLanes(ctx, []eventstore.LaneRead{{Lane: w.Lane, After: w.After, Limit: mostServed, Bytes: mostBytes}})
		if err != nil {
			return fmt.Errorf("read %s above %d: %w", w.Lane, w.After, err)
		}
		var run []event.Envelope
		if len(runs) == 1 && len(runs[0]) > 0 && runs[0][0].Sequence == w.After+1 {
			run = within(runs[0])
		}
		if err := r.give(ctx, w, run); err != nil {
			return err
		}
		if f := r.cfg.Observer.Served; f != nil {
			f(w, len(run))
		} else if len(run) == 0 {
			r.cfg.Logger.Error("a subscriber of another application misses events that are kept no longer", "unit", w.Unit, "lane", w.Lane, "after", w.After)
		}
		return nil
	})
}

func (r *Relay) give(ctx context.Context, w transport.Wanted, run []event.Envelope) error {
	if err := r.cfg.Broker.Serve(ctx, w, run); err != nil {
		return fmt.Errorf("serve %s above %d to %s: %w", w.Lane, w.After, w.Unit, err)
	}
	return nil
}

// serveBeginning gives one who has no place in the lane yet the first records kept at or after the time it named, or the lane's last sequence, to begin behind. It looks at some records, and
// reports whether that was all.
func (r *Relay) serveBeginning(ctx context.Context, w *wanted) (over bool, err error) {
	of := parts(1 << w.Lane.Part())
	if !w.begun {
		passing, err := r.passing(ctx, of, []event.LaneRef{w.Lane})
		if err != nil {
			return false, err
		}
		w.begun, w.tail = true, passing[0].Tail // first: what is committed while it is looked for is still to come
	}
	var run []event.Envelope
	err = r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) error {
		runs, err := r.cfg.Store.ReadLanes(ctx, []eventstore.LaneRead{{Lane: w.Lane, After: w.after, Limit: mostEntries, Bytes: mostBytes}})
		if err == nil && len(runs) == 1 {
			run = runs[0]
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("read %s above %d: %w", w.Lane, w.after, err)
	}
	first := slices.IndexFunc(run, func(e event.Envelope) bool { return !e.Time.Before(w.From) })
	if first < 0 && len(run) > 0 && run[len(run)-1].Sequence < w.tail {
		w.after = run[len(run)-1].Sequence
		return false, nil
	}
	if first >= 0 {
		run = within(run[first:])
	} else {
		run, w.After = nil, w.tail
	}
	return true, r.during(ctx, of, func(ctx context.Context, _ []eventstore.PartFence) error { return r.give(ctx, w.Wanted, run) })
}

// forgetReader takes a subscriber of another application, which has removed it, off the registry: nothing is kept for it any more.
func (r *Relay) forgetReader(ctx context.Context, w transport.Wanted) error {
	return r.during(ctx, 1<<w.Lane.Part(), func(ctx context.Context, _ []eventstore.PartFence) error {
		now, err := r.cfg.Broker.Subscribers(ctx, []string{w.Lane.Category})
		if err != nil {
			return err
		}
		registry, err := r.cfg.Store.LoadRegistry(ctx)
		if err != nil {
			return err
		}
		back := slices.ContainsFunc(now[w.Lane.Category], func(s transport.Subscriber) bool { return s.Name == w.Unit.Name })
		known := slices.ContainsFunc(registry.Handlers, func(h eventstore.Handler) bool {
			return h.Name == w.Unit.Name && h.StoreID != "" && h.StoreID == w.StoreID
		})
		if known && !back {
			_, err := r.cfg.Store.Act(ctx, eventstore.Act{
				Kind: eventstore.ActRemove, Unit: event.Unit{Name: w.Unit.Name}, Actor: "relay", Reason: "the application that it is of, with store " + w.StoreID + ", has removed it",
			})
			if err != nil && !errors.Is(err, eventstore.ErrNotFound) {
				return fmt.Errorf("forget %s, a subscriber of another application: %w", w.Unit.Name, err)
			}
			delete(r.heard, w.Lane.Category)
			r.cfg.Logger.Info("a subscriber of another application is removed: nothing is kept for it any more", "name", w.Unit.Name, "its store", w.StoreID)
		}
		return r.give(ctx, w, nil)
	})
}
