package sqlite

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// settleTime is how long a caller whose context is done waits to be told what became of a job that the writer has in hand.
// It is nearly always a matter of milliseconds, and knowing is worth them.
const settleTime = 2 * time.Second

// job is one piece of work for the writer, to be committed whole or not at all.
type job struct {
	who string // names the caller in messages
	// apply makes the changes. It first checks and then writes: an error for which refused is true comes before the first
	// write. It may be called again after a rollback, so it depends on nothing but the database.
	apply   func(*connection) error
	visitor *visitor // the application's own SQL, which goes before apply and brings it; nil without any

	err   error // what the job is answered once its group is durable
	state atomic.Int32
	done  chan error // one answer
}

const (
	waiting int32 = iota
	taken
	withdrawn
)

func newJob(who string, apply func(*connection) error) *job {
	return &job{who: who, apply: apply, done: make(chan error, 1)}
}

// take gives the job to the writer, unless its caller gave up.
func (j *job) take() bool { return j.state.CompareAndSwap(waiting, taken) }

// withdraw takes the job back, unless the writer has it.
func (j *job) withdraw() bool { return j.state.CompareAndSwap(waiting, withdrawn) }

func (j *job) answer(err error) { j.done <- trouble(err) }

// do has a job done.
func (w *writer) do(ctx context.Context, j *job) error {
	if err := w.submit(ctx, j); err != nil {
		return err
	}
	return w.await(ctx, j)
}

func (w *writer) submit(ctx context.Context, j *job) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-w.closing:
		return eventstore.ErrClosed
	default:
	}
	select {
	case w.queue <- j:
		w.signals.queued.Send(j.who)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.closing:
		return eventstore.ErrClosed
	}
}

// await waits for the answer.
func (w *writer) await(ctx context.Context, j *job) error {
	select {
	case err := <-j.done:
		return err
	case <-w.gone:
		return j.last()
	case <-ctx.Done():
	}
	if j.withdraw() {
		return ctx.Err()
	}
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case err := <-j.done:
		return err
	case <-w.gone:
		return j.last()
	case <-timer.C:
		return fmt.Errorf("%w: %w", eventstore.ErrUnknownCommit, ctx.Err())
	}
}

// last is the answer when the writer is gone.
func (j *job) last() error {
	select {
	case err := <-j.done:
		return err
	default:
		return eventstore.ErrClosed
	}
}
