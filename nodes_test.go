package keyhold_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/redis"
)

// applied notes what handlers were given, over all nodes.
type applied struct {
	mu   sync.Mutex
	seen map[string][]string
	news chan struct{}
}

func (a *applied) handler() keyhold.Handler[*applied] {
	return keyhold.Handler[*applied]{
		Name: "losses", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest,
		New: func(string) *applied { return a },
		On: keyhold.Behavior[*applied]{keyhold.On(func(a *applied, ctx keyhold.Context, e itemLost) error {
			a.mu.Lock()
			a.seen[ctx.Key()] = append(a.seen[ctx.Key()], e.Item)
			a.mu.Unlock()
			a.news <- struct{}{}
			return nil
		})},
	}
}

func onRedis(store eventstore.Store, url, node string) keyhold.Config {
	return keyhold.Config{
		Name: "shop", Node: node, Store: store, Logger: quiet,
		Transport: redis.New(redis.Config{URL: url, TTL: 2 * time.Second}),
	}
}

func TestSeveralNodesShareTheKeys(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	a := &applied{seen: map[string][]string{}, news: make(chan struct{}, 10_000)}
	var apps []*keyhold.App
	for i := range 3 {
		apps = append(apps, run(t, onRedis(postgres.Open(db), url, fmt.Sprint("node-", i)), cart, losses, a.handler()))
	}
	const keys, each = 20, 10
	for n := range each {
		for k := range keys {
			if err := keyhold.Publish(t.Context(), apps[n%len(apps)], itemLost{fmt.Sprint("client-", k), fmt.Sprint(n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range keys * each {
		select {
		case <-a.news:
		case <-ctx.Done():
			t.Fatalf("not all was applied: %v", a.seen)
		}
	}
	for k := range keys {
		got := a.seen[fmt.Sprint("client-", k)]
		for n, item := range got {
			if item != fmt.Sprint(n) {
				t.Errorf("client-%d was given %v", k, got)
				break
			}
		}
	}
}

func TestOneNodeOnSQLiteAndRedis(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	url := redisserver.Run(t, redisserver.Options{}).URL()
	a := &applied{seen: map[string][]string{}, news: make(chan struct{}, 10_000)}
	app := run(t, onRedis(sqlite.Open(path), url, "one"), cart, losses, a.handler())
	for n := range 10 {
		if err := keyhold.Publish(t.Context(), app, itemLost{"ada", fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 10 {
		select {
		case <-a.news:
		case <-ctx.Done():
			t.Fatalf("not all was applied: %v", a.seen)
		}
	}
}
