package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyhold/keyhold/actors"
)

const scope = "github.com/keyhold/keyhold"

// Options say where telemetry goes. Zero fields take the process's global provider.
type Options struct {
	Meters metric.MeterProvider
	Traces trace.TracerProvider
	// NoTraces leaves traces alone: no span is made, and what is emitted keeps the trace context that it was given.
	NoTraces bool
	// NoMetrics records no metrics.
	NoMetrics bool
}

// Telemetry is the observer of one application. All methods may be called concurrently.
type Telemetry struct {
	meter    metric.Meter
	tracer   trace.Tracer
	noTraces bool
	counts   *counts // nil without metrics
	err      error
}

// New makes telemetry. Providers are asked for instruments here; one that refuses is reported by Watch, which the application
// calls when it starts.
func New(o Options) *Telemetry {
	meters, traces := o.Meters, o.Traces
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	if traces == nil {
		traces = otel.GetTracerProvider()
	}
	t := &Telemetry{meter: meters.Meter(scope), tracer: traces.Tracer(scope), noTraces: o.NoTraces}
	if !o.NoMetrics {
		t.counts, t.err = newCounts(t.meter)
	}
	return t
}

// gauges are read together: one look at the store for each collection.
type gauges struct {
	lag, units, dead metric.Int64ObservableGauge
	age, stopped     metric.Float64ObservableGauge

	projectionLag, projectionStopped metric.Int64ObservableGauge
	projectionAge                    metric.Float64ObservableGauge

	node nodeGauges
}

// patience is how long one collection waits for a store.
const patience = 2 * time.Second

// Watch reads gauges from an application until stop is called, which ends a look at the store that is under way. A store that does not
// answer within two seconds leaves them out of that collection, and is reported to the provider.
func (t *Telemetry) Watch(from actors.Standing) (stop func() error, err error) {
	if t.err != nil {
		return nil, fmt.Errorf("telemetry: %w", t.err)
	}
	if t.counts == nil {
		return func() error { return nil }, nil
	}
	g, err := t.gauges()
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	stopping, end := context.WithCancel(context.Background())
	reg, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the store did not answer within %v", patience))
		defer cancel()
		defer context.AfterFunc(stopping, cancel)()
		err := g.observe(ctx, o, from, time.Now())
		if stopping.Err() != nil {
			return nil // nobody's fault
		}
		return err
	}, append(g.node.all(), g.lag, g.units, g.dead, g.age, g.stopped, g.projectionLag, g.projectionStopped, g.projectionAge)...)
	if err != nil {
		end()
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return func() error {
		end() // before Unregister, which waits for the collection that is under way
		return reg.Unregister()
	}, nil
}

func (t *Telemetry) gauges() (g gauges, err error) {
	ints := func(name, unit, what string) metric.Int64ObservableGauge {
		i, e := t.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
		err = errors.Join(err, e)
		return i
	}
	seconds := func(name, what string) metric.Float64ObservableGauge {
		f, e := t.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(what))
		err = errors.Join(err, e)
		return f
	}
	g.lag = ints("keyhold.lag.events", "{event}", "Records that a handler has not passed.")
	g.units = ints("keyhold.units", "{unit}", "Units that are halted, parking, paused or trying again, counted to 10,000; live ones are those in this process.")
	g.dead = ints("keyhold.dead", "{event}", "Dead letters kept; the count ends at 10,000.")
	g.age = seconds("keyhold.lag.age", "Age of the oldest event that units at work in this process have not passed.")
	g.stopped = seconds("keyhold.stopped.age", "How long the unit that is stopped longest has been.")
	g.projectionLag = ints("keyhold.projection.lag.events", "{event}", "Events that what readers of a projection see has not passed.")
	g.projectionAge = seconds("keyhold.projection.lag.age", "Age of the first of them.")
	g.projectionStopped = ints("keyhold.projection.stopped", "{build}", "Builds of a projection that are halted, paused or trying an event again.")
	var of error
	g.node, of = t.nodeGauges()
	return g, errors.Join(err, of)
}

// observe reads handlers, projections and what there is of nodes: that one of them cannot be read is no reason to leave out the others.
func (g *gauges) observe(ctx context.Context, o metric.Observer, from actors.Standing, now time.Time) error {
	faults := g.handlers(ctx, o, from, now)
	if from.Projections != nil {
		faults = errors.Join(faults, g.projections(ctx, o, from, now))
	}
	if from.Node != nil {
		faults = errors.Join(faults, g.node.observe(ctx, o, from, now))
	}
	if faults != nil {
		return fmt.Errorf("keyhold gauges: %w", faults)
	}
	return nil
}

// done gives why what was read is of no use; what was stopped meanwhile is to be read no further.
func done(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (g *gauges) projections(ctx context.Context, o metric.Observer, from actors.Standing, now time.Time) error {
	all, err := from.Projections(ctx)
	if err := done(ctx, err); err != nil {
		return fmt.Errorf("projections: %w", err)
	}
	for _, p := range all {
		label := attribute.String("projection", p.Name)
		one := metric.WithAttributeSet(attribute.NewSet(label))
		o.ObserveInt64(g.projectionLag, int64(p.Behind), one)
		o.ObserveFloat64(g.projectionAge, age(p.First, now), one)
		for state, n := range map[string]int{"halted": p.Halted, "paused": p.Paused, "trying": p.Trying} {
			o.ObserveInt64(g.projectionStopped, int64(n), metric.WithAttributeSet(attribute.NewSet(label, attribute.String("state", state))))
		}
	}
	return nil
}

func (g *gauges) handlers(ctx context.Context, o metric.Observer, from actors.Standing, now time.Time) error {
	all, err := from.Overview(ctx)
	if err := done(ctx, err); err != nil {
		return fmt.Errorf("handlers: %w", err)
	}
	heads := map[string]time.Time{}
	for _, l := range from.Loads() {
		heads[l.Name] = l.Oldest
		o.ObserveInt64(g.units, int64(l.Live), metric.WithAttributeSet(attribute.NewSet(attribute.String("handler", l.Name), attribute.String("state", "live"))))
	}
	for i := range all.Handlers {
		h := &all.Handlers[i]
		label := attribute.String("handler", h.Name)
		one := metric.WithAttributeSet(attribute.NewSet(label))
		o.ObserveInt64(g.lag, int64(h.Lag), one)
		o.ObserveInt64(g.dead, int64(h.Dead), one)
		o.ObserveFloat64(g.age, age(heads[h.Name], now), one)
		o.ObserveFloat64(g.stopped, age(h.Oldest, now), one)
		for state, n := range map[string]int{"halted": h.Halted, "parking": h.Parking, "paused": h.Paused, "trying": h.Trying} {
			o.ObserveInt64(g.units, int64(n), metric.WithAttributeSet(attribute.NewSet(label, attribute.String("state", state))))
		}
	}
	return nil
}

// age is 0 where there is nothing, or the clocks disagree.
func age(t, now time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(now.Sub(t).Seconds(), 0)
}

// Observer gives an observer that records, and passes everything on to next.
func (t *Telemetry) Observer(next actors.Observer) actors.Observer {
	o := next
	if t.counts != nil {
		t.counts.observe(&o, &next)
		t.counts.nodes.observe(&o, &next)
	}
	o.Begin, o.End, o.Trace = t.begin(next.Begin), t.end(next.End), t.traceOf(next.Trace)
	return o
}

// ProjectionRetried counts an attempt of a projection that failed and is made again.
func (t *Telemetry) ProjectionRetried(name string) {
	if t.counts != nil {
		t.counts.projectionRetries.Add(context.Background(), 1, metric.WithAttributeSet(attribute.NewSet(attribute.String("projection", name))))
	}
}

// ProjectionHalted counts a projection that stopped.
func (t *Telemetry) ProjectionHalted(name, why string) {
	if t.counts != nil {
		t.counts.projectionHalts.Add(context.Background(), 1, metric.WithAttributeSet(attribute.NewSet(
			attribute.String("projection", name), attribute.String("reason", reason(why)))))
	}
}

// use is what a unit of work was for, as a label.
func use(w *actors.Work) string {
	if w.Use == 0 {
		return "internal"
	}
	return w.Use.String()
}

// name gives a span's name: bounded, as backends group by it.
func name(w *actors.Work) string {
	verb := "ask"
	switch {
	case w.Event != nil:
		verb = "apply"
	case w.Use == 0:
		verb = "run"
	}
	return verb + " " + w.Unit.Name + " " + cmp.Or(w.Type, "own affairs")
}
