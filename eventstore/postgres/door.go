package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/keyhold/keyhold/eventstore"
)

// ErrNotAllowed: a statement reaches beyond its unit of work: it would end the transaction, or change the session for those that come after.
var ErrNotAllowed = errors.New("not allowed in a unit of work")

// door is the application's SQL inside a unit of work.
type door struct{ v *visit }

var _ eventstore.SQL = door{}

func (d door) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	done, ctx, err := d.v.enter(ctx, query)
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		args = []any{pgx.QueryExecModeSimpleProtocol} // so that it may be several statements
	}
	result, err := d.v.conn.ExecContext(ctx, query, args...)
	d.v.forgo() // nothing is left to be read: a transaction may have very many statements
	return result, done(err)
}

func (d door) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	done, ctx, err := d.v.enter(ctx, query)
	if err != nil {
		return nil, err
	}
	found, err := d.v.conn.QueryContext(ctx, query, args...)
	if err == nil {
		d.v.rows = append(d.v.rows, found)
	}
	return found, done(err)
}

func (d door) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	done, ctx, err := d.v.enter(ctx, query)
	if err != nil {
		return refusedRow(err)
	}
	row := d.v.conn.QueryRowContext(ctx, query, args...)
	_ = done(row.Err()) // the row tells it
	return row
}

// refusedRow makes a row that tells an error, which nobody but database/sql can make.
func refusedRow(err error) *sql.Row {
	db := sql.OpenDB(refusal{err})
	defer db.Close()
	return db.QueryRowContext(context.Background(), "")
}

// refusal is a connector that gives an error in place of a connection.
type refusal struct{ why error }

func (r refusal) Connect(context.Context) (driver.Conn, error) { return nil, r.why }
func (r refusal) Driver() driver.Driver                        { return nil }

// visit is a unit of work that has a connection, and a transaction open on it.
type visit struct {
	opened *opened
	ctx    context.Context // of the whole transaction
	stop   context.CancelFunc
	detach func() bool // from the end of ctx
	conn   *sql.Conn
	raw    *pgx.Conn // what is behind conn
	mark   string    // of the transaction

	mu      sync.Mutex // of whoever uses the connection
	over    error      // why it cannot be used any more
	broken  error      // of the statement that made the transaction useless
	used    time.Time  // when it was used last
	rows    []*sql.Rows
	release []func() // of the contexts of queries
}

// enter takes the connection for one call of the application's, until done, which classes its error.
func (v *visit) enter(ctx context.Context, query string) (done func(error) error, _ context.Context, err error) {
	if err := allowed(query); err != nil {
		return nil, ctx, err
	}
	v.mu.Lock()
	if v.over != nil {
		defer v.mu.Unlock()
		return nil, ctx, v.over
	}
	merged, cancel := within(ctx, v.ctx)
	v.release = append(v.release, cancel)
	return func(err error) error {
		defer v.mu.Unlock()
		if err = v.class(err); err != nil && v.broken == nil {
			v.onRaw(func() {
				if v.raw.IsClosed() || v.raw.PgConn().TxStatus() == 'E' {
					v.broken = err
				}
			})
		}
		v.used = time.Now()
		return err
	}, merged, nil
}

// forgo ends the context of the query that was entered last.
func (v *visit) forgo() {
	last := len(v.release) - 1
	v.release[last]()
	v.release = v.release[:last]
}

// class says what an error of the application's SQL is.
func (v *visit) class(err error) error {
	switch {
	case err == nil || errors.Is(err, eventstore.ErrUnknownCommit):
		return err
	case v.ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(v.ctx), err)
	case isLost(err) && time.Since(v.used) >= v.opened.config.TransactionTimeout: // the server said so, but its word got lost with the connection
		return fmt.Errorf("%w: %w: %w", eventstore.ErrTrouble, ErrIdle, err)
	}
	return trouble(err)
}

// visit begins one.
func (o *opened) visit(ctx context.Context) (*visit, error) {
	if !o.hands.enter() {
		return nil, eventstore.ErrClosed
	}
	v := &visit{opened: o, mark: newMark(), used: time.Now()}
	v.ctx, v.stop = within(ctx, o.ending())
	var err error
	if v.conn, err = o.doors.Conn(v.ctx); err != nil {
		defer o.hands.leave()
		defer v.stop()
		return nil, trouble(ended(v.ctx, inUse(v.ctx, o.writers, err)))
	}
	err = v.conn.Raw(func(behind any) error {
		v.raw = behind.(*stdlib.Conn).Conn()
		return nil
	})
	if err == nil {
		err = v.begin()
	}
	if err != nil {
		err = trouble(ended(v.ctx, err))
		v.end(err)
		return nil, err
	}
	v.mu.Lock() // what follows may begin before detach is known
	defer v.mu.Unlock()
	v.detach = context.AfterFunc(v.ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.end(context.Cause(v.ctx))
	})
	return v, nil
}

// begin begins the transaction, which is marked, so that one that the application began in its place is found out.
func (v *visit) begin() error {
	c := v.opened.connection(v.ctx)
	var s script
	s.add(beginWork, nil, nil)
	var f fence
	s.get(readFence, nil, func(bool) error { return c.check(f) }, f.into()...)
	s.add(`SELECT set_config('keyhold.unit', $1, true)`, []any{v.mark}, nil)
	return s.run(v.ctx, v.raw)
}

// end gives the connection up; a transaction that is open is rolled back. v.mu is held, or nobody else knows v.
func (v *visit) end(why error) {
	if v.over != nil {
		return
	}
	v.over = why
	for _, cancel := range v.release {
		cancel()
	}
	for _, r := range v.rows {
		_ = r.Close()
	}
	if v.detach != nil {
		v.detach()
	}
	v.stop()
	if v.raw != nil {
		v.onRaw(func() { rollback(v.raw) })
	}
	_ = v.conn.Close() // the pool closes what is still in a transaction
	v.opened.hands.leave()
}

// onRaw runs f while database/sql does nothing on the connection, such as closing rows whose context is over.
func (v *visit) onRaw(f func()) {
	_ = v.conn.Raw(func(any) error { // an error says that the connection is gone, and with it the transaction
		f()
		return nil
	})
}

// finish closes the rows that the application left open.
func (v *visit) finish() {
	for _, r := range v.rows {
		if err := r.Close(); err != nil && v.broken == nil {
			v.broken = v.class(err)
		}
	}
}

// ready reports why nothing can be committed.
func (v *visit) ready() error {
	switch status := v.raw.PgConn().TxStatus(); {
	case v.ctx.Err() != nil:
		return context.Cause(v.ctx)
	case v.raw.PgConn().IsBusy():
		return errors.New("a row of the transaction was not read: call Scan on what QueryRowContext gives")
	case v.broken != nil:
		return fmt.Errorf("the transaction was lost at a statement before: %w", v.broken)
	case v.raw.IsClosed():
		return v.class(sql.ErrConnDone)
	case status != 'T':
		return fmt.Errorf("%w: the transaction of the unit of work was ended from inside (status %c)", ErrNotAllowed, status)
	}
	return nil
}

// rollback ends the transaction of a connection, or else the connection.
func rollback(conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), rollbackPatience)
	defer cancel()
	if _, err := conn.Exec(ctx, `ROLLBACK`, pgx.QueryExecModeSimpleProtocol); err != nil {
		_ = conn.Close(ctx)
	}
}

// allowed refuses statements that would end the transaction or outlive it. It keeps an honest program from a mistake; what gets past
// it is found by the mark of the transaction, and nothing is committed then.
func allowed(query string) error {
	word, rest := firstWord(query)
	next, _ := firstWord(rest)
	refused := false
	switch word {
	case "BEGIN", "START", "COMMIT", "END", "ABORT", "RESET", "DISCARD", "LISTEN", "UNLISTEN":
		refused = true
	case "ROLLBACK":
		refused = next != "TO" && next != "WORK" && next != "TRANSACTION" || !strings.Contains(strings.ToUpper(rest), "TO")
	case "PREPARE":
		refused = next == "TRANSACTION"
	case "SET":
		refused = next != "LOCAL" && next != "CONSTRAINTS"
	}
	if refused {
		return fmt.Errorf("%s: %w", strings.TrimSpace(word+" "+next), ErrNotAllowed)
	}
	return nil
}

// firstWord gives the first word of a statement in capitals, and what follows it. Comments are passed over.
func firstWord(s string) (word, rest string) {
	for {
		s = strings.TrimLeftFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == ';' })
		var found bool
		switch {
		case strings.HasPrefix(s, "--"):
			_, s, found = strings.Cut(s, "\n")
		case strings.HasPrefix(s, "/*"):
			_, s, found = strings.Cut(s, "*/")
		default:
			end := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' })
			if end < 0 {
				end = len(s)
			}
			return strings.ToUpper(s[:end]), s[end:]
		}
		if !found {
			return "", ""
		}
	}
}
