package keyhold_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/projection"
	"github.com/keyhold/keyhold/telemetry"
	"github.com/keyhold/keyhold/transport/local"
)

// projectionPoints gives the points of projections as "name of the metric, projection, other labels".
func projectionPoints(t *testing.T, reader *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			var points []metricdata.DataPoint[int64]
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				points = d.DataPoints
			case metricdata.Gauge[int64]:
				points = d.DataPoints
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					if name, ok := p.Attributes.Value("projection"); ok && p.Value > 0 {
						found[m.Name+" "+name.AsString()] = 1 // an age
					}
				}
			}
			for _, p := range points {
				if name, ok := p.Attributes.Value("projection"); ok && p.Value != 0 {
					key := m.Name + " " + name.AsString()
					for _, more := range p.Attributes.ToSlice() {
						if more.Key != "projection" {
							key += " " + more.Value.AsString()
						}
					}
					found[key] = float64(p.Value)
				}
			}
		}
	}
	return found
}

// metered is an application with projections, and the reader of its metrics.
func metered(t *testing.T, store eventstore.Store, see keyhold.ProjectionObserver, declared ...keyhold.Declaration) (*keyhold.App, *sdkmetric.ManualReader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	app := keyhold.New(keyhold.Config{
		Name: "shop", Store: store, Transport: local.New(), Logger: slog.New(slog.DiscardHandler), Projections: see,
		Telemetry: telemetry.New(telemetry.Options{NoTraces: true, Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}),
	})
	app.Register(append(declared, price)...)
	start(t, app)
	return app, reader
}

// refuses is a projection that fails at every event with the same error.
func refuses(name string, err error) keyhold.Projection[*ledger] {
	p := newLedger().projection(name, "price")
	p.On = keyhold.ProjectionCases[*ledger]{keyhold.Project(func(*ledger, keyhold.ProjectionContext, priceSet) error { return err })}
	p.Retry = keyhold.RetryPolicy{Attempts: 9, Min: time.Hour, Max: time.Hour}
	return p
}

func TestMetricsTellWhichProjectionsAreBehindAndWhy(t *testing.T) {
	t.Parallel()
	halted, retried, caught := make(chan string, 10), make(chan string, 10), make(chan string, 100)
	see := keyhold.ProjectionObserver{
		Halted:   func(b projection.Build, _ eventstore.ProjectionHalt) { halted <- b.Name },
		Retried:  func(b projection.Build, _ *event.Envelope, _ int, _ error) { retried <- b.Name },
		CaughtUp: func(b projection.Build) { caught <- b.Name },
	}
	store, good := memory.Open(), newLedger().projection("good", "price")
	good.On = keyhold.ProjectionCases[*ledger]{keyhold.Project((*ledger).priced)}
	app, reader := metered(t, store, see, good, refuses("bad", keyhold.Poison(errors.New("no"))), refuses("weak", errors.New("not now")))
	if err := keyhold.Publish(t.Context(), app, keyhold.For("x", priceSet{Item: "tea"}), keyhold.For("x", priceSet{Item: "milk"})); err != nil {
		t.Fatal(err)
	}
	<-halted
	<-retried
	for { // "good" has caught up with nothing before
		for name := <-caught; name != "good"; {
			name = <-caught
		}
		if got := projectionPoints(t, reader); got["keyhold.projection.lag.events good"] == 0 {
			break
		}
	}
	behind := map[string]float64{
		"keyhold.projection.lag.events bad": 2, "keyhold.projection.lag.age bad": 1, "keyhold.projection.stopped bad halted": 1,
		"keyhold.projection.halts bad poison": 1,
		"keyhold.projection.lag.events weak":  2, "keyhold.projection.lag.age weak": 1, "keyhold.projection.stopped weak trying": 1,
		"keyhold.projection.retries weak": 1,
	}
	if d := cmp.Diff(behind, projectionPoints(t, reader)); d != "" {
		t.Error(d)
	}
	if _, err := store.ActOnProjection(t.Context(), eventstore.ProjectionAct{Kind: eventstore.ActPause, Name: "good", Actor: "ann"}); err != nil {
		t.Fatal(err)
	}
	if got := projectionPoints(t, reader); got["keyhold.projection.stopped good paused"] != 1 {
		t.Errorf("paused: %v", got)
	}
	if err := app.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}

	// Readers see the build of version 0 until that of version 7 has caught up, which it cannot.
	newer := refuses("good", keyhold.Poison(errors.New("no")))
	newer.Version = 7
	app, reader = metered(t, store, see, newer)
	if err := keyhold.Publish(t.Context(), app, keyhold.For("x", priceSet{Item: "rice"})); err != nil {
		t.Fatal(err)
	}
	got := projectionPoints(t, reader)
	if got["keyhold.projection.lag.events good"] != 1 || got["keyhold.projection.lag.age good"] != 1 {
		t.Errorf("lag of what readers see: %v", got)
	}
	if _, there := got["keyhold.projection.lag.events bad"]; there {
		t.Error("a projection that this program does not have is measured")
	}
}
