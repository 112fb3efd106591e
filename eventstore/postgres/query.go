package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyhold/keyhold/event"
)

// queryer runs queries: on any connection of a pool, in a reader's transaction, or on a connection that writes. While the rows of a
// query are read, a connection runs nothing else: collect, then ask on.
type queryer interface {
	query(ctx context.Context, query string, args ...any) (rows, error)
}

// rows are those of a query.
type rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
	Close()
}

// each calls row for every row of a query.
func each(ctx context.Context, q queryer, query string, args []any, row func(rows) error) error {
	found, err := q.query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := row(found); err != nil {
			return err
		}
	}
	return found.Err()
}

// get scans the row of a query that gives one at most; found is false when it gives none.
func get(ctx context.Context, q queryer, query string, args []any, into ...any) (found bool, err error) {
	err = each(ctx, q, query, args, func(r rows) error {
		found = true
		return r.Scan(into...)
	})
	return found, err
}

// readers is the pool of connections that only read, for Keyhold's own queries.
type readers struct {
	pool    *pgxpool.Pool
	storeID string
	forced  context.Context // ends what is being read, together with the context of whoever reads; nil: that alone does
}

func (r *readers) query(ctx context.Context, query string, args ...any) (rows, error) {
	return ending(ctx, r.forced, func(ctx context.Context) (pgx.Rows, error) { return r.pool.Query(ctx, query, args...) })
}

// ending runs a query whose rows also end with another context.
func ending(ctx, other context.Context, ask func(context.Context) (pgx.Rows, error)) (rows, error) {
	if other == nil {
		return ask(ctx)
	}
	ctx, stop := within(ctx, other)
	found, err := ask(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	return endingRows{found, stop}, nil
}

type endingRows struct {
	pgx.Rows
	stop func()
}

func (r endingRows) Close() {
	r.Rows.Close()
	r.stop()
}

// snapshot runs f with a queryer whose queries all see the same state.
func (r *readers) snapshot(ctx context.Context, f func(queryer) error) error {
	tx, err := r.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	err = f(snapshot{tx, r.forced})
	return errors.Join(err, ignoreClosed(tx.Rollback(context.WithoutCancel(ctx))))
}

// ignoreClosed passes over the error of a transaction that the end of its context has ended already.
func ignoreClosed(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

type snapshot struct {
	tx     pgx.Tx
	forced context.Context // as of readers
}

func (s snapshot) query(ctx context.Context, query string, args ...any) (rows, error) {
	return ending(ctx, s.forced, func(ctx context.Context) (pgx.Rows, error) { return s.tx.Query(ctx, query, args...) })
}

// millis is how times are kept, and fromMillis the way back.
func millis(t time.Time) int64      { return t.UnixMilli() }
func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// words is free text as PostgreSQL can keep it: what is no UTF-8 is replaced, and so are zero bytes.
func words(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// null is NULL for an empty text.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// envelopeHead is what scanEnvelope reads, without the data: of the log as l and its lanes as n.
const envelopeHead = `n.category, n.key, n.lane, l.sequence, l.void, l.id, l.type, l.version, l.encoding, l.time,
	coalesce(l.stream_kind, ''), coalesce(l.stream_id, ''), coalesce(l.stream_version, 0),
	coalesce(l.tenant, ''), coalesce(l.correlation, ''), coalesce(l.causation, ''), coalesce(l.trace_parent, ''), coalesce(l.trace_state, '')`

// envelopeColumns are all that scanEnvelope reads.
const envelopeColumns = envelopeHead + `, l.data`

// scanEnvelope reads a row that begins with envelopeColumns; what follows them goes into more.
func scanEnvelope(r rows, storeID string, more ...any) (e event.Envelope, void bool, err error) {
	var ms int64
	err = r.Scan(append([]any{
		&e.Category, &e.Key, &e.Lane, &e.Sequence, &void, &e.ID, &e.Type, &e.Version, &e.Encoding, &ms,
		&e.Stream.Kind, &e.Stream.ID, &e.StreamVersion,
		&e.Tenant, &e.CorrelationID, &e.CausationID, &e.Trace.Parent, &e.Trace.State, &e.Data,
	}, more...)...)
	e.Time, e.StoreID = fromMillis(ms), storeID
	return e, void, err
}

// emptied is the void that a lane shows in place of an abandoned record.
func emptied(e event.Envelope) event.Envelope {
	return event.Envelope{
		ID: e.ID, Category: e.Category, Key: e.Key, Lane: e.Lane, Time: e.Time,
		Stream: e.Stream, StreamVersion: e.StreamVersion, Sequence: e.Sequence, StoreID: e.StoreID,
	}
}

// pooled is a queryer on whichever connection of a pool.
type pooled struct{ pool *pgxpool.Pool }

func (p pooled) query(ctx context.Context, query string, args ...any) (rows, error) {
	return p.pool.Query(ctx, query, args...)
}
