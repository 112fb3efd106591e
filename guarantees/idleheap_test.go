package guarantees

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/local"
	"github.com/keyhold/keyhold/transport/redis"
)

const (
	idleKeys   = 16_000
	idleBytes  = 260     // of the heap that an idle key may cost; the most of it is what a store remembers of its lane, up to 50,000 lanes
	idleBeside = 1 << 20 // bytes that the moment adds, whatever the keys
)

// TestHeapOfIdleKeys has keys come to life all at about the same time, and rest. What the process holds then, beside what it held after few of them, is what they cost.
func TestHeapOfIdleKeys(t *testing.T) {
	t.Parallel()
	file := func(t *testing.T) string { return filepath.Join(t.TempDir(), "idle.db") }
	for _, s := range []struct{ name, store, redis string }{
		{name: "SQLite", store: file(t)},
		{name: "SQLite and Redis", store: file(t), redis: redisserver.Run(t, redisserver.Options{}).URL()},
		{name: "PostgreSQL and Redis", store: postgresserver.Database(t), redis: redisserver.Run(t, redisserver.Options{}).URL()},
	} {
		t.Run(s.name, func(t *testing.T) { // one after the other, for there are other tests
			heap := figures[int64](t, fmt.Sprintf("idle %s,%s %d", s.store, s.redis, idleKeys))
			t.Logf("heap: %d bytes, and with %d idle keys more %d: %d each", heap[0], idleKeys, heap[1], (heap[1]-heap[0])/idleKeys)
			if most := heap[0] + idleKeys*idleBytes + idleBeside; heap[1] > most {
				t.Errorf("heap is %d bytes with %d idle keys, want at most %d", heap[1], idleKeys, most)
			}
		})
	}
}

type visited struct {
	Guest string `json:"guest"`
}

var _ = keyhold.Type[visited]("guest.visited", 1)

type visits struct{ seen *atomic.Int64 }

func (v *visits) visited(keyhold.Context, visited) error { v.seen.Add(1); return nil }

// idle is the process. where is a database and, if there is one, a Redis, with a comma between.
func idle(where string, keys int) error {
	var seen, activated, passivated atomic.Int64
	database, server, _ := strings.Cut(where, ",")
	var store eventstore.Store = sqlite.Open(database)
	if strings.Contains(database, "://") {
		store = postgres.New(postgres.Config{URL: database, MaxConns: 24})
	}
	var carrier transport.Transport = local.New()
	if server != "" {
		carrier = redis.New(redis.Config{URL: server})
	}
	app := keyhold.New(keyhold.Config{
		Name: "inn", Node: "inn", Store: store, Transport: carrier, IdleAfter: 2 * time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Observer: keyhold.Observer{Activated: func(event.Unit) { activated.Add(1) }, Passivated: func(event.Unit) { passivated.Add(1) }},
	})
	app.Register(
		keyhold.Category{Name: "guest", Key: "guest", Events: []keyhold.EventType{keyhold.EventOf[visited]()}},
		keyhold.Handler[*visits]{
			Name: "book", Categories: []string{"guest"}, SequentialBy: "guest", StartFrom: keyhold.Oldest,
			New: func(string) *visits { return &visits{&seen} }, On: keyhold.Behavior[*visits]{keyhold.On((*visits).visited)},
		})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := app.Start(ctx); err != nil {
		return err
	}
	const first = 1000 // for what comes with any
	done := 0
	for _, upto := range []int{first, first + keys} {
		for done < upto {
			var some []any
			for range min(500, upto-done) {
				done++
				some = append(some, visited{Guest: fmt.Sprint("guest-", done)})
			}
			if err := keyhold.Publish(ctx, app, some...); err != nil {
				return err
			}
		}
		for seen.Load() < int64(done) || activated.Load() != passivated.Load() {
			if err := rest(ctx, 10*time.Millisecond); err != nil {
				return fmt.Errorf("%d of %d events seen, %d activated, %d passivated: %w", seen.Load(), done, activated.Load(), passivated.Load(), err)
			}
		}
		runtime.GC()
		runtime.GC() // what a pool held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(m.HeapAlloc)
	}
	return app.Stop(ctx)
}
