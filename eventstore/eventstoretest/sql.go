package eventstoretest

import (
	"context"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// sql begins a unit of work and opens its door, or checks that the store has none and gives false.
func (f *fixture) sql() (eventstore.Tx, eventstore.SQL, bool) {
	f.Helper()
	tx := f.store.Begin(f.Name())
	f.same("begun before", tx.Begun(), false)
	door, err := tx.SQL(f.ctx)
	if !f.id.Capabilities.SQL {
		f.is(err, eventstore.ErrNoSQL)
		f.same("begun after", tx.Begun(), false)
		_, err := tx.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
		f.must(err) // being refused SQL does not end the unit of work
		return nil, nil, false
	}
	f.must(err)
	f.same("begun after", tx.Begun(), true)
	f.Cleanup(func() { _ = tx.Rollback() }) // so that a failed test does not keep the writer
	return tx, door, true
}

// table makes a table of the application with one row {a, 0}, or gives false on a store without SQL.
func (f *fixture) table() bool {
	f.Helper()
	tx, door, ok := f.sql()
	if !ok {
		return false
	}
	f.exec(door, `CREATE TABLE shipments (id TEXT PRIMARY KEY, n INTEGER NOT NULL)`)
	f.exec(door, `INSERT INTO shipments (id, n) VALUES ($1, $2)`, "a", 0)
	_, err := tx.Commit(f.ctx, eventstore.Changes{})
	f.must(err)
	return true
}

func (f *fixture) exec(door eventstore.SQL, query string, args ...any) {
	f.Helper()
	if _, err := door.ExecContext(f.ctx, query, args...); err != nil {
		f.Fatalf("%s: %v", query, err)
	}
}

// rows gives what is in the table, in order.
func (f *fixture) rows() []string {
	f.Helper()
	tx, door, _ := f.sql()
	rows, err := door.QueryContext(f.ctx, `SELECT id, n FROM shipments ORDER BY id`)
	f.must(err)
	var got []string
	for rows.Next() {
		var (
			id string
			n  int
		)
		f.must(rows.Scan(&id, &n))
		got = append(got, fmt.Sprintf("%s=%d", id, n))
	}
	f.must(rows.Err())
	f.must(rows.Close())
	f.must(tx.Rollback())
	return got
}

var sqlChecks = []check{
	{"rows and events commit together", func(f *fixture) {
		if !f.table() {
			return
		}
		tx, door, _ := f.sql()
		f.exec(door, `INSERT INTO shipments (id, n) VALUES ($1, $2)`, "b", 1)
		c := advance(shipping, orders, 0, 1)
		c.Publish = f.events("shipment", "a", 1)
		_, err := tx.Commit(f.ctx, c)
		f.must(err)
		f.ended(tx)
		f.same("rows", f.rows(), []string{"a=0", "b=1"})
		f.same("lane", sequences(f.lane(lane("shipment", "a"))), upTo(1))
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(1))
	}},
	{"rollback leaves no rows", func(f *fixture) {
		if !f.table() {
			return
		}
		tx, door, _ := f.sql()
		f.exec(door, `DELETE FROM shipments`)
		f.must(tx.Rollback())
		f.ended(tx)
		f.same("rows", f.rows(), []string{"a=0"})
	}},
	{"a unit of work that is refused leaves no rows", func(f *fixture) {
		if !f.table() {
			return
		}
		f.emit(order7, 0, f.event("order", "a"))
		f.raise(billing, 6)
		f.commit(advance(shipping, orders, 0, 1))
		for _, c := range []struct {
			changes eventstore.Changes
			want    error
		}{
			{eventstore.Changes{Append: []eventstore.Append{{Stream: order7, Events: f.events("order", "a", 1)}}}, eventstore.ErrVersionConflict},
			{advance(shipping, orders, 0, 1), eventstore.ErrCheckpointMoved},
			{leased(billing, 5, orders, 0, 1), eventstore.ErrStale},
		} {
			tx, door, _ := f.sql()
			f.exec(door, `INSERT INTO shipments (id, n) VALUES ($1, $2)`, "b", 1)
			_, err := tx.Commit(f.ctx, c.changes)
			f.is(err, c.want)
			f.ended(tx)
			f.same("rows", f.rows(), []string{"a=0"})
		}
	}},
	{"malformed changes leave no rows", func(f *fixture) {
		if !f.table() {
			return
		}
		tx, door, _ := f.sql()
		f.exec(door, `INSERT INTO shipments (id, n) VALUES ($1, $2)`, "b", 1)
		if _, err := tx.Commit(f.ctx, eventstore.Changes{Publish: []event.Envelope{{}}}); err == nil {
			f.Fatal("no error")
		}
		f.ended(tx)
		f.same("rows", f.rows(), []string{"a=0"})
	}},
	{"the door is one for the whole unit of work, and sees its own rows", func(f *fixture) {
		if !f.table() {
			return
		}
		tx, door, _ := f.sql()
		f.exec(door, `INSERT INTO shipments (id, n) VALUES ($1, $2)`, "b", 1)
		again, err := tx.SQL(f.ctx)
		f.must(err)
		var n int
		f.must(again.QueryRowContext(f.ctx, `SELECT n FROM shipments WHERE id = $1`, "b").Scan(&n))
		f.same("row", n, 1)
		f.must(tx.Rollback())
	}},
	{"the door is shut when the unit of work is over", func(f *fixture) {
		if !f.table() {
			return
		}
		committed, door, _ := f.sql()
		_, err := committed.Commit(f.ctx, eventstore.Changes{})
		f.must(err)
		rolledBack, other, _ := f.sql()
		f.must(rolledBack.Rollback())
		for _, d := range []eventstore.SQL{door, other} {
			if _, err := d.ExecContext(f.ctx, `DELETE FROM shipments`); err == nil {
				f.Error("the door is still open")
			}
		}
		f.same("rows", f.rows(), []string{"a=0"})
	}},
	{"placeholders are numbered", func(f *fixture) {
		if !f.table() {
			return
		}
		tx, door, _ := f.sql()
		f.exec(door, `INSERT INTO shipments (n, id) VALUES ($2, $1)`, "b", 1)
		var both string
		f.must(door.QueryRowContext(f.ctx, `SELECT $1 || $2 || $1 FROM shipments WHERE id = $2`, "-", "b").Scan(&both))
		f.same("row", both, "-b-")
		_, err := tx.Commit(f.ctx, eventstore.Changes{})
		f.must(err)
		f.same("rows", f.rows(), []string{"a=0", "b=1"})
	}},
	{"when the context of SQL is done nothing more can commit", func(f *fixture) {
		if !f.table() {
			return
		}
		ctx, cancel := context.WithCancel(f.ctx)
		tx := f.store.Begin(f.Name())
		door, err := tx.SQL(ctx)
		f.must(err)
		f.exec(door, `INSERT INTO shipments (id, n) VALUES ($1, $2)`, "b", 1)
		cancel()
		if _, err := tx.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)}); err == nil {
			f.Fatal("committed")
		}
		f.ended(tx)
		f.same("rows", f.rows(), []string{"a=0"})
		f.same("tail", f.tail(orders), event.Sequence(0))
	}},
	{"units of work with SQL do not lose each other's updates", func(f *fixture) {
		if !f.table() {
			return
		}
		const writers, each = 4, 5
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for range each {
					if err := f.increment(); err != nil {
						f.Errorf("increment: %v", err)
					}
				}
			})
		}
		group.Wait()
		f.same("rows", f.rows(), []string{fmt.Sprintf("a=%d", writers*each)})
		f.same("lane", sequences(f.lane(orders)), upTo(writers*each))
	}},
	{"a commit waits for a unit of work with SQL, and goes on when that is over", func(f *fixture) {
		if !f.table() {
			return
		}
		tx, door, _ := f.sql()
		f.exec(door, `DELETE FROM shipments`)
		var group sync.WaitGroup
		e := f.event("order", "a")
		group.Go(func() {
			if _, err := f.try(eventstore.Changes{Publish: []event.Envelope{e}}); err != nil {
				f.Errorf("commit: %v", err)
			}
		})
		f.must(tx.Rollback())
		group.Wait()
		f.same("lane", ids(f.lane(orders)), []string{e.ID})
	}},
	{"reads do not wait for a unit of work with SQL", func(f *fixture) {
		if !f.table() {
			return
		}
		f.publish(f.event("order", "a"))
		tx, door, _ := f.sql()
		f.exec(door, `DELETE FROM shipments`)
		f.same("lane", len(f.lane(orders)), 1)
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(0))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
		f.same("events", len(f.everything(10)), 1)
		f.must(tx.Rollback())
	}},
	{"waiting for one's turn ends with the context", func(f *fixture) {
		if !f.table() {
			return
		}
		holder, door, _ := f.sql()
		f.exec(door, `UPDATE shipments SET n = 1`)
		ctx, cancel := context.WithCancel(f.ctx)
		var group sync.WaitGroup
		group.Go(func() {
			tx := f.store.Begin("waiting")
			door, err := tx.SQL(ctx)
			if err == nil { // a store with many writers waits at the row
				_, err = door.ExecContext(ctx, `UPDATE shipments SET n = 2`)
			}
			if err == nil {
				f.Error("did not wait")
			}
			if err := tx.Rollback(); err != nil {
				f.Errorf("rollback: %v", err)
			}
		})
		cancel()
		group.Wait()
		_, err := holder.Commit(f.ctx, eventstore.Changes{})
		f.must(err)
		f.same("rows", f.rows(), []string{"a=1"})
	}},
	{"rows are kept over a restart, together with their events", func(f *fixture) {
		if !f.table() {
			return
		}
		f.must(f.increment())
		f.restart(f.crash)
		f.same("rows", f.rows(), []string{"a=1"})
		f.same("lane", sequences(f.lane(orders)), upTo(1))
	}},
	{"rows that were not committed are gone after a crash", func(f *fixture) {
		if !f.table() {
			return
		}
		tx, door, _ := f.sql()
		f.exec(door, `DELETE FROM shipments`)
		if f.harness.Crash == nil {
			f.must(tx.Rollback()) // Stop would wait for it
		}
		f.restart(f.crash)
		f.same("rows", f.rows(), []string{"a=0"})
	}},
}

// increment adds one to the row and publishes an event, in one unit of work. Any goroutine may call it.
func (f *fixture) increment() error {
	tx := f.store.Begin("increment")
	defer func() { _ = tx.Rollback() }()
	door, err := tx.SQL(f.ctx)
	if err != nil {
		return err
	}
	var n int
	read := `SELECT n FROM shipments WHERE id = $1`
	if f.harness.Postgres {
		read += ` FOR UPDATE` // there others write beside: an application locks what it goes by
	}
	if err := door.QueryRowContext(f.ctx, read, "a").Scan(&n); err != nil {
		return err
	}
	if _, err := door.ExecContext(f.ctx, `UPDATE shipments SET n = $1 WHERE id = $2`, n+1, "a"); err != nil {
		return err
	}
	_, err = tx.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
	return err
}
