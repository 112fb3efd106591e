package sqlite

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"testing"

	"github.com/keyhold/keyhold/internal/signal"
)

// seenDriver is SQLite's driver, with a test that looks on.
type seenDriver struct {
	driver.Connector
	opened atomic.Int32                // connections
	next   atomic.Pointer[commitFault] // of the next COMMIT
	begun  signal.Signal[string]       // statements of the application
}

// commitFault makes a COMMIT fail, before or after it was done.
type commitFault struct {
	err  error
	done bool // the commit happens all the same
}

func (d *seenDriver) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := d.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	d.opened.Add(1)
	return seenConn{c.(driverConn), d}, nil
}

type seenConn struct {
	driverConn
	driver *seenDriver
}

func (c seenConn) Unwrap() driver.Conn { return c.driverConn }

func (c seenConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.driver.begun.Send(query)
	return c.driverConn.ExecContext(ctx, query, args)
}

func (c seenConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.driverConn.PrepareContext(ctx, query)
	if err == nil && query == "COMMIT" {
		return seenCommit{s, c.driver}, nil
	}
	return s, err
}

type seenCommit struct {
	driver.Stmt
	driver *seenDriver
}

func (s seenCommit) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	f := s.driver.next.Swap(nil)
	if f == nil || f.done {
		if r, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args); f == nil || err != nil {
			return r, err
		}
	}
	return nil, f.err
}

func (s seenCommit) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// setupSeen is setup with such a driver.
func setupSeen(t *testing.T, tune ...func(*Store)) (*bundle, *seenDriver) {
	t.Helper()
	d := new(seenDriver)
	d.begun.Init(t)
	b := setup(t, append(tune, func(s *Store) {
		dial := s.dial
		s.dial = func(dsn string) (_ driver.Connector, err error) {
			d.Connector, err = dial(dsn)
			return d, err
		}
	})...)
	return b, d
}
