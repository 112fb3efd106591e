package keyhold_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/telemetry"
	"github.com/keyhold/keyhold/transport/local"
)

// slowStore does not get through with an overview: until it is let go, or its context ends if it minds that.
type slowStore struct {
	eventstore.Store
	minds   bool
	entered chan struct{}
	letGo   chan struct{}
}

func (s *slowStore) Overview(ctx context.Context) (eventstore.Overview, error) {
	s.entered <- struct{}{}
	if !s.minds {
		<-s.letGo
		return eventstore.Overview{}, nil
	}
	<-ctx.Done()
	return eventstore.Overview{}, ctx.Err()
}

// scraped is an application of which somebody is reading metrics; collected gives what came of that.
func scraped(t *testing.T, minds bool) (_ *keyhold.App, s *slowStore, collected chan error) {
	t.Helper()
	cfg := inMemory()
	s = &slowStore{Store: cfg.Store, minds: minds, entered: make(chan struct{}, 1), letGo: make(chan struct{})}
	reader := sdkmetric.NewManualReader()
	cfg.Store, cfg.Transport = s, local.New()
	cfg.Telemetry = telemetry.New(telemetry.Options{NoTraces: true, Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	app := keyhold.New(cfg)
	app.Register(cart)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	collected = make(chan error, 1)
	go func() {
		var all metricdata.ResourceMetrics
		collected <- reader.Collect(context.Background(), &all)
	}()
	<-s.entered
	return app, s, collected
}

func TestStopEndsAReadingOfMetrics(t *testing.T) {
	t.Parallel()
	app, _, collected := scraped(t, true)
	stop(t, app)
	if err := <-collected; err != nil {
		t.Errorf("who collects is told of a fault: %v", err)
	}
}

func TestStopWaitsNoLongerThanItsContextForAReadingOfMetrics(t *testing.T) {
	t.Parallel()
	app, s, collected := scraped(t, false)
	err := app.Stop(ended())
	if err == nil || !strings.Contains(err.Error(), "telemetry: metrics are being read and do not end") {
		t.Errorf("stop: %v", err)
	}
	other := keyhold.New(keyhold.Config{Name: "shop", Store: s, Transport: local.New()})
	other.Register(cart)
	if err := other.Start(t.Context()); !errors.Is(err, eventstore.ErrOwned) {
		t.Errorf("the store was closed beneath a reader: %v", err)
	}
	close(s.letGo)
	<-collected
	stop(t, app)
}

// grumpy is telemetry that does not like to end.
type grumpy struct{ keyhold.Telemetry }

func (grumpy) Watch(actors.Standing) (func() error, error) {
	return func() error { return errors.New("I was just reading") }, nil
}

func TestTelemetryThatEndsWithAnErrorKeepsNothingOpen(t *testing.T) {
	t.Parallel()
	cfg := inMemory()
	cfg.Telemetry = grumpy{telemetry.New(telemetry.Options{NoTraces: true, NoMetrics: true})}
	app := keyhold.New(cfg)
	app.Register(cart)
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := app.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "I was just reading") {
		t.Errorf("stop: %v", err)
	}
	if err := app.Start(t.Context()); err != nil {
		t.Errorf("start after it: %v", err)
	}
	if err := app.Stop(t.Context()); err == nil {
		t.Error("the second start was not watched")
	}
}
