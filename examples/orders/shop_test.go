package orders_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport/inline"
)

// shop is the application under test. The inline transport delivers before a command is answered: so when an ask returns, all
// handlers are through, and a test can look at their tables at once.
type shop struct {
	*keyhold.App
	carrier *carrier
	store   *sqlite.Store
}

// open starts a shop on an empty database, and stops it with the test.
func open(t *testing.T) *shop {
	t.Helper()
	s := &shop{carrier: &carrier{}}
	s.store = sqlite.New(sqlite.Config{Path: filepath.Join(t.TempDir(), "orders.db"), Setup: orders.CreateTables})
	s.App = keyhold.New(keyhold.Config{Name: "orders", Store: s.store, Transport: inline.New(), Logger: slog.New(slog.DiscardHandler)})
	s.Register(orders.Order, orders.Payment, orders.Settlement, orders.Shipping(s.carrier), orders.Clients)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// restart stops the shop and starts it again on its database.
func (s *shop) restart(t *testing.T) {
	t.Helper()
	if err := errors.Join(s.Stop(t.Context()), s.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func (s *shop) place(t *testing.T, id, client string) {
	t.Helper()
	s.placeFor(t, id, client, 4200)
}

func (s *shop) placeFor(t *testing.T, id, client string, cents int64) {
	t.Helper()
	if _, err := keyhold.Ask[*orders.Done](t.Context(), s.App, orders.Order.ID(id), &orders.PlaceOrder{ClientID: client, Cents: cents}); err != nil {
		t.Fatal(err)
	}
}

func (s *shop) pay(t *testing.T, payment, order string, cents int64) {
	t.Helper()
	_, err := keyhold.Ask[*orders.Done](t.Context(), s.App, orders.Payment.ID(payment), &orders.ReceivePayment{OrderID: order, Cents: cents})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *shop) get(t *testing.T, id string) orders.View {
	t.Helper()
	view, err := keyhold.Ask[*orders.View](t.Context(), s.App, orders.Order.ID(id), &orders.GetOrder{})
	if err != nil {
		t.Fatal(err)
	}
	return *view
}

// shipped gives the orders of a client that were shipped, in order of shipping.
func (s *shop) shipped(t *testing.T, client string) []string {
	t.Helper()
	return s.column(t, `SELECT order_id FROM shipments WHERE client_id = $1 ORDER BY id`, client)
}

// column gives the first column of a query, as text.
func (s *shop) column(t *testing.T, query string, args ...any) []string {
	t.Helper()
	rows, err := s.store.Reader().QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var column []string
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
		column = append(column, value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return column
}

// carrier is the carrier of a test: it does what the test says, and remembers what it was asked.
type carrier struct {
	mu struct {
		sync.Mutex
		quote func(order string) (int64, error)
		asked []string
	}
}

func (c *carrier) does(quote func(order string) (int64, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.quote = quote
}

// refuses has the carrier refuse one order, "" for none.
func (c *carrier) refuses(order string) {
	c.does(func(asked string) (int64, error) {
		if asked == order {
			return 0, fmt.Errorf("no such address")
		}
		return 490, nil
	})
}

func (c *carrier) askedFor() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.mu.asked...)
}

func (c *carrier) Quote(_ context.Context, e orders.OrderPlaced) (int64, error) {
	c.mu.Lock()
	c.mu.asked = append(c.mu.asked, e.OrderID)
	quote := c.mu.quote
	c.mu.Unlock()
	if quote == nil {
		return 490, nil
	}
	return quote(e.OrderID)
}
