package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/bench/figures"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/redis"
)

type placed struct {
	ClientID string `json:"client_id"`
	Filler   []byte `json:"filler"`
}

var _ = keyhold.Type[placed]("order.placed", 1)

// noted tells when behaviors begin, by key.
type noted struct {
	mu    sync.Mutex
	began map[string]time.Time
	each  chan struct{}
}

func (n *noted) placed(ctx keyhold.Context, _ placed) error {
	now := time.Now()
	n.mu.Lock()
	n.began[ctx.Key()] = now
	n.mu.Unlock()
	n.each <- struct{}{}
	return nil
}

// household is an application on SQLite and Redis, one handler, whose keys come to rest soon.
type household struct {
	server *served
	app    *keyhold.App
	noted  *noted
	dir    string
}

func settle(ctx context.Context, s *settings, retireAfter time.Duration) (h *household, err error) {
	h = &household{noted: &noted{began: make(map[string]time.Time), each: make(chan struct{}, s.keys)}}
	if h.dir, err = os.MkdirTemp(s.dir, "idle-"); err != nil {
		return nil, err
	}
	if h.server, err = serve(ctx); err != nil {
		return nil, err
	}
	h.app = keyhold.New(keyhold.Config{
		Name: "bench", Node: "bench", Store: sqlite.Open(filepath.Join(h.dir, "idle.db")), IdleAfter: 2 * time.Second, Logger: quiet,
		Transport: redis.New(redis.Config{URL: h.server.URL(), TTL: 5 * time.Second, RetireAfter: retireAfter}),
	})
	h.app.Register(
		keyhold.Category{Name: "order", Key: "client_id", Events: []keyhold.EventType{keyhold.EventOf[placed]()}},
		keyhold.Handler[*noted]{
			Name: "shipping", Categories: []string{"order"}, SequentialBy: "client_id", StartFrom: keyhold.Oldest,
			New: func(string) *noted { return h.noted }, On: keyhold.Behavior[*noted]{keyhold.On((*noted).placed)},
		})
	return h, h.app.Start(ctx)
}

func (h *household) end(ctx context.Context) error {
	err := h.app.Stop(ctx)
	h.server.stop()
	return errors.Join(err, os.RemoveAll(h.dir))
}

func client(k int) string { return fmt.Sprint("client-", k) }

// fill publishes one event of each key from the first on, and waits until all were applied.
func (h *household) fill(ctx context.Context, first, keys int) error {
	for k := first; k < keys; k += 500 {
		var some []any
		for i := k; i < min(k+500, keys); i++ {
			some = append(some, placed{ClientID: client(i), Filler: payload[:130]})
		}
		if err := keyhold.Publish(ctx, h.app, some...); err != nil {
			return err
		}
	}
	return h.applied(keys - first)
}

func (h *household) applied(n int) error {
	late := time.After(5 * time.Minute)
	for i := range n {
		select {
		case <-h.noted.each:
		case <-late:
			return fmt.Errorf("%d of %d events are applied", i, n)
		}
	}
	return nil
}

// names counts the names of the server that end so.
func (h *household) names(ctx context.Context, suffix string) (n int, err error) {
	found := h.server.client.Scan(ctx, 0, "shipping:*"+suffix, 1000).Iterator()
	for found.Next(ctx) {
		n++
	}
	return n, found.Err()
}

// rest waits until no unit is held, and for the first looks at lanes after that, which come 5 s after a publication. Nobody tells of either, and a
// hook for it would be part of what is measured.
func (h *household) rest(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < 3*time.Minute; time.Sleep(time.Second) {
		if n, err := h.names(ctx, ":__lease__"); err != nil || n == 0 {
			time.Sleep(8 * time.Second)
			return err
		}
	}
	return errors.New("units do not come to rest")
}

func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func (s *settings) profileHeap() error {
	if s.heap == "" {
		return nil
	}
	f, err := os.Create(s.heap)
	if err != nil {
		return err
	}
	return errors.Join(pprof.WriteHeapProfile(f), f.Close())
}

// idle has keys that were in use, and are not any more: what they cost, and how soon they are back at work.
func idle(ctx context.Context, s *settings) (err error) {
	h, err := settle(ctx, s, time.Hour)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.end(ctx)) }()
	if err := h.fill(ctx, 0, 1); err != nil { // what comes with the first
		return err
	}
	time.Sleep(time.Second) // what the start made is collected
	heapBefore := heap()
	redisBefore, err := h.server.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	if err := errors.Join(h.fill(ctx, 1, s.keys), h.rest(ctx)); err != nil {
		return err
	}
	h.noted.began = make(map[string]time.Time)
	heapAfter := heap()
	if err := s.profileHeap(); err != nil {
		return err
	}
	redisAfter, err := h.server.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	const span = 10 * time.Second
	if err := h.server.ResetCalls(ctx); err != nil {
		return err
	}
	used, began := figures.CPU(), time.Now()
	servedBefore, err := h.server.cpu(ctx)
	if err != nil {
		return err
	}
	time.Sleep(span) // of doing nothing, which is what is measured
	calls, err := h.server.Calls(ctx)
	if err != nil {
		return err
	}
	servedAfter, err := h.server.cpu(ctx)
	if err != nil {
		return err
	}
	all := int64(0)
	for name, n := range calls {
		if !strings.HasPrefix(name, "config") && name != "info" {
			all += n
		}
	}
	took := time.Since(began).Seconds()
	of := fmt.Sprintf("%d idle keys: ", s.keys)
	s.sheet.Add(figures.Figure{Name: of + "Redis commands, those inside scripts included", Value: float64(all) / took, Unit: "a second", Reach: "< 100"})
	s.sheet.Add(figures.Figure{Name: of + "processor of the node", Value: 100 * (figures.CPU() - used).Seconds() / took, Unit: "%", Reach: "< 1"})
	s.sheet.Add(figures.Figure{Name: of + "processor of Redis", Value: 100 * (servedAfter - servedBefore).Seconds() / took, Unit: "%"})
	s.sheet.Add(figures.Figure{Name: of + "heap of a key", Value: (heapAfter - heapBefore) / float64(s.keys), Unit: "bytes", Reach: "< 300"})
	s.sheet.Add(figures.Figure{Name: of + "Redis of a key and handler", Value: (redisAfter - redisBefore) / float64(s.keys), Unit: "bytes", Reach: "<= 5500"})
	return h.wakes(ctx, s)
}

// wakes measures from the wake, as any other client hears it, to the behavior of a key that was at rest.
func (h *household) wakes(ctx context.Context, s *settings) error {
	channel, err := (event.Names{}).Build(event.Name{Kind: event.NameWake, Owner: "shipping"})
	if err != nil {
		return err
	}
	heard := h.server.client.Subscribe(ctx, channel)
	defer heard.Close()
	if _, err := heard.Receive(ctx); err != nil {
		return err
	}
	var fromWake, fromPublish []time.Duration
	for _, k := range rand.Perm(s.keys)[:min(s.keys, 500)] {
		began := time.Now()
		if err := keyhold.Publish(ctx, h.app, placed{ClientID: client(k), Filler: payload[:130]}); err != nil {
			return err
		}
		m, err := heard.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		woken := time.Now()
		if m.Payload != client(k) {
			return fmt.Errorf("wake of %q, not of %q", m.Payload, client(k))
		}
		if err := h.applied(1); err != nil {
			return err
		}
		h.noted.mu.Lock()
		at := h.noted.began[client(k)]
		h.noted.mu.Unlock()
		fromWake, fromPublish = append(fromWake, at.Sub(woken)), append(fromPublish, at.Sub(began))
		time.Sleep(3 * time.Millisecond) // one key at a time, on a node at rest
	}
	for _, q := range []struct {
		name  string
		share float64
		reach string
	}{{"p50", .5, "< 2"}, {"p99", .99, "< 10"}} {
		s.sheet.Add(figures.Figure{Name: "wake of an idle key to its behavior, " + q.name, Value: figures.Quantile(fromWake, q.share), Unit: "ms", Reach: q.reach})
		s.sheet.Add(figures.Figure{Name: "publication, SQLite included, to the behavior of an idle key, " + q.name, Value: figures.Quantile(fromPublish, q.share), Unit: "ms"})
	}
	return nil
}

// retire has keys that nobody used for so long that they leave Redis.
func retire(ctx context.Context, s *settings) (err error) {
	h, err := settle(ctx, s, 10*time.Second)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.end(ctx)) }()
	time.Sleep(time.Second) // likewise
	before, err := h.server.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	if err := h.fill(ctx, 0, s.keys); err != nil {
		return err
	}
	began := time.Now()
	for {
		live, err := h.server.client.SCard(ctx, "order:__partitions__").Result()
		generations, failed := h.names(ctx, ":__generation__")
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		if live == 0 && generations == 0 {
			break
		}
		if time.Since(began) > 3*time.Minute {
			return fmt.Errorf("%d of %d keys are still live, %d generations", live, s.keys, generations)
		}
		time.Sleep(time.Second) // between looks from outside: keys leave without a word
	}
	after, err := h.server.info(ctx, "memory", "used_memory")
	if err != nil {
		return err
	}
	s.sheet.Add(figures.Figure{Name: fmt.Sprintf("%d keys that were retired: Redis of a key and handler", s.keys), Value: max(after-before, 1) / float64(s.keys), Unit: "bytes", Reach: "0"})
	s.sheet.Add(figures.Figure{Name: fmt.Sprintf("%d keys: from the last event to the last one retired, after 10 s", s.keys), Value: time.Since(began).Seconds(), Unit: "s"})
	return nil
}
