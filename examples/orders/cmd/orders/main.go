// Command orders is the shop as an HTTP server: one process on a SQLite file, or any number of them on PostgreSQL and Redis. A
// program without a server of its own calls keyhold.Main and needs none of the lines about signals. Its command admin is
// Keyhold's, for whoever operates the shop: orders admin status.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold"
	operator "github.com/keyhold/keyhold/cmd/keyhold/command"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/local"
	"github.com/keyhold/keyhold/transport/redis"
)

func main() {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := operator.Execute(ctx, program())
	release()
	os.Exit(code)
}

const database = "orders.db"

func program() *cobra.Command {
	var s settings
	c := &cobra.Command{
		Use:   "orders",
		Short: "Run the shop",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return run(c.Context(), s) },

		SilenceUsage: true,
	}
	s.flags(c)
	c.AddCommand(operator.New(operator.Options{Name: "admin", DB: cmp.Or(os.Getenv(variable("db")), database)}), probe())
	return c
}

// storage is a store, with the connections that its tables are read by.
type storage interface {
	eventstore.Store
	Reader() *sql.DB
}

func storeIn(db string) storage {
	if isURL(db) {
		return postgres.New(postgres.Config{URL: db, Setup: orders.CreateTables})
	}
	return sqlite.New(sqlite.Config{Path: db, Setup: orders.CreateTables})
}

func carriedBy(url string) transport.Transport {
	if url != "" {
		return redis.Open(url)
	}
	return local.New()
}

func isURL(db string) bool {
	return strings.HasPrefix(db, "postgres://") || strings.HasPrefix(db, "postgresql://")
}

// place says where the store is, without user and password.
func place(db string) string {
	if u, err := url.Parse(db); err == nil && isURL(db) {
		return "PostgreSQL, " + u.Host + u.Path
	}
	return db
}

func run(ctx context.Context, s settings) (err error) {
	cluster, err := s.network.cluster()
	if err != nil {
		return err
	}
	store := storeIn(s.db)
	app := keyhold.New(keyhold.Config{Name: "orders", Node: s.node, Store: store, Transport: carriedBy(s.redis), Cluster: cluster})
	carrier := orders.FlatRate{Cents: 490, Takes: 20 * time.Millisecond}
	app.Register(orders.Order, orders.Payment, orders.Settlement, orders.Shipping(carrier), orders.Clients)

	unwatch, err := watched(s.health, probes(ctx, app)) // first: a start may take its time, and whoever watches is to know
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unwatch()) }()
	if err := app.Start(ctx); err != nil {
		return err
	}
	// After the signal callers have a quarter of the time to get their answers, and the actors the rest to finish what they have in hand.
	defer func() { err = errors.Join(err, within(s.drain*3/4, app.Stop)) }()

	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(app, store.Reader()), ReadHeaderTimeout: 5 * time.Second}
	down := make(chan error, 1)
	context.AfterFunc(ctx, func() { down <- within(s.drain/4, server.Shutdown) })
	fmt.Printf("orders: http://%s, events and tables in %s\n", listener.Addr(), place(s.db))
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-down
}

// within lets stop take its time, but not for ever.
func within(d time.Duration, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return stop(ctx)
}
