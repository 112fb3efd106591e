package lifecycle

import (
	"context"
	"sync"
)

// Loop owns one background goroutine. The zero value is ready; it must not be copied. All methods may be called
// concurrently.
type Loop struct {
	mu struct {
		sync.Mutex
		current *running // nil before Start and after a Stop that was waited for
	}
}

type running struct {
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when run has returned
}

// Start runs run in a goroutine. The context that run gets keeps the values of ctx but not its end: Stop alone cancels it,
// with the cause [ErrStopped]. When ctx is done already, nothing is started and its cause is returned.
//
// A loop that was started and not yet stopped gives [ErrStarted], also when run has returned by itself.
func (l *Loop) Start(ctx context.Context, run func(ctx context.Context)) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.current != nil {
		return ErrStarted
	}
	own, cancel := base(ctx)
	r := &running{cancel: cancel, done: make(chan struct{})}
	l.mu.current = r
	go func() {
		defer close(r.done)
		run(own)
	}()
	return nil
}

// Stop cancels the context of run and waits until run has returned, or ctx is done: then the loop still counts as
// started, and Stop may be called again to wait on. It is idempotent, and a no-op when nothing was started.
// Called from within run it would wait for itself.
func (l *Loop) Stop(ctx context.Context) error {
	l.mu.Lock()
	r := l.mu.current
	l.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel(ErrStopped)
	if err := wait(ctx, r.done); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.current == r { // else another Stop was first, and a Start may have followed it
		l.mu.current = nil
	}
	return nil
}
