// Command orders is the shop as an HTTP server on one SQLite file. A program without a server of its own calls keyhold.Main
// and needs none of the lines about signals. Its command admin is Keyhold's, for whoever operates the shop: orders admin status.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold"
	operator "github.com/keyhold/keyhold/cmd/keyhold/command"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport/local"
)

func main() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := operator.Execute(ctx, program())
	release()
	os.Exit(code)
}

const database = "orders.db"

func program() *cobra.Command {
	var db, listen string
	c := &cobra.Command{
		Use:   "orders",
		Short: "Run the shop",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return run(c.Context(), db, listen) },

		SilenceUsage: true,
	}
	c.Flags().StringVar(&db, "db", database, "database file; it is made when it is not there")
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address of the HTTP server")
	c.AddCommand(operator.New(operator.Options{Name: "admin", DB: database}))
	return c
}

func run(ctx context.Context, db, listen string) (err error) {
	store := sqlite.New(sqlite.Config{Path: db, Setup: orders.CreateTables})
	app := keyhold.New(keyhold.Config{Name: "orders", Store: store, Transport: local.New()})
	carrier := orders.FlatRate{Cents: 490, Takes: 20 * time.Millisecond}
	app.Register(orders.Order, orders.Payment, orders.Settlement, orders.Shipping(carrier), orders.Clients)

	if err := app.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, patiently(app.Stop)) }()

	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(app, store.Reader()), ReadHeaderTimeout: 5 * time.Second}
	down := make(chan error, 1)
	context.AfterFunc(ctx, func() { down <- patiently(server.Shutdown) })
	fmt.Printf("orders: http://%s, events and tables in %s\n", listener.Addr(), db)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-down
}

// patiently lets stop take its time, but not for ever.
func patiently(stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return stop(ctx)
}
