package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/internal/lifecycle"
)

// workerArg is the first argument of the child process.
const workerArg = "worker"

// worker is the application in the child process, together with what lets the parent drive and watch it.
type worker struct {
	app     *keyhold.App
	store   storage
	carrier *carrier
	marker  *marker
	out     io.Writer // safe for concurrent lines, as files are
}

// files are the names of what the demo leaves in its directory.
func databaseIn(dir string) string { return filepath.Join(dir, "orders.db") }
func marksIn(dir string) string    { return filepath.Join(dir, "marks.jsonl") }
func evidenceIn(dir string) string { return filepath.Join(dir, "evidence.json") }
func logIn(dir string) string      { return filepath.Join(dir, "worker.log") }

// role is all that a worker is told.
type role struct {
	at
	incarnation
	refuses string // order that its carrier refuses
}

func (r role) args(dir string) []string {
	return []string{workerArg, "-dir", dir, "-db", r.DB, "-redis", r.Redis,
		"-process", strconv.Itoa(r.number), "-life", strconv.Itoa(r.life), "-refuses", r.refuses}
}

// runWorker is the main function of the child. It works until its input ends, and gives its exit code.
func runWorker(args []string) int {
	flags := flag.NewFlagSet(workerArg, flag.ExitOnError)
	var r role
	dir := flags.String("dir", "", "of the marks")
	flags.StringVar(&r.DB, "db", "", "SQLite file, or URL of a PostgreSQL database")
	flags.StringVar(&r.Redis, "redis", "", "URL of Redis, if any")
	flags.IntVar(&r.number, "process", 1, "number of this process")
	flags.IntVar(&r.life, "life", 1, "which start of that process this is")
	flags.StringVar(&r.refuses, "refuses", "", "order that the carrier refuses")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	marker, err := openMarker(marksIn(*dir), r.incarnation)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w := newWorker(r, marker, os.Stdout)
	if err := errors.Join(w.run(context.Background(), os.Stdin), marker.close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func newWorker(r role, m *marker, out io.Writer) *worker {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", r.number)
	cfg, store := r.config(nodeName(r.number), log)
	w := &worker{
		app:   keyhold.New(cfg),
		store: store, carrier: &carrier{refuses: r.refuses}, marker: m, out: out,
	}
	w.app.Register(orders.Order, orders.Payment, orders.Settlement, orders.Clients, watch(orders.Shipping(w.carrier), m))
	return w
}

// run starts the application, does what the lines of in say, and stops it when in ends.
func (w *worker) run(ctx context.Context, in io.Reader) (err error) {
	if err := w.app.Start(ctx); err != nil {
		return err
	}
	defer func() {
		drain, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		err = errors.Join(err, w.app.Stop(drain))
	}()
	var calls lifecycle.Group
	if err := calls.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, calls.Stop(ctx)) }()

	if _, err := w.out.Write(line(answer{})); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("read call: %w", err)
		}
		calls.Go(func(ctx context.Context) {
			// An answer that cannot be written has nobody who waits for it.
			_, _ = w.out.Write(line(w.answer(ctx, c)))
		})
	}
	return lines.Err()
}

// answer does what a call says.
func (w *worker) answer(ctx context.Context, c call) answer {
	a, err := w.do(ctx, c)
	a.ID = c.ID
	if err != nil {
		a.Error, a.Again = err.Error(), keyhold.Retryable(err)
	}
	return a
}

func (w *worker) do(ctx context.Context, c call) (a answer, err error) {
	switch c.Verb {
	case place:
		// The command id is the client's own: an ask whose answer was lost can be asked again, and is done once.
		_, err = keyhold.Ask[*orders.Done](ctx, w.app, orders.Order.ID(c.Order.ID),
			&orders.PlaceOrder{ClientID: c.Order.Client, Cents: c.Order.Cents}, keyhold.CommandID("place "+c.Order.ID))
	case pay:
		_, err = keyhold.Ask[*orders.Done](ctx, w.app, orders.Payment.ID("p-"+c.Order.ID),
			&orders.ReceivePayment{OrderID: c.Order.ID, Cents: c.Order.Cents}, keyhold.CommandID("pay "+c.Order.ID))
	case how:
		var t trip
		var view *orders.View
		if view, err = keyhold.Ask[*orders.View](t.of(ctx), w.app, orders.Order.ID(c.Order.ID), &orders.GetOrder{}); err == nil {
			a.View, a.Elsewhere = *view, t.elsewhere.Load()
		}
	case hears:
		a.Hears, err = heard(ctx, w.app)
	case progress:
		a.Counts, err = count(ctx, w.store.Reader())
	case halts:
		a.Halts, err = w.app.Halts(ctx, "", event.Unit{}, 100)
	case mend:
		w.carrier.mended.Store(true)
	case resume:
		_, err = admin.Resume(ctx, w.app, event.Unit{Name: "shipping", Key: c.Client})
	default:
		err = fmt.Errorf("unknown verb %q", c.Verb)
	}
	return a, err
}

// count reads the tables.
func count(ctx context.Context, db *sql.DB) (c counts, err error) {
	err = db.QueryRowContext(ctx, `SELECT CAST(coalesce(sum(orders), 0) AS BIGINT), CAST(coalesce(sum(paid), 0) AS BIGINT) FROM orders_per_client`).Scan(&c.Counted, &c.Paid)
	if err != nil {
		return c, err
	}
	rows, err := db.QueryContext(ctx, `SELECT client_id, count(*) FROM shipments GROUP BY client_id`)
	if err != nil {
		return c, err
	}
	defer rows.Close()
	c.Shipped = map[string]int{}
	for rows.Next() {
		var client string
		var shipped int
		if err := rows.Scan(&client, &shipped); err != nil {
			return c, err
		}
		c.Shipped[client] = shipped
	}
	return c, rows.Err()
}
