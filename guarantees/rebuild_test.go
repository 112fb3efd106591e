package guarantees

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/internal/redisserver"
)

// TestRebuild has Redis lose what it had, and expects everything from the store, in order.
func TestRebuild(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"everything, under load, again and again", flushedUnderLoad},
		{"the last event of a quiet key", quietKeyFlushed},
		{"one stream, which nobody notices", streamDeleted},
		{"restarted without data", restartedEmpty},
		{"failover to a replica that lacks the tail", replicaLacksTail},
	} {
		t.Run(c.name, c.test)
	}
}

// stream is the name of a client's tasks on Redis.
func stream(client string) string { return taskCategory + ":" + client }

// underLoad publishes tasks of clients, and has nodes deposit, while faults happen; it settles afterwards.
func (f *fleet) underLoad(clients []string, count int, faults func(halfway <-chan struct{})) {
	f.t.Helper()
	nodes := f.running()
	for _, n := range nodes {
		n.must(f.t, "load", loading{Clients: clients, Pause: 20 * time.Millisecond}, nil)
	}
	halfway := make(chan struct{})
	var work sync.WaitGroup
	var failed error
	work.Go(func() {
		for n := 1; n <= count; n++ {
			if n == count/2 {
				close(halfway)
			}
			ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
			err := nodes[n%len(nodes)].call(ctx, "publish", publication{Tasks: interleaved(n, n, clients...), Each: 7}, nil)
			cancel()
			if err != nil && failed == nil {
				failed = fmt.Errorf("publish number %d: %w", n, err) // the store is well: nothing is in the way of a publisher
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	faults(halfway)
	work.Wait()
	acked := sum(f.acknowledged())
	eventually(f.t, time.Minute, "deposits go on after the faults", func() (bool, error) {
		now := sum(f.acknowledged())
		return now >= acked+len(nodes)*len(clients), fmt.Errorf("%d, and %d before", now, acked)
	})
	for _, n := range nodes {
		n.must(f.t, "unload", nil, nil)
	}
	if failed != nil {
		f.t.Error(failed)
	}
	f.settle(2*time.Minute, clients, clients)
}

func flushedUnderLoad(t *testing.T) {
	f := newFleet(t, settings{})
	f.two()
	f.underLoad(clientsOf(20), 60, func(halfway <-chan struct{}) {
		<-halfway
		for range 3 {
			if err := f.redis.FlushAll(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(f.random.Int64N(int64(2 * time.Second))))
		}
	})
}

// unreadOnStream has an owner inside the first event of a key, and a second one on the stream that nobody has applied. Nothing is
// published to that key afterwards, so nobody has a reason to look at it.
func (f *fleet) unreadOnStream() (owner *node) {
	f.t.Helper()
	f.two()
	f.marks.shut(f.t, gate(clientA, nil), before)
	f.publish(f.any(), 1, tasks(clientA, 1, 2)...)
	owner = f.owner(runnerOf(clientA))
	eventually(f.t, time.Minute, "both are on the stream", func() (bool, error) {
		n, err := f.redis.Do(f.t.Context(), "XLEN", stream(clientA))
		return n == int64(2), err
	})
	return owner
}

func quietKeyFlushed(t *testing.T) {
	f := newFleet(t, settings{})
	owner := f.unreadOnStream()
	owner.kill(t) // with what it may have read ahead
	if err := f.redis.FlushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.marks.open(t, gate(clientA, nil))
	f.applied(runnerName, clientA, 2)
	f.settle(time.Minute, []string{clientA}, nil)
}

// streamDeleted loses one stream and nothing else, so that it is found only by what looks after unread events: within 30 s, and the time that
// it takes to find out.
func streamDeleted(t *testing.T) {
	f := newFleet(t, settings{})
	owner := f.unreadOnStream()
	owner.kill(t)
	if n, err := f.redis.Del(t.Context(), stream(clientA)); n != 1 || err != nil {
		t.Fatalf("deleted %d streams, %v", n, err)
	}
	f.marks.open(t, gate(clientA, nil))
	f.appliedWithin(90*time.Second, runnerName, clientA, 2)
	f.settle(time.Minute, []string{clientA}, nil)
}

func restartedEmpty(t *testing.T) {
	f := newFleet(t, settings{redis: redisserver.Options{AOF: true}})
	f.two()
	f.underLoad(clientsOf(20), 60, func(halfway <-chan struct{}) {
		<-halfway
		if err := f.redis.Restart(t.Context(), true); err != nil { // with data: nothing is forgotten, and nothing may be applied twice
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := f.redis.Restart(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
}

func replicaLacksTail(t *testing.T) {
	f := newFleet(t, settings{})
	replica := redisserver.Run(t, redisserver.Options{ReplicaOf: f.redis})
	f.two()
	f.underLoad(clientsOf(20), 60, func(halfway <-chan struct{}) {
		<-halfway
		if err := replica.Promote(t.Context()); err != nil { // from here on it gets nothing any more, and nobody reaches it
			t.Error(err)
		}
		time.Sleep(700 * time.Millisecond) // of events, leases and acknowledgements that will be gone
		if err := f.redis.Kill(); err != nil {
			t.Error(err)
		}
		f.redis = replica
		f.front.Point(replica.Addr())
		f.front.Cut()
	})
}
