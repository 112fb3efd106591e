package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/eventstore"
)

// retake is how a process takes its place anew, at the generation of its start, after it lost the session that held it: the server was restarted, failed
// over, or the network was away. Where nobody has started meanwhile who leaves it none, nothing has happened that the fence would have refused, so
// it goes on as if it had never lost it.
type retake struct {
	config   *resolved
	identity eventstore.Identity
	waiter   *waiter // that it is to others who are at work
}

// errNotYet: the lock is with a session that may be our own former one, of which the server does not know yet that it is gone.
var errNotYet = errors.New("place is not free yet")

// try gives a session that holds the place, or [eventstore.ErrStale] when there is none to be had any more. Any other error passes.
func (a retake) try(ctx context.Context, former *pgx.Conn) (_ *pgx.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout+a.waiter.next())
	defer cancel()
	former.Close(ctx) // what is left of it must not keep us out
	conn, err := a.config.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, letGo(conn)) // or a start that follows at once finds the place taken
		}
	}()
	var locked bool
	if err := conn.QueryRow(ctx, tryOwner(a.identity.Capabilities.Shared), a.config.key64("owner")).Scan(&locked); err != nil {
		return nil, err
	}
	err = a.waiter.try(ctx, single{conn}, func(patience time.Duration) error { return a.takeIn(ctx, conn, locked, patience) })
	return conn, err
}

// takeIn takes the place where the lock that stands for it was had, unless others are at work on the store for so long.
func (a retake) takeIn(ctx context.Context, conn *pgx.Conn, locked bool, patience time.Duration) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := takeAloneIn(ctx, tx, patience); err != nil {
			return err
		}
		c := &connection{ctx: ctx, conn: conn, generation: a.identity.StartGeneration, shared: a.identity.Capabilities.Shared}
		var f fence
		if _, err := c.get(readFence, nil, f.into()...); err != nil {
			return err
		}
		if err := c.check(f); err != nil || !locked {
			return errors.Join(err, errNotYet)
		}
		if f.start < c.generation {
			return fmt.Errorf("store went back to before this process started, to generation %d from %d: %w", f.start, c.generation, eventstore.ErrStale)
		}
		return a.revive(ctx, tx)
	})
}

// revive marks the start as living again.
func (a retake) revive(ctx context.Context, tx pgx.Tx) error {
	var locked bool
	err := tx.QueryRow(ctx, `SELECT pg_try_advisory_lock('keyhold_starts'::regclass::oid::int4, $1::bigint::bit(32)::int4)`, int64(a.identity.StartGeneration)).Scan(&locked)
	if err != nil || !locked {
		return errors.Join(err, errNotYet)
	}
	tag, err := tx.Exec(ctx, `UPDATE keyhold_starts SET told = false WHERE generation = $1 AND pid = $2 AND host = $3`, a.identity.StartGeneration, os.Getpid(), words(hostname()))
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("store went back to before this process started, and generation %d is another's: %w", a.identity.StartGeneration, eventstore.ErrStale)
	}
	return err
}
