package guarantees

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// TestTwoServices has two applications share a Redis, each with nodes and a database of its own: one publishes tasks and does them, the other reads them. Only the first has
// the events, and only the second knows how far it is. Whatever goes wrong, both have everything within a minute of its end, also of keys to which nothing is published any more.
func TestTwoServices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"flushed after the last publication while the reader is stopped, one event on each of 200 keys", flushedWithoutReader},
		{"flushed in the middle of 4,000 events over 40 keys", flushedForBoth},
		{"one stream deleted and one trimmed to its tail that the reader has not read, and one deleted as who was to read it is killed", unreadByReader},
		{"the producer killed before it can notice that Redis was flushed", producerKilled},
		{"everything at random", twoServicesAtRandom},
	} {
		t.Run(c.name, c.test)
	}
}

// services are the two: producer and reader.
type services struct {
	t        *testing.T
	producer *fleet
	reader   *fleet
}

// newServices starts both, and waits until the producer knows of its reader.
func newServices(t *testing.T, o redisserver.Options) *services {
	t.Helper()
	s := &services{t: t, producer: newFleet(t, settings{ttl: 4 * time.Second, redis: o})} // four nodes, which a machine that does other things must not stop for as long
	s.producer.two()
	s.reader = s.producer.abroad()
	for _, name := range []string{"reader-1", "reader-2"} {
		s.reader.nodes[name] = s.reader.newNode(name)
		if err := s.reader.nodes[name].launch(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range s.reader.nodes {
		if err := n.started(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.producer.publish(s.producer.any(), 0, tasks("first", 1, 1)...)
	s.reader.applied(auditorName, "first", 1)
	return s
}

// abroad is another application on the same Redis, by the same way. It has a database and marks of its own.
func (f *fleet) abroad() *fleet {
	f.t.Helper()
	o := *f
	o.settings.reads = true
	o.random = rand.New(rand.NewPCG(f.seed, 1))
	o.database = f.postgres.Database(f.t)
	o.marks = openMarks(redisserver.Run(f.t, redisserver.Options{}).Socket())
	f.t.Cleanup(o.marks.close)
	o.renewals, o.nodes, o.acks, o.frozen = map[string]*proxy.Proxy{}, map[string]*node{}, filepath.Join(f.t.TempDir(), "acks"), 0
	return &o
}

// tails are those of the tasks of clients, for the handler of the service.
func (s *services) tails(handler string, clients []string) map[string]event.Sequence {
	return s.producer.lanes(handler, taskCategory, clients...)
}

// settle waits until both have everything, and judges both.
func (s *services) settle(within time.Duration, clients ...string) {
	s.t.Helper()
	began := time.Now()
	theirs := s.tails(auditorName, clients)
	s.producer.drained(within, s.tails(runnerName, clients))
	s.reader.drained(max(time.Second, within-time.Since(began)), theirs)
	s.t.Logf("both have everything after %v", time.Since(began).Round(time.Millisecond))
	s.producer.judge(s.tails(runnerName, clients))
	s.reader.judge(theirs)
}

// done waits until the producer itself has done everything.
func (s *services) done(clients ...string) {
	s.t.Helper()
	s.producer.drained(time.Minute, s.tails(runnerName, clients))
}

func (s *services) flush() {
	s.t.Helper()
	if err := s.producer.redis.FlushAll(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func flushedWithoutReader(t *testing.T) {
	s := newServices(t, redisserver.Options{})
	readers := s.reader.running()
	for _, n := range readers {
		n.stop(t)
	}
	clients := clientsOf(200)
	s.producer.publish(s.producer.any(), 50, interleaved(1, 1, clients...)...)
	s.done(clients...)
	s.flush()
	for _, n := range readers {
		n.start(t)
	}
	s.settle(quiet, clients...)
}

func flushedForBoth(t *testing.T) {
	const each = 100
	s := newServices(t, redisserver.Options{})
	clients, nodes := clientsOf(40), s.producer.running()
	for n := 1; n <= each; n += 5 {
		if n == each/2+1 {
			s.flush()
		}
		s.producer.publish(nodes[n/5%2], 50, interleaved(n, n+4, clients...)...)
	}
	s.settle(quiet, clients...)
}

// unreadByReader has the reader inside the first of five events of three keys, before it has read the others. The producer has done them all, and will not look at them again for an hour.
func unreadByReader(t *testing.T) {
	const deleted, trimmed, orphaned = "deleted", "trimmed", "orphaned"
	s := newServices(t, redisserver.Options{})
	clients := []string{deleted, trimmed, orphaned}
	for _, client := range clients {
		s.reader.marks.shut(t, gate(client, nil), before)
	}
	s.producer.publish(s.producer.any(), 0, interleaved(1, 1, clients...)...)
	for _, client := range clients {
		s.reader.owner(event.Unit{Name: auditorName, Key: client})
	}
	s.producer.publish(s.producer.any(), 0, interleaved(2, 5, clients...)...)
	s.done(clients...)
	for _, client := range clients {
		s.looked(client)
	}
	s.deletes(deleted)
	if n, err := s.producer.redis.Trim(t.Context(), stream(trimmed), "5"); n != 4 || err != nil {
		t.Fatalf("trimmed %d entries, %v", n, err)
	}
	s.reader.marks.open(t, gate(deleted, nil))
	s.reader.marks.open(t, gate(trimmed, nil))
	s.settle(quiet, deleted, trimmed)

	s.reader.owner(event.Unit{Name: auditorName, Key: orphaned}).kill(t)
	s.deletes(orphaned)
	s.reader.marks.open(t, gate(orphaned, nil))
	s.settle(quiet, clients...)
}

// looked waits until the producer will look again at what it has published of a client when that is to leave Redis.
func (s *services) looked(client string) {
	s.t.Helper()
	eventually(s.t, time.Minute, "the producer has looked whether all is passed", func() (bool, error) {
		retire, err := selected(s.producer, pgx.RowTo[bool], `SELECT retire FROM keyhold_looks k JOIN keyhold_lanes l ON l.id = k.lane WHERE l.category = $1 AND l.key = $2`, taskCategory, client)
		return len(retire) == 1 && retire[0], err
	})
}

func (s *services) deletes(client string) {
	s.t.Helper()
	if n, err := s.producer.redis.Del(s.t.Context(), stream(client)); n != 1 || err != nil {
		s.t.Fatalf("deleted %d streams, %v", n, err)
	}
}

// producerKilled stops the nodes of the producer first, so that they certainly do not notice.
func producerKilled(t *testing.T) {
	s := newServices(t, redisserver.Options{})
	clients := clientsOf(20)
	for _, client := range clients {
		s.reader.marks.shut(t, gate(client, nil), before)
	}
	nodes := s.producer.running()
	s.producer.publish(nodes[0], 30, interleaved(1, 3, clients...)...)
	s.done(clients...)
	for _, n := range nodes {
		n.freeze(t)
	}
	s.flush()
	for _, n := range nodes {
		n.kill(t)
	}
	for _, client := range clients {
		s.reader.marks.open(t, gate(client, nil))
	}
	for _, n := range nodes {
		n.start(t)
	}
	s.settle(quiet, clients...)
}

// twoServicesAtRandom has faults of both, and of what is between them, one after the other.
func twoServicesAtRandom(t *testing.T) {
	s := newServices(t, redisserver.Options{AOF: true})
	f := s.producer
	clients, nodes := clientsOf(12), f.running()
	ctx, stop := context.WithCancel(t.Context())
	var publisher sync.WaitGroup
	defer publisher.Wait()
	defer stop()
	publisher.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			call, cancel := context.WithTimeout(ctx, 2*time.Second) // what was not acknowledged may be there or not: the store knows
			nodes[n%2].call(call, "publish", publication{Tasks: interleaved(n, n, clients...), Each: 5}, nil)
			cancel()
			time.Sleep(20 * time.Millisecond)
		}
	})
	for began := time.Now(); time.Since(began) < 20*time.Second; {
		possible := s.faults()
		fault := possible[f.random.IntN(len(possible))]
		t.Logf("%6.1f s: %s", time.Since(began).Seconds(), fault.name)
		fault.do()
		time.Sleep(time.Duration(f.random.Int64N(int64(500 * time.Millisecond))))
	}
	stop()
	publisher.Wait()
	s.settle(quiet, clients...)
}

func (s *services) faults() []fault {
	t, ctx := s.t, s.t.Context()
	of, redis, front, ttl := s.producer, s.producer.redis, s.producer.front, s.producer.settings.ttl
	if s.producer.random.IntN(2) == 0 {
		of = s.reader
	}
	n := of.any()
	somewhile := func() { time.Sleep(time.Duration(s.producer.random.Int64N(int64(2 * ttl)))) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	return []fault{
		{n.spec.Name + " is killed", func() {
			n.kill(t)
			somewhile()
			n.start(t)
		}},
		{n.spec.Name + " is frozen beyond its leases", func() {
			of.frozen++
			n.freeze(t)
			somewhile()
			n.thaw(t)
		}},
		{fmt.Sprint("all of ", n.spec.Name, "'s service are killed, and Redis is flushed"), func() {
			all := of.running()
			for _, n := range all {
				n.kill(t)
			}
			s.flush()
			for _, n := range all {
				n.start(t)
			}
		}},
		{"Redis is flushed", s.flush},
		{"Redis loses one stream", func() {
			_, err := redis.Del(ctx, stream(clientName(s.producer.random.IntN(12))))
			check(err)
		}},
		{"Redis is restarted with its data", func() { check(redis.Restart(ctx, true)) }},
		{"Redis is restarted without its data", func() { check(redis.Restart(ctx, false)) }},
		{"nothing comes back from Redis", func() {
			front.Blackhole(proxy.ToClient)
			somewhile()
			front.Pass()
		}},
		{"all connections to Redis are cut", front.Cut},
	}
}
