package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// open gives a unit of work with SQL, and the table "mine".
func (d *desk) open() (eventstore.Tx, eventstore.SQL) {
	d.Helper()
	_, err := d.raw.Exec(d.Context(), `CREATE TABLE IF NOT EXISTS mine (n int PRIMARY KEY)`)
	d.must(err)
	tx := d.store.Begin(d.Name())
	db, err := tx.SQL(d.Context())
	d.must(err)
	d.Cleanup(func() { _ = tx.Rollback() })
	return tx, db
}

func begun(t eventstore.Tx) *tx { return t.(*tx) }

func (d *desk) mine() (count int) {
	d.Helper()
	d.value(&count, `SELECT count(*) FROM mine`)
	return count
}

func TestWhatReachesBeyondAUnitOfWorkIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, db := d.open()
	for _, query := range []string{
		`BEGIN`, `start transaction`, `COMMIT`, ` end`, `-- really` + "\n" + `rollback`, `/* so */ ABORT`, `; COMMIT`, `ROLLBACK PREPARED 'x'`, `PREPARE TRANSACTION 'x'`,
		`SET search_path = public`, `SET SESSION work_mem = 1`, `RESET ALL`, `DISCARD ALL`, `LISTEN news`, `UNLISTEN *`,
	} {
		if _, err := db.ExecContext(d.Context(), query); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", query, err)
		}
		if _, err := db.QueryContext(d.Context(), query); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", query, err)
		}
		if err := db.QueryRowContext(d.Context(), query).Scan(new(int)); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{`SAVEPOINT here`, `INSERT INTO mine VALUES (1); INSERT INTO mine VALUES (2)`, `ROLLBACK TO here`, `RELEASE here`, `SET LOCAL work_mem = '4MB'`,
		`SET CONSTRAINTS ALL DEFERRED`, `PREPARE plan AS SELECT 1`, `INSERT INTO mine VALUES (3)`, `SAVEPOINT here`, `ROLLBACK TRANSACTION TO SAVEPOINT here`} {
		if _, err := db.ExecContext(d.Context(), query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	_, err := tx.Commit(d.Context(), eventstore.Changes{})
	d.must(err)
	d.same("rows", d.mine(), 1)
}

// A rebuild, or an import, has very many in one transaction.
func TestStatementsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, db := d.open()
	for n := range 100 {
		_, err := db.ExecContext(d.Context(), `INSERT INTO mine VALUES ($1)`, n)
		d.must(err)
	}
	_, err := db.ExecContext(d.Context(), `INSERT INTO mine VALUES (0)`)
	if err == nil {
		t.Error("a row is there twice")
	}
	d.same("contexts that are kept", len(begun(tx).visit.release), 0)
}

// What gets past the list of statements is found by the mark.
func TestATransactionThatWasEndedFromInsideCommitsNoEvents(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{
		"ended":              `INSERT INTO mine VALUES (1); COMMIT`,
		"ended and replaced": `INSERT INTO mine VALUES (1); COMMIT; BEGIN`,
		"rolled back":        `INSERT INTO mine VALUES (1); ROLLBACK; BEGIN`,
	} {
		d := newDesk(t)
		tx, db := d.open()
		_, err := db.ExecContext(d.Context(), query)
		d.must(err)
		if _, err := tx.Commit(d.Context(), events("a", 1)); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", name, err)
		}
		ids, _ := d.all("")
		d.same(name, len(ids), 0)
	}
}

func TestAStatementThatFailedLosesTheUnitOfWork(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, db := d.open()
	for range 2 {
		_, _ = db.ExecContext(d.Context(), `INSERT INTO mine VALUES ($1)`, 1)
	}
	_, err := tx.Commit(d.Context(), events("a", 1))
	if err == nil || !strings.Contains(err.Error(), "duplicate key") || errors.Is(err, eventstore.ErrTrouble) {
		t.Errorf("commit: %v", err)
	}
	d.same("rows", d.mine(), 0)
}

func TestWhatWasLeftOpenIsClosed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	tx, db := d.open()
	rows, err := db.QueryContext(d.Context(), `SELECT generate_series(1, 10000)`)
	d.must(err)
	_ = rows.Next()
	_, err = tx.Commit(d.Context(), events("a", 1))
	d.must(err)
	if rows.Next() {
		t.Error("there is another row")
	}
	tx, db = d.open()
	row := db.QueryRowContext(d.Context(), `SELECT generate_series(1, 10000)`)
	if _, err := tx.Commit(d.Context(), events("a", 1)); err == nil || !strings.Contains(err.Error(), "Scan") {
		t.Errorf("commit while a row is not read: %v", err)
	}
	_ = row.Scan(new(int))
	ids, _ := d.all("")
	d.same("events", ids, []string{"e-a-1"})
}

func TestAUnitOfWorkThatDoesSomethingElseIsTold(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.stop()
	d.config.TransactionTimeout = time.Second
	d.start()
	idle := func() (eventstore.Tx, eventstore.SQL) {
		tx, db := d.open()
		pid := tx.(interface{ backend() uint32 }).backend()
		for there := true; there; {
			d.value(&there, `SELECT pg_sleep(0.02) IS NOT NULL AND EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)`, int(pid))
		}
		return tx, db
	}
	isTold := func(what string, err error) {
		if !errors.Is(err, ErrIdle) || !errors.Is(err, eventstore.ErrTrouble) {
			t.Errorf("%s: %v", what, err)
		}
	}
	tx, db := idle()
	_, err := db.ExecContext(d.Context(), `INSERT INTO mine VALUES (1)`)
	isTold("exec", err)
	_, err = tx.Commit(d.Context(), events("a", 1))
	isTold("commit after that", err)
	tx, _ = idle()
	_, err = tx.Commit(d.Context(), events("a", 1))
	isTold("commit", err)
	d.same("rows", d.mine(), 0)
}

func (t *tx) backend() uint32 { return t.visit.raw.PgConn().PID() }

func TestTheContextOfATransactionFreesItsLocks(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, _ = d.open()
	ctx, cancel := context.WithCancel(d.Context())
	tx := d.store.Begin("bounded")
	db, err := tx.SQL(ctx)
	d.must(err)
	_, err = db.ExecContext(d.Context(), `INSERT INTO mine VALUES (1)`)
	d.must(err)
	other, db := d.open()
	waits := background(func() error {
		_, err := db.ExecContext(d.Context(), `INSERT INTO mine VALUES (1)`)
		return err
	})
	d.waiting(1)
	cancel() // nobody touches tx any more
	d.must(<-waits)
	_, err = other.Commit(d.Context(), eventstore.Changes{})
	d.must(err)
	if _, err := tx.SQL(d.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("SQL after that: %v", err)
	}
}

// The time of a unit of work may be over before its first statement: then its connection is free for others, and it is told so. The race detector watches, for which a timer has to
// end the context: what this goroutine ends comes after all that it did.
func TestATimeThatIsOverBeforeTheFirstStatementFreesTheConnection(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ctx, cancel := context.WithTimeout(d.Context(), 5*time.Second)
	defer cancel()
	var late []eventstore.Tx
	for range d.config.MaxConns {
		tx := d.store.Begin("late")
		_, err := tx.SQL(ctx)
		d.must(err)
		late = append(late, tx)
	}
	d.open() // nobody has touched the others
	for _, tx := range late {
		if _, err := tx.SQL(d.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SQL after that: %v", err)
		}
	}
}

// Whoever has SQL may read the store as well: connections for reading are others.
func TestUnitsOfWorkThatHaveAllConnectionsStillRead(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for range d.config.MaxConns {
		d.open()
	}
	if _, err := d.store.LaneTail(d.Context(), orders); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(d.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.store.Begin("one more").SQL(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
}

func TestReaderCannotWrite(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var n int
	d.must(d.store.Reader().QueryRowContext(d.Context(), `SELECT count(*) FROM keyhold_log WHERE time > $1`, 0).Scan(&n))
	if _, err := d.store.Reader().ExecContext(d.Context(), `CREATE TABLE theirs (n int)`); code(err) != "25006" {
		t.Errorf("write: %v", err)
	}
	d.stop()
	if d.store.Reader() != nil {
		t.Error("there is a reader after Stop")
	}
}

func TestATransactionOfTheApplicationsOwn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.open()
	tx, err := d.store.BeginTx(d.Context(), "a test")
	d.must(err)
	_, err = tx.ExecContext(d.Context(), `INSERT INTO mine VALUES ($1)`, 7)
	d.must(err)
	d.must(tx.Stage(events("a", 2)))
	d.must(tx.Commit(d.Context()))
	ids, _ := d.all("")
	d.same("events", len(ids), 2)
	d.same("rows", d.mine(), 1)
}
