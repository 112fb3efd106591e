package keyhold

import (
	"context"
	"time"
)

// stand has the others know while this node cannot run anything, for its store or its broker does not answer it: what it ranks first for is theirs until it can.
func (c *shared) stand(ctx context.Context) {
	tick := time.NewTicker(max(c.beat/4, time.Millisecond))
	defer tick.Stop()
	f := footing{unit: c.beat}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.node.Apart(f.apart(time.Now(), c.r.store.gone(c.beat) || c.reach.gone(c.beat)))
		}
	}
}

// footing decides when a node steps back, and when it takes part again. Each change moves keys, which is work: where store or broker merely have too much to do, nodes that go and come
// make that worse. So it comes back at once the first time, and later than the time before whenever it was there for no longer than a few times that: then it must have been answered
// without a break for twice as long.
type footing struct {
	unit time.Duration // a heartbeat

	away bool
	well time.Time     // since when it has been answered again, while away; zero = it is not
	hold time.Duration // for how long it must be answered before it is back
	back time.Time     // when it was back last
}

const (
	mostHold  = 20 // heartbeats
	forgotten = 8  // times the hold, or heartbeats where that was shorter: who stood so long starts afresh
)

// apart takes note of whether anything is gone, and tells whether the node is to stand back.
func (f *footing) apart(now time.Time, gone bool) bool {
	switch {
	case gone && !f.away:
		if f.back.IsZero() || now.Sub(f.back) >= forgotten*max(f.hold, f.unit) {
			f.hold = 0
		} else {
			f.hold = min(max(2*f.hold, f.unit), mostHold*f.unit)
		}
		f.away, f.well = true, time.Time{}
	case gone:
		f.well = time.Time{}
	case f.away:
		if f.well.IsZero() {
			f.well = now
		}
		if now.Sub(f.well) >= f.hold {
			f.away, f.back = false, now
		}
	}
	return f.away
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
