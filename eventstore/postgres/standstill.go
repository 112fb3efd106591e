package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
// What is seen of it is the lock of the store, which a commit takes first. A unit of work with SQL of its own has none before its commit: where a process is frozen in the middle of one of
// those statements, what that unit of work has locked of the application's stays so until the process goes on, or its host is gone.
//
// Each process looks after those of all others, on a session that nothing else uses, so that it never waits for what it is to end. Its own it leaves alone: it is not frozen.
type wards struct {
	pool *pgxpool.Pool
	loop lifecycle.Loop
	own  *sessions
	seen []string        // what stood still at the last look
	told map[string]bool // why nothing could be ended
}

// endStandstills finds sessions in which a client of this user owes the server, for so many milliseconds, the rest of something it has sent, in a transaction of the store: that is, with
// its advisory lock. How much of a message has come the server does not say, only when the one before was whole. A COPY takes as long as it takes. What the last look found at the same
// message is ended: the server may have stood still itself, and what it was sent meanwhile it has read by the next look.
const endStandstills = `WITH still AS MATERIALIZED (
		SELECT a.pid, coalesce(host(a.client_addr), 'the same host') AS host, a.pid || ' ' || a.state_change AS since FROM pg_stat_activity a
		WHERE a.datname = current_database() AND a.usename = session_user AND a.state = 'active' AND a.wait_event = 'ClientRead'
		AND a.state_change < clock_timestamp() - $1::bigint * interval '1 ms' AND a.query !~* '^(\s|--[^\n]*\n|/\*.*\*/)*copy\M' AND a.pid <> ALL ($2::bigint[])
		AND a.pid IN (SELECT p.pid FROM pg_locks p WHERE p.locktype = 'advisory' AND p.granted AND p.classid = to_regclass('keyhold_store') AND p.objid = 0 AND p.objsubid = 2
			AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())))
	SELECT pid, host, since, CASE WHEN since = ANY ($3::text[]) THEN pg_terminate_backend(pid) ELSE false END FROM still`

// start begins to look, four times in patience. What is found has stood still for all of it when it is ended, and is ended before a quarter more.
func (w *wards) start(ctx context.Context, r *resolved, tell func(eventstore.Notice)) (err error) {
	w.own = &r.own
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
				tell(eventstore.Notice{What: "session that stood still was ended", Took: r.TransactionTimeout, Error: session})
			}
			if err != nil && ctx.Err() == nil {
				w.failed(err, tell)
			}
		}
	})
}

// failed tells why nothing could be ended, once for each reason that does not pass by itself.
func (w *wards) failed(err error, tell func(eventstore.Notice)) {
	why := code(err)
	if why == "" || isPassing(why) {
		w.pool.Reset() // it may lead to a server that is gone; who needs the server finds out by itself
		return
	}
	if w.told[why] {
		return
	}
	if w.told == nil {
		w.told = map[string]bool{}
	}
	w.told[why] = true
	tell(eventstore.Notice{What: "session that stands still cannot be ended", Error: fmt.Errorf(
		"what a process has locked that is frozen in the middle of a transaction stays locked: the role that the URL leads to must be allowed to end sessions of its user, by pg_terminate_backend: %w", err)})
}

// look ends what has stood still for so long, and did at the last look, and tells of each what it was.
func (w *wards) look(ctx context.Context, limit time.Duration) (ended []error, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	found, err := w.pool.Query(ctx, endStandstills, limit.Milliseconds(), w.own.all(), w.seen)
	if err != nil {
		return nil, err
	}
	var seen []string
	var pid int
	var host, since string
	var gone bool
	_, err = pgx.ForEachRow(found, []any{&pid, &host, &since, &gone}, func() error {
		if seen = append(seen, since); gone {
			ended = append(ended, fmt.Errorf("a process on %s was in the middle of a transaction, which the server had as process %d: it is frozen, or its network is; what it had locked is free", host, pid))
		}
		return nil
	})
	if err == nil {
		w.seen = seen
	}
	return ended, err
}

// stop ends the looking. What was never started is stopped.
func (w *wards) stop(ctx context.Context) error {
	err := w.loop.Stop(ctx)
	if w.pool != nil {
		w.pool.Close()
	}
	return err
}

// sessions are those that the pools of a process have, by what the server calls them. The zero value has none.
type sessions struct {
	mu   sync.Mutex
	pids []int64
}

func (s *sessions) add(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids = append(s.pids, int64(conn.PgConn().PID()))
}

func (s *sessions) remove(conn *pgx.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.pids, int64(conn.PgConn().PID())); at >= 0 {
		s.pids = slices.Delete(s.pids, at, at+1)
	}
}

func (s *sessions) all() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int64{}, s.pids...)
}
