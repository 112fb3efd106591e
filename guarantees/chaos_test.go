package guarantees

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/internal/redisserver"
)

var chaosFor = flag.Duration("chaos", 20*time.Second, "how long TestChaos has things go wrong")

// TestChaos has everything go wrong at random that may, for a while, on three nodes under load: nodes die, freeze and cannot renew, Redis
// forgets, dies and freezes, PostgreSQL dies and freezes, connections are cut. Then all is well again, and the oracle counts. A failure
// prints its seed; times differ from run to run, so the same seed gives the same faults, but not the same interleaving.
func TestChaos(t *testing.T) {
	t.Parallel()
	f := newFleet(t, settings{ownPostgres: true, redis: redisserver.Options{AOF: true}})
	c := &chaos{fleet: f, clients: clientsOf(12), loaded: map[string]bool{}}
	f.add(nodeName(1), nodeName(2), nodeName(3))
	var publisher sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	publisher.Go(func() { c.publish(ctx) })
	for began := time.Now(); time.Since(began) < *chaosFor; {
		c.load()
		possible := c.faults()
		fault := possible[f.random.IntN(len(possible))]
		t.Logf("%6.1f s: %s", time.Since(began).Seconds(), fault.name)
		fault.do()
		time.Sleep(time.Duration(f.random.Int64N(int64(time.Second))))
	}
	stop()
	publisher.Wait()
	c.heal()
	for _, n := range f.running() {
		eventually(t, time.Minute, n.spec.Name+" ends its deposits", func() (bool, error) {
			err := n.call(t.Context(), "unload", nil, nil)
			return err == nil, err
		})
		if r := n.report(t); len(r.Errors) > 0 || len(r.Halted) > 0 {
			t.Errorf("%s: %+v", n.spec.Name, r)
		}
	}
	j := f.settle(3*time.Minute, c.clients, c.clients)
	if j.Effects < 100 {
		t.Errorf("there were %d effects in %v, which shows little", j.Effects, *chaosFor)
	}
}

// chaos is what goes wrong, and who works meanwhile.
type chaos struct {
	*fleet
	clients []string
	loaded  map[string]bool // nodes that deposit, by name
}

// load has all nodes deposit that run and do not yet.
func (c *chaos) load() {
	for _, n := range c.running() {
		if !c.loaded[n.spec.Name] {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			c.loaded[n.spec.Name] = n.call(ctx, "load", loading{Clients: c.clients, Pause: 30 * time.Millisecond}, nil) == nil
			cancel()
		}
	}
}

// publish publishes tasks from any node that answers. What was not acknowledged may be there or not: the store knows.
func (c *chaos) publish(ctx context.Context) {
	names := []string{nodeName(1), nodeName(2), nodeName(3)}
	for n := 1; ctx.Err() == nil; n++ {
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		c.nodes[names[n%len(names)]].call(call, "publish", publication{Tasks: interleaved(n, n, c.clients...), Each: 5}, nil)
		cancel()
		time.Sleep(20 * time.Millisecond)
	}
}

type fault struct {
	name string
	do   func()
}

// check ends the test when what it did to a server or node was not possible.
func (c *chaos) check(errs ...error) {
	c.t.Helper()
	for _, err := range errs {
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *chaos) somewhile(most time.Duration) {
	time.Sleep(time.Duration(c.random.Int64N(int64(most))))
}

// restart starts a node that was killed. It may fail to start while something else is broken: nothing is, faults come one after the other.
func (c *chaos) restart(n *node) {
	c.loaded[n.spec.Name] = false
	c.check(n.launch(), n.started(c.t.Context()))
}

func (c *chaos) faults() []fault {
	ttl, ctx := c.settings.ttl, c.t.Context()
	n := c.nodes[nodeName(1+c.random.IntN(3))]
	renewals := c.renewals[n.spec.Name]
	return []fault{
		{n.spec.Name + " is killed", func() {
			n.kill(c.t)
			c.somewhile(2 * ttl)
			c.restart(n)
		}},
		{n.spec.Name + " is killed and starts at once", func() {
			n.kill(c.t)
			c.restart(n)
		}},
		{n.spec.Name + " is frozen beyond its leases", func() {
			c.frozen++
			n.freeze(c.t)
			c.somewhile(2 * ttl)
			n.thaw(c.t)
		}},
		{n.spec.Name + " cannot renew its leases", func() {
			renewals.Blackhole(proxy.Both)
			c.somewhile(2 * ttl)
			renewals.Pass()
		}},
		{n.spec.Name + " renews its leases late", func() {
			renewals.Stall(proxy.Both)
			c.somewhile(2 * ttl)
			renewals.Pass()
		}},
		{"Redis is flushed", func() { c.check(c.redis.FlushAll(ctx)) }},
		{"Redis forgets its scripts", func() { c.check(c.redis.FlushScripts(ctx)) }},
		{"Redis loses one stream", func() {
			_, err := c.redis.Del(ctx, stream(c.clients[c.random.IntN(len(c.clients))]))
			c.check(err)
		}},
		{"Redis is restarted with its data", func() { c.check(c.redis.Restart(ctx, true)) }},
		{"Redis is restarted without its data", func() { c.check(c.redis.Restart(ctx, false)) }},
		{"Redis is down for a while", func() {
			c.check(c.redis.Kill())
			c.somewhile(2 * ttl)
			c.check(c.redis.Restart(ctx, true))
		}},
		{"Redis is frozen", func() {
			c.check(c.redis.Freeze())
			c.somewhile(2 * ttl)
			c.check(c.redis.Thaw())
		}},
		{"all connections to Redis are cut", func() { c.front.Cut() }},
		{"nothing comes back from Redis", func() {
			c.front.Blackhole(proxy.ToClient)
			c.somewhile(ttl)
			c.front.Pass()
		}},
		{"PostgreSQL is restarted", func() { c.check(c.postgres.Restart(ctx)) }},
		{"PostgreSQL is frozen", func() {
			c.check(c.postgres.Freeze())
			c.somewhile(ttl)
			c.check(c.postgres.Thaw())
		}},
	}
}

// heal has everything run and pass that was left otherwise.
func (c *chaos) heal() {
	c.front.Pass()
	for name, p := range c.renewals {
		p.Pass()
		if n := c.nodes[name]; !n.process.Alive() {
			c.t.Errorf("%s ended by itself: %s", name, lastLines(n.home.Dir+"/log", 20))
			c.restart(n)
		}
	}
	eventually(c.t, time.Minute, "all nodes answer", func() (bool, error) {
		for _, n := range c.running() {
			var name string
			if err := n.call(c.t.Context(), "alive", nil, &name); err != nil || name != n.spec.Name {
				return false, fmt.Errorf("%s answers %q: %w", n.spec.Name, name, err)
			}
		}
		return true, nil
	})
}
