package keyhold

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Ask is the untyped form of the function [Ask], with the same bounds where ctx has no deadline.
func (a *App) Ask(ctx context.Context, to Ref, command any, opts ...AskOption) (any, error) {
	r, err := a.live()
	if err != nil {
		return nil, &actors.AskError{To: to, Command: fmt.Sprintf("%T", command), Err: fmt.Errorf("%w: %w", ErrStopping, err)}
	}
	return r.runtime.Ask(ctx, to, command, opts...)
}

// Teller is what [Tell] goes through: an [App], or a [Client].
type Teller interface {
	// Tell is the method behind the function [Tell].
	Tell(ctx context.Context, to Ref, command any, opts ...AskOption) error
}

// Tell has an entity decide a command some time soon and does not wait for its answer: best effort, lost with the process. Where another node has the entity, it waits until that one has taken the
// command. Use [Send] for what must happen.
func Tell(ctx context.Context, app Teller, to Ref, command any, opts ...AskOption) error {
	return app.Tell(ctx, to, command, opts...)
}

// Tell is the method behind the function [Tell].
func (a *App) Tell(ctx context.Context, to Ref, command any, opts ...AskOption) error {
	r, err := a.live()
	if err != nil {
		return err
	}
	return r.runtime.Tell(ctx, to, command, opts...)
}

// Send has an entity decide a command later, durably, once. On the context of a behavior of the same application, or of its [Do],
// it is part of that unit of work; else it is durable when Send returns. A query has no unit of work: there it is refused. The
// reply is dropped; an event tells what came of it.
func Send(ctx context.Context, app *App, to Ref, command any) error {
	r, err := app.live()
	if err != nil {
		return err
	}
	return r.runtime.Send(ctx, to, command)
}

// Dispatch has command handlers handle commands later, durably, each once, in the order of dispatch per key. Each command is of a type that a [CommandHandler] of the
// application handles. On the context of a behavior of the same application, or of its [Do], they are part of that unit of work; else they are durable when Dispatch
// returns, all or none. Several values for one call keep their order.
func Dispatch(ctx context.Context, app *App, commands ...any) error {
	r, err := app.live()
	if err != nil {
		return err
	}
	return r.runtime.Dispatch(ctx, commands...)
}

// Do runs f in a unit of work of its own, which commits when f returns nil: events, commands and the application's own SQL, all or
// nothing. While the behavior that calls it has a transaction of its own open it is refused with [ErrAskInTx]: on SQLite it would
// wait for that one.
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
	run     *running
	grows   []event.LaneRef // by what was published
	release func()
}

// BeginTx begins a transaction on the application's store. It is rolled back when ctx ends before Commit, or when a Stop runs out of
// patience with it. On the context of a behavior whose own transaction is open it is refused.
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
	within, release := r.within(ctx)
	tx, err := eventstore.BeginUserTx(within, a.cfg.Store, who)
	if err != nil {
		release()
		return nil, err
	}
	tx.OnCommit(func(done eventstore.Committed) { a.committed(ctx, done.Tails) })
	return &Tx{UserTx: tx, run: r, release: release}, nil
}

func (a *App) committed(ctx context.Context, tails []event.Tail) {
	if len(tails) > 0 {
		if r, err := a.live(); err == nil {
			a.transportFault(r.committed(ctx, tails))
		}
	}
}

// Commit commits the SQL and the events. The transaction is over whatever it returns; after [eventstore.ErrUnknownCommit] it may
// have happened, and the events are delivered if so.
func (t *Tx) Commit(ctx context.Context) error {
	defer t.release()
	err := t.UserTx.Commit(ctx)
	if errors.Is(err, eventstore.ErrUnknownCommit) {
		t.run.app.mayHaveGrown(context.WithoutCancel(ctx), t.grows)
	}
	return err
}

// Rollback ends the transaction without a trace. Calling it after Commit, or twice, is a no-op.
func (t *Tx) Rollback() error {
	defer t.release()
	return t.UserTx.Rollback()
}

// mayHaveGrown has units look at lanes to which a commit may have added.
func (a *App) mayHaveGrown(ctx context.Context, lanes []event.LaneRef) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	var tails []event.Tail
	for _, lane := range lanes {
		switch last, err := a.cfg.Store.LaneTail(ctx, lane); {
		case err != nil:
			a.transportFault(fmt.Errorf("look for the end of %s: %w", lane, err))
			a.Notify() // looks until it can
		case last > 0:
			tails = append(tails, event.Tail{Lane: lane, First: last, Last: last})
		}
	}
	a.committed(ctx, tails)
}

// PublishTx puts events into a transaction of your own: they are committed with it, or not at all. Pass all events of a transaction in one call; a second
// one is refused. What is wrong with an event, its key for instance, is said here, and nothing is put.
//
// A transaction of [App.BeginTx] has them written when it commits. On PostgreSQL it can also be one that your code began by pgx, wrapped by postgres.Tx: there they
// are written at once, so call it last. You commit it yourself; the events are noticed a quarter of a second later, and at once after [App.Notify]. A commit
// whose outcome you do not know is yours to look up: the events are delivered if it happened.
func PublishTx(ctx context.Context, app *App, tx SQL, events ...any) error {
	r, err := app.live()
	if err != nil {
		return err
	}
	if actors.IsTx(tx) {
		return errors.New("publish in transaction: inside a behavior, or Do, use Emit of its context: it commits with its Tx()")
	}
	own, ok := tx.(*Tx)
	if ok && own.run != r {
		return errors.New("publish in transaction: it was not begun by BeginTx of this application since its start")
	}
	all, err := r.router.envelopes(ctx, events)
	switch {
	case err != nil:
	case !ok:
		var p *eventstore.Pending
		if p, err = app.cfg.Store.PublishIn(ctx, tx, all); p != nil {
			r.pending.add(p)
		}
	case len(all) > 0:
		err = own.stage(all)
	}
	if err != nil {
		return fmt.Errorf("publish in transaction: %w", err)
	}
	return nil
}

func (t *Tx) stage(events []event.Envelope) error {
	c := eventstore.Changes{Publish: events}
	if err := t.Stage(c); err != nil {
		return err
	}
	for _, growth := range c.AppendGrowth(nil) {
		t.grows = append(t.grows, growth.Lane)
	}
	return nil
}

// Notify has the application look at once for events that were committed to its store by something else than the
// application itself.
func (a *App) Notify() {
	r, err := a.live()
	if err != nil {
		return
	}
	r.projections.WakeAll()
	r.carrier.notify()
}
