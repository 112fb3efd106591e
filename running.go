package keyhold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/projection"
	"github.com/keyhold/keyhold/transport"
)

const (
	grace  = time.Second     // for what was told to end, once the patience of a Stop is out
	drains = 2 * time.Second // how long a Start that failed lets behaviors in hand finish
)

// running is what exists between a Start and the end of its Stop. But for acts, jobs and what a Stop notes it is immutable once started.
type running struct {
	app     *App
	unclaim func()          // the transport
	left    bool            // the store is all that is left to stop, and the transport may be another's
	untried bool            // see [eventstore.Untried]; known once the store is left
	runtime *actors.Runtime // nil in a start that failed early
	carrier carrier         // likewise
	store   *reach

	projections *projection.Runtime // nil in a start that failed early
	router      *router
	names       []string // of handlers and entity kinds, in order

	subscriptions []transport.Subscription
	acts          acts
	pending       pending
	presence      presence
	jobs          *jobs
	rousing       *lifecycle.Group // of the application

	watching *watching // of Config.Telemetry; nil without

	open     context.Context // that transactions of BeginTx go by; rollback ends it
	rollback context.CancelCauseFunc
}

// operation is a Start or a Stop under way.
type operation struct {
	cancel context.CancelCauseFunc // of a Start; nil for a Stop
	done   chan struct{}           // closed at the end; err is settled then
	err    error
}

// within gives a context that ends with ctx, with release, or when a Stop rolls back what is open.
func (r *running) within(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(r.open, func() { cancel(context.Cause(r.open)) })
	return ctx, func() {
		unhook()
		cancel(eventstore.ErrEnded)
	}
}

// end settles what an operation came to.
func (a *App) end(op *operation, runs, rest *running, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.turn, a.mu.running, a.mu.rest = nil, runs, rest
	op.err = err
	close(op.done)
}

// Stop takes no more work, lets behaviors, calls of [Do] and transactions in hand finish, and closes the store. When ctx ends
// first, their contexts are cancelled, and Stop returns a few seconds later at most. What was not finished is done after the
// next start.
//
// A behavior that does not return even so is named by the error, an [*actors.StopError]. Until it has returned, the store stays
// open and no other application can start on it; call Stop again to wait on.
//
// Stop is idempotent. Called during a Start it cancels it; called during a Stop it waits for that one and returns its error. An
// application may be started again after it.
func (a *App) Stop(ctx context.Context) error {
	for {
		op, r := a.beginStop()
		if r != nil {
			return a.stop(ctx, op, r)
		}
		if op == nil {
			return nil
		}
		if op.cancel != nil {
			op.cancel(fmt.Errorf("by Stop: %w", lifecycle.ErrStopped))
		}
		select {
		case <-op.done:
		case <-ctx.Done():
			return fmt.Errorf("%s: another Start or Stop is not through: %w", a.about("stop"), context.Cause(ctx))
		}
		if op.cancel == nil {
			return op.err
		}
	}
}

// beginStop gives what there is to stop, or the operation that is to be waited for, or neither.
func (a *App) beginStop() (*operation, *running) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.turn != nil {
		return a.mu.turn, nil
	}
	if a.mu.running != nil {
		a.mu.running, a.mu.rest = nil, a.mu.running
	}
	if a.mu.rest == nil {
		return nil, nil
	}
	a.mu.turn = &operation{done: make(chan struct{})}
	return a.mu.turn, a.mu.rest
}

func (a *App) stop(ctx context.Context, op *operation, r *running) error {
	through, err := r.stop(ctx)
	if err != nil {
		err = fmt.Errorf("%s: %w", a.about("stop"), err)
	}
	if through {
		r = nil
		a.cfg.Logger.Info("stopped", "node", a.cfg.Node)
	}
	a.end(op, nil, r, err)
	return err
}

// clear ends what is left of an earlier start, or gives it back with an error.
func (a *App) clear(ctx context.Context, rest *running) (*running, error) {
	if rest == nil {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel() // its patience was out before
	through, err := rest.stop(ctx)
	if through {
		return nil, nil
	}
	if inside := stuck(err); len(inside) > 0 {
		return rest, fmt.Errorf("behaviors of the last start have not returned: %v: wait for them, or restart the process", inside)
	}
	return rest, fmt.Errorf("the last start is not stopped yet: call Stop, or restart the process: %w", err)
}

// undo ends a start that failed half way. It gives back what could not be ended.
func (a *App) undo(ctx context.Context, r *running) (*running, error) {
	ctx, cancel := context.WithTimeout(ctx, drains) // none where Start itself is out of time
	defer cancel()
	through, err := r.stop(ctx)
	if through {
		return nil, err
	}
	return r, fmt.Errorf("and not all of it could be stopped again: call Stop to wait on: %w", err)
}

// stop may be called again until it is through. The store comes last, and not before everybody who writes has left: its owner
// alone keeps others from running the units that somebody is still inside of.
func (r *running) stop(ctx context.Context) (through bool, err error) {
	if r.left {
		return r.close(ctx)
	}
	defer context.AfterFunc(ctx, func() { r.rollback(fmt.Errorf("transaction: %w", ErrStopping)) })()
	r.watching.unwatch()
	operates := r.operates(ctx)
	var delivers, works error
	if r.carrier != nil {
		_ = r.carrier.drain(ctx) // it may wait for units, which are told to hurry next; stop tells what is wrong
	}
	inside := false
	if r.runtime != nil {
		works = r.runtime.Stop(ctx)
		inside = len(stuck(works)) > 0
	}
	if r.carrier != nil {
		delivers = patiently(ctx, r.carrier.stop)
	}
	var projects error
	if r.projections != nil {
		projects = patiently(ctx, r.projections.Stop)
	}
	purges := patiently(ctx, r.app.retention.Stop)
	reading := false
	watches := patiently(ctx, func(ctx context.Context) error {
		ended, err := r.watching.Stop(ctx)
		reading = !ended
		return err
	})
	if inside || delivers != nil || projects != nil || purges != nil || operates != nil || reading {
		return false, errors.Join(works, delivers, projects, purges, operates, watches)
	}
	r.left, r.untried = true, r.unsettled()
	through, closes := r.close(ctx)
	return through, errors.Join(works, watches, closes)
}

// close closes the store, which nobody uses any more. The transport is free from then on whatever comes of that: all who used it have ended.
func (r *running) close(ctx context.Context) (through bool, err error) {
	if r.untried {
		ctx = eventstore.Untried(ctx)
	}
	err = patiently(ctx, r.app.cfg.Store.Stop)
	if err == nil {
		r.rollback(ErrStopping)
	}
	r.unclaim()
	return err == nil, err
}

// unsettled reports whether something that the process before may have ended of has not run since. Where units are leased, their leases tell.
func (r *running) unsettled() bool {
	port, ok := r.app.cfg.Transport.(bound)
	if !ok || r.runtime == nil || port.Port() == nil || port.Port().Traits().Leased {
		return false
	}
	left, ok := port.Port().(interface{ Unsettled() bool })
	return r.runtime.Unsettled() || ok && left.Unsettled()
}

// operates ends what takes up what people do.
func (r *running) operates(ctx context.Context) error {
	return errors.Join(patiently(ctx, r.app.looking.Stop), patiently(ctx, r.app.jobbing.Stop), patiently(ctx, r.app.rousing.Stop))
}

// patiently calls stop with what is left of ctx, and once more with a grace when that was not enough.
func patiently(ctx context.Context, stop func(context.Context) error) error {
	if ctx.Err() == nil {
		if err := stop(ctx); err == nil || ctx.Err() == nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	return stop(ctx)
}

// stuck gives the units that a Stop found to have a behavior inside.
func stuck(err error) []event.Unit {
	if e, ok := errors.AsType[*actors.StopError](err); ok {
		return e.Stuck
	}
	return nil
}
