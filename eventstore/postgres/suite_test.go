package postgres

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/eventstoretest"
	"github.com/keyhold/keyhold/internal/postgresserver"
)

func TestStoreKeepsThePromisesOfThePort(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(t *testing.T) eventstoretest.Harness {
		config := place(t)
		store := process(t, config)
		id, err := store.Start(t.Context(), eventstore.StartOptions{Node: "first"})
		if err != nil {
			t.Fatal(err)
		}
		last := store
		return eventstoretest.Harness{
			Store: store, Identity: id, Postgres: true,
			Reopen: func() eventstore.Store {
				last = process(t, config)
				return last
			},
			Crash: func() { crash(t, last) },
			Own:   func() eventstoretest.Own { return ownTx(t, beginOwn(t, config)) },
		}
	})
}

// beginOwn begins a transaction as an application does by pgx.
func beginOwn(t *testing.T, c Config) pgx.Tx {
	t.Helper()
	r, err := c.resolve()
	if err != nil {
		t.Fatal(err)
	}
	tx, err := session(t, r).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func ownTx(t *testing.T, tx pgx.Tx) eventstoretest.Own {
	return eventstoretest.Own{
		SQL: Tx(tx), Commit: func() error { return tx.Commit(t.Context()) }, Rollback: func() error { return ignoreClosed(tx.Rollback(context.Background())) },
	}
}

// place gives an empty schema of its own in a database that the tests of this binary share.
func place(t *testing.T) Config {
	t.Helper()
	server := postgresserver.Shared(t)
	schema := fmt.Sprintf("test_%d", schemas.Add(1))
	return Config{URL: server.URL("postgres"), Schema: schema, MaxConns: 8, Readers: 4}
}

// process makes a store as a process has it: its sessions have a name by which they are found.
func process(t *testing.T, c Config) *Store {
	t.Helper()
	c.URL = named(t, c.URL, fmt.Sprintf("%s %d", c.Schema, processes.Add(1)))
	return New(c)
}

var schemas, processes atomic.Int64

// named has sessions carry a name by which a test finds them.
func named(t *testing.T, text, name string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("application_name", name)
	u.RawQuery = query.Encode()
	return u.String()
}

// crash ends a store as the death of its process would: its sessions end where they are, and it does nothing more.
func crash(t *testing.T, s *Store) {
	t.Helper()
	o := s.opened.Load()
	if o == nil {
		t.Fatal("the store is not started")
	}
	killSessions(t, session(t, o.config), o.config)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(over); err != nil {
		t.Logf("stop of what crashed: %v", err)
	}
}

// session makes a connection of the test's own.
func session(t *testing.T, r *resolved) *pgx.Conn {
	t.Helper()
	conn, err := r.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// killSessions ends the sessions of a process, but for the one that does it.
func killSessions(t *testing.T, conn *pgx.Conn, r *resolved) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()`,
		r.pool.ConnConfig.RuntimeParams["application_name"]); err != nil {
		t.Fatal(err)
	}
}
