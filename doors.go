package keyhold

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/keyhold/keyhold/actors"
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

// Publish commits events in a unit of work of their own, all or none. Inside a behavior use Emit of its context instead, which commits
// with everything else that the behavior does.
func Publish(ctx context.Context, app *App, events ...any) error {
	return Do(ctx, app, func(u UnitOfWork) error {
		u.Emit(events...)
		return nil
	})
}

// Tx is a transaction of the application's own, made by [App.BeginTx], into which [PublishTx] puts events. It is used by one
// goroutine at a time and must end with Commit or Rollback; on SQLite nobody else writes until it does.
type Tx struct {
	*eventstore.UserTx
	run *running
}

// BeginTx begins a transaction on the application's store. When ctx ends before Commit, it is rolled back. On the context of a behavior
// whose own transaction is open it is refused.
func (a *App) BeginTx(ctx context.Context) (*Tx, error) {
	r, err := a.live()
	if err != nil {
		return nil, err
	}
	who := "a transaction of the application"
	if _, file, line, ok := runtime.Caller(1); ok {
		who = fmt.Sprintf("a transaction of %s:%d", filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file)), line)
	}
	if actors.TxOpen(ctx) {
		return nil, fmt.Errorf("begin %s: the unit of work that it is begun in has its own transaction open and would wait for itself: use its Tx()", who)
	}
	tx, err := eventstore.BeginUserTx(ctx, a.cfg.Store, who)
	if err != nil {
		return nil, err
	}
	tx.OnCommit(func(done eventstore.Committed) {
		if len(done.Tails) > 0 {
			a.transportFault(a.cfg.Transport.Committed(ctx, done.Tails))
		}
	})
	return &Tx{UserTx: tx, run: r}, nil
}

// PublishTx puts events into a transaction of your own, begun with [App.BeginTx]: they are committed with it, or not at all. Pass
// all events of a transaction in one call; a second one is refused. What is wrong with an event, its key for
// instance, is said here, and nothing is put.
func PublishTx(ctx context.Context, app *App, tx SQL, events ...any) error {
	r, err := app.live()
	if err != nil {
		return err
	}
	if actors.IsTx(tx) {
		return errors.New("publish in transaction: inside a behavior, or Do, use Emit of its context: it commits with its Tx()")
	}
	own, ok := tx.(*Tx)
	if !ok || own.run != r {
		return fmt.Errorf("publish in transaction: %T was not begun by BeginTx of this application since its start", tx)
	}
	all, err := r.router.envelopes(ctx, events)
	if err == nil && len(all) > 0 {
		err = own.Stage(eventstore.Changes{Publish: all})
	}
	if err != nil {
		return fmt.Errorf("publish in transaction: %w", err)
	}
	return nil
}

// Notify has the application look at once for events that were committed to its store by something else than the
// application itself.
func (a *App) Notify() {
	if n, ok := a.cfg.Transport.(interface{ Notify() }); ok && a.Running() {
		n.Notify()
	}
}
