package keyhold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Ask is the untyped form of the function [Ask].
func (a *App) Ask(ctx context.Context, to Ref, command any, opts ...AskOption) (any, error) {
	r, err := a.live()
	if err != nil {
		return nil, &actors.AskError{To: to, Command: fmt.Sprintf("%T", command), Err: fmt.Errorf("%w: %w", ErrStopping, err)}
	}
	return r.runtime.Ask(ctx, to, command, opts...)
}

// Tell has an entity decide a command some time soon and does not wait: best effort, lost with the process. Use [Send] for
// what must happen.
func Tell(ctx context.Context, app *App, to Ref, command any, opts ...AskOption) error {
	r, err := app.live()
	if err != nil {
		return err
	}
	return r.runtime.Tell(ctx, to, command, opts...)
}

// Send has an entity decide a command later, durably, once. On the context of a behavior, or of [Do], it is part of that unit of
// work; else it is durable when Send returns. The reply is dropped; an event tells what came of it.
func Send(ctx context.Context, app *App, to Ref, command any) error {
	r, err := app.live()
	if err != nil {
		return err
	}
	return r.runtime.Send(ctx, to, command)
}

// Do runs f in a unit of work of its own, which commits when f returns nil: events, commands and the application's own SQL, all or
// nothing.
func Do(ctx context.Context, app *App, f func(UnitOfWork) error) error {
	r, err := app.live()
	if err != nil {
		return err
	}
	return r.runtime.Do(ctx, f)
}

// Tx is a transaction of the application's own, made by [App.BeginTx], into which [PublishTx] puts events. It is used by one
// goroutine at a time and must end with Commit or Rollback; on SQLite nobody else writes until it does.
type Tx struct {
	SQL
	app  *App
	run  *running
	tx   eventstore.Tx
	ctx  context.Context // of BeginTx; bounds the transaction, and is what Commit goes by
	work eventstore.Changes
}

// BeginTx begins a transaction on the application's store. When ctx ends before Commit, it is rolled back.
func (a *App) BeginTx(ctx context.Context) (*Tx, error) {
	r, err := a.live()
	if err != nil {
		return nil, err
	}
	tx := a.cfg.Store.Begin("BeginTx")
	sql, err := tx.SQL(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin transaction: %w", err), tx.Rollback())
	}
	return &Tx{SQL: sql, app: a, run: r, tx: tx, ctx: ctx}, nil
}

// Commit makes the transaction durable, and the events published in it. After an error nothing of it is, but for
// [eventstore.ErrUnknownCommit].
func (t *Tx) Commit() error {
	done, err := t.tx.Commit(t.ctx, t.work)
	if err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	if len(done.Tails) > 0 {
		t.app.transportFault(t.app.cfg.Transport.Committed(t.ctx, done.Tails))
	}
	return nil
}

// Rollback ends the transaction without a trace. After Commit it is a no-op.
func (t *Tx) Rollback() error { return t.tx.Rollback() }

// PublishTx puts events into a transaction of your own, begun with [App.BeginTx]: they are committed with it, or not at all. Pass
// all events of a transaction in one call; a second one is refused. What is wrong with an event, its key for
// instance, is said here, and nothing is put.
func PublishTx(ctx context.Context, app *App, tx SQL, events ...any) error {
	own, ok := tx.(*Tx)
	if !ok || own.app != app {
		return fmt.Errorf("publish in transaction: %T was not begun by this application's BeginTx", tx)
	}
	if len(own.work.Publish) > 0 {
		return errors.New("publish in transaction: events were published in it already: pass all of them in one call")
	}
	var all []event.Envelope
	var faults []error
	for _, e := range events {
		env, err := own.run.router.Route(ctx, event.Stream{}, e)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		env.ID, env.Time = event.NewID(), time.Now().UTC().Truncate(time.Millisecond)
		env.CorrelationID = env.ID
		all = append(all, env)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("publish in transaction: %w", err)
	}
	own.work.Publish = all
	return nil
}

// Notify has the application look at once for events that were committed to its store by something else than the
// application itself.
func (a *App) Notify() {
	if n, ok := a.cfg.Transport.(interface{ Notify() }); ok && a.Running() {
		n.Notify()
	}
}
