package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// own is a session of the application's, which knows nothing of the schema in which the store is.
func (d *desk) own(adjust ...func(*pgx.ConnConfig)) *pgx.Conn {
	d.Helper()
	u, err := url.Parse(d.config.URL)
	d.must(err)
	config, err := pgx.ParseConfig(u.String())
	d.must(err)
	config.RuntimeParams["application_name"] = d.config.Schema
	for _, f := range adjust {
		f(config)
	}
	conn, err := pgx.ConnectConfig(d.Context(), config)
	d.must(err)
	d.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (d *desk) beginOwn(conn *pgx.Conn, opts ...pgx.TxOptions) pgx.Tx {
	d.Helper()
	tx, err := conn.BeginTx(d.Context(), append(opts, pgx.TxOptions{})[0])
	d.must(err)
	d.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (d *desk) publishIn(tx pgx.Tx, c eventstore.Changes) error {
	_, err := d.store.PublishIn(d.Context(), Tx(tx), c.Publish)
	return err
}

func TestPublishingInAnOwnTransactionLeavesItsSettings(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"prepared": pgx.QueryExecModeCacheStatement, "described": pgx.QueryExecModeCacheDescribe, "exec": pgx.QueryExecModeExec, "simple": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, eventstore.StartOptions{Relayed: true})
			conn := d.own(func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode })
			for n := range event.Sequence(2) {
				tx := d.beginOwn(conn)
				_, err := tx.Exec(d.Context(), `SET LOCAL search_path = pg_catalog, public`)
				d.must(err)
				c := events("a", 2)
				c.Publish[0].Data, c.Publish[1].Tenant = []byte(`{"a": "it's"}`), "t"
				d.must(d.publishIn(tx, c))
				var path, limit string
				d.must(tx.QueryRow(d.Context(), `SELECT current_setting('search_path'), current_setting('idle_in_transaction_session_timeout')`).Scan(&path, &limit))
				d.same("search_path", path, "pg_catalog, public")
				d.same("timeout", limit, "7s")
				d.must(tx.Commit(d.Context()))
				d.must(conn.QueryRow(d.Context(), `SELECT current_setting('idle_in_transaction_session_timeout')`).Scan(&limit))
				d.same("timeout afterwards", limit, "0")
				found, err := d.store.ReadLane(d.Context(), orders, 2*n, 10)
				d.must(err)
				d.same("events", len(found), 2)
				d.same("data", string(found[0].Data), `{"a": "it's"}`)
				d.same("tenant", found[1].Tenant, "t")
			}
			d.exact("afterwards")
		})
	}
}

// The guide says what such a role needs.
func TestARoleWithTheGrantsOfTheGuidePublishes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	role := d.config.Schema + "_clerk"
	for _, grant := range []string{
		`CREATE ROLE ` + role + ` LOGIN`, `GRANT USAGE ON SCHEMA ` + d.config.Schema + ` TO ` + role,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ` + d.config.Schema + ` TO ` + role,
	} {
		_, err := d.raw.Exec(t.Context(), grant)
		d.must(err)
	}
	conn := d.own(func(c *pgx.ConnConfig) { c.User = role })
	tx := d.beginOwn(conn)
	if err := d.publishIn(tx, events("a", 1)); err == nil || !strings.Contains(err.Error(), "keyhold_position") {
		t.Errorf("without the sequences: %v", err)
	}
	d.must(tx.Rollback(t.Context()))
	_, err := d.raw.Exec(t.Context(), `GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA `+d.config.Schema+` TO `+role)
	d.must(err)
	tx = d.beginOwn(conn)
	d.must(d.publishIn(tx, events("a", 1)))
	d.must(tx.Commit(t.Context()))
	found, err := d.store.ReadLane(t.Context(), orders, 0, 10)
	d.must(err)
	d.same("events", len(found), 1)
}

func TestOwnTransactionsThatDoNotSuitAreRefusedAndGoOn(t *testing.T) {
	t.Parallel()
	d, other := newDesk(t), newDesk(t)
	elsewhere := place(t)
	create := d.session()
	_, err := create.Exec(d.Context(), `CREATE DATABASE own_elsewhere`)
	d.must(err)
	u, err := url.Parse(elsewhere.URL)
	d.must(err)
	u.Path = "/own_elsewhere"
	inElsewhere := func(c *pgx.ConnConfig) { c.Database = "own_elsewhere" }
	twin := d.config // in another database, a schema of the same name with another store in it
	twin.URL = u.String()
	d.begin(New(twin), eventstore.StartOptions{Node: "twin"})
	for _, c := range []struct {
		name string
		conn *pgx.Conn
		opts pgx.TxOptions
		in   *desk
		says string
	}{
		{"serializable", d.own(), pgx.TxOptions{IsoLevel: pgx.Serializable}, d, "pgx.TxOptions{IsoLevel: pgx.ReadCommitted}"},
		{"repeatable read", d.own(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, d, "repeatable read"},
		{"read only", d.own(), pgx.TxOptions{AccessMode: pgx.ReadOnly}, d, "pgx.TxOptions{AccessMode: pgx.ReadWrite}"},
		{"a database without the tables", d.own(inElsewhere), pgx.TxOptions{}, other, "no Keyhold tables"},
		{"a database with another store", d.own(inElsewhere), pgx.TxOptions{}, d, "another store"},
	} {
		tx := d.beginOwn(c.conn, c.opts)
		err := c.in.publishIn(tx, events("a", 1))
		if !errors.Is(err, eventstore.ErrOtherTx) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		var path string
		d.must(tx.QueryRow(d.Context(), `SELECT current_setting('search_path')`).Scan(&path)) // it goes on, as it was
		d.same(c.name, path, `"$user", public`)
		d.must(tx.Commit(d.Context()))
	}
	d.commit(events("a", 1))
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-a-1"})
}

func TestOneOwnTransactionOfTwoStores(t *testing.T) {
	t.Parallel()
	d, other := newDesk(t), newDesk(t)
	tx := d.beginOwn(d.own())
	d.must(d.publishIn(tx, events("a", 1)))
	d.must(other.publishIn(tx, events("b", 1)))
	if err := d.publishIn(tx, events("a", 1)); !errors.Is(err, eventstore.ErrStaged) {
		t.Errorf("a second time: %v", err)
	}
	d.must(tx.Commit(d.Context()))
	for _, of := range []*desk{d, other} {
		ids, _ := of.all("")
		d.same("events", len(ids), 1)
	}
}

func TestOwnTransactionThatIsLostOrOver(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	conn := d.own()
	tx := d.beginOwn(conn)
	_, _ = tx.Exec(d.Context(), `SELECT 1 / 0`)
	if err := d.publishIn(tx, events("a", 1)); err == nil || !strings.Contains(err.Error(), "lost at a statement before, roll it back") {
		t.Errorf("after a statement that failed: %v", err)
	}
	d.must(tx.Rollback(d.Context()))
	if err := d.publishIn(tx, events("a", 1)); !errors.Is(err, eventstore.ErrEnded) {
		t.Errorf("after its end: %v", err)
	}
	_, err := d.raw.Exec(d.Context(), `UPDATE keyhold_store SET start_generation = start_generation + 1`)
	d.must(err)
	tx = d.beginOwn(conn)
	if err := d.publishIn(tx, events("a", 1)); !errors.Is(err, eventstore.ErrStale) {
		t.Errorf("of a process that lost its place: %v", err)
	}
	d.must(tx.Commit(d.Context()))
	ids, _ := d.all("")
	d.same("events", len(ids), 0)
}

// Where it fails half way, nothing of it is left: a sequence that was drawn would be a gap for ever.
func TestPublishingThatFailsHalfWayLeavesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 1))
	bad := events("a", 2)
	bad.Publish[1].Type = "no\xffsuch" // refused by the database, once the first is written
	tx := d.beginOwn(d.own())
	if err := d.publishIn(tx, bad); err == nil {
		t.Error("no error")
	}
	d.must(tx.Commit(d.Context()))
	d.commit(events("a", 1))
	found, err := d.store.ReadLane(d.Context(), orders, 0, 10)
	d.must(err)
	d.same("events", len(found), 2)
	d.exact("afterwards")
}

// A rollback to a savepoint of the application's takes the events back, and with them that they were there.
func TestSavepointsOfAnOwnTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx := d.beginOwn(d.own())
	inner, err := tx.Begin(d.Context())
	d.must(err)
	d.must(d.publishIn(inner, events("a", 2)))
	d.must(inner.Rollback(d.Context()))
	d.must(d.publishIn(tx, events("b", 1)))
	d.must(tx.Commit(d.Context()))
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-b-1"})
}

// A reader of all does not pass what an own transaction is about to commit.
func TestNoEventAppearsBelowThoseOfAnOwnTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx := d.beginOwn(d.own())
	d.must(d.publishIn(tx, events("a", 1)))
	d.commit(events("b", 1))
	ids, at := d.all("")
	d.same("while it is open", len(ids), 0)
	d.must(tx.Commit(d.Context()))
	ids, _ = d.all(at)
	d.same("afterwards", ids, []string{"e-a-1", "e-b-1"})
}

// A process that is frozen in a transaction of its own must not lock out those that go on.
func TestLocksOfAFrozenOwnTransactionEnd(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	d.config.TransactionTimeout = time.Second
	d.start()
	tx := d.beginOwn(d.own())
	d.must(d.publishIn(tx, events("a", 1)))
	ctx, cancel := context.WithTimeout(d.Context(), time.Minute)
	defer cancel()
	if _, err := d.store.Begin("next").Commit(ctx, events("a", 1)); err != nil {
		t.Errorf("a commit to the same key: %v", err)
	}
	if err := tx.Commit(d.Context()); err == nil {
		t.Error("the frozen one committed")
	}
}

// looksAfter has a transaction look whether it is in a deadlock when it has waited for so long.
func (d *desk) looksAfter(tx pgx.Tx, wait time.Duration) {
	d.Helper()
	_, err := tx.Exec(d.Context(), fmt.Sprintf(`SET LOCAL deadlock_timeout = '%dms'`, wait.Milliseconds()))
	d.must(err)
}

// A row of the application's, and a key: each of two transactions has what the other one wants. The database ends one of them.
func TestOwnTransactionsThatWaitForEachOther(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.raw.Exec(d.Context(), `CREATE TABLE mine (n int PRIMARY KEY, m int); INSERT INTO mine VALUES (1, 0)`)
	d.must(err)
	change := fmt.Sprintf(`UPDATE %s.mine SET m = m + 1`, d.config.Schema)
	first, second := d.beginOwn(d.own()), d.beginOwn(d.own())
	d.looksAfter(first, 10*time.Millisecond) // so that it is this one that is ended
	d.looksAfter(second, time.Minute)
	_, err = first.Exec(d.Context(), change)
	d.must(err)
	d.must(d.publishIn(second, events("a", 1)))
	waits := background(func() error {
		if _, err := second.Exec(d.Context(), change); err != nil {
			return err
		}
		return second.Commit(d.Context())
	})
	d.waiting(1)
	err = d.publishIn(first, events("a", 1))
	if !errors.Is(err, eventstore.ErrTrouble) || !strings.Contains(err.Error(), "roll back, and run all of it again") {
		t.Errorf("the one that is ended: %v", err)
	}
	d.must(first.Rollback(d.Context()))
	d.must(<-waits)
	ids, _ := d.all("")
	d.same("events", len(ids), 1)
}

// Within a store keys are taken in one order, and once; an application that publishes to two stores of one database may do so in any.
func TestOwnTransactionsThatTakeTwoStoresInDifferentOrder(t *testing.T) {
	t.Parallel()
	d, other := newDesk(t), newDesk(t)
	first, second := d.beginOwn(d.own()), d.beginOwn(d.own())
	d.looksAfter(first, time.Minute)
	d.looksAfter(second, 10*time.Millisecond) // so that it is this one that is ended
	d.must(d.publishIn(first, events("a", 1)))
	d.must(other.publishIn(second, events("a", 1)))
	waits := background(func() error {
		if err := other.publishIn(first, events("a", 1)); err != nil {
			return err
		}
		return first.Commit(d.Context())
	})
	d.waiting(1)
	if err := d.publishIn(second, events("a", 1)); !errors.Is(err, eventstore.ErrTrouble) || !strings.Contains(err.Error(), "roll back, and run all of it again") {
		t.Errorf("the one that is ended: %v", err)
	}
	d.must(second.Rollback(d.Context()))
	d.must(<-waits)
	for _, of := range []*desk{d, other} {
		ids, _ := of.all("")
		d.same("events", ids, []string{"e-a-1"})
	}
}

func TestSQLOfAnOwnTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx := d.beginOwn(d.own())
	db := Tx(tx)
	_, err := db.ExecContext(d.Context(), `CREATE TEMP TABLE mine (n int, t text, b bytea, at timestamptz, f float8, ok bool, j jsonb, u uuid, x numeric); INSERT INTO mine (n) VALUES (0)`)
	d.must(err)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	res, err := db.ExecContext(d.Context(), `INSERT INTO mine VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		1, "tea", []byte{1}, at, 1.5, true, `{"a": 1}`, "01020304-0506-0708-090a-0b0c0d0e0f10", "1.25")
	d.must(err)
	n, err := res.RowsAffected()
	d.must(err)
	d.same("rows", n, int64(1))
	type row struct {
		N       int
		T       *string
		B       []byte
		At      *time.Time
		F       *float64
		OK      *bool
		J, U, X *string
	}
	rows, err := db.QueryContext(d.Context(), `SELECT * FROM mine ORDER BY n`)
	d.must(err)
	var all []row
	for rows.Next() {
		var r row
		d.must(rows.Scan(&r.N, &r.T, &r.B, &r.At, &r.F, &r.OK, &r.J, &r.U, &r.X))
		all = append(all, r)
	}
	d.must(rows.Err())
	d.must(rows.Close())
	want := []row{{}, {1, new("tea"), []byte{1}, &at, new(1.5), new(true), new(`{"a": 1}`), new("01020304-0506-0708-090a-0b0c0d0e0f10"), new("1.25")}}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	var count int
	d.must(db.QueryRowContext(d.Context(), `SELECT count(*) FROM mine WHERE n >= $1`, 0).Scan(&count))
	d.same("count", count, 2)
	if err := db.QueryRowContext(d.Context(), `SELECT n / 0 FROM mine`).Scan(&count); code(err) != "22012" {
		t.Errorf("a row that cannot be: %v", err)
	}
	d.must(tx.Rollback(d.Context()))
	if _, err := db.ExecContext(d.Context(), `SELECT 1`); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("after its end: %v", err)
	}
}

// A start draws the generation that makes others stale only when what the application published before is over.
func TestStartWaitsForAnOwnTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx := d.beginOwn(d.own())
	d.must(d.publishIn(tx, events("a", 1)))
	d.must(d.store.opened.Load().owner.rest(d.Context())) // else it may have its place back before the next asks for it
	d.loseOwner(d.store)
	next := New(d.config)
	started := background(func() error {
		_, err := next.Start(context.Background(), eventstore.StartOptions{Node: "next", Wait: true})
		return err
	})
	t.Cleanup(func() { _ = next.Stop(context.Background()) })
	d.waiting(1)
	d.must(tx.Commit(d.Context()))
	d.must(<-started)
	tail, err := next.LaneTail(d.Context(), orders)
	d.must(err)
	d.same("tail", tail, event.Sequence(1))
}
