package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/examples/orders"
)

// evidence is what the processes left behind, read when none of them runs any more.
type evidence struct {
	Placed    []placedEvent        // of the event log, in its order
	Paid      map[string]int       // order.paid events of the log by client
	Shipments []shipment           // rows of the table, in order of their ids
	Clients   map[string]clientRow // rows of the read model
	Marks     []mark               // in the order in which they were written
	Halts     []eventstore.Halt    // still there
}

// placedEvent is an order.placed of the event log.
type placedEvent struct {
	Order  string
	Client string
	Cents  int64
	Seq    uint64 // in the lane of the client: the order of commits
	Time   time.Time
}

type shipment struct {
	Order  string
	Client string
}

type clientRow struct{ Orders, Paid int }

// gather reads the store, and the marks in dir.
func gather(ctx context.Context, at at, dir string) (e evidence, err error) {
	store := at.store()
	if _, err := store.Start(ctx, eventstore.StartOptions{Node: "orders demo", NoMigrate: true}); err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, store.Stop(ctx)) }()
	if err := e.readLog(ctx, store); err != nil {
		return e, fmt.Errorf("read event log: %w", err)
	}
	if err := e.readTables(ctx, store); err != nil {
		return e, fmt.Errorf("read tables: %w", err)
	}
	if e.Halts, err = store.ListHalts(ctx, "", event.Unit{}, 100); err != nil {
		return e, err
	}
	e.Marks, err = readMarksFile(marksIn(dir))
	return e, err
}

// keep writes it down, for whoever looks for what went wrong when the database is gone.
func (e *evidence) keep(dir string) error {
	text, err := json.MarshalIndent(e, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(evidenceIn(dir), text, 0o644)
}

// readLog reads the events of all orders through the store's port.
func (e *evidence) readLog(ctx context.Context, store eventstore.Streams) error {
	const page = 1000
	e.Paid = map[string]int{}
	var at eventstore.Position
	for {
		events, next, err := store.ReadAll(ctx, at, []string{orders.Order.Kind}, page)
		if err != nil || len(events) == 0 {
			return err
		}
		at = next
		for _, env := range events {
			switch env.Type {
			case "order.placed":
				var placed orders.OrderPlaced
				if err := json.Unmarshal(env.Data, &placed); err != nil {
					return fmt.Errorf("event %s: %w", env.ID, err)
				}
				e.Placed = append(e.Placed, placedEvent{placed.OrderID, env.Key, placed.Total.Minor, uint64(env.Sequence), env.Time})
			case "order.paid":
				e.Paid[env.Key]++
			}
		}
	}
}

func (e *evidence) readTables(ctx context.Context, store storage) error {
	rows, err := store.Reader().QueryContext(ctx, `SELECT order_id, client_id FROM shipments ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var s shipment
		if err := rows.Scan(&s.Order, &s.Client); err != nil {
			return err
		}
		e.Shipments = append(e.Shipments, s)
	}
	if err := rows.Err(); err != nil {
		return err
	}

	clients, err := store.Reader().QueryContext(ctx, `SELECT client_id, orders, paid FROM orders_per_client`)
	if err != nil {
		return err
	}
	defer clients.Close()
	e.Clients = map[string]clientRow{}
	for clients.Next() {
		var client string
		var row clientRow
		if err := clients.Scan(&client, &row.Orders, &row.Paid); err != nil {
			return err
		}
		e.Clients[client] = row
	}
	return clients.Err()
}
