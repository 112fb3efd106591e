package keyhold_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/internal/proxy"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// TestRepliesThatAreLostLoseNothing has the replies to calls of all kinds get lost while 50 keys have work, so that each call carries many of them: none knows what became of it, and
// each goes on from what the store says.
func TestRepliesThatAreLostLoseNothing(t *testing.T) {
	t.Parallel()
	const keys, each, losses = 50, 12, 40
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	server := redisserver.Run(t, redisserver.Options{})
	line := proxy.Run(t, server.Addr())
	store := sqlite.New(sqlite.Config{Path: filepath.Join(t.TempDir(), "shop.db"), Setup: func(ctx context.Context, db eventstore.SQL) error {
		_, err := db.ExecContext(ctx, `CREATE TABLE taken (n INTEGER PRIMARY KEY AUTOINCREMENT, client TEXT NOT NULL, item TEXT NOT NULL)`)
		return err
	}})
	takes := keyhold.Handler[int]{
		Name: "takes", Categories: []string{"sale"}, SequentialBy: "client", StartFrom: keyhold.Oldest, New: func(string) int { return 0 },
		On: keyhold.Behavior[int]{keyhold.On(func(_ int, ctx keyhold.Context, e itemSold) error {
			_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO taken (client, item) VALUES (?, ?)`, e.Client, e.Item)
			return err
		})},
	}
	cfg := onRedis(store, "redis://"+line.Addr(), "shop")
	cfg.HealAfter, cfg.IdleAfter = 2*time.Second, 50*time.Millisecond // so that units come and go
	app := run(t, cfg, sales, takes)
	want, lost := map[string][]string{}, 0
	for n := range each {
		var all []any
		for k := range keys {
			client := fmt.Sprint("client-", k)
			all = append(all, itemSold{client, strconv.Itoa(n)})
			want[client] = append(want[client], strconv.Itoa(n))
		}
		if err := keyhold.Publish(t.Context(), app, all...); err != nil {
			t.Fatal(err)
		}
		for range losses / each {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			select {
			case <-line.LoseReply("", random.IntN(12), false):
				lost++
			case <-ctx.Done(): // that one was to something that is not answered
			}
			cancel()
		}
	}
	if lost < losses/2 {
		t.Errorf("%d replies were lost, which shows little", lost)
	}
	applied := func() (by map[string][]string, count int) {
		by = map[string][]string{}
		rows, err := store.Reader().QueryContext(t.Context(), `SELECT client, item FROM taken ORDER BY n`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for ; rows.Next(); count++ {
			var client, item string
			if err := rows.Scan(&client, &item); err != nil {
				t.Fatal(err)
			}
			by[client] = append(by[client], item)
		}
		return by, count
	}
	soon(t, "all is applied", func() bool { _, count := applied(); return count >= keys*each })
	soon(t, "nothing is left to be done, which may be to apply something twice", func() bool {
		unpublished := 0
		if err := store.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM keyhold_unpublished`).Scan(&unpublished); err != nil {
			t.Fatal(err)
		}
		busy, err := server.Do(t.Context(), "SCARD", "takes:__busy__")
		if err != nil {
			t.Fatal(err)
		}
		return unpublished == 0 && busy == int64(0)
	})
	got, _ := applied()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("applied (-published +applied):\n%s", diff)
	}
}
