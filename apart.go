package keyhold

import (
	"context"
	"time"
)

// stand has the others know while this node cannot run anything, for its store or its broker does not answer it: what it ranks first for is theirs until it can.
func (c *shared) stand(ctx context.Context) {
	tick := time.NewTicker(max(c.beat/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.node.Apart(c.r.store.gone(c.beat) || c.reach.gone(c.beat))
		}
	}
}

// gone reports whether nothing has answered for longer than d. A call that hangs gives no error for a long time: one that takes three times as long counts as well, where those who
// ask do so more often than that. A machine that is merely slow is not to make a node step back.
func (r *reach) gone(d time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.mu.lost.IsZero() {
		return now.Sub(r.mu.lost) > d
	}
	return !r.mu.answered.IsZero() && now.Sub(r.mu.answered) > 3*d
}
