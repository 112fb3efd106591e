package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	_ "modernc.org/sqlite"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

const (
	insertEvent = `INSERT INTO keyhold_log (lane, sequence, id, type, version, encoding, time,
		stream_kind, stream_id, stream_version, tenant, correlation, causation, trace_parent, trace_state, data)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, NULL, NULL, ?)`
	count = `UPDATE keyhold_lanes SET last = ? WHERE id = ?`
)

// floor writes the rows of units of work to the adapter's tables, a batch to a commit. It has no
// queue, checks nothing, and knows the lanes and their counters by heart.
func floor(path string, span time.Duration, batch int) (Result, error) {
	ctx := context.Background()
	if err := layout(ctx, path); err != nil {
		return Result{}, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_synchronous=FULL&_pragma=cache_size(-65536)&_pragma=temp_store(memory)&_pragma=wal_autocheckpoint(4000)")
	if err != nil {
		return Result{}, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return Result{}, err
	}
	defer conn.Close()
	f := bare{conn: conn, statements: map[string]*sql.Stmt{}}
	units := 0
	began, used := time.Now(), cpu()
	for time.Since(began) < span {
		f.exec(ctx, "BEGIN IMMEDIATE")
		for range batch {
			f.unit(ctx, units)
			units++
		}
		f.exec(ctx, "COMMIT")
		if f.err != nil {
			return Result{}, f.err
		}
	}
	return Result{Writers: 1, PerSecond: float64(units) / time.Since(began).Seconds(), CPU: us(cpu()-used, units)}, nil
}

// layout makes the tables and the lanes.
func layout(ctx context.Context, path string) error {
	s := sqlite.Open(path)
	if _, err := s.Start(ctx, eventstore.StartOptions{Node: "floor"}); err != nil {
		return err
	}
	var errs []error
	for n := range keys {
		a := unit(0, n)
		_, err := s.Begin("floor").Commit(ctx, eventstore.Changes{Publish: a.Events})
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.Stop(ctx))...)
}

// bare is a connection and its prepared statements. The first error stays.
type bare struct {
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	err        error
}

func (b *bare) exec(ctx context.Context, query string, args ...any) {
	if b.err != nil {
		return
	}
	if b.statements[query] == nil {
		if b.statements[query], b.err = b.conn.PrepareContext(ctx, query); b.err != nil {
			return
		}
	}
	_, b.err = b.statements[query].ExecContext(ctx, args...)
}

// unit writes the rows of a unit of work. The lanes were made in order, with one record in each.
func (b *bare) unit(ctx context.Context, n int) {
	a := unit(0, n)
	e := &a.Events[0]
	lane, sequence := n%keys+1, n/keys+2
	b.exec(ctx, insertEvent, lane, sequence, e.ID, e.Type, e.Version, string(e.Encoding), e.Time.UnixMilli(),
		a.Stream.Kind, a.Stream.ID, a.Expected+1, e.CorrelationID, e.CausationID, e.Data)
	b.exec(ctx, count, sequence, lane)
}
