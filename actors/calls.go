package actors

import (
	"context"
	"fmt"
	"sync"
)

// calls are those of [Runtime.Do] that have not returned. Those made by a behavior are not among them: they end with it.
type calls struct {
	mu struct {
		sync.Mutex
		closed bool
		inside map[*attempt]struct{}
		empty  []chan struct{} // each closed when nothing is inside
	}
}

// enter takes a call in; it is false once closed.
func (c *calls) enter(a *attempt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return false
	}
	if c.mu.inside == nil {
		c.mu.inside = map[*attempt]struct{}{}
	}
	c.mu.inside[a] = struct{}{}
	return true
}

func (c *calls) leave(a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.inside, a)
	if len(c.mu.inside) == 0 {
		for _, e := range c.mu.empty {
			close(e)
		}
		c.mu.empty = nil
	}
}

func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
}

// interrupt ends the contexts of those that are inside, and with them the hope to commit. It says how many there were.
func (c *calls) interrupt(cause error) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.mu.inside {
		if a.interrupt(cause) {
			n++
		}
	}
	return n
}

// wait returns when nothing is inside, or ctx is done.
func (c *calls) wait(ctx context.Context) error {
	c.mu.Lock()
	if len(c.mu.inside) == 0 {
		c.mu.Unlock()
		return nil
	}
	empty := make(chan struct{})
	c.mu.empty = append(c.mu.empty, empty)
	c.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for calls of Do: %w", context.Cause(ctx))
	}
}
