package postgres

import (
	"context"
	"crypto/rand"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyhold/keyhold/eventstore"
)

// beginWork begins a transaction that writes, whatever the database does by default.
const beginWork = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`

// tx is one unit of work.
type tx struct {
	opened *opened // the store's as it was started when the unit of work began; nil when it was not
	who    string
	visit  *visit // once SQL has a connection
	failed error  // of SQL: nothing can commit any more
	ended  bool
}

// Begin makes a unit of work. While it has SQL open it has one of [Config].MaxConns connections, and others may wait for what it has changed.
func (s *Store) Begin(who string) eventstore.Tx { return &tx{opened: s.opened.Load(), who: who} }

func (t *tx) SQL(ctx context.Context) (eventstore.SQL, error) {
	switch {
	case t.ended:
		return nil, eventstore.ErrEnded
	case t.opened == nil:
		return nil, eventstore.ErrClosed
	case t.failed != nil:
		return nil, t.failed
	case t.visit != nil:
		return door{t.visit}, context.Cause(t.visit.ctx)
	}
	if t.visit, t.failed = t.opened.visit(ctx); t.failed != nil {
		return nil, t.failed
	}
	return door{t.visit}, nil
}

func (t *tx) Begun() bool { return t.visit != nil && !t.ended }

func (t *tx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	if t.ended {
		return eventstore.Committed{}, eventstore.ErrEnded
	}
	if err := t.ready(&c); err != nil {
		_ = t.Rollback()
		return eventstore.Committed{}, err
	}
	t.ended = true
	if t.visit != nil {
		return t.visit.commit(ctx, &c)
	}
	if !t.opened.hands.enter() {
		return eventstore.Committed{}, eventstore.ErrClosed
	}
	defer t.opened.hands.leave()
	return t.opened.commit(ctx, &c)
}

// ready says why nothing can be committed.
func (t *tx) ready(c *eventstore.Changes) error {
	switch {
	case t.opened == nil:
		return eventstore.ErrClosed
	case t.failed != nil:
		return t.failed
	}
	return c.Validate()
}

func (t *tx) Rollback() error {
	if t.ended || t.visit == nil {
		t.ended = true
		return nil
	}
	t.ended = true
	t.visit.mu.Lock()
	defer t.visit.mu.Unlock()
	t.visit.end(eventstore.ErrEnded)
	return nil
}

// commit commits a visit, which is over then.
func (v *visit) commit(ctx context.Context, c *eventstore.Changes) (eventstore.Committed, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over != nil {
		return eventstore.Committed{}, v.over
	}
	defer v.end(eventstore.ErrEnded)
	v.finish()
	ctx, stop := within(ctx, v.ctx)
	defer stop()
	var done eventstore.Committed
	err := driver.ErrBadConn // unless the connection is there
	v.onRaw(func() {
		if err = v.ready(); err == nil {
			done, err = v.opened.work(ctx, v.raw, v.mark, c)
		}
	})
	if err != nil {
		return eventstore.Committed{}, v.class(err)
	}
	return done, nil
}

// attempts is how often a transaction that has nothing of the application's in it is tried where the database broke a deadlock.
const attempts = 4

// commitAlone commits changes in a transaction of their own.
func (o *opened) commitAlone(ctx context.Context, c *eventstore.Changes) (done eventstore.Committed, err error) {
	for range attempts {
		var conn *pgxpool.Conn
		if conn, err = o.writers.Acquire(ctx); err != nil {
			return eventstore.Committed{}, trouble(ended(ctx, inUse(ctx, o.writers, err)))
		}
		done, err = o.work(ctx, conn.Conn(), "", c)
		conn.Release()
		if !isDeadlock(err) {
			break
		}
	}
	if err != nil {
		return eventstore.Committed{}, err
	}
	return done, nil
}

func isDeadlock(err error) bool {
	state := code(err)
	return (state == deadlockDetected || state == serializationFailed) && !errors.Is(err, eventstore.ErrUnknownCommit)
}

// work applies changes in the transaction that is open on the connection and marked so, or in a new one, and commits it.
func (o *opened) work(ctx context.Context, conn *pgx.Conn, mark string, changes *eventstore.Changes) (eventstore.Committed, error) {
	w := &work{connection: o.connection(ctx), changes: changes, mark: mark}
	w.conn = conn
	err := w.apply()
	if err == nil {
		err = w.commit()
	}
	if err == nil {
		return w.done, nil
	}
	if w.sent && !isRefused(err) {
		return o.outcome(ctx, w, err)
	}
	err = ended(ctx, err)
	rollback(conn)
	return eventstore.Committed{}, trouble(w.explain(err))
}

// ended puts why the context of what failed was over before the error, where it was.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// changeAlone runs f in a transaction that writes and has the store alone.
func changeAlone(ctx context.Context, pool *pgxpool.Pool, connection func(context.Context) *connection, tell func(error), f func(*connection) error) error {
	err := untilAlone(ctx, &readers{pool: pool}, tell, func(patience time.Duration) error { return change(ctx, pool, connection, patience, f) })
	return trouble(err)
}

// change runs f in a transaction that writes, and has the store alone if there is patience for that.
func change(ctx context.Context, pool *pgxpool.Pool, connection func(context.Context) *connection, patience time.Duration, f func(*connection) error) (err error) {
	for range attempts {
		var conn *pgxpool.Conn
		if conn, err = pool.Acquire(ctx); err != nil {
			return trouble(ended(ctx, inUse(ctx, pool, err)))
		}
		c := connection(ctx)
		c.conn = conn.Conn()
		err = c.change(patience, f)
		conn.Release()
		if !isDeadlock(err) {
			break
		}
	}
	return err
}

func (c *connection) change(patience time.Duration, f func(*connection) error) error {
	err := c.begin(patience)
	if err == nil {
		err = f(c)
	}
	if err == nil {
		err = c.flush()
	}
	if err == nil {
		err = c.ctx.Err()
	}
	if err != nil {
		err = ended(c.ctx, err)
		rollback(c.conn)
		return trouble(err)
	}
	return c.commit()
}

// commit commits a transaction that is not a unit of work: whoever made it reads again where the outcome is not known.
func (c *connection) commit() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), commitPatience)
	defer cancel()
	tag, err := c.conn.Exec(ctx, `COMMIT`)
	switch {
	case err == nil && tag.String() != "COMMIT":
		return errRolledBack
	case err == nil:
		return nil
	case isRefused(err):
		rollback(c.conn)
		return trouble(err)
	}
	return fmt.Errorf("%w: %w", eventstore.ErrUnknownCommit, err)
}

// newMark gives what no other transaction is marked with.
func newMark() string { return rand.Text() }
