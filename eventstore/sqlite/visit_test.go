package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// All bodies must have arrived at the work before SQL until the first may go on: it would never end if they took turns there.
func TestBodiesRunInParallelBeforeTheirSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const bodies = 8
	var arrived, done sync.WaitGroup
	arrived.Add(bodies)
	for i := range bodies {
		done.Go(func() {
			tx := b.store.Begin("body")
			arrived.Done()
			arrived.Wait()
			db, err := tx.SQL(t.Context())
			if err == nil {
				_, err = db.ExecContext(t.Context(), `INSERT INTO shipments (id) VALUES ($1)`, fmt.Sprint(i))
			}
			if err == nil {
				_, err = tx.Commit(t.Context(), publish(fmt.Sprintf("e-%d", i)))
			}
			if err != nil {
				t.Errorf("body %d: %v", i, err)
			}
		})
	}
	done.Wait()
	if b.shipments() != bodies || b.tail() != bodies {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

func TestBodiesWithSQLShareOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const bodies = 20
	tx, db := b.visit(t.Context())
	b.exec(db, `INSERT INTO shipments (id) VALUES ('first')`)
	results := make([]<-chan error, bodies)
	for i := range results {
		results[i] = background(func() error {
			tx := b.store.Begin("queued")
			db, err := tx.SQL(t.Context())
			if err != nil {
				return err
			}
			if _, err := db.ExecContext(t.Context(), `INSERT INTO shipments (id) VALUES ($1)`, fmt.Sprint(i)); err != nil {
				return err
			}
			_, err = tx.Commit(t.Context(), eventstore.Changes{})
			return err
		})
		b.writer().signals.queued.WaitFor(t, func(who string) bool { return who == "queued" })
	}
	_, err := tx.Commit(t.Context(), eventstore.Changes{})
	b.must(err)
	b.size(bodies + 1)
	for _, r := range results {
		b.must(<-r)
	}
	if n := b.shipments(); n != bodies+1 {
		t.Errorf("%d shipments", n)
	}
}

func TestOneBodysFailureLeavesTheOthersOfItsGroup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, db := b.visit(t.Context())
	b.exec(db, `INSERT INTO shipments (id) VALUES ('first')`)
	body := func(id string, end func(tx eventstore.Tx) error) <-chan error {
		r := background(func() error {
			tx := b.store.Begin("queued")
			db, err := tx.SQL(t.Context())
			if err != nil {
				return err
			}
			if _, err := db.ExecContext(t.Context(), `INSERT INTO shipments (id) VALUES ($1)`, id); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return end(tx)
		})
		b.writer().signals.queued.WaitFor(t, func(who string) bool { return who == "queued" })
		return r
	}
	commit := func(c eventstore.Changes) func(eventstore.Tx) error {
		return func(tx eventstore.Tx) error {
			_, err := tx.Commit(t.Context(), c)
			return err
		}
	}
	good := body("good", commit(emit("o-1", 0)))
	refused := body("refused", commit(emit("o-1", 0)))
	rolledBack := body("rolled back", eventstore.Tx.Rollback)
	failed := body("good", commit(eventstore.Changes{})) // breaks the primary key
	last := body("last", commit(emit("o-1", 1)))
	_, err := tx.Commit(t.Context(), eventstore.Changes{})
	b.must(err)
	b.must(<-good)
	if err := <-refused; !errors.Is(err, eventstore.ErrVersionConflict) {
		t.Errorf("refused: %v", err)
	}
	b.must(<-rolledBack)
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "UNIQUE") || errors.Is(err, eventstore.ErrTrouble) {
		t.Errorf("failed: %v", err)
	}
	b.must(<-last)
	if got := b.ids(); !slices.Equal(got, []string{"first", "good", "last"}) {
		t.Errorf("shipments: %q", got)
	}
}

// ids are the rows of the application, in order.
func (b *bundle) ids() []string {
	b.Helper()
	rows, err := b.store.Reader().QueryContext(b.Context(), `SELECT id FROM shipments ORDER BY id`)
	b.must(err)
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		b.must(rows.Scan(&id))
		ids = append(ids, id)
	}
	b.must(rows.Err())
	return ids
}

func TestApplicationSQLStaysInsideItsUnitOfWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, query := range []string{
		`COMMIT`, `END TRANSACTION`, `ROLLBACK`, `BEGIN`, `BEGIN IMMEDIATE`, `SAVEPOINT mine`, `RELEASE unit`, `ROLLBACK TO unit`,
		`/* a comment */ commit`, "-- another\nROLLBACK", `INSERT INTO shipments (id) VALUES ('hidden'); COMMIT`,
		`PRAGMA journal_mode = DELETE`, `PRAGMA synchronous = OFF`, `PRAGMA query_only = 1`, `PRAGMA foreign_keys = 0`,
		`ATTACH 'other.db' AS other`, `VACUUM`,
		`INSERT INTO keyhold_lanes (category, key, lane, last) VALUES ('order', 'b', 0, 0)`, `UPDATE keyhold_log SET data = NULL`,
		`DELETE FROM keyhold_log`, `DROP TABLE keyhold_log`, `ALTER TABLE KEYHOLD_LOG ADD COLUMN mine`, `CREATE TABLE keyhold_mine (id)`,
		`CREATE INDEX mine ON keyhold_log (id)`, `CREATE TRIGGER mine AFTER INSERT ON keyhold_log BEGIN DELETE FROM shipments; END`,
		`WITH x AS (SELECT 1) DELETE FROM keyhold_log`,
	} {
		for how, run := range map[string]func(db eventstore.SQL) error{
			"exec": func(db eventstore.SQL) error { _, err := db.ExecContext(t.Context(), query); return err },
			"row":  func(db eventstore.SQL) error { return db.QueryRowContext(t.Context(), query).Scan(new(any)) },
		} {
			tx, db := b.visit(t.Context())
			b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
			if err := run(db); err == nil {
				t.Errorf("%s (%s) ran", query, how)
			} else if !errors.Is(err, ErrNotAllowed) && query != "VACUUM" {
				t.Errorf("%s (%s): %v", query, how, err)
			}
			b.must(tx.Rollback())
		}
	}
	if n := b.shipments(); n != 0 {
		t.Errorf("%d shipments were committed", n)
	}
	tx, db := b.visit(t.Context())
	b.exec(db, `CREATE TABLE parcels (id TEXT PRIMARY KEY)`) // what migration tools do is allowed
	var n int
	b.must(db.QueryRowContext(t.Context(), `SELECT count(*) FROM pragma_table_info('parcels')`).Scan(&n))
	b.must(db.QueryRowContext(t.Context(), `SELECT count(*) FROM keyhold_log`).Scan(&n))
	b.exec(db, `DROP TABLE parcels`)
	_, err := tx.Commit(t.Context(), publish("e-1"))
	b.must(err)
}

// INSERT OR ROLLBACK ends the whole transaction. What follows would commit by itself.
func TestNothingRunsInAVisitWhoseTransactionIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, db := b.visit(t.Context())
	b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
	waiting := b.commit(publish("e-1"))
	if _, err := db.ExecContext(t.Context(), `INSERT OR ROLLBACK INTO shipments (id) VALUES ('s-1')`); err == nil {
		t.Fatal("no error")
	}
	for range 2 {
		if _, err := db.ExecContext(t.Context(), `INSERT INTO shipments (id) VALUES ('s-2')`); !errors.Is(err, errGone) {
			t.Errorf("exec: %v", err)
		}
		if err := db.QueryRowContext(t.Context(), `INSERT INTO shipments (id) VALUES ('s-3') RETURNING id`).Scan(new(string)); !errors.Is(err, errGone) {
			t.Errorf("query: %v", err)
		}
	}
	if _, err := tx.Commit(t.Context(), publish("e-0")); !errors.Is(err, errGone) || errors.Is(err, eventstore.ErrTrouble) {
		t.Errorf("commit: %v", err)
	}
	b.must(<-waiting)
	if b.shipments() != 0 || b.tail() != 1 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

func TestDeferredForeignKeyFailsItsUnitOfWorkAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, db := b.visit(t.Context())
	b.exec(db, `CREATE TABLE parcels (shipment TEXT REFERENCES shipments (id) DEFERRABLE INITIALLY DEFERRED)`)
	_, err := tx.Commit(t.Context(), eventstore.Changes{})
	b.must(err)

	tx, db = b.visit(t.Context())
	b.exec(db, `INSERT INTO parcels VALUES ('not there')`)
	waiting := b.commit(publish("e-1"))
	if _, err := tx.Commit(t.Context(), publish("e-0")); err == nil || !strings.Contains(err.Error(), "foreign key") {
		t.Errorf("commit: %v", err)
	}
	b.must(<-waiting)

	tx, db = b.visit(t.Context())
	b.exec(db, `INSERT INTO parcels VALUES ('s-1')`)
	b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
	_, err = tx.Commit(t.Context(), publish("e-2"))
	b.must(err)
	if b.shipments() != 1 || b.tail() != 2 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

func TestTheConnectionNeverStaysWithAVisitorWhoseContextIsDone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	tx := b.store.Begin("forgetful")
	db, err := tx.SQL(ctx)
	b.must(err)
	b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
	rows, err := db.QueryContext(t.Context(), `SELECT id FROM shipments`) // left open
	b.must(err)
	if !rows.Next() {
		t.Fatal("no row")
	}
	waiting := b.commit(publish("e-1"))
	cancel() // and nobody ends tx
	b.must(<-waiting)
	if rows.Next() {
		t.Error("the rows are still open")
	}
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	if _, err := tx.Commit(t.Context(), eventstore.Changes{}); !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	if n := b.shipments(); n != 0 {
		t.Errorf("%d shipments", n)
	}
}

func TestRowsLeftOpenDoNotHoldACommitUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 3 {
		tx, db := b.visit(t.Context())
		b.exec(db, `INSERT INTO shipments (id) VALUES ($1), ($2)`, fmt.Sprint(i, "a"), fmt.Sprint(i, "b"))
		rows, err := db.QueryContext(t.Context(), `SELECT id FROM shipments`)
		b.must(err)
		if !rows.Next() {
			t.Fatal("no row")
		}
		db.QueryRowContext(t.Context(), `SELECT id FROM shipments`) // never scanned
		_, err = tx.Commit(t.Context(), publish("e"))
		b.must(err)
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}
	if b.shipments() != 6 || b.tail() != 3 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

func TestStatementThatRunsOnForEverIsInterrupted(t *testing.T) {
	t.Parallel()
	b, d := setupSeen(t, func(s *Store) {
		tune := s.tune
		s.tune = func(w *writer) {
			tune(w)
			w.patience = time.Millisecond
		}
	})
	const endless = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) `
	for name, query := range map[string]string{
		"reading": endless + `SELECT count(*) FROM n`,
		"writing": endless + `INSERT INTO shipments (id) SELECT i FROM n`,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		tx, db := b.visit(ctx)
		waiting := b.commit(publish("e-1"))
		running := background(func() error {
			_, err := db.ExecContext(ctx, query)
			return err
		})
		d.begun.WaitFor(t, func(q string) bool { return q == query })
		cancel()
		if err := <-running; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		b.must(<-waiting)
		if _, err := tx.Commit(t.Context(), eventstore.Changes{}); err == nil {
			t.Errorf("%s: committed", name)
		}
	}
	if b.shipments() != 0 || b.tail() != 2 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

// The second row never comes, and the body waits for it under a context of its own that does not end.
func TestRowsThatNeverComeAreInterruptedWhenTheVisitIsOver(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *bundle, cancel func()){
		"its context is done":   func(_ *bundle, cancel func()) { cancel() },
		"the store has to stop": func(b *bundle, _ func()) { stopNow(t, b.store) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(s *Store) {
				tune := s.tune
				s.tune = func(w *writer) {
					tune(w)
					w.patience = time.Millisecond
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx, db := b.visit(ctx)
			rows, err := db.QueryContext(context.Background(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i = 1 OR i < 0`)
			b.must(err)
			defer rows.Close()
			waiting := b.commit(publish("e-1"))
			reading := background(func() error {
				for rows.Next() {
				}
				return rows.Err()
			})
			end(b, cancel)
			b.must(<-waiting)
			<-reading // interrupted, or closed before it began
			if _, err := tx.Commit(t.Context(), eventstore.Changes{}); err == nil {
				t.Error("committed")
			}
		})
	}
}

func TestLongHoldIsReportedWithItsName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		tx := b.store.Begin("shipping/client-1")
		_, err := tx.SQL(t.Context())
		b.must(err)
		var took []time.Duration
		for range 3 {
			n := b.notices.WaitFor(t, func(n eventstore.Notice) bool { return n.What == "long hold" })
			if n.Who != "shipping/client-1" {
				t.Errorf("notice: %+v", n)
			}
			took = append(took, n.Took)
		}
		if !slices.Equal(took, []time.Duration{longHold, 2 * longHold, 4 * longHold}) {
			t.Errorf("reported after %v", took)
		}
		b.must(tx.Rollback())
		b.stop()
	})
}

func TestEventsStagedInATransactionOfTheApplicationCommitWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx, err := b.store.BeginTx(t.Context(), "import")
	b.must(err)
	b.exec(tx, `INSERT INTO shipments (id) VALUES ($1)`, "s-1")
	var told []eventstore.Committed
	tx.OnCommit(func(c eventstore.Committed) { told = append(told, c) })
	if err := tx.Stage(eventstore.Changes{Publish: []event.Envelope{{}}}); err == nil {
		t.Error("malformed changes were staged")
	}
	b.must(tx.Stage(publish("e-1")))
	if err := tx.Stage(publish("e-2")); !errors.Is(err, eventstore.ErrStaged) {
		t.Errorf("second stage: %v", err)
	}
	b.must(tx.Commit(t.Context()))
	if len(told) != 1 || told[0].Tails[0].Last != 1 {
		t.Errorf("told %+v", told)
	}
	if err := tx.Commit(t.Context()); !errors.Is(err, eventstore.ErrEnded) || len(told) != 1 {
		t.Errorf("second commit: %v, told %d times", err, len(told))
	}
	if err := tx.Stage(publish("e-3")); !errors.Is(err, eventstore.ErrEnded) {
		t.Errorf("staged after the commit: %v", err)
	}
	b.must(tx.Rollback())

	tx, err = b.store.BeginTx(t.Context(), "import")
	b.must(err)
	b.exec(tx, `INSERT INTO shipments (id) VALUES ($1)`, "s-2")
	b.must(tx.Stage(publish("e-2")))
	tx.OnCommit(func(eventstore.Committed) { t.Error("told of a rollback") })
	b.must(tx.Rollback())
	if b.shipments() != 1 || b.tail() != 1 {
		t.Errorf("%d shipments, tail %d", b.shipments(), b.tail())
	}
}

// An event that was staged where nothing can commit any more would be lost without a word.
func TestNothingIsStagedInATransactionThatIsOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		ctx  context.Context
		end  func(*eventstore.UserTx) error
		want error
	}{
		"committed":   {t.Context(), func(tx *eventstore.UserTx) error { return tx.Commit(t.Context()) }, eventstore.ErrEnded},
		"rolled back": {t.Context(), (*eventstore.UserTx).Rollback, eventstore.ErrEnded},
		"out of time": {ctx, func(*eventstore.UserTx) error { cancel(); return nil }, context.Canceled},
	} {
		tx, err := b.store.BeginTx(c.ctx, "import")
		b.must(err)
		b.must(c.end(tx))
		if err := tx.Stage(publish("e-1")); !errors.Is(err, c.want) {
			t.Errorf("%s: stage: %v", name, err)
		}
		if err := tx.Commit(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: commit: %v", name, err)
		}
		b.must(tx.Rollback())
	}
	if tail := b.tail(); tail != 0 {
		t.Errorf("tail is %d", tail)
	}
}
