package inline

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/transport"
)

// run is the transport between one start and the end of its stop.
type run struct {
	node  transport.Node
	queue queue
	turn  chan struct{}   // filled by the one goroutine that may drive units
	lone  lifecycle.Group // at most one goroutine: see queue
	over  chan struct{}   // closed when Stop begins
	end   func()          // closes over, once
}

func newRun(node transport.Node) *run {
	r := &run{node: node, turn: make(chan struct{}, 1), over: make(chan struct{})}
	r.queue.subscribers = node.Subscribers()
	r.end = sync.OnceFunc(func() { close(r.over) })
	return r
}

// stop may be called again, and concurrently.
func (r *run) stop(ctx context.Context) error {
	r.end()
	if err := r.lone.Stop(ctx); err != nil {
		return err
	}
	if err := r.take(ctx); err != nil {
		return err
	}
	r.give()
	return nil
}

// take prefers the good news: a turn that is free is had although ctx is done.
func (r *run) take(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *run) give() { <-r.turn }

// await returns when all of c is delivered, here or by others, or when ctx or the run is over.
func (r *run) await(ctx context.Context, c *call) error {
	var err error
	select {
	case <-c.done:
	case r.turn <- struct{}{}:
		err = r.deliverInTurn(ctx, c)
	case <-ctx.Done():
	case <-r.over:
	}
	select {
	case <-c.done:
		return err
	default:
		r.handOn(r.queue.leave(c))
		return errors.Join(err, fmt.Errorf("deliver inline: put off: %w", r.interrupted(ctx)))
	}
}

func (r *run) deliverInTurn(ctx context.Context, c *call) error {
	defer r.give()
	return r.deliver(ctx, c)
}

// handOn has a goroutine look after the queue where nobody else does.
func (r *run) handOn(orphaned bool) {
	if orphaned {
		r.lone.Go(r.deliverAlone) // false when stopping: the next start finds it all in the store
	}
}

func (r *run) deliverAlone(ctx context.Context) {
	if r.take(ctx) != nil {
		return
	}
	if err := r.deliverInTurn(ctx, nil); err != nil {
		r.report(err)
	}
}

// deliver takes from the queue until c is done (nil: until it is empty), or ctx or the run is over. The turn is the
// caller's. It returns the errors of the units.
func (r *run) deliver(ctx context.Context, c *call) error {
	var errs []error
	for r.interrupted(ctx) == nil {
		d, more := r.queue.next(c)
		if !more {
			break
		}
		if err := r.drive(ctx, d); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// drive makes one delivery. One that ctx cuts short is no error, it stays where it is in the queue.
func (r *run) drive(ctx context.Context, d delivery) error {
	through := false
	r.queue.begin(d)
	defer func() { r.queue.end(d, through) }()

	err := r.node.Drive(transport.Nested(ctx), d.unit, d.lane, d.seq)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	through = true
	if err != nil {
		if d.seq == 0 {
			return fmt.Errorf("deliver what %s set aside: %w", d.unit, err)
		}
		return fmt.Errorf("deliver %s #%d to %s: %w", d.lane, d.seq, d.unit.Name, err)
	}
	return nil
}

// deliverUnpassed drives each unit through all that its lanes hold, and through what it set aside and is due, then delivers what that led to.
func (r *run) deliverUnpassed(ctx context.Context, store eventstore.Store) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	defer r.give()

	c := newCall()
	for work, err := range storelane.Unpassed(ctx, store, r.node.Subscriptions) {
		if err != nil {
			return err
		}
		tail, err := store.LaneTail(ctx, work.Lane)
		if err != nil {
			return fmt.Errorf("look for the end of %s: %w", work.Lane, err)
		}
		if err := r.drive(ctx, delivery{unit: work.Unit, lane: work.Lane, seq: tail, call: c}); err != nil {
			r.report(err)
		}
		if err := r.interrupted(ctx); err != nil {
			return err
		}
	}
	for unit, err := range storelane.Due(ctx, store, r.node.Subscriptions) {
		if err != nil {
			return err
		}
		if err := r.drive(ctx, delivery{unit: unit, call: c}); err != nil {
			r.report(err)
		}
		if err := r.interrupted(ctx); err != nil {
			return err
		}
	}
	if err := r.deliver(ctx, c); err != nil {
		r.report(err)
	}
	return r.interrupted(ctx)
}

// interrupted says why nothing more may be delivered under ctx, nil when it may.
func (r *run) interrupted(ctx context.Context) error {
	select {
	case <-r.over:
		return lifecycle.ErrStopped
	default:
		return context.Cause(ctx)
	}
}

func (r *run) report(err error) {
	if r.node.Report != nil {
		r.node.Report(err)
	}
}
