package keyhold_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/transport/inline"
)

// StockCounted is an event that no entity emits.
type StockCounted struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

var _ = keyhold.Type[StockCounted]("stock.counted", 1)

var Stock = keyhold.Category{
	Name: "stock", Key: "item", Events: []keyhold.EventType{keyhold.EventOf[StockCounted]()},
}

type orderer struct{}

func (orderer) counted(ctx keyhold.Context, e StockCounted) error {
	var row int
	if err := ctx.Tx().QueryRowContext(ctx, `SELECT count FROM stock WHERE item = $1`, e.Item).Scan(&row); err != nil {
		return err
	}
	fmt.Printf("%s: the event says %d, the row says %d\n", e.Item, e.Count, row)
	return nil
}

var Ordering = keyhold.Handler[orderer]{
	Name: "ordering", Categories: []string{"stock"}, SequentialBy: "item", StartFrom: keyhold.Oldest,
	New: func(string) orderer { return orderer{} },
	On:  keyhold.Behavior[orderer]{keyhold.On(orderer.counted)},
}

// A row of the application's own and the event that tells of it are committed together.
func ExamplePublishTx() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	store := sqlite.New(sqlite.Config{
		Path: filepath.Join(dir, "stock.db"),
		Setup: func(ctx context.Context, db keyhold.SQL) error {
			_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count INTEGER)`)
			return err
		},
	})
	app := keyhold.New(keyhold.Config{
		Name: "store", Store: store, Transport: inline.New(), Logger: slog.New(slog.DiscardHandler),
	})
	app.Register(Stock, Ordering)
	if err := app.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer app.Stop(ctx)

	if err := count(ctx, app, "tea", 12); err != nil {
		log.Fatal(err)
	}
	// Output:
	// tea: the event says 12, the row says 12
}

func count(ctx context.Context, app *keyhold.App, item string, n int) error {
	tx, err := app.BeginTx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO stock VALUES ($1, $2)`, item, n); err != nil {
		return err
	}
	if err := keyhold.PublishTx(ctx, app, tx, StockCounted{Item: item, Count: n}); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
