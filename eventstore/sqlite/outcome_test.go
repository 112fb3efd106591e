package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keyhold/keyhold/eventstore"
)

// fault is an error as SQLite gives it.
type fault int

func (f fault) Error() string { return "injected fault" }
func (f fault) Code() int     { return int(f) }

// faultyDriver makes the next COMMIT fail, before or after it was done.
type faultyDriver struct {
	driver.Connector
	opened atomic.Int32
	next   atomic.Pointer[commitFault]
}

type commitFault struct {
	err  error
	done bool // the commit happens all the same
}

func (d *faultyDriver) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := d.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	d.opened.Add(1)
	return faultyConn{c.(driverConn), d}, nil
}

type faultyConn struct {
	driverConn
	driver *faultyDriver
}

func (c faultyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.driverConn.PrepareContext(ctx, query)
	if err == nil && query == "COMMIT" {
		return faultyCommit{s, c.driver}, nil
	}
	return s, err
}

type faultyCommit struct {
	driver.Stmt
	driver *faultyDriver
}

func (s faultyCommit) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	f := s.driver.next.Swap(nil)
	if f == nil || f.done {
		if r, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args); f == nil || err != nil {
			return r, err
		}
	}
	return nil, f.err
}

func (s faultyCommit) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func setupFaulty(t *testing.T) (*bundle, *faultyDriver) {
	t.Helper()
	d := new(faultyDriver)
	b := setup(t, func(s *Store) {
		dial := s.dial
		s.dial = func(dsn string) (_ driver.Connector, err error) {
			d.Connector, err = dial(dsn)
			return d, err
		}
	})
	return b, d
}

func TestErrorOfCommitIsForAllOfTheGroupAndUnknownOnlyWhereItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		fault   commitFault
		unknown bool
		reopens int32
	}{
		{"disk full", commitFault{err: fault(sqlite3.SQLITE_FULL)}, false, 0},
		{"busy", commitFault{err: fault(sqlite3.SQLITE_BUSY)}, false, 0},
		{"write failed", commitFault{err: fault(sqlite3.SQLITE_IOERR_WRITE)}, true, 1},
		{"sync failed, and yet it is there", commitFault{err: fault(sqlite3.SQLITE_IOERR_FSYNC), done: true}, true, 1},
		{"no error of SQLite", commitFault{err: errors.New("odd")}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, d := setupFaulty(t)
			tx, db := b.visit(t.Context())
			b.exec(db, `INSERT INTO shipments (id) VALUES ('s-1')`)
			first, refused := b.commit(emit("o-1", 0)), b.commit(emit("o-1", 0))
			opened := d.opened.Load()
			d.next.Store(&c.fault)
			_, err := tx.Commit(t.Context(), eventstore.Changes{})
			for name, err := range map[string]error{"with SQL": err, "data": <-first, "refused": <-refused} {
				if errors.Is(err, eventstore.ErrUnknownCommit) != c.unknown || !errors.Is(err, c.fault.err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			there := 0
			if c.fault.done {
				there = 1
			}
			if b.shipments() != there || int(b.tail()) != there {
				t.Errorf("%d shipments, tail %d, want %d of each", b.shipments(), b.tail(), there)
			}
			// Whatever it was, work goes on, and on sequences as they are.
			b.must(<-b.commit(emit("o-1", uint64(there))))
			if tail := b.tail(); int(tail) != there+1 {
				t.Errorf("tail is %d after the next commit", tail)
			}
			if n := d.opened.Load() - opened; n != c.reopens {
				t.Errorf("connection was opened %d more times, want %d", n, c.reopens)
			}
		})
	}
}
