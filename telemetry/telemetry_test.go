package telemetry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bundle struct {
	*testing.T
	reader *sdk.ManualReader
	spans  *tracetest.SpanRecorder
	traces *trace.TracerProvider
	tel    *telemetry.Telemetry
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{T: t, reader: sdk.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	b.traces = trace.NewTracerProvider(trace.WithSpanProcessor(b.spans))
	b.tel = telemetry.New(telemetry.Options{Meters: sdk.NewMeterProvider(sdk.WithReader(b.reader)), Traces: b.traces})
	return b
}

// collect gives each point as "name{label=value,...}" with its value.
func (b *bundle) collect() map[string]float64 {
	b.Helper()
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(b.Context(), &all); err != nil {
		b.Fatal(err)
	}
	return read(&all)
}

func read(all *metricdata.ResourceMetrics) map[string]float64 {
	found := map[string]float64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			points(m, func(set attribute.Set, v float64) {
				var labels []string
				for _, kv := range set.ToSlice() {
					labels = append(labels, string(kv.Key)+"="+kv.Value.String())
				}
				slices.Sort(labels)
				found[m.Name+"{"+strings.Join(labels, ",")+"}"] = v
			})
		}
	}
	return found
}

func points(m metricdata.Metrics, each func(attribute.Set, float64)) {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			each(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			each(p.Attributes, float64(p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			each(p.Attributes, p.Value)
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			each(p.Attributes, float64(p.Count))
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			each(p.Attributes, float64(p.Sum))
		}
	}
}

func (b *bundle) want(got map[string]float64, points map[string]float64) {
	b.Helper()
	for name, v := range points {
		if g, ok := got[name]; !ok || g != v {
			b.Errorf("%s: got %v (there: %v), want %v", name, g, ok, v)
		}
	}
}

var (
	shipping = event.Unit{Name: "shipping", Key: "c-17"}
	placed   = event.Envelope{ID: "e1", Type: "order.placed", Category: "order", Key: "c-17", Sequence: 5}
)

// do has the observer see one unit of work.
func do(o actors.Observer, ctx context.Context, w *actors.Work, outcome actors.Outcome, err error) (context.Context, event.Trace) {
	ctx, trace := o.Begin(ctx, w)
	w.Took, w.Outcome, w.Err = 20*time.Millisecond, outcome, err
	o.End(w)
	return ctx, trace
}

func TestWhatHappensIsCountedAndPassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	heard := 0
	o := b.tel.Observer(actors.Observer{
		Retried:      func(event.Unit, *event.Envelope, int, error) { heard++ },
		Halted:       func(eventstore.Halt) { heard++ },
		Resumed:      func(event.Unit) { heard++ },
		DeadLettered: func(eventstore.Dead) { heard++ },
		Panicked:     func(event.Unit, *actors.PanicError) { heard++ },
		Parked:       func(eventstore.Parked) { heard++ },
		Unparked:     func(event.Unit, string) { heard++ },
		Replayed:     func(event.Unit, *event.Envelope) { heard++ },
		AsideFailed:  func(event.Unit, *event.Envelope, error) { heard++ },
		Suspected:    func(event.Unit, *event.Envelope, int, bool) { heard++ },
		CommitFailed: func(event.Unit, error) { heard++ },
		Overdue:      func(event.Unit, time.Duration) { heard++ },
		Trouble:      func(event.Unit, string, error) { heard++ },
		Applied:      func(event.Unit, *event.Envelope) { heard++ },
		Begin: func(ctx context.Context, _ *actors.Work) (context.Context, event.Trace) {
			heard++
			return ctx, event.Trace{}
		},
		End: func(*actors.Work) { heard++ },
	})
	o.Retried(shipping, &placed, 1, errors.New("no"))
	o.Halted(eventstore.Halt{Unit: shipping, Reason: "poison"})
	o.Halted(eventstore.Halt{Unit: shipping, Reason: "something of c-17"}) // a label must not grow with what is in errors
	o.Resumed(shipping)
	o.DeadLettered(eventstore.Dead{Unit: shipping})
	o.Panicked(shipping, &actors.PanicError{})
	o.Parked(eventstore.Parked{Unit: shipping})
	o.Unparked(shipping, "order")
	o.Replayed(shipping, &placed)
	o.AsideFailed(shipping, &placed, errors.New("no"))
	o.Suspected(shipping, &placed, 1, false)
	o.CommitFailed(shipping, errors.New("no"))
	o.Overdue(shipping, time.Second)
	o.Trouble(shipping, "fetch failed", errors.New("no"))
	o.Applied(shipping, &placed)
	do(o, t.Context(), &actors.Work{Unit: shipping, Use: actors.UseEvent, Event: &placed, Attempt: 3}, actors.OutcomeCommitted, nil)
	do(o, t.Context(), &actors.Work{Unit: shipping, Use: actors.UseEvent, Event: &placed, Attempt: 1}, actors.OutcomeFailed, errors.New("no"))
	b.want(b.collect(), map[string]float64{
		"keyhold.retries{handler=shipping}":                                   1,
		"keyhold.halts{handler=shipping,reason=poison}":                       1,
		"keyhold.halts{handler=shipping,reason=other}":                        1,
		"keyhold.resumes{handler=shipping}":                                   1,
		"keyhold.dead_letters{handler=shipping}":                              1,
		"keyhold.panics{handler=shipping}":                                    1,
		"keyhold.parked{handler=shipping}":                                    1,
		"keyhold.unparked{handler=shipping}":                                  1,
		"keyhold.replayed{handler=shipping}":                                  1,
		"keyhold.aside_failures{handler=shipping}":                            1,
		"keyhold.suspects{handler=shipping}":                                  1,
		"keyhold.commit_failures{handler=shipping}":                           1,
		"keyhold.overdue{handler=shipping}":                                   1,
		"keyhold.troubles{what=fetch failed}":                                 1,
		"keyhold.work.attempts{handler=shipping}":                             3,
		"keyhold.work.duration{handler=shipping,outcome=committed,use=event}": 1,
		"keyhold.work.duration{handler=shipping,outcome=failed,use=event}":    1,
	})
	if want := 19; heard != want {
		t.Errorf("the next observer heard %d things, want %d", heard, want)
	}
}

func TestNoLabelGrowsWithKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.tel.Observer(actors.Observer{})
	before := 0
	for i, key := range []string{"a", "b", "c", "d"} {
		u := event.Unit{Name: "shipping", Key: key}
		e := placed
		e.Key, e.ID = key, "e"+key
		o.Retried(u, &e, 1, errors.New(key))
		o.Halted(eventstore.Halt{Unit: u, Reason: key, Error: key})
		o.Panicked(u, &actors.PanicError{Value: key})
		do(o, t.Context(), &actors.Work{Unit: u, Use: actors.UseEvent, Event: &e, Attempt: 2}, actors.OutcomeFailed, errors.New(key))
		n := len(b.collect())
		if i > 0 && n != before {
			t.Fatalf("%d points after key %q, %d before", n, key, before)
		}
		before = n
	}
}

func standing(o eventstore.Overview, err error, loads ...actors.Load) actors.Standing {
	return actors.Standing{
		Overview: func(context.Context) (eventstore.Overview, error) { return o, err },
		Loads:    func() []actors.Load { return loads },
	}
}

func TestGaugesAreReadWhenMetricsAreCollected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stop, err := b.tel.Watch(standing(eventstore.Overview{Handlers: []eventstore.HandlerOverview{{
		Handler: eventstore.Handler{Name: "shipping"}, Lag: 12, Halted: 2, Parking: 1, Paused: 3, Trying: 4, Dead: 5,
		Oldest: time.Now().Add(time.Hour), // clocks that disagree give no negative age
	}}}, nil, actors.Load{Name: "shipping", Live: 7}))
	if err != nil {
		t.Fatal(err)
	}
	b.want(b.collect(), map[string]float64{
		"keyhold.lag.events{handler=shipping}":          12,
		"keyhold.units{handler=shipping,state=halted}":  2,
		"keyhold.units{handler=shipping,state=parking}": 1,
		"keyhold.units{handler=shipping,state=paused}":  3,
		"keyhold.units{handler=shipping,state=trying}":  4,
		"keyhold.units{handler=shipping,state=live}":    7,
		"keyhold.dead{handler=shipping}":                5,
		"keyhold.lag.age{handler=shipping}":             0,
		"keyhold.stopped.age{handler=shipping}":         0,
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, still := b.collect()["keyhold.lag.events{handler=shipping}"]; still {
		t.Error("observed after stop")
	}
}

func TestAgesAreSeconds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ago := time.Now().Add(-time.Minute)
	_, err := b.tel.Watch(standing(eventstore.Overview{
		Handlers: []eventstore.HandlerOverview{{Handler: eventstore.Handler{Name: "shipping"}, Oldest: ago}},
	}, nil, actors.Load{Name: "shipping", Oldest: ago}))
	if err != nil {
		t.Fatal(err)
	}
	got := b.collect()
	for _, name := range []string{"keyhold.lag.age{handler=shipping}", "keyhold.stopped.age{handler=shipping}"} {
		if v := got[name]; v < 60 || v > 90 {
			t.Errorf("%s is %v, want about 60", name, v)
		}
	}
}

func TestAStoreThatDoesNotAnswerIsAnErrorOfThatCollection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.tel.Watch(standing(eventstore.Overview{}, errors.New("disk is on fire"))); err != nil {
		t.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(t.Context(), &all); err == nil || !strings.Contains(err.Error(), "disk is on fire") {
		t.Errorf("collected with %v", err)
	}
}

func TestWhatIsAppliedIsAChildOfWhatEmittedIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.tel.Observer(actors.Observer{})
	ctx, request := b.traces.Tracer("http").Start(t.Context(), "POST /orders")
	_, carried := do(o, ctx, &actors.Work{Unit: event.Unit{Name: "order", Key: "o-1"}, Use: actors.UseCommand, Type: "PlaceOrder"}, actors.OutcomeCommitted, nil)
	request.End()
	if carried.Parent == "" {
		t.Fatal("what is emitted carries no trace")
	}
	// Another process, later: nothing is left but what the store kept. That its goroutine is in some other trace does not matter.
	other, elsewhere := b.traces.Tracer("http").Start(context.Background(), "GET /health")
	elsewhere.End()
	inside, _ := do(o, other, &actors.Work{Unit: shipping, Use: actors.UseEvent, Type: "order.placed", Event: &placed, Trace: carried}, actors.OutcomeFailed, errors.New("no"))
	_ = inside

	spans := map[string]trace.ReadOnlySpan{}
	for _, s := range b.spans.Ended() {
		spans[s.Name()] = s
	}
	post, ask, apply := spans["POST /orders"], spans["ask order PlaceOrder"], spans["apply shipping order.placed"]
	if post == nil || ask == nil || apply == nil {
		t.Fatalf("spans are %v", spans)
	}
	if ask.Parent().SpanID() != post.SpanContext().SpanID() {
		t.Error("what was asked is no child of the request")
	}
	if apply.Parent().SpanID() != ask.SpanContext().SpanID() || apply.SpanContext().TraceID() != post.SpanContext().TraceID() {
		t.Error("what was applied is no child of what emitted it")
	}
	if apply.Status().Code != codes.Error || ask.Status().Code == codes.Error {
		t.Errorf("status: apply %v, ask %v", apply.Status(), ask.Status())
	}
}

func TestARejectionIsNoErrorOfTheSpan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.tel.Observer(actors.Observer{})
	do(o, t.Context(), &actors.Work{Unit: event.Unit{Name: "order", Key: "o-1"}, Use: actors.UseCommand}, actors.OutcomeRejected, errors.New("no such order"))
	if s := b.spans.Ended()[0]; s.Status().Code == codes.Error || len(s.Events()) > 0 {
		t.Errorf("got %v", s)
	}
}

func TestWithoutTracesEnvelopesKeepWhatTheyWereGiven(t *testing.T) {
	t.Parallel()
	tel := telemetry.New(telemetry.Options{NoTraces: true, NoMetrics: true})
	o := tel.Observer(actors.Observer{})
	if o.Begin != nil || o.End != nil || o.Trace != nil {
		t.Error("something looks at units of work")
	}
	stop, err := tel.Watch(standing(eventstore.Overview{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

func TestTraceOfAContextIsThatOfItsSpan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.tel.Observer(actors.Observer{Trace: func(context.Context) event.Trace { return event.Trace{Parent: "next"} }})
	if got := o.Trace(t.Context()); got.Parent != "next" {
		t.Errorf("without a span: %v", got)
	}
	ctx, span := b.traces.Tracer("x").Start(t.Context(), "x")
	defer span.End()
	if got := o.Trace(ctx); !strings.Contains(got.Parent, span.SpanContext().SpanID().String()) {
		t.Errorf("got %v", got)
	}
}
