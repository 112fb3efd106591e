package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

var (
	// ErrStarted: Start was called again before a Stop was through.
	ErrStarted = errors.New("already started")
	// ErrStopped is the cause of the contexts that Stop cancels.
	ErrStopped = errors.New("stopped")
)

// Group owns any number of short goroutines. The zero value is ready to be started; it must not be copied. All methods
// may be called concurrently.
type Group struct {
	mu struct {
		sync.Mutex
		current *crew // nil before Start and after a Stop that was waited for
	}
}

// crew is a group between one Start and the end of its Stop. live and stopping are guarded by Group.mu.
type crew struct {
	ctx      context.Context // of every goroutine of the crew; here because Go has none to hand on
	cancel   context.CancelCauseFunc
	live     int
	stopping bool
	gone     chan struct{} // closed when stopping and nobody is left
}

// Start lets Go start goroutines. Their context keeps the values of ctx but not its end: Stop alone cancels it, with
// the cause [ErrStopped]. When ctx is done already, its cause is returned. A group not yet stopped gives [ErrStarted].
func (g *Group) Start(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.current != nil {
		return ErrStarted
	}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	g.mu.current = &crew{ctx: own, cancel: cancel, gone: make(chan struct{})}
	return nil
}

// Go runs f in a goroutine of its own and returns true. Before Start, and once a Stop has begun, it returns false and f is
// not run. It never blocks: whoever wants a limit counts before.
func (g *Group) Go(f func(ctx context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.mu.current
	if c == nil || c.stopping {
		return false
	}
	c.live++
	go func() {
		defer g.leave(c)
		f(c.ctx)
	}()
	return true
}

func (g *Group) leave(c *crew) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.live--
	if c.stopping && c.live == 0 {
		close(c.gone)
	}
}

// Stop lets no goroutine start any more, cancels the context of those that run and waits until all have returned, or ctx
// is done: then the group still counts as started, and Stop may be called again to wait on. It is idempotent, and a
// no-op when the group was not started. Called from within a goroutine of the group it would wait for itself.
func (g *Group) Stop(ctx context.Context) error {
	c := g.end()
	if c == nil {
		return nil
	}
	c.cancel(ErrStopped)
	if err := c.wait(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.current == c { // else another Stop was first, and a Start may have followed it
		g.mu.current = nil
	}
	return nil
}

func (g *Group) end() *crew {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.mu.current
	if c != nil && !c.stopping {
		c.stopping = true
		if c.live == 0 {
			close(c.gone)
		}
	}
	return c
}

// wait prefers the good news: a crew that is gone gives nil although ctx is done.
func (c *crew) wait(ctx context.Context) error {
	select {
	case <-c.gone:
		return nil
	default:
	}
	select {
	case <-c.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop: still running: %w", context.Cause(ctx))
	}
}
