package keyholdtest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/past"
	"github.com/keyhold/keyhold/transport/inline"
)

// T is what the kit needs of a test: a *testing.T is one, and so is a [Kit].
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Option says what the application under test is made of: [With] and [On].
type Option func(*Kit)

// With adds declarations: the entities to which a handler under test sends commands, for instance, or the category of what it
// emits. What is under test itself need not be named.
func With(declarations ...keyhold.Declaration) Option {
	return func(k *Kit) { k.declared.with = append(k.declared.with, declarations...) }
}

// On has the application run on a store that the test chose, not started yet. Without it there is an empty one in memory.
func On(store eventstore.Store) Option { return func(k *Kit) { k.on = store } }

// Kit is an application under test. It starts with the first thing that is done with it, and stops with the test, which then fails
// for whatever it did not expect. It is for one goroutine, the test's. A Kit is a [T], so that [Entity] and [Handler] can be
// made parts of one application.
type Kit struct {
	T
	on       eventstore.Store
	declared declared

	app       *keyhold.App // nil until it is started
	transport *inline.Transport
	types     *codec.Registry
	store     *recorder
	faults    faults
	journal   journal
	answer    *answer // of the last When, until the next step
	expected  expected
}

// New makes an application of declarations, and of what is given to [Entity] and [Handler] together with the Kit. The New of a Kit is
// that Kit.
func New(t T, opts ...Option) *Kit {
	t.Helper()
	k, ok := t.(*Kit)
	if !ok {
		k = &Kit{T: t}
		t.Cleanup(func() {
			t.Helper()
			k.finish()
		})
	}
	if len(opts) > 0 {
		k.configurable()
	}
	for _, o := range opts {
		o(k)
	}
	return k
}

// Run is [New] in virtual time: in a bubble of [testing/synctest], where backoff, timeouts and timers cost nothing. Time stands still
// while anything runs, and moves to the next thing that waits for it when nothing does.
func Run(t *testing.T, f func(t *testing.T, k *Kit), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, New(t, opts...)) })
}

// App is the application itself, started: for keyhold.Ask, keyhold.Do and package admin.
func (k *Kit) App() *keyhold.App {
	k.T.Helper()
	k.start()
	return k.app
}

// Advance lets time pass, and returns when all that is due by then has been done. It is a step of its own: what timers did is asserted
// after it. It needs virtual time, see [Run].
func (k *Kit) Advance(d time.Duration) {
	k.T.Helper()
	k.begin()
	if !virtual() {
		k.T.Fatalf("Advance(%v) in real time: open virtual time with keyholdtest.Run", d)
	}
	time.Sleep(d)
	synctest.Wait()
}

// virtual reports whether this is a bubble, and waits until everybody else in it waits.
func virtual() (yes bool) {
	defer func() { yes = recover() == nil }()
	synctest.Wait()
	return true
}

// Restart stops the application and starts it again on its store, as a new process would. It is a step of its own: what had not been
// finished is done in it.
func (k *Kit) Restart() {
	k.T.Helper()
	k.begin()
	if err := k.app.Stop(k.T.Context()); err != nil {
		k.T.Fatalf("restart: %v", err)
	}
	if err := k.app.Start(k.T.Context()); err != nil {
		k.T.Fatalf("restart: %v", err)
	}
}

// configurable fails when it is too late to add to the application.
func (k *Kit) configurable() {
	k.T.Helper()
	if k.app != nil {
		k.T.Fatalf("the application is started already: name all its parts before the first Given, When or App")
	}
}

func (k *Kit) start() {
	k.T.Helper()
	if k.app != nil {
		return
	}
	declarations, err := k.declared.complete()
	if err != nil {
		k.T.Fatalf("start: %v", err)
	}
	if k.types, err = codec.NewRegistry(codec.Declarations()); err != nil {
		k.T.Fatalf("start: %v", err)
	}
	if k.on == nil {
		k.on = memory.Open()
	}
	k.store = &recorder{Store: k.on, journal: &k.journal}
	k.transport = inline.New()
	app := keyhold.New(keyhold.Config{
		Name: "keyholdtest", Node: "keyholdtest",
		Store: faulty.Wrap(k.store, k.faults.plan), Transport: k.transport,
		Logger: slog.New(k.journal.handler()), Observer: k.journal.observer(),
	})
	app.Register(declarations...)
	if err := app.Start(k.T.Context()); err != nil {
		k.T.Fatalf("%v", err)
	}
	k.app = app
}

// begin opens the next step: what is asserted from now on is what happens from now on.
func (k *Kit) begin() {
	k.T.Helper()
	k.start()
	k.surprises()
	k.journal.reset()
	k.answer = nil
}

// finish stops the application, and says what the test should have said.
func (k *Kit) finish() {
	k.T.Helper()
	if k.app == nil {
		return
	}
	k.surprises()
	k.stuck()
	if left := k.faults.left(); left != "" {
		k.T.Errorf("commits that were to fail were never made: %s", left)
	}
	if err := k.app.Stop(context.WithoutCancel(k.T.Context())); err != nil {
		k.T.Errorf("%v", err)
	}
}

// patience is how long an event or a command may take, backoff included. Without it a behavior that never returns would have
// virtual time run forever.
const patience = 7 * 24 * time.Hour

func (k *Kit) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(k.T.Context(), patience)
}

// publish commits one event, and returns when all handlers are through with it.
func (k *Kit) publish(e any) {
	k.T.Helper()
	ctx, cancel := k.context()
	defer cancel()
	err := keyhold.Do(ctx, k.app, func(u keyhold.UnitOfWork) error {
		u.Emit(past.Event{Event: e})
		return nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		k.T.Fatalf("given %T: %v%s", plain(e), err, k.journal.account())
	}
}

// deliver has everybody who subscribes to a lane go through it to its end, if that is possible.
func (k *Kit) deliver(ctx context.Context, lane event.LaneRef) {
	k.T.Helper()
	tail, err := k.store.LaneTail(ctx, lane)
	if err == nil && tail > 0 {
		err = k.transport.Committed(ctx, []event.Tail{{Lane: lane, First: tail, Last: tail}})
	}
	if err != nil {
		k.T.Fatalf("deliver %s: %v%s", lane, err, k.journal.account())
	}
}

// errorf fails the test, and adds what was logged in this step.
func (k *Kit) errorf(format string, args ...any) {
	k.T.Helper()
	k.T.Errorf("%s%s", fmt.Sprintf(format, args...), k.journal.account())
}
