package eventstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrStaged: events were staged in this transaction already.
var ErrStaged = errors.New("this transaction has its events already: publish all of them in one call")

// UserTx is a transaction that the application began itself, outside any behavior, into which events can be staged: they
// commit with its SQL or not at all. A store with SQL gives one from its BeginTx. As [SQL], it is not for concurrent use.
type UserTx struct {
	tx        Tx
	sql       SQL
	staged    *Changes
	committed func(Committed)
}

var _ SQL = (*UserTx)(nil)

// BeginUserTx begins a transaction on a store. It waits for its turn where the database has a single writer, and then holds it
// until Commit or Rollback. ctx bounds the wait and the whole transaction; who names the caller in messages.
func BeginUserTx(ctx context.Context, store Beginner, who string) (*UserTx, error) {
	tx := store.Begin(who)
	db, err := tx.SQL(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin %s: %w", who, err), tx.Rollback())
	}
	return &UserTx{tx: tx, sql: db}, nil
}

// ExecContext implements [SQL].
func (u *UserTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return u.sql.ExecContext(ctx, query, args...)
}

// QueryContext implements [SQL].
func (u *UserTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return u.sql.QueryContext(ctx, query, args...)
}

// QueryRowContext implements [SQL].
func (u *UserTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return u.sql.QueryRowContext(ctx, query, args...)
}

// Stage gives the transaction what is to commit with its SQL. It can be done once; a second call gives [ErrStaged].
// An error leaves the transaction as it was, without c. One that is over gives [ErrEnded], and one whose context is done the
// error of that.
func (u *UserTx) Stage(c Changes) error {
	if _, err := u.tx.SQL(context.Background()); err != nil { // it has its turn: nothing to wait for
		return err
	}
	if u.staged != nil {
		return ErrStaged
	}
	if err := c.Validate(); err != nil {
		return err
	}
	u.staged = &c
	return nil
}

// OnCommit has f called once the transaction has committed, by the goroutine that commits, before Commit returns. It
// replaces an f given before.
func (u *UserTx) OnCommit(f func(Committed)) { u.committed = f }

// Commit commits the SQL and what was staged. The errors are those of [Tx.Commit]. The transaction is over whatever it returns.
func (u *UserTx) Commit(ctx context.Context) error {
	var c Changes
	if u.staged != nil {
		c = *u.staged
	}
	done, err := u.tx.Commit(ctx, c)
	if err == nil && u.committed != nil {
		u.committed(done)
	}
	return err
}

// Rollback ends the transaction without a trace. Calling it after Commit, or twice, is a no-op.
func (u *UserTx) Rollback() error { return u.tx.Rollback() }
