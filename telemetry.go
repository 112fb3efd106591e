package keyhold

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/projection"
)

// Telemetry tells a monitoring system what an application does: telemetry.New(telemetry.Options{}) for OpenTelemetry. An
// application that names none links none.
type Telemetry interface {
	// Observer gives the observer that the application uses: it records, and passes everything on to next.
	Observer(next Observer) Observer
	// Nodes gives what is told of what happens among nodes, where the application is one of several.
	Nodes() actors.NodeObserver
	// Watch reads gauges from the application, from each start until stop is called. stop has a reading that is under way end, and
	// returns when the application is read no more.
	Watch(from actors.Standing) (stop func() error, err error)
	// ProjectionRetried and ProjectionHalted are told that an attempt of a projection failed and will be made again, and that a
	// projection stopped, and why. They must not block.
	ProjectionRetried(name string)
	ProjectionHalted(name, reason string)
}

// projectionsTold has telemetry told of projections before next is.
func projectionsTold(t Telemetry, next ProjectionObserver) ProjectionObserver {
	o := next
	o.Retried = func(b projection.Build, e *event.Envelope, attempt int, err error) {
		t.ProjectionRetried(b.Name)
		if next.Retried != nil {
			next.Retried(b, e, attempt, err)
		}
	}
	o.Halted = func(b projection.Build, h eventstore.ProjectionHalt) {
		t.ProjectionHalted(b.Name, h.Reason)
		call2(next.Halted, b, h)
	}
	return o
}

// watch has telemetry read gauges from what runs.
func (r *running) watch(ctx context.Context) error {
	t := r.app.cfg.Telemetry
	if t == nil {
		return nil
	}
	from := actors.Standing{Overview: r.app.cfg.Store.Overview, Loads: r.runtime.Loads, Projections: r.projectionStandings}
	if c, is := r.carrier.(*shared); is {
		from.Node = c.standing
	}
	stop, err := t.Watch(from)
	if err != nil {
		return err
	}
	w := &watching{}
	if err := w.loop.Start(ctx, func(ctx context.Context) {
		<-ctx.Done()
		w.err = stop() // it may wait for others' gauges as well
	}); err != nil {
		return errors.Join(err, stop())
	}
	r.watching = w
	return nil
}

// projectionStandings tells how the read models of this program get on. What readers see is the current build, also while it stands still
// because another is being made.
func (r *running) projectionStandings(ctx context.Context) ([]actors.ProjectionStanding, error) {
	all, err := r.app.cfg.Store.ListProjections(ctx)
	if err != nil {
		return nil, err
	}
	var out []actors.ProjectionStanding
	for i := range all {
		p := &all[i]
		if !r.projections.Has(p.Name) {
			continue
		}
		s := actors.ProjectionStanding{Name: p.Name}
		for j := range p.Builds {
			b := &p.Builds[j]
			switch {
			case !p.Runs(b):
			case b.Halt != nil:
				s.Halted++
			case p.Pause != nil:
				s.Paused++
			case b.Tried != nil:
				s.Trying++
			}
		}
		if s.Behind, s.First, err = r.projectionLag(ctx, p); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// projectionLag asks who runs the build that readers see; where nobody does, what it has not read is counted.
func (r *running) projectionLag(ctx context.Context, p *eventstore.Projection) (behind uint64, first time.Time, err error) {
	b := p.In(eventstore.BuildCurrent)
	if b == nil {
		return 0, time.Time{}, nil
	}
	if f, ok, err := r.projections.Figures(ctx, p.Name, b.Number); ok || err != nil {
		return f.Behind, f.First, err
	}
	lag, err := r.app.cfg.Store.ProjectionLag(ctx, b.Position, p.Categories)
	return lag.Behind, lag.First, err
}

// watching is what telemetry reads; nil without. Its methods are called by one goroutine at a time.
type watching struct {
	loop lifecycle.Loop
	err  error // of telemetry, when it had to end; settled once the loop has
}

// unwatch tells it to end, and does not wait.
func (w *watching) unwatch() {
	if w != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.loop.Stop(ctx) // Stop of w tells
	}
}

// Stop waits until the application is read no more; another call waits on. An error of telemetry itself keeps nothing open, and is given once.
func (w *watching) Stop(ctx context.Context) (ended bool, err error) {
	if w == nil {
		return true, nil
	}
	if err := w.loop.Stop(ctx); err != nil {
		return false, fmt.Errorf("telemetry: metrics are being read and do not end: %w", err)
	}
	err, w.err = w.err, nil
	return true, err
}
