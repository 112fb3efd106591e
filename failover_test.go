package keyhold_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// A standby that takes over may lack that units and parts were raised, though their leases are held on Redis.
func TestAFailoverThatLosesWhatWasRaised(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	a := &applied{seen: map[string][]string{}, news: make(chan struct{}, 10_000)}
	app := run(t, onRedis(postgres.Open(db), url, "one"), cart, losses, a.handler())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	publish := func(n int) {
		for k := range 10 {
			if err := keyhold.Publish(ctx, app, itemLost{fmt.Sprint("client-", k), fmt.Sprint(n)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	wait := func() {
		for range 10 {
			select {
			case <-a.news:
			case <-ctx.Done():
				a.mu.Lock()
				defer a.mu.Unlock()
				t.Fatalf("not all was applied: %v", a.seen)
			}
		}
	}
	publish(1)
	wait()
	raw, err := pgx.Connect(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close(context.WithoutCancel(ctx))
	if _, err := raw.Exec(ctx, `UPDATE keyhold_units SET generation = generation - 1 WHERE generation > 1`); err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Exec(ctx, `DELETE FROM keyhold_units WHERE generation = 1`); err != nil {
		t.Fatal(err)
	}
	publish(2)
	wait()
}
