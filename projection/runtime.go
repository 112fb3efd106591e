package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/signal"
)

// Store is what a runtime needs of a store.
type Store interface {
	eventstore.Beginner
	eventstore.Streams
	eventstore.Projections
	eventstore.ProjectionBuilds
}

// Config is what a [Runtime] is made of. Fields without a default must be set.
type Config struct {
	Definitions []Definition // distinct names
	Store       Store        // started before the runtime, stopped after it
	Codec       *codec.Registry
	SQL         bool // the store has SQL

	// Unclean: the process before was not stopped. The event that a build had in hand then may be what ended it.
	Unclean bool
	// MaxCrashes is how often the process may end while such an event runs and no other suspect beside it; then the build halts before it.
	// Default 3.
	MaxCrashes int
	// Alone waits until no other suspect runs in this process, and keeps others waiting until release is called. The error says
	// that it will not come to that. Default: at once.
	Alone func(ctx context.Context) (release func(), err error)

	Observer Observer
	Logger   *slog.Logger     // default: discards
	Now      func() time.Time // default time.Now
}

// Runtime runs the builds of its definitions, each in a loop of its own. All methods may be called concurrently.
type Runtime struct {
	cfg      Config
	programs map[string]*program
	group    lifecycle.Group

	mu struct {
		sync.Mutex
		builds map[buildID]*build // that run
	}

	// Seams for tests.
	hold    time.Duration // how long a batch has the writer, and ends
	batch   time.Duration // how long a batch takes, and ends
	stretch time.Duration // how long the first last stretch has it; the next have it for longer
	signals struct {
		read   signal.Signal[Build] // before a build reads on
		idle   signal.Signal[Build] // a build has nothing to do
		opened signal.Signal[Build] // a last stretch has the writer
		moved  signal.Signal[eventstore.ProjectionStep]
	}
}

type buildID struct {
	name   string
	number int
}

// manyOthers is how often others may grow before a build moves past what is not for it.
const manyOthers = 5000

const (
	holdTime    = 50 * time.Millisecond
	stretchTime = 250 * time.Millisecond
	longestHold = 2 * time.Second
)

// NewRuntime checks cfg and the definitions, reporting all faults at once. It starts nothing.
func NewRuntime(cfg Config) (*Runtime, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MaxCrashes == 0 {
		cfg.MaxCrashes = 3
	}
	if cfg.Alone == nil {
		cfg.Alone = func(context.Context) (func(), error) { return func() {}, nil }
	}
	cfg.Observer = cfg.Observer.guarded(cfg.Logger)
	r := &Runtime{cfg: cfg, programs: map[string]*program{}, hold: holdTime, batch: batchTime, stretch: stretchTime}
	r.mu.builds = map[buildID]*build{}
	if cfg.Store == nil || cfg.Codec == nil {
		return nil, errors.New("projections: Store and Codec must be set")
	}
	var errs []error
	for _, d := range cfg.Definitions {
		faults := d.Faults()
		errs = append(errs, faults...)
		name := d.Describe().Name
		switch {
		case len(faults) > 0:
		case r.programs[name] != nil:
			errs = append(errs, fmt.Errorf("projection %q: declared twice: rename one", name))
		default:
			p := d.compile()
			r.programs[name] = p
			errs = append(errs, p.link(cfg.Codec))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// link makes a program ready: it needs the names of its types.
func (p *program) link(types *codec.Registry) error {
	p.names, p.known = map[string]bool{}, map[wireType]bool{}
	var errs []error
	for t := range p.cases {
		name, version, err := types.NameOf(t)
		if err != nil {
			errs = append(errs, fmt.Errorf("projection %q: %w", p.desc.Name, err))
			continue
		}
		p.names[name], p.known[wireType{name, version}] = true, true
		for _, old := range types.Older(t) {
			p.names[old.Name], p.known[wireType{old.Name, old.Version}] = true, true
		}
	}
	return errors.Join(errs...)
}

// Start declares the projections to the store and begins to work. ctx bounds Start alone.
func (r *Runtime) Start(ctx context.Context) error { return r.TakeOver(ctx, r.cfg.Unclean) }

// TakeOver is Start where several processes have projections and one runs them: unclean says, instead of [Config].Unclean, whether the one before was not
// stopped, and may have been ended by what it had in hand.
func (r *Runtime) TakeOver(ctx context.Context, unclean bool) error {
	var declared []eventstore.ProjectionDeclared
	for _, d := range r.cfg.Definitions {
		declared = append(declared, d.Describe().ProjectionDeclared)
	}
	if err := r.group.Start(ctx); err != nil {
		return fmt.Errorf("start projections: %w", err)
	}
	all, err := r.cfg.Store.DeclareProjections(ctx, declared)
	if err != nil {
		return errors.Join(fmt.Errorf("declare projections: %w", err), r.group.Stop(context.WithoutCancel(ctx)))
	}
	if err := r.cfg.Store.DropLeft(ctx); err != nil { // they are in nobody's way
		r.cfg.Logger.Warn("projections: tables of builds that are gone are left; it is tried again at the next start", "error", err)
	}
	r.run(all, unclean)
	return nil
}

// Stop lets the transactions in hand finish. When ctx is done first it interrupts them, and the error says which have not returned; call it
// again to wait on. What was not committed is done after the next start.
func (r *Runtime) Stop(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.interrupt)()
	if err := r.group.Stop(ctx); err != nil {
		return fmt.Errorf("projections: %v have a behavior that ignores the end of its context: %w", r.inside(), err)
	}
	return nil
}

func (r *Runtime) interrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.mu.builds {
		b.interrupt(actors.ErrStopping)
	}
}

// inside names the builds that still run.
func (r *Runtime) inside() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.mu.builds {
		all = append(all, fmt.Sprintf("%s (build %d)", id.name, id.number))
	}
	slices.Sort(all)
	return all
}

// Wake has builds read on that are given events of the lanes that grew, and now and then the others. It does not block.
func (r *Runtime) Wake(tails []event.Tail) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.mu.builds {
		if b.others += len(tails); b.reads(tails) || b.others > manyOthers {
			b.others = 0
			b.wake()
		}
	}
}

// WakeAll is for when something was committed and nobody knows what. It does not block.
func (r *Runtime) WakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.mu.builds {
		b.wake()
	}
}

// Look takes up what was done to projections by acts: names are those concerned, none = all. The error is that of the store, and then nothing
// was taken up.
func (r *Runtime) Look(ctx context.Context, names ...string) error {
	all, err := r.cfg.Store.ListProjections(ctx)
	if err != nil {
		return fmt.Errorf("look for acts on projections: %w", err)
	}
	if len(names) > 0 {
		all = slices.DeleteFunc(all, func(p eventstore.Projection) bool { return !slices.Contains(names, p.Name) })
	}
	r.run(all, false)
	return nil
}

// Has reports whether the runtime runs a projection of that name.
func (r *Runtime) Has(name string) bool { return r.programs[name] != nil }

// run starts loops for builds that have none, and has those there are look at their state. suspect: what they do first may have ended the
// process before.
func (r *Runtime) run(all []eventstore.Projection, suspect bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all {
		p := &all[i]
		prog := r.programs[p.Name]
		if prog == nil {
			continue
		}
		for j := range p.Builds {
			id := buildID{p.Name, p.Builds[j].Number}
			if b := r.mu.builds[id]; b != nil {
				b.refresh()
				continue
			}
			if !p.Runs(&p.Builds[j]) {
				continue
			}
			b := newBuild(r, prog, id)
			if suspect {
				b.suspect, b.singles = true, prog.desc.Batch // what it had in hand was a batch at most, of which any may be it
			}
			if r.group.Go(func(ctx context.Context) {
				defer r.leave(id)
				b.loop(ctx)
			}) {
				r.mu.builds[id] = b
			}
		}
	}
	for id, b := range r.mu.builds {
		if slices.IndexFunc(all, func(p eventstore.Projection) bool { return p.Name == id.name }) < 0 {
			continue
		}
		b.refresh() // also those that are gone
	}
}

// leave is called by a loop that has come to its end. A build that runs no more never runs again: numbers are given once.
func (r *Runtime) leave(id buildID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.builds, id)
}

// refresh has all builds of a projection look at their state.
func (r *Runtime) refresh(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, b := range r.mu.builds {
		if id.name == name {
			b.refresh()
		}
	}
}
