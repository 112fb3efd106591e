// Command orders is the shop as an HTTP server: one process on a SQLite file, or any number of them on PostgreSQL and Redis. A
// program without a server of its own calls keyhold.Main and needs none of the lines about signals. Its command admin is
// Keyhold's, for whoever operates the shop: orders admin status.
package main

import (
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
	var db, redis, listen string
	c := &cobra.Command{
		Use:   "orders",
		Short: "Run the shop",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return run(c.Context(), db, redis, listen) },

		SilenceUsage: true,
	}
	c.Flags().StringVar(&db, "db", database, "SQLite file, which is made when it is not there, or the postgres:// URL of a database")
	c.Flags().StringVar(&redis, "redis", "", "redis:// URL, for several processes on one PostgreSQL database; none: this process is alone")
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address of the HTTP server")
	c.AddCommand(operator.New(operator.Options{Name: "admin", DB: database}))
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

func run(ctx context.Context, db, redis, listen string) (err error) {
	store := storeIn(db)
	app := keyhold.New(keyhold.Config{Name: "orders", Store: store, Transport: carriedBy(redis)})
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
	fmt.Printf("orders: http://%s, events and tables in %s\n", listener.Addr(), place(db))
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
