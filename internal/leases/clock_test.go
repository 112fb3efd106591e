package leases_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/internal/leases"
	"github.com/keyhold/keyhold/partitions"
)

// wall is a wall clock that can be ahead of the monotonic one, as after the host stood still.
type wall struct{ ahead atomic.Int64 }

func (w *wall) jump(d time.Duration) { w.ahead.Add(int64(d)) }

func (w *wall) use(c *leases.Config) {
	c.Wall = func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }
}

func TestAHostThatStoodStillHasLostEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w wall
		p, h := &port{}, &holder{}
		k := setup(t, p, w.use)
		k.Add(held(1, 3), time.Now(), h)
		pass(time.Second)
		w.jump(margin/2 + time.Millisecond)

		// Whoever looks first finds out, here somebody who is about to rely on the lease.
		k.Look()
		same(t, "lost", []string{"shipping/1 at 3: host was suspended at 1s"}, h.lost())
		same(t, "held", 0, k.Len())

		// From here on it counts anew.
		k.Look()
		k.Add(held(1, 4), time.Now(), h)
		pass(time.Minute)
		same(t, "lost", 1, len(h.lost()))
	})
}

func TestTheKeeperItselfLooksInEachHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w wall
		p, h := &port{}, &holder{}
		k := setup(t, p, w.use)
		k.Add(held(1, 3), time.Now(), h)
		w.jump(time.Hour)
		pass(heartbeat)
		same(t, "lost", 1, len(h.lost()))
		same(t, "calls", 0, len(p.calls()))
	})
}

// A renewal that was answered before the host stood still is no reason to trust the lease after.
func TestARenewalDuringWhichTheHostStoodStillIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w wall
		p, h := &port{}, &holder{}
		p.renew = func(_ context.Context, held []partitions.Held) []error {
			w.jump(time.Hour)
			return make([]error, len(held))
		}
		k := setup(t, p, w.use)
		k.Add(held(1, 3), time.Now(), h)
		pass(heartbeat)
		same(t, "renewed", 0, h.renewals())
		same(t, "lost", 1, len(h.lost()))
	})
}

func TestTheHostStandingStillWhileALeaseIsAskedForCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w wall
		h := &holder{}
		k := setup(t, &port{}, w.use)
		pass(time.Hour)
		w.jump(time.Hour) // before: nothing hangs on it
		k.Look()
		sent := time.Now()
		w.jump(time.Hour)
		k.Add(held(1, 1), sent, h)
		same(t, "lost", 1, len(h.lost()))
	})
}

func TestSmallCorrectionsOfTheWallClockAreNoLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w wall
		h := &holder{}
		k := setup(t, &port{}, w.use)
		k.Add(held(1, 1), time.Now(), h)
		for range 200 { // a wall clock that is slewed, by far more than any is
			w.jump(-20 * time.Millisecond)
			pass(heartbeat)
		}
		same(t, "lost", []string(nil), h.lost())
	})
}

// Many short stops add up: the margin is there for all that happens in the life of one lease.
func TestManyShortStopsAreALongOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w wall
		h := &holder{}
		k := setup(t, &port{}, w.use)
		k.Add(held(1, 1), time.Now(), h)
		for range 5 {
			pass(time.Second)
			w.jump(margin / 6)
			k.Look()
		}
		same(t, "lost", 1, len(h.lost()))
	})
}
