package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// stopping is a Stop that is not through.
type stopping struct{ run *running }

// inside gives the units that have not been put away.
func (s *stopping) inside() (ids []event.Unit) {
	for _, u := range s.run.units.all() {
		ids = append(ids, u.id)
	}
	return ids
}

// grace is how long Stop waits for behaviors to notice that their contexts have ended.
const grace = time.Second

// Stop takes no more work, lets the behaviors and the calls of Do in hand finish and puts every unit away. When ctx ends first, it
// cancels the contexts of those still inside, and waits a second at most for them to return; the error is a [*StopError] then, unless
// there were only calls of Do. A call that does not return even so cannot commit any more. Asks that wait get [ErrStopping]. Stop is
// idempotent. After a StopError that names stuck units it may be called again to wait on.
func (r *Runtime) Stop(ctx context.Context) error {
	s := r.beginStop()
	if s == nil {
		return nil
	}
	for _, u := range s.run.units.all() {
		u.post(func(b *inbox) { b.mu.drain = true })
	}
	var failed *StopError
	var calls error
	if s.run.units.wait(ctx) != nil || s.run.calls.wait(ctx) != nil {
		failed, calls = s.hurry(context.WithoutCancel(ctx), context.Cause(ctx))
	}
	return errors.Join(r.endStop(context.WithoutCancel(ctx), s, failed), calls)
}

// Unsettled reports, once Stop is through, whether units that a process before may have ended of were put away before their next event had run. Where units
// are not leased that is to be known at the next start, as it was at this one.
func (r *Runtime) Unsettled() bool { return r.unsettled.Load() }

func (r *Runtime) beginStop() *stopping {
	r.mu.Lock()
	defer r.mu.Unlock()
	if run := r.running.Load(); run != nil {
		r.mu.stopping = &stopping{run: run}
		r.running.Store(nil)
		close(run.ending)
		run.units.close()
		run.calls.close()
	}
	return r.mu.stopping
}

// errNotRunning is what an [ErrStopping] is that comes of no Stop that is going on.
var errNotRunning = fmt.Errorf("%w", ErrStopping)

// notRunning is the error of what comes when the runtime takes no more.
func (r *Runtime) notRunning() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.stopping == nil {
		return errNotRunning
	}
	return ErrStopping
}

// hurry cancels what is still going on, and gives up on what does not return even so. The first error is about units, the
// second about calls of Do.
func (s *stopping) hurry(ctx context.Context, why error) (failed *StopError, calls error) {
	s.run.cancel(errStopped)
	interrupted := s.inside()
	for _, u := range s.run.units.all() {
		u.post(func(b *inbox) { b.mu.drain, b.mu.cancel = true, true })
		if a := u.watch.current.Load(); a != nil && a.interrupt(errStopped) {
			a.block() // its slot is for those that can still be put away
		}
	}
	if n := s.run.calls.interrupt(errStopped); n > 0 {
		calls = fmt.Errorf("stop: %d calls of Do were interrupted: %w", n, why)
	}
	ctx, done := context.WithTimeout(ctx, grace)
	defer done()
	_, _ = s.run.units.wait(ctx), s.run.calls.wait(ctx)
	if len(interrupted) == 0 {
		return nil, calls
	}
	failed = &StopError{Interrupted: interrupted, Err: why}
	for _, u := range s.run.units.all() {
		failed.Stuck = append(failed.Stuck, u.id)
		u.letLapse(u.watch.current.Load())
		u.refuse(ErrStopping, true)
		u.settle(func(*drive) bool { return true }, ErrStopping)
	}
	return failed, calls
}

// endStop closes down what units need, unless some are stuck: they will still want it when they return.
func (r *Runtime) endStop(ctx context.Context, s *stopping, failed *StopError) error {
	if failed != nil && len(failed.Stuck) > 0 {
		return failed
	}
	s.run.doubts.Range(func(any, any) bool {
		r.unsettled.Store(true)
		return false
	})
	s.run.cancel(errStopped)
	err := errors.Join(s.run.host.Stop(ctx), s.run.alarms.Stop(ctx), s.run.probes.group.Stop(ctx))
	if s.run.keeper != nil {
		err = errors.Join(err, s.run.keeper.Stop(ctx))
	}
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	r.mu.Lock()
	if r.mu.stopping == s {
		r.mu.stopping = nil
	}
	r.mu.Unlock()
	if failed != nil {
		return failed
	}
	return nil
}
