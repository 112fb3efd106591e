package keyhold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/projection"
)

// The declarations of read models; see the package projection for what each field means.
type (
	// Projection declares a read model: a behavior that is given the events of one category, of several or of all, in the order in which
	// they were committed. See [projection.Projection].
	Projection[B any] = projection.Projection[B]
	// ProjectionCases is the list of what a projection handles, made with [Project].
	ProjectionCases[B any] = projection.Cases[B]
	// ProjectionContext is what a projection gets with an event, and in Setup.
	ProjectionContext = projection.Context
	// ProjectionObserver is told what happens to projections: for logs and metrics.
	ProjectionObserver = projection.Observer
)

// Project is the case for events of type E in a projection: Project((*byDay).placed). See [projection.On].
func Project[B, E any](run func(b B, ctx ProjectionContext, e E) error) projection.Case[B] {
	return projection.On(run)
}

// projections checks names, categories and types of projections against what else is declared.
func (r *resolver) projections(declared []projection.Definition) {
	taken := map[string]string{}
	for _, d := range r.plan.descriptions {
		taken[d.Name] = string(d.Kind)
	}
	for _, d := range declared {
		r.faults = append(r.faults, d.Faults()...)
		desc := d.Describe()
		r.plan.projections = append(r.plan.projections, desc)
		who := fmt.Sprintf("projection %q", desc.Name)
		if kind, ok := taken[desc.Name]; ok && desc.Name != "" {
			r.addf("%s: the name is taken by the %s of that name: handlers, entity kinds and projections share one name space, rename one", who, kind)
		}
		taken[desc.Name] = "projection"
		missing := false
		for _, name := range desc.Categories {
			switch c := r.plan.categories[name]; {
			case c == nil:
				missing = true
				r.addf("%s: category %q is unknown: register the entity kind or the Category of that name%s", who, name, known(r.plan.order))
			case c.Foreign:
				r.addf("%s: category %q is Foreign: its events are in the store of another application, and a projection reads this one: write a handler that puts what you need into a table", who, name)
			case c.commands:
				r.addf("%s: %q is the category of an entity's commands, which only the entity handles: name %q", who, name, c.kind)
			}
		}
		for _, t := range desc.Types {
			if newest, old := r.types.Upcast(t); old {
				r.addf("%s: On: nobody meets type %s, which upcasters make into %s: handle that, or drop the upcaster", who, t, newest)
				continue
			}
			to, ok := r.plan.routes[t]
			switch {
			case missing:
			case !ok:
				r.addf("%s: On: type %s is in no category: add it to the Fold of its entity, or to the Events of a Category", who, t)
			case len(desc.Categories) > 0 && !slices.Contains(desc.Categories, to.category):
				r.addf("%s: On: type %s is in category %q, which the projection does not read: add it to Categories, or drop the case", who, t, to.category)
			}
		}
	}
}

// checkProjections refuses what the store knows otherwise, before anything of this program is saved: a handler that has the name of a projection,
// and projections that cannot be declared so.
func (a *App) checkProjections(ctx context.Context, in declared, p *plan) error {
	stored, err := a.cfg.Store.ListProjections(ctx)
	if err != nil {
		return err
	}
	var faults []error
	for i := range stored {
		if slices.Contains(p.names(), stored[i].Name) {
			faults = append(faults, fmt.Errorf("the store knows %q as a projection, and this program as a handler or entity kind: rename it here, or remove the projection first", stored[i].Name))
		}
		for _, d := range in.projections {
			if desc := d.Describe(); desc.Name == stored[i].Name {
				_, err := stored[i].Declare(desc.ProjectionDeclared, time.Now()) // on a copy, to see whether it would go
				faults = append(faults, err)
			}
		}
	}
	return errors.Join(faults...)
}

// projecting makes what runs the projections, and starts nothing.
func (a *App) projecting(in declared, r *running, id eventstore.Identity) (*projection.Runtime, error) {
	return projection.NewRuntime(projection.Config{
		Definitions: in.projections, Store: a.cfg.Store, Codec: r.router.types, SQL: id.Capabilities.SQL,
		Unclean: id.Unclean, MaxCrashes: a.cfg.MaxCrashes, Alone: r.alone, Observer: a.projectionObserver(), Logger: a.cfg.Logger,
	})
}

// reportProjections logs which projections will not move, or are no longer in the program: nothing else will tell of them.
func (a *App) reportProjections(ctx context.Context) error {
	all, err := a.cfg.Store.ListProjections(ctx)
	if err != nil {
		return fmt.Errorf("look for projections: %w", err)
	}
	var gone, halted, paused []string
	for i := range all {
		p := &all[i]
		if !p.Declared {
			gone = append(gone, p.Name)
			continue
		}
		if p.Pause != nil {
			paused = append(paused, p.Name)
		}
		for j := range p.Builds {
			if p.Runs(&p.Builds[j]) && p.Builds[j].Halt != nil {
				halted = append(halted, p.Name)
			}
		}
	}
	for _, say := range []struct {
		names []string
		what  string
	}{
		{gone, "projections are in the store and not in this program: what they have not read is kept for them; if they are not to come back, remove them"},
		{halted, "projections are halted since before this start: mend the cause, then retry or skip the event"},
		{paused, "projections are paused since before this start"},
	} {
		if len(say.names) > 0 {
			a.cfg.Logger.Warn(say.what, "projections", strings.Join(say.names, ", "))
		}
	}
	return nil
}

// alone waits until no other suspect is in a behavior of this process.
func (r *running) alone(ctx context.Context) (release func(), err error) { return r.runtime.Alone(ctx) }

// committed tells everybody who may have something to do with it that lanes have grown.
func (r *running) committed(ctx context.Context, tails []event.Tail) error {
	r.projections.Wake(tails)
	return r.carrier.committed(ctx, tails)
}

// takeProjection has a projection look at what was done to it; false when the act was none on a projection of this program.
func (r *running) takeProjection(done eventstore.ActRecord) bool {
	if done.Unit.Key != "" || !r.projections.Has(done.Unit.Name) {
		return false
	}
	r.rousing.Go(func(ctx context.Context) {
		const again = 250 * time.Millisecond
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			err := r.projections.Look(ctx, done.Unit.Name)
			if err == nil || ctx.Err() != nil {
				return
			}
			r.app.cfg.Logger.Warn("projections: will look again", "error", err)
			timer.Reset(again)
		}
	})
	return true
}

// projectionFigures tells how a build gets on that runs here.
func (r *running) projectionFigures(ctx context.Context, name string, build int) (*admin.ProjectionFigures, error) {
	f, ok, err := r.projections.Figures(ctx, name, build)
	if !ok {
		return nil, err
	}
	return &admin.ProjectionFigures{Behind: f.Behind, First: f.First, Rate: f.Rate}, nil
}

// projectionObserver logs what happens to projections, and passes everything on to Config.Projections.
func (a *App) projectionObserver() projection.Observer {
	log, next := a.cfg.Logger, a.cfg.Projections
	o := next
	troubles := new(rarely)
	o.Retried = func(b projection.Build, e *event.Envelope, attempt int, err error) {
		attrs := []any{"projection", b.Name, "build", b.Number, "attempt", attempt, "error", err}
		if e != nil {
			attrs = append(attrs, "event", e.ID, "type", e.Type)
		}
		log.Warn("projection: attempt failed", attrs...)
		if next.Retried != nil {
			next.Retried(b, e, attempt, err)
		}
	}
	o.Halted = func(b projection.Build, h eventstore.ProjectionHalt) {
		log.Error("projection halted: nothing later is applied; mend the cause, then retry or skip", "projection", b.Name, "build", b.Number,
			"at", h.Event.String(), "attempts", h.Attempts, "reason", h.Reason, "error", h.Error)
		call2(next.Halted, b, h)
	}
	o.WaitsForType = func(b projection.Build, e *event.Envelope) {
		log.Error("projection waits for a newer program: this one does not know the type of the next event", "projection", b.Name, "build", b.Number,
			"event", e.ID, "type", e.Type, "version", e.Version)
		call2(next.WaitsForType, b, e)
	}
	o.Switched = func(now projection.Build, before int) {
		log.Info("projection: readers see another build", "projection", now.Name, "build", now.Number, "before", before)
		call2(next.Switched, now, before)
	}
	o.Panicked = func(b projection.Build, p *actors.PanicError) {
		log.Error("projection panicked", "projection", b.Name, "build", b.Number, "panic", p.Value, "stack", p.Stack)
		call2(next.Panicked, b, p)
	}
	o.Overdue = func(b projection.Build, id string, after time.Duration) {
		log.Error("projection takes longer than its Timeout: the attempt is over, and the next begins when it returns", "projection", b.Name, "build", b.Number, "event", id, "timeout", after)
		if next.Overdue != nil {
			next.Overdue(b, id, after)
		}
	}
	o.Trouble = func(b projection.Build, what string, err error) {
		if unsaid, now := troubles.due(what); now {
			attrs := []any{"projection", b.Name, "build", b.Number, "what", what}
			if unsaid > 0 {
				attrs = append(attrs, "unsaid", unsaid)
			}
			log.Warn("projection in trouble: it goes on trying", withError(attrs, err)...)
		}
		if next.Trouble != nil {
			next.Trouble(b, what, err)
		}
	}
	return o
}
