package sqlite

import (
	"context"
	"database/sql"
	"sync"
)

// queryer runs prepared queries: on the writer's connection, on one of the readers, or in a reader's transaction.
type queryer interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// each calls row for every row of a query.
func each(ctx context.Context, q queryer, query string, args []any, row func(*sql.Rows) error) error {
	rows, err := q.query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// get scans the row of a query that gives one at most; found is false when it gives none.
func get(ctx context.Context, q queryer, query string, args []any, into ...any) (found bool, err error) {
	err = each(ctx, q, query, args, func(r *sql.Rows) error {
		found = true
		return r.Scan(into...)
	})
	return found, err
}

// readers is the pool of connections that only read, for Keyhold's own queries.
type readers struct {
	db         *sql.DB
	storeID    string
	statements sync.Map // query -> *sql.Stmt
}

func (r *readers) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if s, found := r.statements.Load(query); found {
		return s.(*sql.Stmt), nil
	}
	s, err := r.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if first, found := r.statements.LoadOrStore(query, s); found {
		return first.(*sql.Stmt), s.Close()
	}
	return s, nil
}

func (r *readers) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := r.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// snapshot runs f with a queryer whose queries all see the same state.
func (r *readers) snapshot(ctx context.Context, f func(queryer) error) error {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	s := &snapshot{readers: r, tx: tx}
	err = f(s)
	_ = tx.Rollback() // it only read
	for _, query := range s.unprepared {
		_, _ = r.statement(ctx, query) // if it fails, the next snapshot does without it, too
	}
	return err
}

// snapshot goes by the readers' prepared statements where they are there, and leaves it for later to make the others: that takes
// a second connection of the pool, and with every connection held by a snapshot that wants one more, all would wait for ever.
type snapshot struct {
	readers    *readers
	tx         *sql.Tx
	unprepared []string
}

func (s *snapshot) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if prepared, found := s.readers.statements.Load(query); found {
		return s.tx.StmtContext(ctx, prepared.(*sql.Stmt)).QueryContext(ctx, args...)
	}
	s.unprepared = append(s.unprepared, query)
	return s.tx.QueryContext(ctx, query, args...)
}
