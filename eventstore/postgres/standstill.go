package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
)

// wards ends sessions of processes that stand still in the middle of what they send. The server does that by itself between two statements; but of several that are sent in one
// piece, as those of a commit are, it may have got some, and waits for the rest with no limit: its client is there, for the kernel of a host answers for a process that is frozen. Whatever
// has been locked by then would stay so.
//
// Each process looks after all of them, on a session that nothing else uses, so that it never waits for what it is to end.
type wards struct {
	pool *pgxpool.Pool
	loop lifecycle.Loop
}

// endStandstills ends sessions in which a client of this user owes the server, for so many milliseconds, the rest of something it has sent, in a transaction of the store: that is, with
// its advisory lock. A COPY takes as long as it takes.
const endStandstills = `WITH still AS MATERIALIZED (
		SELECT a.pid, coalesce(host(a.client_addr), 'the same host') AS host FROM pg_stat_activity a
		WHERE a.datname = current_database() AND a.usename = session_user AND a.state = 'active' AND a.wait_event = 'ClientRead'
		AND a.state_change < clock_timestamp() - $1::bigint * interval '1 ms' AND a.query !~* '^\s*copy\M'
		AND a.pid IN (SELECT p.pid FROM pg_locks p WHERE p.locktype = 'advisory' AND p.granted AND p.classid = to_regclass('keyhold_store') AND p.objid = 0 AND p.objsubid = 2
			AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())))
	SELECT pid, host FROM still WHERE pg_terminate_backend(pid)`

// start begins to look, four times in patience, for what has stood still for the rest of it: so what is locked is free within patience.
func (w *wards) start(ctx context.Context, r *resolved, tell func(eventstore.Notice)) (err error) {
	if w.pool, err = r.openPool(ctx, 1, false); err != nil {
		return err
	}
	distance := r.TransactionTimeout / 4
	return w.loop.Start(ctx, func(ctx context.Context) {
		ticker := time.NewTicker(distance)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			ended, err := w.look(ctx, r.TransactionTimeout-distance)
			for _, session := range ended {
				tell(eventstore.Notice{What: "session that stood still was ended", Took: r.TransactionTimeout - distance, Error: session})
			}
			if err != nil && ctx.Err() == nil {
				w.pool.Reset() // it may lead to a server that is gone; who needs the server finds out by itself
			}
		}
	})
}

// look ends what has stood still for so long, and tells of each what it was.
func (w *wards) look(ctx context.Context, limit time.Duration) ([]error, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	found, err := w.pool.Query(ctx, endStandstills, limit.Milliseconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(r pgx.CollectableRow) (error, error) {
		var pid int
		var host string
		err := r.Scan(&pid, &host)
		return fmt.Errorf("a process on %s was in the middle of a transaction, which the server had as process %d: it is frozen, or its network is; what it had locked is free", host, pid), err
	})
}

// stop ends the looking. What was never started is stopped.
func (w *wards) stop(ctx context.Context) error {
	err := w.loop.Stop(ctx)
	if w.pool != nil {
		w.pool.Close()
	}
	return err
}
