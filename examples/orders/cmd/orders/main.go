// Command orders is the shop as an HTTP server on one SQLite file. A program without a server of its own calls keyhold.Main
// and needs none of the lines about signals.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport/local"
)

func main() {
	db := flag.String("db", "orders.db", "database file; it is made when it is not there")
	listen := flag.String("listen", "127.0.0.1:8080", "address of the HTTP server")
	flag.Parse()
	if err := run(*db, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(db, listen string) (err error) {
	store := sqlite.New(sqlite.Config{Path: db, Setup: orders.CreateTables})
	app := keyhold.New(keyhold.Config{Name: "orders", Store: store, Transport: local.New()})
	carrier := orders.FlatRate{Cents: 490, Takes: 20 * time.Millisecond}
	app.Register(orders.Order, orders.Payment, orders.Settlement, orders.Shipping(carrier), orders.Clients)

	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
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
