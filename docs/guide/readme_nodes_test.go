package guide_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/redis"
)

// invoiceTables is the tables of what the README shows, in PostgreSQL.
func invoiceTables(ctx context.Context, db keyhold.SQL) error {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS invoices (number BIGINT GENERATED ALWAYS AS IDENTITY, client TEXT, order_id TEXT)`)
	return err
}

// shopNode is one process of many, as the README has it.
func shopNode(databaseURL, redisURL string, tables func(ctx context.Context, db keyhold.SQL) error) *keyhold.App {
	app := keyhold.New(keyhold.Config{
		Name:      "shop",
		Store:     postgres.New(postgres.Config{URL: databaseURL, Setup: tables}), // was sqlite.New(sqlite.Config{Path: "shop.db", Setup: tables})
		Transport: redis.Open(redisURL),                                           // was local.New()
	})
	return app
}

// Three processes' worth of it, of which one goes in the middle, do everything once and keep the order of each client.
func TestTheTwoLinesOfTheREADMEMakeManyNodes(t *testing.T) {
	t.Parallel()
	db, at := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()+"?ttl=10s"
	const clients, each = 10, 10
	done := make(chan struct{}, 2*clients*each)
	invoices := keyhold.Handler[struct{}]{
		Name: "invoices", Categories: []string{"order"}, SequentialBy: "client_id", StartFrom: keyhold.Oldest,
		New: func(string) struct{} { return struct{}{} },
		On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, ctx keyhold.Context, e orders.OrderPlaced) error {
			_, err := ctx.Tx().ExecContext(ctx, `INSERT INTO invoices (client, order_id) VALUES ($1, $2)`, e.ClientID, e.OrderID)
			if err == nil {
				done <- struct{}{}
			}
			return err
		})},
	}
	var nodes []*keyhold.App
	for range 3 {
		app := shopNode(db, at, invoiceTables)
		app.Register(keyhold.Category{Name: "order", Key: "client_id", Events: []keyhold.EventType{keyhold.EventOf[orders.OrderPlaced]()}}, invoices)
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, app)
		t.Cleanup(func() {
			if err := app.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	want := map[string][]string{}
	for n := range each {
		if n == each/2 {
			if err := nodes[2].Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			nodes = nodes[:2]
		}
		for c := range clients {
			client, order := fmt.Sprint("client-", c), fmt.Sprintf("o-%d-%d", c, n)
			event := orders.OrderPlaced{OrderID: order, ClientID: client, Total: orders.Euros(42)}
			if err := keyhold.Publish(t.Context(), nodes[n%len(nodes)], event); err != nil {
				t.Fatal(err)
			}
			want[client] = append(want[client], order)
		}
	}
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range clients * each {
		select {
		case <-done:
		case <-patience.Done():
			t.Fatal("not everything was applied within a minute")
		}
	}
	if got := invoiced(t, nodes[0], clients*each); !cmp.Equal(want, got) {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
}

// invoiced gives the orders of each client as they were invoiced, when there are so many.
func invoiced(t *testing.T, app *keyhold.App, count int) map[string][]string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		got, total := map[string][]string{}, 0
		err := keyhold.Do(t.Context(), app, func(u keyhold.UnitOfWork) error {
			rows, err := u.Tx().QueryContext(u, `SELECT client, order_id FROM invoices ORDER BY number`)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var client, order string
				if err := rows.Scan(&client, &order); err != nil {
					return err
				}
				got[client] = append(got[client], order)
				total++
			}
			return rows.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		if total >= count || time.Now().After(deadline) { // the last behavior may not have committed yet
			return got
		}
	}
}
