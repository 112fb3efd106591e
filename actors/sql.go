package actors

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/keyhold/keyhold/eventstore"
)

// lazySQL begins the transaction of its attempt with the first statement.
type lazySQL struct{ a *attempt }

func (a *attempt) sql() eventstore.SQL { return lazySQL{a} }

func (l lazySQL) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	db, err := l.a.begin()
	if err != nil {
		return nil, err
	}
	return db.ExecContext(ctx, query, args...)
}

func (l lazySQL) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	db, err := l.a.begin()
	if err != nil {
		return nil, err
	}
	return db.QueryContext(ctx, query, args...)
}

func (l lazySQL) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	db, err := l.a.begin()
	if err != nil {
		return errorRow(ctx, err)
	}
	return db.QueryRowContext(ctx, query, args...)
}

// begin gives the transaction. One that cannot be had fails the unit of work. The transaction ends with the behavior's context, not
// with that of the statement which happened to be the first.
func (a *attempt) begin() (eventstore.SQL, error) {
	if a.of == nil && a.caller != nil && a.caller.inSQL() {
		err := fmt.Errorf("begin inside of another unit of work: %w", ErrAskInTx)
		a.fail(err)
		return nil, err
	}
	a.mu.Lock()
	over := a.mu.over
	a.mu.begun = a.mu.begun || !over
	a.mu.Unlock()
	if over {
		return nil, ErrOver
	}
	db, err := a.transaction().SQL(a)
	if err != nil {
		a.fail(err)
	}
	return db, err
}

// errorRow gives a row whose Scan gives err. The package database/sql has no other way to make one.
func errorRow(ctx context.Context, err error) *sql.Row {
	db := sql.OpenDB(broken{err})
	defer db.Close()
	return db.QueryRowContext(ctx, "")
}

// broken is a driver.Connector that never connects.
type broken struct{ err error }

func (b broken) Connect(context.Context) (driver.Conn, error) { return nil, b.err }
func (b broken) Driver() driver.Driver                        { return b }
func (b broken) Open(string) (driver.Conn, error)             { return nil, b.err }

// failedSQL gives err for every statement.
type failedSQL struct{ err error }

func (f failedSQL) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, f.err
}

func (f failedSQL) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, f.err
}

func (f failedSQL) QueryRowContext(ctx context.Context, _ string, _ ...any) *sql.Row {
	return errorRow(ctx, f.err)
}
