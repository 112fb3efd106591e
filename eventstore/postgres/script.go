package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// script is a run of statements that goes to the database in one piece, and whose answers are read together: one round trip. Each statement sees
// what those before it did, and what others had committed when it began.
type script struct {
	batch pgx.Batch
	reads []func(pgx.BatchResults) error
}

// add adds a statement; done, which may be nil, gets what the server says of it. When it gives an error the answers after it are dropped, not
// the statements: a rollback must follow.
func (s *script) add(query string, args []any, done func(tag pgconn.CommandTag) error) {
	s.batch.Queue(query, args...)
	s.reads = append(s.reads, func(r pgx.BatchResults) error {
		tag, err := r.Exec()
		if err == nil && done != nil {
			err = done(tag)
		}
		return err
	})
}

// get adds a query that gives one row at most, which is scanned; done, which may be nil, is told whether there was one.
func (s *script) get(query string, args []any, done func(found bool) error, into ...any) {
	s.batch.Queue(query, args...)
	s.reads = append(s.reads, func(r pgx.BatchResults) error {
		err := r.QueryRow().Scan(into...)
		found := err == nil
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		if err == nil && done != nil {
			err = done(found)
		}
		return err
	})
}

// each adds a query, for every row of which row is called.
func (s *script) each(query string, args []any, row func(rows) error) {
	s.batch.Queue(query, args...)
	s.reads = append(s.reads, func(r pgx.BatchResults) error {
		found, err := r.Query()
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			if err := row(found); err != nil {
				return err
			}
		}
		found.Close()
		return found.Err()
	})
}

// append adds what is in another one, which is empty then.
func (s *script) append(other *script) {
	s.batch.QueuedQueries = append(s.batch.QueuedQueries, other.batch.QueuedQueries...)
	s.reads = append(s.reads, other.reads...)
	*other = script{}
}

// sender is a connection, or a transaction on one.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// run sends the statements and reads the answers, up to the first error. The script is empty then.
func (s *script) run(ctx context.Context, conn sender) error {
	if len(s.reads) == 0 {
		return nil
	}
	results := conn.SendBatch(ctx, &s.batch)
	var err error
	for _, read := range s.reads {
		if err = read(results); err != nil {
			break
		}
	}
	closed := results.Close()
	*s = script{}
	if err == nil {
		err = closed
	}
	return err
}
