package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/signal"
)

// bundle is a started store and what a test needs beside it.
type bundle struct {
	*testing.T
	store   *Store
	id      eventstore.Identity
	path    string
	notices signal.Signal[eventstore.Notice]
}

// setup starts a store of its own for a test, with a table of the application in it. tune may change the writer before it starts.
func setup(t *testing.T, tune ...func(*Store)) *bundle {
	t.Helper()
	b := &bundle{T: t, path: filepath.Join(t.TempDir(), "store.db")}
	b.notices.Init(t)
	b.store = New(Config{Path: b.path, Setup: createShipments})
	b.store.tune = func(w *writer) {
		w.signals.queued.Init(t)
		w.signals.committed.Init(t)
		w.groupTime = time.Hour // so that the size of a group does not depend on the machine
	}
	for _, f := range tune {
		f(b.store)
	}
	b.start()
	t.Cleanup(func() {
		if err := b.store.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return b
}

func createShipments(ctx context.Context, db eventstore.SQL) error {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS shipments (id TEXT PRIMARY KEY, n INTEGER NOT NULL DEFAULT 0)`)
	return err
}

func (b *bundle) start() {
	b.Helper()
	id, err := b.store.Start(b.Context(), eventstore.StartOptions{Node: "orders@test", Observe: b.notices.Send})
	if err != nil {
		b.Fatal(err)
	}
	b.id = id
}

func (b *bundle) stop() {
	b.Helper()
	if err := b.store.Stop(b.Context()); err != nil {
		b.Fatalf("stop: %v", err)
	}
}

func (b *bundle) writer() *writer { return b.store.opened.Load().writer }

// visit begins a unit of work and opens its door.
func (b *bundle) visit(ctx context.Context) (eventstore.Tx, eventstore.SQL) {
	b.Helper()
	tx := b.store.Begin(b.Name())
	db, err := tx.SQL(ctx)
	if err != nil {
		b.Fatalf("SQL: %v", err)
	}
	b.Cleanup(func() { _ = tx.Rollback() }) // so that a test that failed does not keep the writer
	return tx, db
}

func (b *bundle) exec(db eventstore.SQL, query string, args ...any) {
	b.Helper()
	if _, err := db.ExecContext(b.Context(), query, args...); err != nil {
		b.Fatalf("%s: %v", query, err)
	}
}

// background runs f in a goroutine of its own; the error comes through the channel.
func background(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// commit commits in a goroutine of its own, once the writer has it in its queue.
func (b *bundle) commit(c eventstore.Changes) <-chan error {
	b.Helper()
	result := background(func() error {
		_, err := b.store.Begin("queued").Commit(b.Context(), c)
		return err
	})
	b.writer().signals.queued.WaitFor(b, func(who string) bool { return who == "queued" })
	return result
}

func (b *bundle) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// shipments counts the rows of the application, as a reader sees them.
func (b *bundle) shipments() int {
	b.Helper()
	var n int
	b.must(b.store.Reader().QueryRowContext(b.Context(), `SELECT count(*) FROM shipments`).Scan(&n))
	return n
}

// tail is the last sequence of the lane that publish writes to.
func (b *bundle) tail() event.Sequence {
	b.Helper()
	n, err := b.store.LaneTail(b.Context(), event.LaneRef{Category: "order", Key: "a"})
	b.must(err)
	return n
}

// publish is an event with that id.
func publish(id string) eventstore.Changes {
	return eventstore.Changes{Publish: []event.Envelope{{
		ID: id, Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte(`{}`), Category: "order", Key: "a",
		Time: time.UnixMilli(1_750_000_000_000).UTC(),
	}}}
}

// emit is one event of an entity.
func emit(id string, expected uint64) eventstore.Changes {
	return eventstore.Changes{Append: []eventstore.Append{{
		Stream: event.Stream{Kind: "order", ID: id}, Expected: expected, Events: publish(fmt.Sprintf("%s-%d", id, expected+1)).Publish,
	}}}
}

// raw opens the file past the store, as another program would.
func (b *bundle) raw() *sql.DB {
	b.Helper()
	db, err := sql.Open("sqlite", dsn(b.path, params()))
	b.must(err)
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}
