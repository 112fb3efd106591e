package redis_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/redis"
)

// granted asks for the lease of a unit.
func granted(t *testing.T, tr *redis.Transport, u event.Unit) partitions.Acquired {
	t.Helper()
	got, err := tr.Port().Acquire(t.Context(), u, 0)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A server that nobody used looks like one that lost everything.
func TestANewServerGrantsNothingForOneTTL(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	w.forget(t)
	tr := w.connected(t)
	if got := granted(t, tr, shipping); got.Granted || !got.Forgot {
		t.Errorf("got %+v, want Forgot", got)
	}
	w.pass(t, redis.DefaultTTL/2)
	if got := granted(t, tr, shipping); got.Granted || !got.Forgot {
		t.Errorf("after half a TTL: got %+v, want Forgot", got)
	}
	w.pass(t, redis.DefaultTTL/2)
	if got := granted(t, tr, shipping); !got.Granted {
		t.Errorf("after a TTL: got %+v", got)
	}
}

// FLUSHALL, and what follows it: every node notices by itself, nobody gets a lease that an earlier owner may still believe to hold, and what was registered is gone.
func TestAFlushIsNoticedByEveryNodeAndGrantsNothing(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*scene{"standalone": newScene(t, redisserver.Options{}), "cluster": newClusterScene(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := w.connected(t), w.connected(t)
			nodes := []*ear{start(t, a, "shipping"), start(t, b, "shipping")}
			declared := transport.Declared{StoreID: "here", Subscribers: []transport.Subscriber{{Name: "shipping", Category: "order", StoreID: "here", Kind: "handler"}}}
			if err := a.Declare(t.Context(), declared); err != nil {
				t.Fatal(err)
			}
			if got := granted(t, a, shipping); !got.Granted {
				t.Fatalf("got %+v", got)
			}
			published(t, a, orders, 1, 1, "shipping") // the last event of a quiet key
			w.forget(t)
			for _, node := range nodes {
				node.forgot.Wait(t)
			}
			if got := granted(t, b, shipping); got.Granted || !got.Forgot {
				t.Errorf("got %+v, want Forgot", got)
			}
			if all, err := b.Subscribers(t.Context(), []string{"order"}); err != nil || len(all) != 0 {
				t.Errorf("registered: %v, %v", all, err)
			}
			if err := b.Declare(t.Context(), declared); err != nil {
				t.Error(err)
			}
			answered(t, a.Append(t.Context(), []transport.Append{{Lane: orders}})[0], transport.AppendEmpty, 0)
			published(t, a, orders, 1, 1, "shipping")
			for _, node := range nodes {
				node.woken.WaitFor(t, func(u event.Unit) bool { return u == shipping })
			}
			w.pass(t, redis.DefaultTTL)
			if got := granted(t, b, shipping); !got.Granted {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// An acquire that was sent before a loss and runs after it: another node has looked meanwhile, so there is a birth again.
func TestAnAcquireThatComesAfterALossIsRefused(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	a, b := w.connected(t), w.connected(t)
	granted(t, a, event.Unit{Name: "shipping", Key: "warm"}) // its script is loaded, its connection open
	w.forget(t)
	if _, err := b.Beat(t.Context(), transport.Member{ID: "b", StoreID: "here"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := granted(t, a, shipping); got.Granted || !got.Forgot {
		t.Errorf("got %+v, want Forgot", got)
	}
}

// A node that is refused a lease for want of memory notices the loss, also when it is the first one.
func TestARefusedAcquireNoticesTheLoss(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	w.cfg.Heartbeat, w.cfg.TTL = 3*time.Minute, time.Hour // no look comes to help
	w.cfg.RetireAfter = 2 * time.Hour
	tr := w.connected(t)
	_, looked := tr.Signals(t)
	node := start(t, tr, "shipping")
	looked.Wait(t)
	w.forget(t)
	if got := granted(t, tr, shipping); got.Granted || !got.Forgot {
		t.Errorf("got %+v, want Forgot", got)
	}
	node.forgot.Wait(t)
}

// A beat notices it likewise.
func TestABeatNoticesTheLoss(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	w.cfg.Heartbeat, w.cfg.TTL, w.cfg.RetireAfter = 3*time.Minute, time.Hour, 2*time.Hour
	tr := w.connected(t)
	_, looked := tr.Signals(t)
	node := start(t, tr, "shipping")
	looked.Wait(t)
	w.forget(t)
	if _, err := tr.Beat(t.Context(), transport.Member{ID: "a", StoreID: "here"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	node.forgot.Wait(t)
}

// A restart, be it with everything that was on disk: leases may be gone that were granted after the last write, so nothing is granted, and the node is told.
func TestARestartMayHaveForgotten(t *testing.T) {
	t.Parallel()
	for name, withData := range map[string]bool{"with data": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newScene(t, redisserver.Options{AOF: true})
			tr := w.connected(t)
			node := start(t, tr, "shipping")
			node.rescans.Wait(t)
			published(t, tr, orders, 1, 3, "shipping")
			if err := w.server.Restart(t.Context(), withData); err != nil {
				t.Fatal(err)
			}
			node.forgot.Wait(t)
			node.rescans.Wait(t) // wakes may have been lost
			if got := granted(t, tr, shipping); got.Granted || !got.Forgot {
				t.Errorf("got %+v, want Forgot", got)
			}
			if withData {
				published(t, tr, orders, 4, 4, "shipping")
				w.holds(t, orders, 1, 4)
			} else {
				answered(t, tr.Append(t.Context(), []transport.Append{{Lane: orders, Entries: entries(orders, 4, 4)}})[0], transport.AppendEmpty, 0)
			}
		})
	}
}

// A replica that was promoted and lacks the last that its master had: leases, entries. It has the birth of its master.
func TestAPromotedReplicaMayLackTheTail(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	replica := redisserver.Run(t, redisserver.Options{ReplicaOf: w.server})
	// A server that gets its first replica takes another replication id.
	w.settle(t)
	var address atomic.Value // of whoever is the master
	address.Store(w.server.Addr())
	w.cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address.Load().(string))
	}
	tr := w.connected(t)
	node := start(t, tr, "shipping")
	published(t, tr, orders, 1, 3, "shipping")
	if n := w.do(t, "WAIT", 1, 5000); n != int64(1) {
		t.Fatalf("%v replicas have it", n)
	}
	if err := replica.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	published(t, tr, orders, 4, 5, "shipping")
	if got := granted(t, tr, shipping); !got.Granted {
		t.Fatalf("got %+v", got)
	}
	address.Store(replica.Addr())
	if err := w.server.Kill(); err != nil {
		t.Fatal(err)
	}
	node.forgot.Wait(t)
	other := w.node(t, "here", nil)
	if err := other.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := granted(t, other, shipping); got.Granted || !got.Forgot {
		t.Errorf("another node: got %+v, want Forgot: the lease of 5 s ago is not there", got)
	}
	answered(t, publish(t, tr, orders, 6, 6), transport.AppendGap, 3)
	published(t, tr, orders, 4, 6)
}

// A birth that lies ahead of the clock would refuse everything for ever.
func TestABirthAheadOfTheClockIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	info, err := w.server.Info(t.Context(), "replication")
	if err != nil {
		t.Fatal(err)
	}
	w.do(t, "SET", w.birth(t), info["master_replid"]+" 99999999999999 ahead")
	tr := w.connected(t)
	w.pass(t, redis.DefaultTTL)
	if got := granted(t, tr, shipping); !got.Granted {
		t.Errorf("got %+v", got)
	}
}

// A process that starts after another one has noticed a loss, maybe of another application, cannot see what was before. For as long as something that was on the broker before may not have been
// looked at since, a birth counts as a loss.
func TestAStartAfterALossIsToldOfIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ago  time.Duration
		told bool
	}{
		"at once":                    {0, true},
		"just before lanes leave":    {redis.DefaultRetireAfter, true},
		"when all was looked at":     {redis.DefaultRetireAfter + 2*time.Minute, false},
		"when all was, a week later": {7 * 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newScene(t, redisserver.Options{})
			w.forget(t)
			w.connected(t) // the one that noticed
			w.pass(t, c.ago)
			var forgot atomic.Int32
			late := w.node(t, "here", nil)
			_, looked := late.Signals(t)
			if err := late.Start(t.Context(), transport.Node{Forgot: func() { forgot.Add(1) }}); err != nil {
				t.Fatal(err)
			}
			looked.Wait(t)
			if told := forgot.Load() > 0; told != c.told {
				t.Errorf("told: %v, want %v", told, c.told)
			}
		})
	}
}

// A node that was suspended while others noticed a loss, and dealt with it, sees another birth than the one it knew, which is old already.
func TestANodeThatSleptThroughALossIsToldOfIt(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	node := start(t, tr, "shipping")
	info, err := w.server.Info(t.Context(), "replication")
	if err != nil {
		t.Fatal(err)
	}
	w.do(t, "SET", w.birth(t), info["master_replid"]+" 2 another")
	node.forgot.Wait(t)
}
