package actors_test

import (
	"context"
	"database/sql"
	"sync/atomic"

	"github.com/keyhold/keyhold/eventstore"
)

// withSQL gives a store a database/sql of which only the calls count.
type withSQL struct {
	eventstore.Store
	open, statements atomic.Int32
}

func (s *withSQL) Begin(who string) eventstore.Tx { return &sqlTx{Tx: s.Store.Begin(who), store: s} }

type sqlTx struct {
	eventstore.Tx
	store *withSQL
	begun bool
}

func (t *sqlTx) SQL(ctx context.Context) (eventstore.SQL, error) {
	if !t.begun {
		t.begun = true
		t.store.open.Add(1)
	}
	return statements{t.store}, ctx.Err()
}

func (t *sqlTx) end() {
	if t.begun {
		t.begun = false
		t.store.open.Add(-1)
	}
}

func (t *sqlTx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	defer t.end()
	return t.Tx.Commit(ctx, c)
}

func (t *sqlTx) Rollback() error {
	defer t.end()
	return t.Tx.Rollback()
}

type statements struct{ store *withSQL }

func (s statements) ExecContext(ctx context.Context, _ string, _ ...any) (sql.Result, error) {
	s.store.statements.Add(1)
	return nil, ctx.Err()
}

func (s statements) QueryContext(context.Context, string, ...any) (*sql.Rows, error) { return nil, nil }
func (s statements) QueryRowContext(context.Context, string, ...any) *sql.Row        { return nil }
