package keyhold_test

import (
	"context"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/telemetry"
)

func TestANodeIsReadyWhileStoreAndBrokerAnswerIt(t *testing.T) {
	t.Parallel()
	server := redisserver.Run(t, redisserver.Options{})
	reader := sdkmetric.NewManualReader()
	log := new(journal)
	cfg := onRedis(postgres.Open(postgresserver.Database(t)), server.URL(), "one")
	cfg.Logger, cfg.Telemetry = log.logger(), telemetry.New(telemetry.Options{NoTraces: true, Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	n := newNotes()
	idle := keyhold.New(cfg)
	if err := idle.Ready(); err == nil {
		t.Error("what is not started is ready")
	}
	app := run(t, cfg, cart, losses, n.losses())
	if err := app.Ready(); err != nil {
		t.Fatal(err)
	}
	if err := keyhold.Publish(t.Context(), app, itemLost{"ada", "tea"}); err != nil {
		t.Fatal(err)
	}
	<-n.news
	metrics := func() map[string]int64 { return gaugesOf(t, reader) }
	soon(t, "all parts are held, and what was committed is published", func() bool {
		got := metrics()
		return got["keyhold.parts"] == 64 && got["keyhold.relay.lag.events"] == 0 && got["keyhold.relay.published cart"] == 1
	})
	if got := metrics(); got["keyhold.members"] != 1 || got["keyhold.leases"] != 1 || got["keyhold.reachable broker"] != 1 || got["keyhold.reachable store"] != 1 {
		t.Errorf("metrics: %v", got)
	}

	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	soon(t, "it is not ready without its broker", func() bool { return app.Ready() != nil })
	if err := app.Ready(); !strings.Contains(err.Error(), "the broker redis") {
		t.Errorf("not ready: %v", err)
	}
	status, err := app.Admin().Status(t.Context())
	if err != nil || status.Problems[0].Kind != "apart" {
		t.Errorf("status: %q, %v", status.Words, err)
	}
	soon(t, "metrics tell", func() bool { return metrics()["keyhold.reachable broker"] == 0 })
	soon(t, "its leases are given up", func() bool { got := metrics(); return got["keyhold.leases"] == 0 && got["keyhold.parts"] == 0 })
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	soon(t, "it is ready again", func() bool { return app.Ready() == nil })
	if err := keyhold.Publish(t.Context(), app, itemLost{"ada", "milk"}); err != nil {
		t.Fatal(err)
	}
	<-n.news
	log.wants(t, "level=WARN", "out of reach: the broker redis")
	log.wants(t, "level=INFO", "reached again: the broker redis")
	stop(t, app)
	log.wants(t, "level=INFO", "draining: what is in hand is finished", "others=0")
	log.wants(t, "level=INFO", "drained: all leases are given back")
	if err := app.Ready(); err == nil {
		t.Error("what is stopped is ready")
	}
}

// gaugesOf gives all points of whole numbers, by name and the value of the first label.
func gaugesOf(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			var points []metricdata.DataPoint[int64]
			switch d := m.Data.(type) {
			case metricdata.Gauge[int64]:
				points = d.DataPoints
			case metricdata.Sum[int64]:
				points = d.DataPoints
			}
			for _, p := range points {
				name := m.Name
				if kv, labelled := p.Attributes.Get(0); labelled {
					name += " " + kv.Value.String()
				}
				found[name] = p.Value
			}
		}
	}
	return found
}

func TestOneTraceGoesFromACommandOnOneNodeToItsEffectOnAnother(t *testing.T) {
	t.Parallel()
	database, url := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()
	node := func(name string, spans *tracetest.SpanRecorder) keyhold.Config {
		cfg := onRedis(postgres.Open(database), url, name)
		cfg.Telemetry = telemetry.New(telemetry.Options{NoMetrics: true, Traces: trace.NewTracerProvider(trace.WithSpanProcessor(spans))})
		return cfg
	}
	here, there := tracetest.NewSpanRecorder(), tracetest.NewSpanRecorder()
	type handler struct{}
	applied := make(chan context.Context, 1)
	category := keyhold.Category{Name: "traced", Key: "id"}
	asked := run(t, node("asked", here), traced, category)
	handles := run(t, node("handles", there), category, traced,
		keyhold.Handler[*handler]{
			Name: "watcher", Categories: []string{"traced"}, SequentialBy: "id", StartFrom: keyhold.Oldest,
			New: func(string) *handler { return &handler{} },
			On: keyhold.Behavior[*handler]{keyhold.On(func(_ *handler, ctx keyhold.Context, _ traceOpened) error {
				applied <- ctx
				return nil
			})},
		})
	ctx, request := trace.NewTracerProvider(trace.WithSpanProcessor(here)).Tracer("http").Start(t.Context(), "POST /open")
	soon(t, "the first node answers", func() bool {
		_, err := keyhold.Ask[*struct{}](ctx, asked, traced.ID("a"), &traceOpen{})
		if err != nil && !keyhold.Retryable(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	request.End()
	<-applied
	if status, err := handles.Admin().Status(t.Context()); err != nil || len(status.Members) != 2 || len(status.Nodes) != 2 {
		t.Errorf("nodes: %+v, members: %+v, %v", status.Nodes, status.Members, err)
	}
	stop(t, handles) // its span has ended then
	ask, apply := spanOf(t, here, "ask traced keyhold_test.traceOpen"), spanOf(t, there, "apply watcher traced.opened")
	if apply.Parent().SpanID() != ask.SpanContext().SpanID() || apply.SpanContext().TraceID() != request.SpanContext().TraceID() {
		t.Errorf("the effect is no child of the command: %v, %v", apply.Parent(), ask.SpanContext())
	}
}
