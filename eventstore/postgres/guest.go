package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/keyhold/keyhold/eventstore"
)

// Tx wraps a transaction that the application began by pgx, on a connection of its own to the database of the store, so that events can be published in
// it ([eventstore.Beginner].PublishIn). It must be READ COMMITTED, as PostgreSQL begins them unless told otherwise, and its role must be allowed to write
// Keyhold's tables. The application goes on using tx as it likes, and commits it or rolls it back itself. What this gives is SQL like that of a
// behavior: for code that is to run in both. It is not for concurrent use.
func Tx(tx pgx.Tx) eventstore.SQL { return &guest{tx} }

// guest is a transaction of the application's own.
type guest struct{ tx pgx.Tx }

var _ eventstore.SQL = (*guest)(nil)

func (g *guest) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	db := sql.OpenDB(guestDriver{g.tx})
	defer db.Close()
	return db.ExecContext(ctx, query, args...)
}

func (g *guest) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	db := sql.OpenDB(guestDriver{g.tx})
	defer db.Close() // rows that are open go on
	return db.QueryContext(ctx, query, args...)
}

func (g *guest) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	db := sql.OpenDB(guestDriver{g.tx})
	defer db.Close()
	return db.QueryRowContext(ctx, query, args...)
}

// guestDriver has database/sql take a transaction of pgx for a connection: there is no other way to its rows.
type guestDriver struct{ tx pgx.Tx }

var (
	_ driver.Connector         = guestDriver{}
	_ driver.Conn              = guestDriver{}
	_ driver.ExecerContext     = guestDriver{}
	_ driver.QueryerContext    = guestDriver{}
	_ driver.NamedValueChecker = guestDriver{}
)

func (d guestDriver) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d guestDriver) Driver() driver.Driver                        { return nil }
func (d guestDriver) Close() error                                 { return nil }

func (d guestDriver) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("prepare: use the transaction of pgx itself")
}
func (d guestDriver) Begin() (driver.Tx, error) { return nil, errors.New("begin: it is begun") }

// CheckNamedValue has pgx take arguments as they are.
func (d guestDriver) CheckNamedValue(*driver.NamedValue) error { return nil }

func guestArgs(named []driver.NamedValue, args ...any) []any {
	for _, n := range named {
		args = append(args, n.Value)
	}
	return args
}

func (d guestDriver) ExecContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Result, error) {
	args := guestArgs(named)
	if len(args) == 0 {
		args = []any{pgx.QueryExecModeSimpleProtocol} // so that it may be several statements
	}
	tag, err := d.tx.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func (d guestDriver) QueryContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Rows, error) {
	found, err := d.tx.Query(ctx, query, guestArgs(named, asValues)...)
	if err != nil {
		return nil, err
	}
	return &guestRows{rows: found}, nil
}

// asValues are the types that database/sql has values for; all others come as text.
var asValues = pgx.QueryResultFormatsByOID{
	pgtype.BoolOID: pgx.BinaryFormatCode, pgtype.ByteaOID: pgx.BinaryFormatCode, pgtype.DateOID: pgx.BinaryFormatCode, pgtype.TimestampOID: pgx.BinaryFormatCode,
	pgtype.TimestamptzOID: pgx.BinaryFormatCode, pgtype.Int2OID: pgx.BinaryFormatCode, pgtype.Int4OID: pgx.BinaryFormatCode, pgtype.Int8OID: pgx.BinaryFormatCode,
	pgtype.Float4OID: pgx.BinaryFormatCode, pgtype.Float8OID: pgx.BinaryFormatCode,
}

// guestRows are rows of pgx as database/sql reads them.
type guestRows struct {
	rows  pgx.Rows
	cells []cell // one for each column
}

// cell is where pgx puts the value of a column, and value gives it for database/sql; nil is NULL.
type cell struct {
	into  any
	value func() driver.Value
}

func cellOf[T any]() cell {
	into := new(*T)
	return cell{into, func() driver.Value {
		if *into == nil {
			return nil
		}
		return **into
	}}
}

func (r *guestRows) Columns() []string {
	var names []string
	for _, f := range r.rows.FieldDescriptions() {
		names = append(names, f.Name)
	}
	return names
}

func (r *guestRows) Next(dest []driver.Value) error {
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	if r.cells == nil {
		for _, f := range r.rows.FieldDescriptions() {
			r.cells = append(r.cells, newCell(f.DataTypeOID))
		}
	}
	into := make([]any, len(r.cells))
	for i, c := range r.cells {
		into[i] = c.into
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	for i, c := range r.cells {
		dest[i] = c.value()
	}
	return nil
}

func newCell(oid uint32) cell {
	switch oid {
	case pgtype.BoolOID:
		return cellOf[bool]()
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		return cellOf[int64]()
	case pgtype.Float4OID, pgtype.Float8OID:
		return cellOf[float64]()
	case pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID:
		return cellOf[time.Time]()
	case pgtype.ByteaOID:
		into := new([]byte)
		return cell{into, func() driver.Value {
			if *into == nil {
				return nil
			}
			return *into
		}}
	}
	return cellOf[string]()
}

func (r *guestRows) Close() error {
	r.rows.Close()
	return nil // an error of the rows was given by Next
}
