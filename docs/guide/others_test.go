package guide_test

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/redis"
)

// The sample of others.md. Both applications are in one test here, so the type that the producer has is the reader's.

type SaleSeen struct {
	ClientID string `json:"client_id"`
	Cents    int    `json:"cents"`
}

var _ = keyhold.Type[SaleSeen]("sale.made", 1)

func TestTheBooksReadWhatTheShopProduces(t *testing.T) {
	t.Parallel()
	dir, server := t.TempDir(), redisserver.Run(t, redisserver.Options{})
	application := func(name string) *keyhold.App {
		return keyhold.New(keyhold.Config{Name: name, Store: sqlite.Open(filepath.Join(dir, name+".db")), Transport: redis.Open(server.URL())})
	}
	start := func(app *keyhold.App) {
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := app.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	shop, books := application("shop"), application("books")
	shop.Register(keyhold.Category{Name: "sale", Key: "client_id", Events: []keyhold.EventType{keyhold.EventOf[SaleSeen]()}})
	books.Register(
		keyhold.Category{Name: "sale", Key: "client_id", Foreign: true, Events: []keyhold.EventType{keyhold.EventOf[SaleSeen]()}},
		keyhold.Handler[struct{}]{
			Name: "invoices", Categories: []string{"sale"}, SequentialBy: "client_id", StartFrom: keyhold.Oldest,
			New: func(string) struct{} { return struct{}{} },
			On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, ctx keyhold.Context, e SaleSeen) error {
				_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO invoices (client, cents) VALUES ($1, $2)`, e.ClientID, e.Cents)
				return err
			})},
		},
	)
	start(shop)
	start(books)
	err := keyhold.Do(t.Context(), books, func(w keyhold.UnitOfWork) error {
		_, err := w.Tx().ExecContext(w, `CREATE TABLE invoices (client TEXT NOT NULL, cents INTEGER NOT NULL)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for cents := 1; cents <= 3; cents++ {
		if err := keyhold.Publish(t.Context(), shop, SaleSeen{ClientID: "client-123", Cents: cents}); err != nil {
			t.Fatal(err)
		}
	}
	over := time.Now().Add(time.Minute)
	for n, sum := 0, 0; n < 3; {
		if time.Now().After(over) {
			t.Fatalf("only %d invoices of %d in all", n, sum)
		}
		if _, err := server.Do(t.Context(), "BLPOP", "nobody:pushes:here", "0.05"); err != nil && !strings.Contains(err.Error(), "nil") {
			t.Fatal(err)
		}
		err := keyhold.Do(t.Context(), books, func(w keyhold.UnitOfWork) error {
			return w.Tx().QueryRowContext(w, `SELECT count(*), coalesce(sum(cents), 0) FROM invoices`).Scan(&n, &sum)
		})
		if err != nil {
			t.Fatal(err)
		}
		if n == 3 && sum != 6 {
			t.Errorf("invoices of %d in all", sum)
		}
	}
}

// TillSale is what a program without Keyhold writes.
type TillSale struct {
	ClientID string `json:"client_id"`
	Cents    int    `json:"cents"`
}

var _ = keyhold.Type[TillSale]("till.sold", 1)

func TestTheBooksTakeInWhatAProgramAppends(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	books := keyhold.New(keyhold.Config{Name: "books", Store: sqlite.Open(filepath.Join(t.TempDir(), "books.db")), Transport: redis.Open(server.URL())})
	books.Register(
		keyhold.Category{Name: "till", Key: "client_id", Polled: "crm.till", Events: []keyhold.EventType{keyhold.EventOf[TillSale]()}},
		keyhold.Handler[struct{}]{
			Name: "receipts", Categories: []string{"till"}, SequentialBy: "client_id", StartFrom: keyhold.Oldest,
			New: func(string) struct{} { return struct{}{} },
			On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, ctx keyhold.Context, e TillSale) error {
				_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO receipts (client, cents) VALUES ($1, $2)`, e.ClientID, e.Cents)
				return err
			})},
		},
	)
	if err := books.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := books.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	err := keyhold.Do(t.Context(), books, func(w keyhold.UnitOfWork) error {
		_, err := w.Tx().ExecContext(w, `CREATE TABLE receipts (client TEXT NOT NULL, cents INTEGER NOT NULL)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// What the page has redis-cli do, the first twice: a program that is not sure does so.
	page := read(t, "others.md")
	for _, command := range regexp.MustCompile(`(?m)^\$ redis-cli (.*)$`).FindAllStringSubmatch(page, -1) {
		var words []any
		for _, word := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(command[1], -1) {
			words = append(words, word[1]+word[2])
		}
		for range 2 {
			if _, err := server.Do(t.Context(), words[0].(string), words[1:]...); err != nil {
				t.Fatal(err)
			}
		}
	}
	over := time.Now().Add(time.Minute)
	for n := 0; n != 1; {
		if time.Now().After(over) {
			t.Fatalf("%d receipts", n)
		}
		if _, err := server.Do(t.Context(), "BLPOP", "nobody:pushes:here", "0.05"); err != nil && !strings.Contains(err.Error(), "nil") {
			t.Fatal(err)
		}
		err := keyhold.Do(t.Context(), books, func(w keyhold.UnitOfWork) error {
			return w.Tx().QueryRowContext(w, `SELECT count(*) FROM receipts WHERE client = 'client-7' AND cents = 250`).Scan(&n)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
