package keyhold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// ErrNotStarted: the application is not started, or stopped.
var ErrNotStarted = errors.New("application is not started")

// App is one node of an application: its entities and handlers on a store and a transport. Make it with [New], give it its
// declarations with [App.Register], then [App.Start] it, or hand it to [Main]. All methods may be called concurrently.
type App struct {
	cfg       Config
	retention lifecycle.Loop

	mu struct {
		sync.Mutex
		state    state
		declared declared
		faults   []error
		running  *running // nil unless started
	}
}

type state uint8

const (
	stopped state = iota
	starting
	started
	stopping
)

// running is what exists between a Start and its Stop. It is immutable.
type running struct {
	runtime *actors.Runtime
	router  *router
	names   []string // of handlers and entity kinds, in order
}

// New makes an application. It does no I/O and starts nothing; what is wrong with cfg is reported by [App.Start], together with
// what is wrong with the declarations.
func New(cfg Config) *App { return &App{cfg: cfg.withDefaults()} }

// Register adds declarations: entities, handlers, categories. Call it before Start; a later call is an error in the log, and
// has the next Start refused. What is wrong with the declarations is reported by Start, all at once.
func (a *App) Register(declarations ...Declaration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.state != stopped {
		err := errors.New("register: the application was started already: register everything before Start")
		a.cfg.Logger.Error("what was registered after Start does not run, and the next Start will be refused", "error", err)
		a.mu.faults = append(a.mu.faults, err)
		return
	}
	for i, d := range declarations {
		switch d := d.(type) {
		case actors.Definition:
			a.mu.declared.behaviors = append(a.mu.declared.behaviors, d)
		case Category:
			a.mu.declared.categories = append(a.mu.declared.categories, d)
		default:
			a.mu.faults = append(a.mu.faults, fmt.Errorf("register: argument %d is a %T: pass an Entity, a Handler or a Category, as a value", i+1, d))
		}
	}
}

// bound is what a transport offers that delivers from the application's own store.
type bound interface {
	Bind(store eventstore.Store, id eventstore.Identity, keys event.KeyRules)
	Port() partitions.Port
}

// Start checks the configuration and all declarations, opens the store, compares the declarations with what the store knows, and
// begins to work. It touches no signal and no global. ctx bounds Start alone. After an error nothing is left
// running; the error names every fault at once.
func (a *App) Start(ctx context.Context) (err error) {
	a.mu.Lock()
	in, faults := a.mu.declared, errors.Join(a.mu.faults...)
	if a.mu.state != stopped {
		a.mu.Unlock()
		return errors.New("start: the application is started already, or stopping")
	}
	a.mu.state = starting
	a.mu.Unlock()

	r, err := a.start(ctx, in, faults)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.mu.state = stopped
		return fmt.Errorf("%s: %w", a.about("start"), err)
	}
	a.mu.state, a.mu.running = started, r
	return nil
}

// about says what is done to the application, for messages.
func (a *App) about(what string) string { return strings.TrimSpace(what + " " + a.cfg.Name) }

func (a *App) start(ctx context.Context, in declared, faults error) (_ *running, err error) {
	types, err := codec.NewRegistry(codec.Declarations())
	if err != nil {
		return nil, errors.Join(a.cfg.faults(), faults, err)
	}
	caps := ^transport.Capabilities(0) // with no transport, its lack is all there is to say
	if a.cfg.Transport != nil {
		caps = a.cfg.Transport.Capabilities()
	}
	p, resolved := resolve(in, types, caps)
	if err := errors.Join(a.cfg.faults(), faults, resolved); err != nil {
		return nil, err
	}
	t, ok := a.cfg.Transport.(bound)
	if !ok {
		return nil, fmt.Errorf("transport %q delivers from no store: use local.New() or inline.New()", a.cfg.Transport.Name())
	}

	var undo []func(context.Context) error
	defer func() {
		if err == nil {
			return
		}
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i](context.WithoutCancel(ctx)))
		}
	}()

	id, err := a.cfg.Store.Start(ctx, eventstore.StartOptions{
		Node: a.cfg.Node, Wait: a.cfg.Wait, NoMigrate: a.cfg.NoMigrate, Observe: a.storeNotice,
	})
	if err != nil {
		return nil, err
	}
	undo = append(undo, a.cfg.Store.Stop)

	saved, err := a.register(ctx, p, types, id)
	if err != nil {
		return nil, err
	}
	t.Bind(a.cfg.Store, id, a.cfg.keyRules())
	router := &router{routes: p.routes, types: types, rules: a.cfg.keyRules()}
	runtime, err := actors.NewRuntime(actors.Config{
		Definitions: in.behaviors, Store: a.cfg.Store, Port: t.Port(), Codec: types, Keys: a.cfg.keyRules(), Route: router.Route,
		Committed: a.cfg.Transport.Committed, Listed: listed(saved), Observer: a.observer(), Logger: a.cfg.Logger,
		Concurrency: a.cfg.Concurrency, IdleAfter: a.cfg.IdleAfter, MailboxSize: a.cfg.MailboxSize,
	})
	if err != nil {
		return nil, err
	}
	if err := runtime.Start(ctx); err != nil {
		return nil, err
	}
	undo = append(undo, runtime.Stop)
	if err := a.retention.Start(ctx, a.retain); err != nil {
		return nil, err
	}
	undo = append(undo, a.retention.Stop)
	if err := a.reportHalts(ctx); err != nil {
		return nil, err
	}
	err = a.cfg.Transport.Start(ctx, transport.Node{
		Subscriptions: p.subscriptions, Wake: runtime.Wake, Drive: runtime.Drive, Report: a.transportFault,
	})
	if err != nil {
		return nil, err
	}
	a.cfg.Logger.Info("started", "node", a.cfg.Node, "store", id.StoreID, "generation", id.StartGeneration, "transport", a.cfg.Transport.Name())
	return &running{runtime: runtime, router: router, names: p.names()}, nil
}

// register compares the plan with the store's registry and saves it there.
func (a *App) register(ctx context.Context, p *plan, types *codec.Registry, id eventstore.Identity) (eventstore.Registered, error) {
	stored, err := a.cfg.Store.LoadRegistry(ctx)
	if err != nil {
		return eventstore.Registered{}, fmt.Errorf("load registry: %w", err)
	}
	names := slices.Clone(p.order)
	for _, c := range stored.Categories {
		names = append(names, c.Name)
	}
	hasEvents := map[string]bool{}
	for _, name := range names {
		if _, known := hasEvents[name]; known {
			continue
		}
		if hasEvents[name], err = a.cfg.Store.CategoryHasEvents(ctx, name); err != nil {
			return eventstore.Registered{}, fmt.Errorf("look for events of category %q: %w", name, err)
		}
	}
	r, err := p.register(types, stored, id.StoreID, hasEvents, time.Now().UTC())
	if err != nil {
		return eventstore.Registered{}, err
	}
	if err := a.cfg.Store.SaveRegistry(ctx, r.save, r.starts); err != nil {
		return eventstore.Registered{}, fmt.Errorf("save registry: %w", err)
	}
	for _, hint := range r.hints {
		a.cfg.Logger.Info(hint)
	}
	for _, warning := range r.warnings {
		a.cfg.Logger.Warn(warning)
	}
	return r.save, nil
}

// Stop takes no more work, lets behaviors in hand finish, and closes the store. When ctx ends first, their contexts are cancelled;
// the error then names the units whose behaviors did not return. What was not finished is done after the next start. Stop is
// idempotent; an application may be started again after it.
func (a *App) Stop(ctx context.Context) error {
	a.mu.Lock()
	r := a.mu.running
	if a.mu.state != started {
		a.mu.Unlock()
		return nil
	}
	a.mu.state, a.mu.running = stopping, nil
	a.mu.Unlock()

	err := errors.Join(
		a.cfg.Transport.Stop(ctx),
		r.runtime.Stop(ctx),
		a.retention.Stop(context.WithoutCancel(ctx)),
		a.cfg.Store.Stop(context.WithoutCancel(ctx)),
	)
	a.mu.Lock()
	a.mu.state = stopped
	a.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", a.about("stop"), err)
	}
	a.cfg.Logger.Info("stopped", "node", a.cfg.Node)
	return nil
}

// Running reports whether the application is started and takes work.
func (a *App) Running() bool {
	_, err := a.live()
	return err == nil
}

func (a *App) live() (*running, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.running == nil {
		return nil, ErrNotStarted
	}
	return a.mu.running, nil
}

// retain deletes, now and then, what the store keeps no longer than Retention.
func (a *App) retain(ctx context.Context) {
	const every, batch = 10 * time.Minute, 1000
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for n := batch; n > 0 && ctx.Err() == nil; {
			var err error
			if n, err = a.cfg.Store.Purge(ctx, time.Now().Add(-a.cfg.Retention), batch); err != nil && ctx.Err() == nil {
				a.cfg.Logger.Warn("purge: will try again", "error", err, "in", every)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
