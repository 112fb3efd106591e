package keyhold

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

const (
	lookEvery  = 250 * time.Millisecond // for acts that somebody else did on the store
	lookLimit  = 1000                   // acts in one look
	longestGap = 10 * time.Second       // between looks at a store that does not answer
)

// acts are what people did on the store, as far as this start has taken it up.
type acts struct {
	mu struct {
		sync.Mutex
		last int64          // id of the last one looked at
		own  map[int64]bool // done in this process and taken up at once, and not looked at yet
	}
}

func (a *acts) from(last int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.last = last
}

func (a *acts) last() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.last
}

// own notes an act that was done in this process, and reports whether it is still to be taken up: a look may have found it before.
// One whose id is not known is.
func (a *acts) own(id int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == 0 {
		return true
	}
	if id <= a.mu.last {
		return false
	}
	if a.mu.own == nil {
		a.mu.own = map[int64]bool{}
	}
	a.mu.own[id] = true
	return true
}

// found notes an act that a look found, and reports whether it is to be taken up.
func (a *acts) found(id int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.last = id
	own := a.mu.own[id]
	delete(a.mu.own, id)
	return !own
}

// look finds what was done on the store from outside. It costs one indexed query in a quarter of a second, however many keys there are.
func (r *running) look(ctx context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	gap := lookEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		r.lookPending(ctx)
		switch err := r.lookOnce(ctx); {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.store.told(err)
			gap = min(2*gap, longestGap)
		default:
			r.store.told(nil)
			r.say(ctx)
			gap = lookEvery
		}
		timer.Reset(gap)
	}
}

func (r *running) lookOnce(ctx context.Context) error {
	for {
		found, err := r.app.cfg.Store.ActsAfter(ctx, r.acts.last(), lookLimit)
		if err != nil {
			return err
		}
		for _, done := range found {
			if r.acts.found(done.ID) {
				r.take(done)
			}
		}
		if len(found) < lookLimit {
			return nil
		}
	}
}

// take has whoever an act concerns look at the store. It does not block.
func (r *running) take(done eventstore.ActRecord) {
	ofJob := done.Job != 0 && done.Unit.Key != "" // one of many, which the lines about the job stand for
	if done.ID != 0 && !ofJob {
		r.logAct(done)
	}
	if r.takeProjection(done) {
		return
	}
	switch done.Kind {
	case eventstore.ActRetry, eventstore.ActSkip, eventstore.ActDeadLetter:
		r.carrier.resume(done.Unit)
	case eventstore.ActPause, eventstore.ActResume:
		if done.Unit.Key != "" {
			r.carrier.resume(done.Unit)
			return
		}
		r.runtime.ResumeAll(done.Unit.Name)
		if done.Kind == eventstore.ActResume { // there may be work for units that are not awake
			r.rouse(done.Unit.Name)
		}
	case eventstore.ActRemove, eventstore.ActRename:
		r.carrier.unlisted(done.Unit.Name)
		r.jobs.look()
	default: // of a job; or of a handler that no running program has
		r.jobs.look()
	}
}

func (r *running) logAct(done eventstore.ActRecord) {
	attrs := []any{"act", done.Kind}
	if done.Unit.Key != "" {
		attrs = append(attrs, "unit", done.Unit)
	} else if done.Unit.Name != "" {
		attrs = append(attrs, "handler", done.Unit.Name)
	}
	if done.Job != 0 {
		attrs = append(attrs, "job", done.Job)
	}
	if done.Event.Sequence > 0 {
		attrs = append(attrs, "lane", done.Event.Lane, "sequence", done.Event.Sequence)
	}
	attrs = append(attrs, "by", done.Actor)
	if done.Reason != "" {
		attrs = append(attrs, "reason", done.Reason)
	}
	r.app.cfg.Logger.Info("acted: "+done.Detail, attrs...)
}

// rouse has the units of a handler wake that have something to do.
func (r *running) rouse(name string) {
	if _, ok := r.app.cfg.Transport.(interface{ Notify() }); ok {
		r.app.Notify()
		return
	}
	r.rousing.Go(func(ctx context.Context) { // a transport that never looks by itself
		if err := r.wakeAll(ctx, name); err != nil && ctx.Err() == nil {
			r.app.transportFault(fmt.Errorf("look for work of %s: %w", name, err))
		}
	})
}

// wakeDue wakes units that have rows set aside which are to be applied now.
func (r *running) wakeDue(ctx context.Context) error {
	for after := (event.Unit{}); ; {
		units, err := r.app.cfg.Store.DueUnits(ctx, after, lookLimit)
		if err != nil {
			return err
		}
		for _, u := range units {
			r.carrier.resume(u)
			after = u
		}
		if len(units) < lookLimit {
			return nil
		}
	}
}

// wakeAll wakes the units of a handler that have not passed everything.
func (r *running) wakeAll(ctx context.Context, name string) error {
	for _, s := range r.subscriptions {
		if s.Name != name {
			continue
		}
		for after := (event.LaneRef{}); ; {
			lanes, err := r.app.cfg.Store.Unpassed(ctx, name, s.Category, after, lookLimit)
			if err != nil {
				return err
			}
			for _, lane := range lanes {
				r.carrier.wake(event.Unit{Name: name, Key: lane.Key})
				after = lane
			}
			if len(lanes) < lookLimit {
				break
			}
		}
	}
	return nil
}
