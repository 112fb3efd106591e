package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
)

// TestUnitsShareCalls: what comes while a call is under way goes together with the next.
func TestUnitsShareCalls(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	w, _ := newWorld(t, server, Config{})
	through := proxy.Run(t, server.Addr())
	cfg := w.cfg
	cfg.URL = "redis://" + through.Addr()
	cfg.TTL, cfg.Timeout = time.Minute, 30*time.Second
	node := w.nodeAt(cfg)
	w.pass(cfg.TTL)
	const units = 200
	line := &node.conn.Load().servers.of("").lines.acquire
	before := calls(t, server)
	through.Stall(proxy.ToServer)
	held := make([]partitions.Held, units)
	var all sync.WaitGroup
	acquire := func(i int) {
		u := event.Unit{Name: "shipping", Key: strconv.Itoa(i)}
		got, err := node.Port().Acquire(t.Context(), u, 0)
		if err != nil || !got.Granted {
			t.Errorf("%s: %+v, %v", u, got, err)
		}
		held[i] = partitions.Held{Unit: u, Generation: got.Generation}
	}
	all.Go(func() { acquire(0) })
	line.waitForFlight(t)
	for i := 1; i < units; i++ {
		all.Go(func() { acquire(i) })
	}
	line.waitFor(t, units-1)
	through.Pass()
	all.Wait()
	if n := calls(t, server) - before; n > int64(1+1+(units+kindAcquire.most-1)/kindAcquire.most) {
		t.Errorf("%d units took %d calls", units, n)
	}
	for _, err := range node.Port().Renew(t.Context(), held) {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestALostReplyOfACallForManyUnitsIsUnknownToEach: the call was carried out, once. Each unit asks again for itself, gets the same entries, or a higher generation, and none has
// lost anything.
func TestALostReplyOfACallForManyUnitsIsUnknownToEach(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	w, _ := newWorld(t, server, Config{})
	through := proxy.Run(t, server.Addr())
	cfg := w.cfg
	cfg.URL = "redis://" + through.Addr()
	cfg.TTL, cfg.Timeout = time.Minute, 30*time.Second
	node := w.nodeAt(cfg)
	w.pass(cfg.TTL)
	const units = 100
	lanes, held := make([]event.LaneRef, units), make([]partitions.Held, units)
	for i := range units {
		lanes[i] = event.LaneRef{Category: "order", Key: strconv.Itoa(i)}
		w.publish(lanes[i], 2, "shipping")
		held[i] = w.acquire(node, event.Unit{Name: "shipping", Key: lanes[i].Key})
		w.advance(node, held[i], 1, place(lanes[i], 0)) // the scripts are known from now on
	}
	w.release(node, w.acquire(node, event.Unit{Name: "billing", Key: "0"}), false)
	own := &node.conn.Load().servers.of("").lines
	// together makes calls for all units, of which those for the last ones are one, and the reply to that is lost.
	together := func(k *kind, l *line, do func(i int) error) {
		t.Helper()
		before := calls(t, server)
		errs := make([]error, units)
		happened := through.LoseReply(w.lease(held[units-1].Unit), 0, false) // names are what tells the call from those before it
		if err := server.Freeze(); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range k.flying {
			all.Go(func() { errs[i] = do(i) })
			l.waitForFlights(t, i+1)
		}
		for i := k.flying; i < units; i++ {
			all.Go(func() { errs[i] = do(i) })
		}
		l.waitFor(t, units-k.flying)
		if err := server.Thaw(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		<-happened
		for i, err := range errs {
			if i < k.flying && err != nil || i >= k.flying && !errors.Is(err, partitions.ErrUnknown) {
				t.Errorf("%s of unit %d: %v", k.name, i, err)
			}
		}
		if n := calls(t, server) - before; n != int64(k.flying)+1 {
			t.Errorf("%s: %d calls", k.name, n)
		}
	}
	together(&kindRead, &own.read, func(i int) error {
		_, err := node.Port().Advance(t.Context(), held[i], []event.Position{place(lanes[i], 1)}, 1)
		return err
	})
	for i, h := range held {
		if got := w.advance(node, h, 1, place(lanes[i], 1)); sequences(got.Entries) != run(lanes[i], 2, 2) {
			t.Errorf("%s asked again and got %s", h.Unit, sequences(got.Entries))
		}
	}
	together(&kindAcquire, &own.acquire, func(i int) error {
		got, err := node.Port().Acquire(t.Context(), held[i].Unit, 0)
		held[i].Generation = got.Generation
		return err
	})
	for i, h := range held[kindAcquire.flying:] {
		if h = w.acquire(node, h.Unit); h.Generation != 3 {
			t.Errorf("%s is granted %d after 1 and one that it did not hear of", h.Unit, h.Generation)
		}
		held[kindAcquire.flying+i] = h
	}
	for i, h := range held {
		w.advance(node, h, 1, place(lanes[i], 2))
		if p := w.pending(lanes[i], "shipping"); len(p) > 0 {
			t.Errorf("pending of %s: %v", h.Unit, p)
		}
	}
	together(&kindRelease, &own.release, func(i int) error { return node.Port().Release(t.Context(), held[i], true) })
	for _, h := range held[kindRelease.flying:] {
		w.release(node, h, true)
	}
}

// TestALostReplyOfACallThatRenewsManyIsUnknownToEach: all were renewed, which none knows; asked again each is, though the connection is a new one.
func TestALostReplyOfACallThatRenewsManyIsUnknownToEach(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"standalone": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redisserver.Run(t, redisserver.Options{Cluster: cluster})
			w, _ := newWorld(t, server, Config{})
			through := proxy.Run(t, server.Addr())
			cfg := w.cfg
			cfg.DialRenewals = dialing(through.Addr())
			cfg.TTL, cfg.Timeout = time.Minute, 30*time.Second
			node := w.nodeAt(cfg)
			w.pass(cfg.TTL)
			const units = 100
			held := make([]partitions.Held, units)
			for i := range held {
				key := strconv.Itoa(i)
				if cluster { // what is not in one slot goes in several calls
					key = strconv.Itoa(i % 2)
				}
				held[i] = w.acquire(node, event.Unit{Name: "handler-" + strconv.Itoa(i), Key: key})
			}
			renewed := func(what string, wrong func(error) bool) {
				t.Helper()
				for i, err := range node.Port().Renew(t.Context(), held) {
					if wrong(err) {
						t.Errorf("%s: %s: %v", what, held[i].Unit, err)
					}
				}
			}
			renewed("before", func(err error) bool { return err != nil }) // the script is known from now on
			const left = 30 * time.Second
			w.pass(left)
			before := calls(t, server)
			happened := through.LoseReply(scriptRenew.flagged.sha, 0, false)
			unknown := 0
			renewed("with the reply that is lost", func(err error) bool {
				if errors.Is(err, partitions.ErrUnknown) {
					unknown++
				}
				return err != nil && !errors.Is(err, partitions.ErrUnknown)
			})
			<-happened
			if n := calls(t, server) - before; unknown < units/2 || cluster && n != 2 || !cluster && n != 1 {
				t.Errorf("%d units do not know, after %d calls", unknown, n)
			}
			for _, h := range held { // it was carried out
				if ttl := w.client.PTTL(t.Context(), w.lease(h.Unit)).Val(); ttl < left+10*time.Second {
					t.Errorf("the lease of %s lasts %v", h.Unit, ttl)
				}
			}
			renewed("asked again", func(err error) bool { return err != nil })
		})
	}
}

// waitFor returns when n requests wait.
func (l *line) waitFor(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.mu.waiting) >= n
	})
}

// waitForFlight returns when a call is under way and nobody waits.
func (l *line) waitForFlight(t *testing.T) {
	t.Helper()
	l.waitForFlights(t, 1)
}

func (l *line) waitForFlights(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.mu.flying >= n && len(l.mu.waiting) == 0
	})
}

// eventually looks at something that tells nobody when it changes, until it is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !so() {
		if ctx.Err() != nil {
			t.Fatal("it does not come about")
		}
		runtime.Gosched()
	}
}

// TestWhoeverGivesUpBeforeItIsSentIsNotUnknown: and is never sent.
func TestWhoeverGivesUpBeforeItIsSentIsNotUnknown(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	w, _ := newWorld(t, server, Config{})
	through := proxy.Run(t, server.Addr())
	cfg := w.cfg
	cfg.URL = "redis://" + through.Addr()
	cfg.TTL, cfg.Timeout = time.Minute, 30*time.Second
	node := w.nodeAt(cfg)
	w.pass(cfg.TTL)
	through.Stall(proxy.ToServer)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	acquire := func(key string, into chan error) {
		_, err := node.Port().Acquire(ctx, event.Unit{Name: "shipping", Key: key}, 0)
		into <- err
	}
	var all sync.WaitGroup
	line := &node.conn.Load().servers.of("").lines.acquire
	all.Go(func() { acquire("sent", first) })
	line.waitForFlight(t)
	all.Go(func() { acquire("waiting", second) })
	line.waitFor(t, 1)
	cancel()
	all.Wait()
	if err := <-first; !errors.Is(err, partitions.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("sent: %v", err)
	}
	if err := <-second; errors.Is(err, partitions.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	through.Pass()
	w.acquire(node, shipping) // after all that waited
	if w.do("exists", w.lease(event.Unit{Name: "shipping", Key: "sent"})) != int64(1) {
		t.Error("the one that was sent was not carried out")
	}
	if w.do("exists", w.lease(event.Unit{Name: "shipping", Key: "waiting"})) != int64(0) {
		t.Error("the one that was given up was sent")
	}
}

// TestStoppedPortAnswers: whoever asks a port whose transport was stopped.
func TestStoppedPortAnswers(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	port := node.Port()
	h := w.acquire(node, shipping)
	if err := node.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := port.Fetch(t.Context(), h, []event.Position{place(orders, 0)}, 1)
	if !errors.Is(err, errNotConnected) || errors.Is(err, partitions.ErrUnknown) {
		t.Errorf("fetch: %v", err)
	}
	if err := port.Renew(t.Context(), []partitions.Held{h})[0]; err == nil || errors.Is(err, partitions.ErrUnknown) {
		t.Errorf("renew: %v", err)
	}
}

// TestRenewalsShareNothingWithWork: the work's connections hang, all of them, and many units wait.
func TestRenewalsShareNothingWithWork(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	w, _ := newWorld(t, server, Config{})
	through := proxy.Run(t, server.Addr())
	cfg := w.cfg
	cfg.PoolSize = 1
	cfg.Dial = dialing(through.Addr())
	cfg.DialRenewals = dialing(server.Addr())
	cfg.TTL, cfg.Timeout = time.Minute, 30*time.Second
	node := w.nodeAt(cfg)
	w.pass(cfg.TTL)
	h := w.acquire(node, shipping)
	through.Stall(proxy.Both)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	line := &node.conn.Load().servers.of("").lines.acquire
	acquire := func(i int) {
		all.Go(func() { _, _ = node.Port().Acquire(ctx, event.Unit{Name: "shipping", Key: fmt.Sprint(i)}, 0) })
	}
	acquire(0)
	line.waitForFlight(t)
	for i := range 50 {
		acquire(1 + i)
	}
	line.waitFor(t, 50)
	if err := node.Port().Renew(t.Context(), []partitions.Held{h})[0]; err != nil {
		t.Errorf("renew: %v", err)
	}
	cancel()
	all.Wait()
	through.Pass()
}

// TestWhoGivesUpARequestMayChangeWhatItRefersTo: a unit that is out of time asks again, with the same positions in other places. What was sent for it must have been read by then.
func TestWhoGivesUpARequestMayChangeWhatItRefersTo(t *testing.T) {
	t.Parallel()
	w, node := setup(t)
	p := node.conn.Load().port
	tenure, err := p.tenure(w.acquire(node, event.Unit{Name: "shipping", Key: "c-1"}))
	if err != nil {
		t.Fatal(err)
	}
	r := &reading{above: []event.Position{place(event.LaneRef{Category: "order", Key: "c-1"}, 0)}, most: 5}
	if err := p.plan(tenure, r); err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	slow := kindRead
	slow.pack = func(p *port, c *call, requests []*request) {
		cancel()
		for range 10_000 {
			runtime.Gosched()
		}
		if over.Load() {
			t.Error("who asked goes on while the request is packed")
		}
		packRead(p, c, requests)
	}
	_, err = p.ask(ctx, &p.lines(tenure).read, &slow, tenure, r)
	over.Store(true)
	r.above[0].Sequence++ // the race detector looks on
	if !errors.Is(err, partitions.ErrUnknown) {
		t.Error(err)
	}
}
