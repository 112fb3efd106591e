package guide_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/transport/inline"
	"github.com/keyhold/keyhold/transport/local"
)

// The samples of publishing.md: a grocer whose prices are events.

type (
	PriceSet struct {
		Item  string `json:"item"`
		Cents int    `json:"cents"`
	}
	Relabel   struct{ Cents int }
	Relabeled struct{ Cents int }
)

var (
	_ = keyhold.Type[PriceSet]("price.set", 1)
	_ = keyhold.Type[Relabel]("shelf.relabel", 1)
	_ = keyhold.Type[Relabeled]("shelf.relabelled", 1)
)

// Shelf has a label with a price.
var Shelf = keyhold.Entity[int]{
	Kind: "shelf", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, in *Relabel) (*Done, error) {
		c.Emit(Relabeled(*in))
		return nil, nil
	})},
	Queries: keyhold.Queries[int]{keyhold.OnQuery(func(_ keyhold.Query, cents int, _ *Lend) (*Relabeled, error) { return &Relabeled{cents}, nil })},
	Fold:    keyhold.Fold[int]{keyhold.OnEvent(func(_ int, e Relabeled) int { return e.Cents })},
}

func TestPricesArePublished(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	store := sqlite.New(sqlite.Config{Path: filepath.Join(t.TempDir(), "grocer.db"), Setup: func(ctx context.Context, db eventstore.SQL) error {
		_, err := db.ExecContext(ctx, `CREATE TABLE prices (item TEXT, cents INTEGER)`)
		if err == nil {
			_, err = db.ExecContext(ctx, `INSERT INTO prices VALUES ('tea', 400)`)
		}
		return err
	}})
	app := keyhold.New(keyhold.Config{Name: "grocer", Store: store, Transport: inline.New(), Logger: slog.New(slog.DiscardHandler)})
	heard := map[string][]int{}
	app.Register(keyhold.Category{Name: "price", Key: "item", Events: []keyhold.EventType{keyhold.EventOf[PriceSet]()}})
	app.Register(Shelf, keyhold.Handler[struct{}]{
		Name: "crier", Categories: []string{"price"}, SequentialBy: "item", New: func(string) struct{} { return struct{}{} },
		On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, _ keyhold.Context, e PriceSet) error {
			heard[e.Item] = append(heard[e.Item], e.Cents)
			return nil
		})},
	})
	if err := app.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer app.Stop(context.Background())

	for _, publish := range []func(context.Context, *keyhold.App) error{publishAlone, publishTogether, publishInTx} {
		if err := publish(ctx, app); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(map[string][]int{"tea": {420, 430, 440}, "jam": {310}}, heard); d != "" {
		t.Errorf("what was heard (-want +got):\n%s", d)
	}
	var cents int
	if err := store.Reader().QueryRowContext(ctx, `SELECT cents FROM prices WHERE item = 'tea'`).Scan(&cents); err != nil || cents != 440 {
		t.Errorf("the row says %d, %v", cents, err)
	}
	label, err := keyhold.Ask[*Relabeled](ctx, app, Shelf.ID("tea"), &Lend{})
	if err != nil || label.Cents != 430 {
		t.Errorf("the label says %v, %v", label, err)
	}
}

func TestPricesArePublishedInATransactionOfPgx(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	database := postgresserver.Database(t)
	store := postgres.New(postgres.Config{URL: database, Schema: "grocer", Setup: func(ctx context.Context, db eventstore.SQL) error {
		_, err := db.ExecContext(ctx, `CREATE TABLE public.prices (item TEXT, cents INTEGER); INSERT INTO public.prices VALUES ('tea', 400)`)
		return err
	}})
	app := keyhold.New(keyhold.Config{Name: "grocer", Store: store, Transport: local.New(), Logger: slog.New(slog.DiscardHandler)})
	heard := make(chan int, 100)
	app.Register(keyhold.Category{Name: "price", Key: "item", Events: []keyhold.EventType{keyhold.EventOf[PriceSet]()}})
	app.Register(keyhold.Handler[struct{}]{
		Name: "crier", Categories: []string{"price"}, SequentialBy: "item", New: func(string) struct{} { return struct{}{} },
		On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, _ keyhold.Context, e PriceSet) error {
			heard <- e.Cents
			return nil
		})},
	})
	if err := app.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer app.Stop(context.Background())
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := publishInPgx(ctx, app, pool); err != nil {
		t.Fatal(err)
	}
	if cents := <-heard; cents != 450 {
		t.Errorf("heard %d", cents)
	}
	var cents int
	if err := pool.QueryRow(ctx, `SELECT cents FROM prices WHERE item = 'tea'`).Scan(&cents); err != nil || cents != 450 {
		t.Errorf("the row says %d, %v", cents, err)
	}

	tx, err := pool.Begin(ctx) // and now nobody calls Notify
	if err == nil {
		err = keyhold.PublishTx(ctx, app, postgres.Tx(tx), PriceSet{Item: "tea", Cents: 460})
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	if cents := <-heard; cents != 460 {
		t.Errorf("heard %d", cents)
	}
}

func publishInPgx(ctx context.Context, app *keyhold.App, pool *pgxpool.Pool) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) // does nothing after Commit
	if _, err := tx.Exec(ctx, `UPDATE prices SET cents = $1 WHERE item = $2`, 450, "tea"); err != nil {
		return err
	}
	if err := keyhold.PublishTx(ctx, app, postgres.Tx(tx), PriceSet{Item: "tea", Cents: 450}); err != nil { // last, and all events in one call
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	app.Notify() // without it the event is noticed a quarter of a second later
	return nil
}

func publishAlone(ctx context.Context, app *keyhold.App) error {
	err := keyhold.Publish(ctx, app, PriceSet{Item: "tea", Cents: 420}, PriceSet{Item: "jam", Cents: 310}) // all or none
	return err
}

func publishTogether(ctx context.Context, app *keyhold.App) error {
	err := keyhold.Do(ctx, app, func(w keyhold.UnitOfWork) error {
		w.Emit(PriceSet{Item: "tea", Cents: 430})
		w.Send(Shelf.ID("tea"), &Relabel{Cents: 430})
		_, err := w.Tx().ExecContext(w, `UPDATE prices SET cents = $1 WHERE item = $2`, 430, "tea")
		return err
	})
	return err
}

func publishInTx(ctx context.Context, app *keyhold.App) error {
	tx, err := app.BeginTx(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if _, err := tx.ExecContext(ctx, `UPDATE prices SET cents = $1 WHERE item = $2`, 440, "tea"); err != nil {
		return err
	}
	if err := keyhold.PublishTx(ctx, app, tx, PriceSet{Item: "tea", Cents: 440}); err != nil { // all events in one call
		return err
	}
	return tx.Commit(ctx)
}
