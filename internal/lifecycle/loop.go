package lifecycle

import "context"

// Loop owns one background goroutine. The zero value is ready; it must not be copied. All methods may be called
// concurrently.
type Loop struct {
	one Group
}

// Start runs run in a goroutine. The context that run gets keeps the values of ctx but not its end: Stop alone cancels it,
// with the cause [ErrStopped]. When ctx is done already, nothing is started and its cause is returned.
//
// A loop that was started and not yet stopped gives [ErrStarted], also when run has returned by itself. Where a Stop
// comes between, run is not called at all.
func (l *Loop) Start(ctx context.Context, run func(ctx context.Context)) error {
	if err := l.one.Start(ctx); err != nil {
		return err
	}
	l.one.Go(run)
	return nil
}

// Stop cancels the context of run and waits until run has returned, or ctx is done: then the loop still counts as
// started, and Stop may be called again to wait on. It is idempotent, and a no-op when nothing was started.
// Called from within run it would wait for itself.
func (l *Loop) Stop(ctx context.Context) error { return l.one.Stop(ctx) }
