package guarantees

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// TestRebuild has Redis lose what it had, and expects everything from the store, in order.
func TestRebuild(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"flushed in the middle of 20,000 events over 100 keys on three nodes", flushedInTheMiddle},
		{"flushed after the last publication, one event on each of 1,000 keys", flushedWhenAllIsQuiet},
		{"one stream deleted", streamDeleted},
		{"one stream trimmed to its tail", streamTrimmed},
		{"a promoted replica that lacks the last 20 entries", replicaLacksEntries},
		{"flushed under load, again and again", flushedUnderLoad},
		{"restarted with data, and without", restartedEmpty},
		{"failover under load to a replica that lacks the tail", replicaLacksTail},
	} {
		t.Run(c.name, c.test)
	}
}

// quiet is within what time an event must be applied that Redis has lost, and which nobody has a reason to look for.
const quiet = 60 * time.Second

// three are nodes that have been there, and are gone: what they handle is known, and nobody handles it.
func (f *fleet) three() (names []string) {
	f.t.Helper()
	names = []string{"node-1", "node-2", "node-3"}
	f.add(names...)
	for _, name := range names {
		f.nodes[name].stop(f.t)
	}
	return names
}

// again starts nodes that are gone.
func (f *fleet) again(names []string) {
	f.t.Helper()
	for _, name := range names {
		f.nodes[name].start(f.t)
	}
}

// publisher is a node that handles nothing: what it publishes gets to Redis, and nobody reads it.
func (f *fleet) publisher() (app *keyhold.App, stop func()) {
	f.t.Helper()
	spec := f.spec("publisher")
	app = keyhold.New(keyhold.Config{
		Name: "bank", Node: "publisher", Store: spec.store(), Transport: spec.transport(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	app.Register(taskCategoryOf[taskAdded]("client_id"))
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	if err := app.Start(ctx); err != nil {
		f.t.Fatal(err)
	}
	return app, sync.OnceFunc(func() {
		if err := app.Stop(context.Background()); err != nil {
			f.t.Error(err)
		}
	})
}

// put publishes tasks of clients, each from one number up to another, and returns when all are on Redis.
func (f *fleet) put(app *keyhold.App, from, to int, clients ...string) {
	f.t.Helper()
	for some := range slices.Chunk(interleaved(from, to, clients...), 100) {
		events := make([]any, len(some))
		for i, k := range some {
			events[i] = k.event()
		}
		if err := keyhold.Publish(f.t.Context(), app, events...); err != nil {
			f.t.Fatal(err)
		}
	}
	eventually(f.t, time.Minute, "all are on Redis", func() (bool, error) {
		for _, client := range clients {
			if n, err := f.redis.Do(f.t.Context(), "XLEN", stream(client)); err != nil || n != int64(to) {
				return false, fmt.Errorf("%s has %v entries (%w)", client, n, err)
			}
		}
		return true, nil
	})
}

// count waits until so many events are applied, and tells how long that took.
func (f *fleet) count(within time.Duration, want int) time.Duration {
	f.t.Helper()
	began := time.Now()
	c, err := pgx.Connect(f.t.Context(), f.database)
	if err != nil {
		f.t.Fatal(err)
	}
	defer c.Close(context.Background())
	eventually(f.t, within, fmt.Sprintf("%d events are applied", want), func() (bool, error) {
		var have int
		err := c.QueryRow(f.t.Context(), `SELECT count(*) FROM effects WHERE handler = $1`, runnerName).Scan(&have)
		return have >= want, fmt.Errorf("there are %d (%w)", have, err)
	})
	return time.Since(began)
}

func flushedInTheMiddle(t *testing.T) {
	const each = 200
	f := newFleet(t, settings{ttl: 6 * time.Second})
	f.add("node-1", "node-2", "node-3")
	clients := clientsOf(100)
	nodes := f.running()
	for n := 1; n <= each; n += 5 {
		if n > each/2 && n <= each/2+5 {
			if err := f.redis.FlushAll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		f.publish(nodes[n/5%len(nodes)], 50, interleaved(n, n+4, clients...)...)
	}
	t.Logf("20,000 events: all applied %v after the last was published", f.count(3*time.Minute, each*len(clients)))
	f.settle(time.Minute, clients, nil)
}

func flushedWhenAllIsQuiet(t *testing.T) {
	f := newFleet(t, settings{ttl: 6 * time.Second})
	names := f.three()
	app, stop := f.publisher()
	defer stop()
	clients := clientsOf(1000)
	f.put(app, 1, 1, clients...)
	if err := f.redis.FlushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	f.again(names)
	t.Logf("1,000 quiet keys: all applied within %v", f.count(quiet, len(clients)))
	f.settle(time.Minute, clients, nil)
}

// streamTrimmed leaves the newest three of thirty entries: what is missing is read from the store.
func streamTrimmed(t *testing.T) {
	f := newFleet(t, settings{ttl: 6 * time.Second})
	names := f.three()
	app, stop := f.publisher()
	defer stop()
	f.put(app, 1, 30, clientA, clientB)
	if n, err := f.redis.Trim(t.Context(), stream(clientA), "28"); n != 27 || err != nil {
		t.Fatalf("trimmed %d entries, %v", n, err)
	}
	stop()
	f.again(names)
	f.appliedWithin(quiet, runnerName, clientA, 30)
	f.settle(time.Minute, []string{clientA, clientB}, nil)
}

// replicaLacksEntries fails over to a replica that got none of the last 20 entries, of which nobody has read any.
func replicaLacksEntries(t *testing.T) {
	f := newFleet(t, settings{ttl: 6 * time.Second})
	names := f.three()
	replica := redisserver.Run(t, redisserver.Options{ReplicaOf: f.redis})
	app, stop := f.publisher()
	defer stop()
	clients := clientsOf(10)
	f.put(app, 1, 8, clients...)
	eventually(t, time.Minute, "the replica has it all", func() (bool, error) {
		for _, client := range clients {
			if n, err := replica.Do(t.Context(), "XLEN", stream(client)); err != nil || n != int64(8) {
				return false, fmt.Errorf("%s has %v entries (%w)", client, n, err)
			}
		}
		return true, nil
	})
	if err := replica.Promote(t.Context()); err != nil { // from here on it gets nothing any more
		t.Fatal(err)
	}
	f.put(app, 9, 10, clients...) // two more of each
	stop()
	if err := f.redis.Kill(); err != nil {
		t.Fatal(err)
	}
	f.redis = replica
	f.front.Point(replica.Addr())
	f.front.Cut()
	f.again(names)
	f.count(quiet, 10*len(clients))
	f.settle(time.Minute, clients, nil)
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
	f := newFleet(t, settings{ttl: 6 * time.Second})
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

// streamDeleted loses one stream and nothing else, so that it is found only by what looks after unread events: within 30 s, and the time that
// it takes to find out.
func streamDeleted(t *testing.T) {
	f := newFleet(t, settings{ttl: 6 * time.Second})
	owner := f.unreadOnStream()
	owner.kill(t)
	if n, err := f.redis.Del(t.Context(), stream(clientA)); n != 1 || err != nil {
		t.Fatalf("deleted %d streams, %v", n, err)
	}
	f.marks.open(t, gate(clientA, nil))
	f.appliedWithin(quiet, runnerName, clientA, 2)
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
	f := newFleet(t, settings{ttl: 6 * time.Second})
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
