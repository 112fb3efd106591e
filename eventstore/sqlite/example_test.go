package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// A row of the application and an event, in one transaction.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()

	store := sqlite.New(sqlite.Config{
		Path: filepath.Join(dir, "shop.db"),
		Setup: func(ctx context.Context, db eventstore.SQL) error {
			_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS prices (item TEXT PRIMARY KEY, cents INTEGER NOT NULL)`)
			return err
		},
	})
	if _, err := store.Start(ctx, eventstore.StartOptions{Node: "shop"}); err != nil {
		panic(err)
	}
	defer store.Stop(ctx)

	tx, err := store.BeginTx(ctx, "price import")
	if err != nil {
		panic(err)
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO prices VALUES ($1, $2)`, "tea", 420); err != nil {
		panic(err)
	}
	if err := tx.Stage(eventstore.Changes{Publish: []event.Envelope{{
		ID: event.NewID(), Type: "price.changed", Version: 1, Encoding: event.JSON, Data: []byte(`{"item":"tea","cents":420}`),
		Category: "price", Key: "tea",
	}}}); err != nil {
		panic(err)
	}
	if err := tx.Commit(ctx); err != nil {
		panic(err)
	}

	var cents int
	if err := store.Reader().QueryRowContext(ctx, `SELECT cents FROM prices WHERE item = 'tea'`).Scan(&cents); err != nil {
		panic(err)
	}
	events, err := store.ReadLane(ctx, event.LaneRef{Category: "price", Key: "tea"}, 0, 10)
	if err != nil {
		panic(err)
	}
	fmt.Println(cents, events[0].Type, events[0].Sequence)
	// Output: 420 price.changed 1
}
