package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// longHold is when a body that has the connection is reported the first time; then each time that has doubled.
const longHold = 250 * time.Millisecond

// visitor is the application with SQL of its own in a unit of work. While it has the connection everybody else waits.
type visitor struct {
	ctx     context.Context              // bounds the wait and the visit; a request carries it, as in net/http
	enter   chan door                    // one value, when it is its turn
	leaving chan func(*connection) error // one value: what is to be applied behind its SQL, nil to roll back
}

func newVisitor(ctx context.Context) *visitor {
	return &visitor{ctx: ctx, enter: make(chan door, 1), leaving: make(chan func(*connection) error, 1)}
}

// door is the application's way to the connection. It is shut when the unit of work ends: sql.ErrTxDone.
type door struct{ tx *sql.Tx }

func (d door) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return d.tx.ExecContext(ctx, query, args...)
}

func (d door) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return d.tx.QueryContext(ctx, query, args...)
}

func (d door) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return d.tx.QueryRowContext(ctx, query, args...)
}

// setup runs what the application does to its tables at a start. Nobody else is there yet.
func (w *writer) setup(ctx context.Context, f func(context.Context, eventstore.SQL) error) error {
	if err := w.begin(); err != nil {
		return w.unable(err)
	}
	tx, err := w.conn.BeginTx(context.Background(), nil)
	if err == nil {
		if err = caught(ctx, door{tx}, f); err == nil {
			err = tx.Commit()
		} else {
			err = errors.Join(err, tx.Rollback())
		}
	}
	if err == nil {
		err = w.commit()
	}
	if err != nil {
		w.rollback()
		return fmt.Errorf("setup of store %s: %w", w.path, err)
	}
	return nil
}

// caught makes an error of a panic: a start that fails must give the ownership up, and close what it opened.
func caught(ctx context.Context, db door, f func(context.Context, eventstore.SQL) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f(ctx, db)
}

// errRolledBack: the application changed its mind. It is the answer to a rollback, not an error to anybody.
var errRolledBack = errors.New("rolled back")

// receive lets a visitor in, waits until it leaves, and applies what it leaves. An error means that the transaction is lost.
func (w *writer) receive(ctx context.Context, g *group, j *job) error {
	err := w.saved(func(c *connection) error {
		apply, err := w.host(ctx, j)
		if err != nil {
			return err
		}
		j.apply = apply
		return apply(c)
	})
	switch {
	case err == nil:
		g.fixed++
	case errors.Is(err, errGone):
		j.answer(err)
		return err
	case !refused(err):
		j.answer(err) // whatever becomes of the group
		return nil
	}
	g.add(j, err)
	return nil
}

// host gives a visitor the connection until it leaves, or its context is done: then its unit of work is over, whatever it
// does. The connection never stays with it.
func (w *writer) host(ctx context.Context, j *job) (func(*connection) error, error) {
	if err := j.visitor.ctx.Err(); err != nil {
		return nil, err
	}
	tx, err := w.conn.BeginTx(context.Background(), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", eventstore.ErrTrouble, err)
	}
	j.visitor.enter <- door{tx}
	apply, err := w.hold(ctx, j)
	if err == nil {
		err = j.visitor.ctx.Err()
	}
	// Both wait for a statement that is under way, and close rows that were left open.
	if err != nil {
		w.guard.running.after(w.patience)
		defer w.guard.running.rest()
		return nil, errors.Join(err, tx.Rollback())
	}
	return apply, tx.Commit()
}

func (w *writer) hold(ctx context.Context, j *job) (func(*connection) error, error) {
	began, report := time.Now(), longHold
	timer := time.NewTimer(report)
	defer timer.Stop()
	for {
		select {
		case apply := <-j.visitor.leaving:
			if apply == nil {
				return nil, errRolledBack
			}
			return apply, nil
		case <-j.visitor.ctx.Done():
			return nil, j.visitor.ctx.Err()
		case <-ctx.Done():
			return nil, eventstore.ErrClosed
		case <-timer.C:
			w.notice(eventstore.Notice{What: "long hold", Who: j.who, Took: time.Since(began)})
			timer.Reset(report)
			report *= 2
		}
	}
}
