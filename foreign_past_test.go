package keyhold_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/redis"
)

// TestAProducerWhoseStoreWentBackIsNoticedByItsReaders: also when its lane had left Redis, so that only the reader can know of the other history. What the producer publishes up to
// where the reader is would be passed over without a word.
func TestAProducerWhoseStoreWentBackIsNoticedByItsReaders(t *testing.T) {
	t.Parallel()
	a := abroad{redisserver.Run(t, redisserver.Options{}), t.TempDir()}
	config := func(name string) keyhold.Config {
		cfg := onRedis(a.file(name+".db"), a.server.URL(), name)
		cfg.HealAfter = time.Second
		cfg.Transport = redis.New(redis.Config{URL: a.server.URL(), TTL: time.Second, RetireAfter: 2 * time.Second})
		return cfg
	}
	shop := keyhold.New(config("shop"))
	shop.Register(sales)
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newBooks()
	reader := run(t, config("books"), theirs, b.handler(keyhold.Oldest))
	sell(t, shop, "ada", 1, 2)
	b.has(t, 2)
	stop(t, shop)
	a.copy(t, "shop.db", "backup.db")
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	sell(t, shop, "ada", 3, 5)
	b.has(t, 3)
	a.until(t, func() bool { return a.length(t, "sale:ada") == 0 }) // it is retired
	stop(t, shop)

	a.copy(t, "backup.db", "shop.db")
	if err := shop.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, shop) })
	sell(t, shop, "ada", 13, 16) // with the sequences 3 to 6, of which the reader has 5
	var halts []keyhold.Halted
	a.until(t, func() bool {
		var err error
		if halts, err = reader.Halts(t.Context(), "books", keyhold.Unit{}, 10); err != nil {
			t.Fatal(err)
		}
		return len(halts) > 0
	})
	if h := halts[0]; h.Reason != "diverged" || h.Sequence != 6 || !strings.Contains(h.Error, "went back in time") {
		t.Errorf("halted %+v", h)
	}
	b.are(t, map[string][]string{"ada": numbers(1, 5)})

	view, err := reader.Admin().Unit(t.Context(), keyhold.Unit{Name: "books", Key: "ada"}, admin.ShowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Admin().Act(t.Context(), admin.ActRequest{Kind: eventstore.ActRetry, Handler: "books", Key: "ada", Expect: view.Expect, Actor: "ann", Reason: "the books are mended"}); err != nil {
		t.Fatal(err)
	}
	b.has(t, 1)
	b.are(t, map[string][]string{"ada": append(numbers(1, 5), "16")})
}

// copy puts the database of an application that is stopped into the place of another one.
func (a abroad) copy(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		content, err := os.ReadFile(filepath.Join(a.dir, from+suffix))
		switch {
		case os.IsNotExist(err):
			_ = os.Remove(filepath.Join(a.dir, to+suffix))
		case err != nil:
			t.Fatal(err)
		default:
			if err := os.WriteFile(filepath.Join(a.dir, to+suffix), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
