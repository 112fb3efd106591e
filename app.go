package keyhold

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	"github.com/keyhold/keyhold/projection"
	"github.com/keyhold/keyhold/transport"
)

// ErrNotStarted: the application is not started, or stopped.
var ErrNotStarted = errors.New("application is not started")

// App is one node of an application: its entities and handlers on a store and a transport. Make it with [New], give it its
// declarations with [App.Register], then [App.Start] it, or hand it to [Main]. All methods may be called concurrently.
//
// Several may run in one process, each with a Store and a Transport of its own. Those of another App that is started are refused by Start, which leaves them as they are; once
// that App is stopped, any App may have them.
type App struct {
	cfg       Config
	retention lifecycle.Loop
	looking   lifecycle.Loop  // for acts
	jobbing   lifecycle.Loop  // for jobs
	rousing   lifecycle.Group // of units of a handler that was resumed

	mu struct {
		sync.Mutex
		declared declared
		faults   []error
		running  *running   // nil unless started
		rest     *running   // what a Stop, or a Start that failed, has left to stop; nil when nothing is
		turn     *operation // the Start or Stop that is under way, nil when none is
	}
}

// New makes an application. It does no I/O and starts nothing; what is wrong with cfg is reported by [App.Start], together with
// what is wrong with the declarations.
func New(cfg Config) *App { return &App{cfg: cfg.withDefaults()} }

// Register adds declarations: entities, handlers, categories. Call it before Start; a later call is an error in the log, and
// has the next Start refused. What is wrong with the declarations is reported by Start, all at once.
func (a *App) Register(declarations ...Declaration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.running != nil || a.mu.rest != nil || a.mu.turn != nil {
		err := errors.New("register: the application was started already: register everything before Start")
		a.cfg.Logger.Error("what was registered after Start does not run, and the next Start will be refused", "error", err)
		a.mu.faults = append(a.mu.faults, err)
		return
	}
	for i, d := range declarations {
		switch d := d.(type) {
		case actors.Definition:
			a.mu.declared.behaviors = append(a.mu.declared.behaviors, d)
		case projection.Definition:
			a.mu.declared.projections = append(a.mu.declared.projections, d)
		case Category:
			a.mu.declared.categories = append(a.mu.declared.categories, d)
		default:
			a.mu.faults = append(a.mu.faults, fmt.Errorf("register: argument %d is a %T: pass an Entity, a Handler, a Projection or a Category, as a value", i+1, d))
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
// running, unless the error says so; it names every fault at once. It is refused while behaviors of an earlier start are still
// inside: no unit is entered twice at once.
func (a *App) Start(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	op := &operation{cancel: cancel, done: make(chan struct{})}
	a.mu.Lock()
	if a.mu.turn != nil || a.mu.running != nil {
		a.mu.Unlock()
		return fmt.Errorf("%s: the application is started already, or stopping", a.about("start"))
	}
	a.mu.turn = op
	in, faults, rest := a.mu.declared, errors.Join(a.mu.faults...), a.mu.rest
	a.mu.Unlock()

	var r *running
	if rest, err = a.clear(ctx, rest); err == nil {
		r, rest, err = a.start(ctx, in, faults)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", a.about("start"), err)
	}
	a.end(op, r, rest, err)
	return err
}

// about says what is done to the application, for messages.
func (a *App) about(what string) string { return strings.TrimSpace(what + " " + a.cfg.Name) }

// start gives what runs or, beside an error, what it began and could not end.
func (a *App) start(ctx context.Context, in declared, faults error) (_, rest *running, err error) {
	types, err := codec.NewRegistry(codec.Declarations())
	if err != nil {
		return nil, nil, errors.Join(a.cfg.faults(), faults, err)
	}
	caps := ^transport.Capabilities(0) // with no transport, its lack is all there is to say
	if a.cfg.Transport != nil {
		caps = a.cfg.Transport.Capabilities()
	}
	p, resolved := resolve(in, types, caps)
	resolved = errors.Join(resolved, p.reaches(a.cfg.Transport))
	if a.cfg.Cluster.asks(a.cfg.Transport) {
		resolved = errors.Join(resolved, p.crosses(types))
	}
	if err := errors.Join(a.cfg.faults(), faults, resolved); err != nil {
		return nil, nil, err
	}
	t, ok := a.cfg.Transport.(bound)
	if !ok {
		return nil, nil, fmt.Errorf("transport %q delivers from no store: use local.New(), redis.Open(url) or inline.New()", a.cfg.Transport.Name())
	}

	release, err := a.cfg.Transport.Claim() // before the store is touched
	if err != nil {
		return nil, nil, fmt.Errorf("config: Transport (%s) is that of another App of this process, which goes on with it: give each App one of its own, made by local.New(), redis.Open(url) or inline.New(), or Stop the other first: %w",
			a.cfg.Transport.Name(), err)
	}
	_, relayed := a.cfg.Transport.(transport.Broker)
	var lease time.Duration
	if relayed {
		lease = t.Port().Traits().TTL
	}
	id, err := a.cfg.Store.Start(ctx, eventstore.StartOptions{
		Node: a.cfg.Node, Application: a.cfg.Name, Formerly: a.cfg.FormerName, Wait: a.cfg.Wait, NoMigrate: a.cfg.NoMigrate, Relayed: relayed, Lease: lease, Observe: a.storeNotice,
	})
	if err != nil {
		release()
		return nil, nil, err
	}
	if id.Unclean {
		a.cfg.Logger.Warn("the process that had the store open before did not stop by itself: what was in a behavior then may be what ended it, "+
			"and is tried with care", "max_crashes", a.cfg.MaxCrashes)
	}
	r := &running{app: a, unclaim: release, store: a.storeReach(), rousing: &a.rousing, subscriptions: p.subscriptions, router: &router{routes: p.routes, types: types, rules: a.cfg.keyRules(), trace: a.cfg.Observer.Trace}, names: p.names()}
	r.jobs = newJobs(r)
	r.open, r.rollback = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := a.run(ctx, r, in, p, id, t); err != nil {
		rest, left := a.undo(eventstore.Untried(ctx), r)
		return nil, rest, errors.Join(err, left)
	}
	a.cfg.Logger.Info("started", "node", a.cfg.Node, "pid", os.Getpid(), "store", id.StoreID, "generation", id.StartGeneration, "transport", a.cfg.Transport.Name())
	return r, nil, nil
}

// run starts what works on the store, which is started.
func (a *App) run(ctx context.Context, r *running, in declared, p *plan, id eventstore.Identity, t bound) error {
	if err := a.checkProjections(ctx, in, p); err != nil {
		return err
	}
	if err := r.meet(ctx, p, id, t); err != nil {
		return err
	}
	if err := r.takeInFirst(ctx, p); err != nil {
		return err
	}
	saved, err := a.registerAmong(ctx, p, r.router.types, id)
	if err != nil {
		return err
	}
	projections, err := a.projecting(in, r, id)
	if err != nil {
		return err
	}
	r.projections = projections
	last, err := a.cfg.Store.LastAct(ctx) // before units read what was done up to now
	if err != nil {
		return fmt.Errorf("look for acts: %w", err)
	}
	r.acts.from(last)
	r.store.told(nil)
	t.Bind(a.cfg.Store, id, a.cfg.keyRules())
	others, elsewhere, err := r.carried(ctx, p, id, saved, t.Port())
	if err != nil {
		return err
	}
	runtime, err := actors.NewRuntime(actors.Config{
		Definitions: in.behaviors, Store: a.cfg.Store, Port: t.Port(), Codec: r.router.types, Keys: a.cfg.keyRules(), Route: r.router.Route,
		Committed: r.committed, Listed: listed(saved), Revision: saved.Revision, Others: others, Elsewhere: elsewhere, Observer: a.observer(), Logger: a.cfg.Logger,
		Concurrency: a.cfg.Concurrency, IdleAfter: a.cfg.IdleAfter, MailboxSize: a.cfg.MailboxSize, MaxCrashes: a.cfg.MaxCrashes,
	})
	if err != nil {
		return err
	}
	r.runtime = runtime
	switch c := r.carrier.(type) {
	case *alone:
		c.node = transport.Node{Subscriptions: p.subscriptions, Wake: runtime.Wake, Drive: runtime.Drive, Report: a.transportFault}
	case *shared:
		if err := c.with(p, runtime, t.Port(), id); err != nil {
			return err
		}
	}
	if err := runtime.Start(ctx); err != nil {
		return err
	}
	if err := r.watch(ctx); err != nil {
		return err
	}
	if r.carrier.does(dutyProjections) {
		if err := projections.Start(ctx); err != nil {
			return err
		}
	}
	if err := a.reportProjections(ctx); err != nil {
		return err
	}
	if err := a.retention.Start(ctx, r.retain); err != nil {
		return err
	}
	if err := a.reportHalts(ctx); err != nil {
		return err
	}
	if err := r.carrier.start(ctx); err != nil {
		return err
	}
	return errors.Join(a.rousing.Start(ctx), a.looking.Start(ctx, r.look), a.jobbing.Start(ctx, r.jobs.run))
}

// carried makes what carries to the units, and gives what the units are to tell it, and how they reach those of other nodes; nil = not.
func (r *running) carried(ctx context.Context, p *plan, id eventstore.Identity, saved eventstore.Registered, port partitions.Port) (actors.Others, actors.Elsewhere, error) {
	broker, ok := r.app.cfg.Transport.(transport.Broker)
	if !ok {
		r.carrier = &alone{r: r}
		return actors.Others{}, nil, nil
	}
	c, err := r.app.share(ctx, r, p, id, saved, broker)
	if err != nil {
		return actors.Others{}, nil, errors.Join(err, broker.Stop(context.WithoutCancel(ctx)))
	}
	r.carrier = c
	if c.near.peers == nil {
		return c.others(), nil, nil
	}
	routes, err := c.routes(port.Traits().TTL)
	return c.others(), routes, err
}

// registerAmong registers, and does it again when another process registered at the same time: nodes may well start together.
func (a *App) registerAmong(ctx context.Context, p *plan, types *codec.Registry, id eventstore.Identity) (saved eventstore.Registered, err error) {
	const most = 50
	for range most {
		saved, err = a.register(ctx, p, types, id)
		if _, again := errors.AsType[*eventstore.RegistryError](err); !again || ctx.Err() != nil {
			break
		}
	}
	return saved, err
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
	now := time.Now().UTC()
	r, err := p.register(types, stored, id.StoreID, hasEvents, now)
	if err == nil {
		err = a.beginAbroad(ctx, &r, now)
	}
	if err != nil {
		return eventstore.Registered{}, err
	}
	if err := a.cfg.Store.SaveRegistry(ctx, r.save, r.starts); err != nil {
		return eventstore.Registered{}, fmt.Errorf("save registry: %w", err)
	}
	if stored, err = a.cfg.Store.LoadRegistry(ctx); err != nil { // at the revision that this made
		return eventstore.Registered{}, fmt.Errorf("load registry: %w", err)
	}
	for _, hint := range r.hints {
		a.cfg.Logger.Info(hint)
	}
	for _, warning := range r.warnings {
		a.cfg.Logger.Warn(warning)
	}
	return stored, nil
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
func (r *running) retain(ctx context.Context) {
	a := r.app
	const every, batch = 10 * time.Minute, 1000
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for n := batch; n > 0 && ctx.Err() == nil && r.carrier.does(dutyPurge); {
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
