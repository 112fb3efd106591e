package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/keyhold/keyhold"
	operator "github.com/keyhold/keyhold/cmd/keyhold/command"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport/local"
)

// strike is a carrier that refuses until it is over.
type strike struct{ over atomic.Bool }

func (s *strike) Quote(context.Context, orders.OrderPlaced) (int64, error) {
	if !s.over.Load() {
		return 0, errors.New("the carrier is on strike")
	}
	return 490, nil
}

// until ends a command that goes on by itself as soon as it has shown a text.
type until struct {
	bytes.Buffer
	text string
	seen context.CancelFunc
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.Buffer.Write(p)
	if strings.Contains(u.String(), u.text) {
		u.seen()
	}
	return n, err
}

// The shop runs; whoever operates it finds out what is wrong and sets it going again, with nothing but the command.
func TestAnOperatorMendsTheShopWhileItRuns(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "orders.db")
	carrier := new(strike)
	store := sqlite.New(sqlite.Config{Path: db, Setup: orders.CreateTables})
	app := keyhold.New(keyhold.Config{Name: "orders", Store: store, Transport: local.New(), Logger: slog.New(slog.DiscardHandler)})
	app.Register(orders.Order, orders.Payment, orders.Settlement, orders.Shipping(carrier), orders.Clients)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer app.Stop(context.Background())

	admin := func(ctx context.Context, out *until, line string) (code int) {
		var errs bytes.Buffer
		c := program()
		c.SetArgs(append([]string{"admin", "--db", db}, strings.Split(line, " ")...))
		c.SetOut(out)
		c.SetErr(&errs)
		code = operator.Execute(ctx, c)
		t.Logf("$ orders admin %s\n%s%s--- exit %d", line, out, &errs, code)
		out.WriteString(errs.String())
		return code
	}
	does := func(line string, code int, says string) {
		t.Helper()
		out := &until{seen: func() {}}
		if got := admin(t.Context(), out, line); got != code || !strings.Contains(out.String(), says) {
			t.Errorf("%s: exit %d, want %d and %q:\n%s", line, got, code, says, out)
		}
	}
	shows := func(line, text string) {
		t.Helper()
		ctx, seen := context.WithCancel(t.Context())
		defer seen()
		out := &until{text: text, seen: seen}
		if code := admin(ctx, out, line+" --watch --every 20ms"); code != operator.ExitOK {
			t.Fatalf("%s: exit %d before it showed %q:\n%s", line, code, text, out)
		}
	}
	place := func(id string) {
		t.Helper()
		if _, err := keyhold.Ask[any](t.Context(), app, orders.Order.ID(id), &orders.PlaceOrder{ClientID: "c-3", Cents: 4200}); err != nil {
			t.Fatal(err)
		}
	}

	place("o-1")
	shows("partitions show shipping c-3", "c-3: halted")
	does("status", operator.ExitDegraded, "1 key of shipping is halted")
	does("why order c-3", operator.ExitOK, "the carrier is on strike")
	does("events cat order c-3", operator.ExitOK, `"order_id":"o-1"`)

	place("o-2") // behind it
	carrier.over.Store(true)
	does("partitions retry shipping c-3 --expect 1 --reason over", operator.ExitOK, "done: retry shipping c-3")
	shows("partitions show shipping c-3", "c-3: done")
	does("partitions retry shipping c-3 --expect 1", operator.ExitMoved, "This is how it stands now")

	carrier.over.Store(false)
	place("o-3")
	shows("partitions show shipping c-3", "c-3: halted")
	does("partitions dlq shipping c-3 --reason later", operator.ExitOK, "dead letter")
	shows("dlq ls shipping", "c-3")
	does("dlq replay shipping c-3 3 --wait", operator.ExitError, "is over, 1 dead letter failed")
	carrier.over.Store(true)
	does("dlq replay shipping c-3 3 --wait", operator.ExitOK, "1 of 1")
	does("dlq ls", operator.ExitOK, "There are no dead letters.")
	shows("status", "healthy")
	does("audit shipping", operator.ExitOK, "start job")

	var shipped int
	row := store.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM shipments WHERE client_id = 'c-3'`)
	if err := row.Scan(&shipped); err != nil || shipped != 3 {
		t.Errorf("%d orders are shipped, want 3: %v", shipped, err)
	}
}
