package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
)

// ownerPoll is the distance between two looks at a lock that somebody else has.
const ownerPoll = 100 * time.Millisecond

// owner is the place of a process on a store: an advisory lock of a session of its own, exclusive or shared with others that have it shared. It is free
// the instant the session ends: with its process, or, where the host or the network died, when the keepalives of the server find out. While the process is frozen it is kept.
//
// The session is asked for a sign of life again and again. One that leaves that unanswered is as good as gone. What the process still sends is
// refused by the fence as soon as anybody else has a place that leaves it none; until then it may have its own back.
type owner struct {
	conn *pgx.Conn // replaced by the watch, and nobody else's while that runs
	loop lifecycle.Loop
}

// key64 is the key of an advisory lock that there may be before any table: of this database, and of this schema in it.
func (r *resolved) key64(what string) int64 {
	h := fnv.New64a()
	h.Write([]byte("keyhold\x00" + what + "\x00" + r.Schema)) // never an error
	return int64(h.Sum64())
}

// own takes a place. When that cannot be had it gives [*eventstore.OwnedError], or waits until ctx is done.
func own(ctx context.Context, r *resolved, opts eventstore.StartOptions) (*owner, error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", r.name, trouble(err))
	}
	try := tryOwner(opts.Relayed)
	o := &owner{conn: conn}
	if err := o.wait(ctx, r, opts, func() (locked bool, err error) {
		err = conn.QueryRow(ctx, try, r.key64("owner")).Scan(&locked)
		return locked, err
	}); err != nil {
		return nil, errors.Join(fmt.Errorf("own store %s: %w", r.name, err), o.close())
	}
	return o, nil
}

// tryOwner takes the lock that is a place, shared or not.
func tryOwner(shared bool) string {
	if shared {
		return `SELECT pg_try_advisory_lock_shared($1)`
	}
	return `SELECT pg_try_advisory_lock($1)`
}

// wait tries until it has the lock.
func (o *owner) wait(ctx context.Context, r *resolved, opts eventstore.StartOptions, try func() (bool, error)) error {
	locked, err := try()
	if err != nil || locked {
		return trouble(err)
	}
	owned := o.holder(ctx, r)
	if !opts.Wait {
		return owned
	}
	if opts.Observe != nil {
		opts.Observe(eventstore.Notice{What: "waiting for owner", Who: owned.Node, Error: owned})
	}
	ticker := time.NewTicker(ownerPoll)
	defer ticker.Stop()
	for !locked && err == nil {
		select {
		case <-ticker.C:
			locked, err = try()
		case <-ctx.Done():
			return fmt.Errorf("wait for owner: %w: %w", context.Cause(ctx), owned)
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for owner: %w: %w", context.Cause(ctx), owned)
	}
	return trouble(err)
}

// holder tells who has a place, as far as can be told: one whose tables are being made is not known yet.
func (o *owner) holder(ctx context.Context, r *resolved) *eventstore.OwnedError {
	owned := &eventstore.OwnedError{Path: r.name}
	var there bool
	if _, err := get(ctx, single{o.conn}, `SELECT to_regclass('keyhold_starts') IS NOT NULL`, nil, &there); err != nil || !there {
		return owned
	}
	if all, err := living(ctx, single{o.conn}); err == nil && len(all) > 0 {
		last := all[len(all)-1]
		owned.PID, owned.Node = last.pid, last.node
	}
	return owned
}

// single is a queryer on one connection outside a transaction.
type single struct{ conn *pgx.Conn }

func (s single) query(ctx context.Context, query string, args ...any) (rows, error) {
	return s.conn.Query(ctx, query, args...)
}

// start is a start of a process.
type start struct {
	generation event.Generation
	pid        int
	node       string
	shared     bool
	trouble    string
	about      string
	since      int64
}

// owner is the start as others know it.
func (s *start) owner() eventstore.Owner {
	o := eventstore.Owner{PID: s.pid, Node: s.node, Generation: s.generation, Trouble: s.trouble, About: s.about}
	if s.trouble != "" {
		o.Since = fromMillis(s.since)
	}
	return o
}

// isLiving is true of a row s of keyhold_starts whose process lives, as far as the server knows: its session holds the lock that stands for it.
const isLiving = `EXISTS (SELECT 1 FROM pg_locks p WHERE p.locktype = 'advisory' AND p.classid = 'keyhold_starts'::regclass AND p.objsubid = 2 AND p.granted
	AND p.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND p.objid::bigint = s.generation & 4294967295)`

// living gives the starts whose processes live, in order of generation.
func living(ctx context.Context, q queryer) (all []start, err error) {
	err = each(ctx, q, `SELECT s.generation, s.pid, s.node, s.shared, s.trouble, s.since, s.about FROM keyhold_starts s WHERE s.stopped = 0 AND `+isLiving+` ORDER BY s.generation`,
		nil, func(r rows) error {
			var s start
			err := r.Scan(&s.generation, &s.pid, &s.node, &s.shared, &s.trouble, &s.since, &s.about)
			all = append(all, s)
			return err
		})
	return all, err
}

// sign draws the generation of this start, from which on every process that has its place from before, and may not have it beside this one, is stale.
// It waits for all transactions that are under way.
func (o *owner) sign(ctx context.Context, opts eventstore.StartOptions) (id eventstore.Identity, err error) {
	tell := func(err error) {
		if opts.Observe != nil {
			opts.Observe(notAloneYet("start", err))
		}
	}
	err = untilAlone(ctx, single{o.conn}, tell, func(patience time.Duration) error { return o.signIn(ctx, opts, &id, patience) })
	id.Capabilities = eventstore.Capabilities{SQL: true, Durable: true, Shared: opts.Relayed}
	return id, trouble(err)
}

// signIn is sign, unless others are at work on the store for so long.
func (o *owner) signIn(ctx context.Context, opts eventstore.StartOptions, id *eventstore.Identity, patience time.Duration) error {
	return pgx.BeginFunc(ctx, o.conn, func(tx pgx.Tx) error {
		if err := takeAloneIn(ctx, tx, patience); err != nil {
			return err
		}
		if err := answersTo(ctx, tx, opts); err != nil {
			return err
		}
		var relayed bool
		q := snapshot{tx: tx}
		if _, err := get(ctx, q, `SELECT relayed, EXISTS (SELECT 1 FROM keyhold_starts s WHERE s.stopped = 0 AND NOT s.told AND NOT `+isLiving+`) FROM keyhold_store`,
			nil, &relayed, &id.Unclean); err != nil {
			return err
		}
		if _, err := get(ctx, q, `UPDATE keyhold_store SET start_generation = start_generation + 1, relayed = $1,
			owned_generation = CASE WHEN $1 THEN owned_generation ELSE start_generation + 1 END RETURNING store_id, start_generation`,
			[]any{opts.Relayed}, &id.StoreID, &id.StartGeneration); err != nil {
			return err
		}
		if opts.Relayed && !relayed {
			if err := relay(ctx, tx); err != nil {
				return err
			}
		}
		for _, step := range []struct {
			query string
			args  []any
		}{
			{`UPDATE keyhold_starts s SET told = true WHERE s.stopped = 0 AND NOT s.told AND NOT ` + isLiving, nil},
			{`DELETE FROM keyhold_starts s WHERE (s.stopped > 0 OR s.told) AND s.generation < $1 - 1000`, []any{int64(id.StartGeneration)}},
			{`DELETE FROM keyhold_seen WHERE generation < $1 - 1000 AND NOT EXISTS (SELECT 1 FROM keyhold_starts s WHERE s.generation = keyhold_seen.generation)`,
				[]any{int64(id.StartGeneration)}},
			{`INSERT INTO keyhold_starts (generation, node, pid, host, shared, began, stopped, told) VALUES ($1, $2, $3, $4, $5, $6, 0, false)`,
				[]any{id.StartGeneration, words(opts.Node), os.Getpid(), words(hostname()), opts.Relayed, millis(time.Now())}},
			{`SELECT pg_advisory_lock('keyhold_starts'::regclass::oid::int4, $1::bigint::bit(32)::int4)`, []any{int64(id.StartGeneration)}},
		} {
			if _, err := tx.Exec(ctx, step.query, step.args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// answersTo refuses the store to another application than the one that it has the name of.
func answersTo(ctx context.Context, tx pgx.Tx, opts eventstore.StartOptions) error {
	if opts.Application == "" {
		return nil
	}
	var has string
	if _, err := get(ctx, snapshot{tx: tx}, `SELECT application FROM keyhold_store`, nil, &has); err != nil || has == opts.Application {
		return err
	}
	if has != "" && has != opts.Formerly {
		return &eventstore.ApplicationError{Has: has, Given: opts.Application}
	}
	_, err := tx.Exec(ctx, `UPDATE keyhold_store SET application = $1`, opts.Application)
	return err
}

// hostname is "" where it cannot be told.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}

// leave marks the start as stopped, unless what is known of the process before is to stay known.
func (o *owner) leave(ctx context.Context, g event.Generation) error {
	_, err := o.conn.Exec(ctx, `UPDATE keyhold_starts SET stopped = $2 WHERE generation = $1`, g, millis(time.Now()))
	return err
}

// watch asks the session for signs of life. When it gave none for the time that patience lasts, lost is called, and the place is taken anew as soon as
// that can be: taken is called then. What ends that is over alone: another process has started that leaves this one no place.
func (o *owner) watch(ctx context.Context, patience time.Duration, again retake, lost func(error), taken func(), over func(error)) error {
	return o.loop.Start(ctx, func(ctx context.Context) {
		ticker := time.NewTicker(patience / 4)
		defer ticker.Stop()
		tick := func() bool {
			select {
			case <-ctx.Done():
				return false
			case <-ticker.C:
				return true
			}
		}
		for tick() {
			asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // a ping that is cut off would end the session
			err := o.conn.Ping(asking)
			cancel()
			if err == nil || ctx.Err() != nil {
				continue
			}
			lost(err)
			for err != nil && tick() {
				var conn *pgx.Conn
				if conn, err = again.try(ctx, o.conn); err == nil {
					o.conn = conn
					taken()
				} else if errors.Is(err, eventstore.ErrStale) {
					over(err)
					return
				}
			}
		}
	})
}

// isGone reports whether the place was lost, once the watch has ended.
func (o *owner) isGone() bool { return o.conn.IsClosed() }

// rest ends the watch.
func (o *owner) rest(ctx context.Context) error { return o.loop.Stop(ctx) }

func (o *owner) close() error { return letGo(o.conn) }

// letGo gives up the place that a session holds: at once, where the server still answers, for a session ends some time after its connection.
func letGo(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
	if isLost(err) {
		err = nil // which gives it up as well
	}
	return errors.Join(err, conn.Close(ctx))
}
