package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keyhold/keyhold/eventstore"
)

// ErrNotAllowed: the application's SQL inside a unit of work tried what would reach beyond it: to begin or end a
// transaction or savepoint, PRAGMA, ATTACH, or a change of Keyhold's own tables.
var ErrNotAllowed = errors.New("not allowed in a unit of work")

// errGone: on some errors, and for OR ROLLBACK, SQLite rolls back the whole transaction and not the statement alone.
var errGone = errors.New("the database rolled the transaction back")

// defaultPatience is how long a statement of the application may run on after its context is done. Interrupting one that
// writes rolls back the whole transaction, the neighbours in the group included; one that never ended would stop all.
const defaultPatience = time.Second

// driverConn is what a connection of the driver can do.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	sqlite.DBStatus
	sqlite.AuthorizerRegisterer
}

// guarded is the writer's connection. The transactions of database/sql are not transactions here but visits: between BeginTx
// and the visit's end the application has the connection, and its SQL is kept inside the unit of work. The
// transaction and the savepoint around the visit are the writer's business.
//
// database/sql makes all calls one at a time.
type guarded struct {
	driverConn
	begin    driver.Stmt
	patience time.Duration

	prepared map[*prepared]struct{} // statements that are open
	running  interrupter

	visit   bool  // the application has the connection
	gone    bool  // the transaction ended during this visit
	trouble error // of a statement of this visit that was not its own doing
	refused error // why the authorizer last said no
}

func guard(c driver.Conn, patience time.Duration) (*guarded, error) {
	inner, ok := c.(driverConn)
	if !ok {
		return nil, fmt.Errorf("the driver's %T lacks what the writer needs", c)
	}
	begin, err := inner.Prepare("BEGIN")
	if err != nil {
		return nil, err
	}
	g := &guarded{driverConn: inner, begin: begin, patience: patience, prepared: make(map[*prepared]struct{})}
	if err := g.running.of(c); err != nil {
		return nil, errors.Join(err, begin.Close())
	}
	return g, inner.RegisterAuthorizer(g.authorize)
}

// Close closes the connection, and first the statements that are open on it: database/sql does not, where they were prepared on
// a sql.Conn, and may close the connection on its own account, after an error. To close one later would touch what is gone.
func (g *guarded) Close() error {
	g.running.close()
	var errs []error
	for s := range g.prepared {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, g.begin.Close(), g.driverConn.Close())...)
}

// PrepareContext prepares a statement of Keyhold's own.
func (g *guarded) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	inner, err := g.driverConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s, ok := inner.(driverStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's %T lacks what the writer needs", inner), inner.Close())
	}
	p := &prepared{driverStmt: s, on: g}
	g.prepared[p] = struct{}{}
	return p, nil
}

// driverStmt is what a statement of the driver can do.
type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// prepared is a statement that is closed once, and not after its connection.
type prepared struct {
	driverStmt
	on *guarded
}

// Close closes the statement. It may have gone with its connection.
func (p *prepared) Close() error {
	if _, open := p.on.prepared[p]; !open {
		return nil
	}
	delete(p.on.prepared, p)
	return p.driverStmt.Close()
}

// BeginTx begins a visit.
func (g *guarded) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	g.visit, g.gone, g.trouble = true, false, nil
	return visit{g}, nil
}

type visit struct{ g *guarded }

// Commit ends the visit. An error says that what was done in it cannot be kept.
func (v visit) Commit() error {
	defer func() { v.g.visit = false }()
	if err := v.g.intact(); err != nil {
		return err
	}
	// A deferred constraint would fail the whole group at its COMMIT.
	if open, _, err := v.g.Status(sqlite.DBStatusDeferredFKs, false); err != nil || open != 0 {
		return errors.Join(errors.New("a deferred foreign key is not satisfied"), err)
	}
	return nil
}

// Rollback ends the visit.
func (v visit) Rollback() error {
	v.g.visit = false
	return nil
}

// ExecContext runs a statement, for the application within the limits of its visit.
func (g *guarded) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if !g.visit {
		return g.driverConn.ExecContext(ctx, query, args)
	}
	if err := g.intact(); err != nil {
		return nil, err
	}
	inner, stop := g.patient(ctx)
	defer stop()
	result, err := g.driverConn.ExecContext(inner, query, args)
	return result, g.reason(ctx, err)
}

// QueryContext runs a query, for the application within the limits of its visit.
func (g *guarded) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !g.visit {
		return g.driverConn.QueryContext(ctx, query, args)
	}
	if err := g.intact(); err != nil {
		return nil, err
	}
	inner, stop := g.patient(ctx)
	defer stop()
	rows, err := g.driverConn.QueryContext(inner, query, args)
	if err != nil {
		return nil, g.reason(ctx, err)
	}
	if r, ok := rows.(driverRows); ok {
		return visitRows{r, g, ctx}, nil
	}
	return nil, errors.Join(fmt.Errorf("the driver's %T lacks what the writer needs", rows), rows.Close())
}

// driverRows is what rows of the driver can do.
type driverRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// visitRows are the rows of a query of the application.
type visitRows struct {
	driverRows
	g   *guarded
	ctx context.Context // of the query, as the rows of the driver have it
}

func (r visitRows) Next(into []driver.Value) error {
	err := r.driverRows.Next(into)
	if err == io.EOF {
		return err
	}
	return r.g.reason(r.ctx, err)
}

// intact reports whether the writer's transaction is still there. If it is not, nothing more may run in this visit: it
// would commit by itself.
func (g *guarded) intact() error {
	if !g.gone {
		g.visit = false // the authorizer is asked again after a change of the schema
		_, err := g.begin.(driver.StmtExecContext).ExecContext(context.Background(), nil)
		g.visit = true
		g.gone = err == nil // else: cannot start a transaction within a transaction
	}
	switch {
	case !g.gone:
		return nil
	case g.trouble != nil:
		return fmt.Errorf("%w: %w", errGone, g.trouble)
	}
	return errGone
}

// patient gives a context that ends some time after ctx. stop is to be called when the statement has returned.
func (g *guarded) patient(ctx context.Context) (inner context.Context, stop func() bool) {
	if ctx.Done() == nil {
		return ctx, func() bool { return true }
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return inner, context.AfterFunc(ctx, func() { time.AfterFunc(g.patience, cancel) })
}

// reason makes an error of the driver one that tells the application what happened.
func (g *guarded) reason(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case code(err) == sqlite3.SQLITE_AUTH && g.refused != nil:
		err, g.refused = g.refused, nil
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || code(err) == sqlite3.SQLITE_INTERRUPT):
		return ctx.Err()
	}
	if err = trouble(err); errors.Is(err, eventstore.ErrTrouble) {
		g.trouble = err
	}
	return err
}

// authorize decides, while a statement is prepared, what may be in it.
func (g *guarded) authorize(action sqlite.AuthorizerActionCode, arg1, arg2, _, _ string) sqlite.AuthorizerReturnCode {
	if !g.visit {
		return sqlite.AuthorizerOK
	}
	what := forbidden(action, arg1, arg2)
	if what == "" {
		return sqlite.AuthorizerOK
	}
	g.refused = fmt.Errorf("%s: %w", what, ErrNotAllowed)
	return sqlite.AuthorizerDeny
}

// forbidden names what the application may not do, "" if it may.
func forbidden(action sqlite.AuthorizerActionCode, arg1, arg2 string) string {
	switch action {
	case sqlite.AuthRead, sqlite.AuthSelect, sqlite.AuthFunction, sqlite.AuthRecursive:
		return ""
	case sqlite.AuthTransaction:
		return arg1 + " (the unit of work begins and ends the transaction)"
	case sqlite.AuthSavepoint:
		return "SAVEPOINT, RELEASE or ROLLBACK TO (the unit of work has one of its own)"
	case sqlite.AuthAttach, sqlite.AuthDetach:
		return "ATTACH or DETACH (it would outlive the unit of work)"
	case sqlite.AuthPragma:
		if slices.Contains(harmless, strings.ToLower(arg1)) {
			return ""
		}
		return "PRAGMA " + arg1 + " (it would outlive the unit of work)"
	}
	for _, name := range [...]string{arg1, arg2} {
		if strings.HasPrefix(strings.ToLower(name), "keyhold_") {
			return "change of " + name + " (names that begin with keyhold_ are Keyhold's)"
		}
	}
	return ""
}

// harmless PRAGMAs only tell about tables. Migration tools ask for them.
var harmless = []string{
	"foreign_key_check", "foreign_key_list", "function_list", "index_info", "index_list", "index_xinfo",
	"table_info", "table_list", "table_xinfo",
}
