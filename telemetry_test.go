package keyhold_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/telemetry"
	"github.com/keyhold/keyhold/transport/local"
)

type traceOpen struct{}

type traceOpened struct {
	ID string `json:"id"`
}

var (
	_ = keyhold.Type[traceOpen]("traced.open", 1)
	_ = keyhold.Type[traceOpened]("traced.opened", 1)
)

var traced = keyhold.Entity[int]{
	Kind: "traced", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, _ *traceOpen) (*struct{}, error) {
		c.Emit(traceOpened{ID: c.ID()})
		return nil, nil
	})},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ traceOpened) int { return n + 1 })},
}

// tracedApp is one life of an application, with providers of its own as another process has.
func tracedApp(t *testing.T, path string, spans *tracetest.SpanRecorder, meters *sdkmetric.MeterProvider) *keyhold.App {
	t.Helper()
	return keyhold.New(keyhold.Config{
		Name: "traced", Store: sqlite.Open(path), Transport: local.New(), Logger: slog.New(slog.DiscardHandler),
		Telemetry: telemetry.New(telemetry.Options{Meters: meters, Traces: trace.NewTracerProvider(trace.WithSpanProcessor(spans))}),
	})
}

func TestOneTraceGoesFromTheCommandToItsEffectThroughTheStoreAndARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "traced.db")
	before, after := tracetest.NewSpanRecorder(), tracetest.NewSpanRecorder()
	meters := sdkmetric.NewMeterProvider()

	first := tracedApp(t, path, before, meters)
	first.Register(traced, keyhold.Category{Name: "traced", Key: "id"})
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(before)).Tracer("http")
	ctx, request := tracer.Start(t.Context(), "POST /open")
	if _, err := keyhold.Ask[*struct{}](ctx, first, traced.ID("a"), &traceOpen{}); err != nil {
		t.Fatal(err)
	}
	request.End()
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	second := tracedApp(t, path, after, meters)
	applied := make(chan context.Context, 1)
	type handler struct{}
	second.Register(traced, keyhold.Handler[*handler]{
		Name: "watcher", Categories: []string{"traced"}, SequentialBy: "id", StartFrom: keyhold.Oldest,
		New: func(string) *handler { return &handler{} },
		On: keyhold.Behavior[*handler]{keyhold.On(func(_ *handler, ctx keyhold.Context, _ traceOpened) error {
			applied <- ctx
			return nil
		})},
	})
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-applied
	if err := second.Stop(t.Context()); err != nil { // its span has ended then
		t.Fatal(err)
	}

	ask, apply := spanOf(t, before, "ask traced keyhold_test.traceOpen"), spanOf(t, after, "apply watcher traced.opened")
	if ask.Parent().SpanID() != request.SpanContext().SpanID() {
		t.Error("the command is no child of the request")
	}
	if apply.Parent().SpanID() != ask.SpanContext().SpanID() || apply.SpanContext().TraceID() != request.SpanContext().TraceID() {
		t.Errorf("the effect is no child of the command: %v, %v", apply.Parent(), ask.SpanContext())
	}
}

func spanOf(t *testing.T, in *tracetest.SpanRecorder, name string) trace.ReadOnlySpan {
	t.Helper()
	var names []string
	for _, s := range in.Ended() {
		if s.Name() == name {
			return s
		}
		names = append(names, s.Name())
	}
	t.Fatalf("no span %q among %q", name, names)
	return nil
}

func TestWhatIsPublishedFromOutsideIsPartOfTheCallersTrace(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	app := tracedApp(t, filepath.Join(t.TempDir(), "traced.db"), spans, sdkmetric.NewMeterProvider())
	type handler struct{}
	got := make(chan keyhold.Meta, 2)
	app.Register(keyhold.Category{Name: "opened", Key: "id", Events: []keyhold.EventType{keyhold.EventOf[traceOpened]()}}, keyhold.Handler[*handler]{
		Name: "watcher", Categories: []string{"opened"}, SequentialBy: "id",
		New: func(string) *handler { return &handler{} },
		On: keyhold.Behavior[*handler]{keyhold.On(func(_ *handler, ctx keyhold.Context, _ traceOpened) error {
			got <- ctx.Meta()
			return nil
		})},
	})
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Stop(context.Background()) }()
	ctx, span := trace.NewTracerProvider().Tracer("http").Start(t.Context(), "PUT /open")
	defer span.End()
	if err := keyhold.Publish(ctx, app, traceOpened{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	tx, err := app.BeginTx(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := keyhold.PublishTx(ctx, app, tx, traceOpened{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if m := <-got; len(m.Trace.Parent) < 36 || m.Trace.Parent[3:35] != span.SpanContext().TraceID().String() {
			t.Errorf("trace is %q, want it in %s", m.Trace.Parent, span.SpanContext().TraceID())
		}
	}
}

func TestGaugesAreReadFromARunningApplicationAndNotAfterIt(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	app := tracedApp(t, filepath.Join(t.TempDir(), "traced.db"), tracetest.NewSpanRecorder(), sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	app.Register(traced)
	collect := func() map[string]bool {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, s := range all.ScopeMetrics {
			for _, m := range s.Metrics {
				found[m.Name] = true
			}
		}
		return found
	}
	for range 2 { // an application may be started again
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := keyhold.Ask[*struct{}](t.Context(), app, traced.ID("a"), &traceOpen{}); err != nil {
			t.Fatal(err)
		}
		if got := collect(); !got["keyhold.lag.events"] || !got["keyhold.units"] || !got["keyhold.work.duration"] {
			t.Errorf("collected %v", got)
		}
		if err := app.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := collect(); got["keyhold.lag.events"] {
			t.Errorf("collected %v after Stop", got)
		}
	}
}
