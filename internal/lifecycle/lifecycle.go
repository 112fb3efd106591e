package lifecycle

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrStarted: Start was called again before a Stop was through.
	ErrStarted = errors.New("already started")
	// ErrStopped is the cause of the contexts that Stop cancels.
	ErrStopped = errors.New("stopped")
)

// base is the context of what runs in the background: it keeps the values of the context given to Start, not its end,
// which bounds only Start itself.
func base(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(context.WithoutCancel(ctx))
}

// wait returns nil when done is closed, an error when ctx ended before.
func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop: still running: %w", context.Cause(ctx))
	}
}
