package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// PublishIn writes events into a transaction that the application began by pgx and wrapped by [Tx]. From then on it holds the locks that every commit takes: whoever
// publishes to one of the same keys waits until it is over, and so does a start of another process. So the database ends the transaction
// when nothing happens in it for [Config].TransactionTimeout.
func (s *Store) PublishIn(ctx context.Context, tx eventstore.SQL, events []event.Envelope) (*eventstore.Pending, error) {
	o := s.opened.Load()
	if o == nil || !o.hands.enter() {
		return nil, eventstore.ErrClosed
	}
	defer o.hands.leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g, ok := tx.(*guest)
	if !ok {
		return nil, fmt.Errorf("%w: a %T cannot be written into: begin one by pgx, and wrap it by postgres.Tx", eventstore.ErrOtherTx, tx)
	}
	c := eventstore.Changes{Publish: events}
	if err := c.Validate(); err != nil || len(events) == 0 {
		return nil, err
	}
	ctx, stop := within(ctx, o.ending())
	defer stop()
	return o.publishIn(ctx, g.tx, &c)
}

// publishIn does it under a savepoint: what is refused, or fails, leaves nothing, so that an application that commits all the same has no sequence drawn
// without its event. Three round trips, and no statement on a table of Keyhold's before it is known that this is the database that has them.
func (o *opened) publishIn(ctx context.Context, tx pgx.Tx, c *eventstore.Changes) (*eventstore.Pending, error) {
	schema, err := o.schema(ctx)
	if err != nil {
		return nil, trouble(ended(ctx, err))
	}
	w := &work{connection: o.connection(ctx), changes: c}
	if err := w.lookUpLanes(); err != nil {
		return nil, trouble(ended(ctx, err))
	}
	var before guestState
	o.look(&w.script, schema, &before)
	if err = w.script.run(ctx, tx); err == nil {
		w.writeInto(o, &before)
		err = w.script.run(ctx, tx)
	}
	if err == nil {
		if query, args := w.counts.statement(); query != "" {
			w.script.add(query, args, nil)
		}
		w.script.add(`SELECT set_config('search_path', $1, true)`, []any{before.path}, nil)
		w.script.add(`RELEASE SAVEPOINT keyhold_publish`, nil, nil)
		err = w.script.run(ctx, tx)
	}
	if err != nil {
		return nil, o.undo(ctx, tx, err)
	}
	p := &eventstore.Pending{Over: func(ctx context.Context) (over, committed bool, err error) { return o.isOver(ctx, w.xid) }}
	for _, g := range w.grown {
		p.Lanes = append(p.Lanes, g.ref)
	}
	return p, nil
}

// isOver asks for a transaction by its number. What is not known of, as it was long ago or on another server, may have been committed.
func (o *opened) isOver(ctx context.Context, xid string) (over, committed bool, err error) {
	if !o.hands.enter() {
		return false, false, eventstore.ErrClosed
	}
	defer o.hands.leave()
	var status *string
	if err := o.side.QueryRow(ctx, `SELECT pg_xact_status($1::text::xid8)`, xid).Scan(&status); err != nil {
		return false, false, trouble(err)
	}
	over = status == nil || *status != "in progress"
	return over, over && (status == nil || *status == "committed"), nil
}

// guestState is what a transaction of the application's is like before anything is written into it.
type guestState struct {
	isolation, readOnly, path, timeout, published string
	there                                         bool // Keyhold's tables are, in the schema where the store has them
}

// look begins what can be undone, and has the names of Keyhold's tables mean those of the store.
func (o *opened) look(s *script, schema string, g *guestState) {
	s.add(`SAVEPOINT keyhold_publish`, nil, nil)
	s.get(`SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only'), current_setting('search_path'),
		(SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'), coalesce(current_setting($1, true), ''), to_regclass($2) IS NOT NULL`,
		[]any{o.publishedIn(), schema + ".keyhold_store"}, func(bool) error { return o.suits(g) },
		&g.isolation, &g.readOnly, &g.path, &g.timeout, &g.published, &g.there)
	s.add(`SELECT set_config('search_path', $1, true)`, []any{schema}, nil)
}

// suits says why a transaction cannot be written into.
func (o *opened) suits(g *guestState) error {
	switch {
	case g.published != "":
		return eventstore.ErrStaged
	case !g.there:
		return fmt.Errorf("%w: its database has no Keyhold tables where the store %s has them: begin it on the store's own database", eventstore.ErrOtherTx, o.config.name)
	case g.isolation != "read committed":
		return fmt.Errorf("%w: its isolation level is %s, and sequences are in order of commits under READ COMMITTED alone: begin it with pgx.TxOptions{IsoLevel: pgx.ReadCommitted}", eventstore.ErrOtherTx, g.isolation)
	case g.readOnly != "off":
		return fmt.Errorf("%w: it is read only: begin it with pgx.TxOptions{AccessMode: pgx.ReadWrite}", eventstore.ErrOtherTx)
	}
	return nil
}

// publishedIn is the setting by which a transaction tells that it has the events of this store. A rollback to a savepoint before them takes it back.
func (o *opened) publishedIn() string { return "keyhold.published_" + o.identity.StoreID }

// writeInto puts together what is written, in the order of every commit.
func (w *work) writeInto(o *opened, before *guestState) {
	w.script.add(shareStore, nil, nil)
	id := new(string)
	f := new(fence)
	w.script.get(`SELECT store_id, start_generation, owned_generation FROM keyhold_store`, nil, func(bool) error {
		if *id != w.storeID {
			return fmt.Errorf("%w: its database holds another store: begin it on %s", eventstore.ErrOtherTx, o.config.name)
		}
		return w.check(*f)
	}, id, &f.start, &f.owned)
	w.script.add(`SELECT set_config($1, 'yes', true)`, []any{o.publishedIn()}, nil)
	if limit := o.config.TransactionTimeout; !atMost(before.timeout, limit) { // a process that is frozen in it must not lock out the others
		w.script.add(`SELECT set_config('idle_in_transaction_session_timeout', $1, true)`, []any{strconv.FormatInt(limit.Milliseconds(), 10)}, nil)
	}
	w.draw()
	w.writeEvents()
}

// atMost reports whether a timeout in milliseconds, 0 for none, is one, and within the limit.
func atMost(ms string, limit time.Duration) bool {
	n, err := strconv.ParseInt(ms, 10, 64)
	return err == nil && n > 0 && n <= limit.Milliseconds()
}

// schema is where the store's tables are, quoted.
func (o *opened) schema(ctx context.Context) (string, error) {
	if s := o.home.Load(); s != nil {
		return *s, nil
	}
	var name string
	if err := o.side.QueryRow(ctx, `SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'keyhold_store'::regclass`).Scan(&name); err != nil {
		return "", err
	}
	name = quote(name)
	o.home.Store(&name)
	return name, nil
}

// undo has the transaction be as it was, where that can be, and says what went wrong.
func (o *opened) undo(ctx context.Context, tx pgx.Tx, why error) error {
	switch {
	case errors.Is(why, pgx.ErrTxClosed):
		return fmt.Errorf("%w: %w", eventstore.ErrEnded, why)
	case code(why) == "25P02":
		return fmt.Errorf("the transaction was lost at a statement before, roll it back: %w", why)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackPatience)
	defer cancel()
	_, _ = tx.Exec(end, `ROLLBACK TO SAVEPOINT keyhold_publish; RELEASE SAVEPOINT keyhold_publish`, pgx.QueryExecModeSimpleProtocol) // where it fails, nothing can be committed any more
	if isDeadlock(why) {
		return fmt.Errorf("%w: this transaction and another one waited for each other's locks: roll back, and run all of it again: %w", eventstore.ErrTrouble, why)
	}
	return trouble(ended(ctx, why))
}
