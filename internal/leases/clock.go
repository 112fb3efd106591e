package leases

import (
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/partitions"
)

// clock is the monotonic clock, and what tells whether it can be trusted: the distance of the wall clock from it does not change, but for
// what the wall clock is corrected by, unless the host stood still. A wall clock that is set is taken for that as well, which costs a recovery.
//
// The distance is compared with an anchor. The anchor moves at most once in a TTL, so that in the life of one lease no more goes unnoticed than
// twice what is tolerated: the margin.
type clock struct {
	wall   func() time.Time
	origin time.Time
	bound  time.Duration // of a change of the distance
	ttl    time.Duration

	distance atomic.Int64 // at the anchor: wall - monotonic, in nanoseconds
	anchored atomic.Int64 // when, on this clock
	holding  atomic.Int64 // leases that an anchor is for
}

func (c *clock) init(wall func() time.Time, t partitions.Traits) {
	c.wall, c.origin, c.bound, c.ttl = wall, time.Now(), t.Margin/2, t.TTL
	c.anchor(c.now())
}

func (c *clock) now() time.Duration { return time.Since(c.origin) }

func (c *clock) at(t time.Time) time.Duration { return t.Sub(c.origin) }

func (c *clock) time(d time.Duration) time.Time { return c.origin.Add(d) }

func (c *clock) apart(now time.Duration) int64 { return c.wall().UnixNano() - int64(now) }

// diverged reports whether the host stood still since the anchor.
func (c *clock) diverged(now time.Duration) bool {
	d := c.apart(now) - c.distance.Load()
	return time.Duration(max(d, -d)) > c.bound
}

// renew moves the anchor when it is time to, or nothing hangs on it.
func (c *clock) renew(now time.Duration) {
	if c.holding.Load() == 0 || now-time.Duration(c.anchored.Load()) >= c.ttl {
		c.anchor(now)
	}
}

func (c *clock) anchor(now time.Duration) {
	c.distance.Store(c.apart(now))
	c.anchored.Store(int64(now))
}
