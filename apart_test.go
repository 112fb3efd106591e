package keyhold_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// Two of four nodes reach the broker, and so renew their leases, but not the store: of what both of them rank first for the others take care, as soon as that is known.
func TestWhatTwoNodesWithoutTheStoreRankFirstForIsTakenByOthers(t *testing.T) {
	t.Parallel()
	db, url := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()
	server := postgresserver.Shared(t)
	way := proxy.Run(t, server.Addr())
	a := &applied{seen: map[string][]string{}, news: make(chan struct{}, 10_000)}
	var apps []*keyhold.App
	for i, db := range []string{db, db, strings.Replace(db, server.Addr(), way.Addr(), 1), strings.Replace(db, server.Addr(), way.Addr(), 1)} {
		apps = append(apps, run(t, onRedis(postgres.Open(db), url, fmt.Sprint("node-", i)), cart, losses, a.handler()))
	}
	t.Cleanup(way.Pass) // or they would not stop
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const keys = 100
	publish := func(item string) {
		for k := range keys {
			if err := keyhold.Publish(ctx, apps[0], itemLost{fmt.Sprint("client-", k), item}); err != nil {
				t.Fatal(err)
			}
		}
	}
	applied := func(item string) {
		began, got := time.Now(), 0
		for got < keys {
			select {
			case <-a.news:
			case <-ctx.Done():
				t.Fatalf("of %q: %d of %d were applied", item, got, keys)
			}
			got = 0
			a.mu.Lock()
			for _, items := range a.seen {
				if items[len(items)-1] == item {
					got++
				}
			}
			a.mu.Unlock()
		}
		t.Logf("%s: after %v", item, time.Since(began).Round(time.Millisecond))
	}
	publish("before")
	applied("before")
	way.Refuse()
	publish("without two nodes")
	applied("without two nodes")
	way.Pass()
	publish("after")
	applied("after")
}
