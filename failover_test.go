package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
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

// failingOver is an application on a primary with a standby that lags behind, and on Redis.
type failingOver struct {
	*testing.T
	ctx              context.Context
	primary, standby *postgresserver.Server
	store            *postgres.Store
	app              *keyhold.App
	a                *applied
}

func newFailingOver(t *testing.T) *failingOver {
	t.Helper()
	f := &failingOver{T: t, a: &applied{seen: map[string][]string{}, news: make(chan struct{}, 10_000)}}
	var cancel context.CancelFunc
	f.ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	f.primary = postgresserver.Run(t, postgresserver.Options{})
	f.standby = postgresserver.Run(t, postgresserver.Options{StandbyOf: f.primary})
	f.store = postgres.New(postgres.Config{
		URL:                strings.Replace(f.primary.URL("postgres"), f.primary.Addr(), f.primary.Addr()+","+f.standby.Addr(), 1),
		TransactionTimeout: time.Second,
	})
	f.app = run(t, onRedis(f.store, redisserver.Run(t, redisserver.Options{}).URL(), "one"), cart, losses, f.a.handler())
	return f
}

// until asks a server until it answers true.
func (f *failingOver) until(s *postgresserver.Server, query string, args ...any) {
	f.Helper()
	c, err := s.Connect(f.ctx, "postgres")
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(f.ctx))
	for is := false; !is; {
		if err := c.QueryRow(f.ctx, query, args...).Scan(&is); err != nil {
			f.Fatalf("%s: %v", query, err)
		}
	}
}

// lag has the standby know everything that is committed by now, and nothing that comes later.
func (f *failingOver) lag() {
	f.Helper()
	c, err := f.primary.Connect(f.ctx, "postgres")
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(f.ctx))
	var written string
	if err := c.QueryRow(f.ctx, `SELECT pg_current_wal_flush_lsn()::text`).Scan(&written); err != nil {
		f.Fatal(err)
	}
	f.until(f.standby, `SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn`, written)
	for _, s := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		if err := f.standby.Exec(f.ctx, s); err != nil {
			f.Fatal(err)
		}
	}
	f.until(f.standby, `SELECT count(*) = 0 FROM pg_stat_wal_receiver`)
}

func (f *failingOver) failOver() {
	f.Helper()
	if err := errors.Join(f.primary.Kill(), f.standby.Promote(f.ctx)); err != nil {
		f.Fatal(err)
	}
}

// publish goes on while the database is not there.
func (f *failingOver) publish(client string, items ...string) {
	f.Helper()
	for _, item := range items {
		err := eventstore.ErrTrouble
		for errors.Is(err, eventstore.ErrTrouble) && f.ctx.Err() == nil {
			err = keyhold.Publish(f.ctx, f.app, itemLost{client, item})
		}
		if err != nil {
			f.Fatal(err)
		}
	}
}

// appliedLast waits until these are what a client was given last: what was in a behavior, and could not be committed, is given again.
func (f *failingOver) appliedLast(client string, want ...string) {
	f.Helper()
	for {
		f.a.mu.Lock()
		got := slices.Compact(slices.Clone(f.a.seen[client])) // an attempt that could not be committed is made again
		f.a.mu.Unlock()
		if len(got) >= len(want) && slices.Equal(got[len(got)-len(want):], want) {
			return
		}
		select {
		case <-f.a.news:
		case <-f.ctx.Done():
			f.Fatalf("%s was given %q, and is to be given %q last", client, got, want)
		}
	}
}

// diverged waits until that many lanes are known to have diverged.
func (f *failingOver) diverged(n int) []eventstore.Divergence {
	f.Helper()
	for {
		all, err := f.store.ListDiverged(f.ctx, event.LaneRef{}, 100)
		if len(all) == n {
			return all
		}
		if f.ctx.Err() != nil {
			f.Fatalf("%d lanes diverged, %v, and %d are to: %+v", len(all), err, n, all)
		}
	}
}

// What Redis and handlers have, and the new primary has not, is not mixed with what is published there afterwards; everything is applied, in order, once somebody
// has decided.
func TestAFailoverThatLosesEvents(t *testing.T) {
	t.Parallel()
	f := newFailingOver(t)
	f.publish("ada", "1")
	f.appliedLast("ada", "1")
	f.lag()
	f.publish("ada", "2")
	f.publish("bob", "1") // in a lane that the standby does not know
	f.publish("cid", "1", "2")
	f.appliedLast("ada", "1", "2")
	f.appliedLast("bob", "1")
	f.appliedLast("cid", "1", "2")
	f.failOver()

	f.publish("dan", "1")
	f.appliedLast("dan", "1")
	f.publish("bob", "1'")
	f.publish("ada", "2'")
	f.publish("cid", "1'")
	for _, d := range f.diverged(3) {
		if _, err := f.store.Adopt(f.ctx, d.Position(), "ann", "a failover"); err != nil {
			t.Fatal(err)
		}
	}
	f.publish("ada", "3'")
	f.publish("bob", "2'")
	f.appliedLast("ada", "2", "2'", "3'")
	f.appliedLast("bob", "1", "1'", "2'")
	f.appliedLast("cid", "1", "2", "1'")
	f.appliedLast("dan", "1")
	f.diverged(0)
}
