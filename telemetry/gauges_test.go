package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/telemetry"
)

func TestProjectionsAreReadAndCountedByName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	from := standing(eventstore.Overview{}, errors.New("disk is on fire")) // what is known of projections is told all the same
	from.Projections = func(context.Context) ([]actors.ProjectionStanding, error) {
		return []actors.ProjectionStanding{
			{Name: "sales", Behind: 12, First: time.Now().Add(time.Hour), Halted: 1, Paused: 2, Trying: 3}, {Name: "stock"},
		}, nil
	}
	if _, err := b.tel.Watch(from); err != nil {
		t.Fatal(err)
	}
	b.tel.ProjectionRetried("sales")
	b.tel.ProjectionRetried("sales")
	b.tel.ProjectionHalted("sales", "poison")
	b.tel.ProjectionHalted("sales", "something of c-17")
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(t.Context(), &all); err == nil || !strings.Contains(err.Error(), "disk is on fire") {
		t.Errorf("collected with %v", err)
	}
	b.want(read(&all), map[string]float64{
		"keyhold.projection.lag.events{projection=sales}":           12,
		"keyhold.projection.lag.events{projection=stock}":           0,
		"keyhold.projection.lag.age{projection=sales}":              0,
		"keyhold.projection.stopped{projection=sales,state=halted}": 1,
		"keyhold.projection.stopped{projection=sales,state=paused}": 2,
		"keyhold.projection.stopped{projection=sales,state=trying}": 3,
		"keyhold.projection.retries{projection=sales}":              2,
		"keyhold.projection.halts{projection=sales,reason=poison}":  1,
		"keyhold.projection.halts{projection=sales,reason=other}":   1,
	})
}

func TestProjectionsThatCannotBeReadLeaveHandlersAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	from := standing(eventstore.Overview{Handlers: []eventstore.HandlerOverview{{Handler: eventstore.Handler{Name: "shipping"}, Lag: 12}}}, nil)
	from.Projections = func(context.Context) ([]actors.ProjectionStanding, error) { return nil, errors.New("disk is on fire") }
	if _, err := b.tel.Watch(from); err != nil {
		t.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(t.Context(), &all); err == nil || !strings.Contains(err.Error(), "projections: disk is on fire") {
		t.Errorf("collected with %v", err)
	}
	b.want(read(&all), map[string]float64{"keyhold.lag.events{handler=shipping}": 12})
}

func TestWithoutMetricsProjectionsAreNotCounted(t *testing.T) {
	t.Parallel()
	tel := telemetry.New(telemetry.Options{NoMetrics: true})
	tel.ProjectionRetried("sales")
	tel.ProjectionHalted("sales", "poison")
}

// waiting is a store that answers when nobody waits any longer; the causes go to ended.
func waiting(ended chan<- error) actors.Standing {
	return actors.Standing{
		Overview: func(ctx context.Context) (eventstore.Overview, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return eventstore.Overview{}, nil
		},
		Loads: func() []actors.Load { panic("read although nobody waits") },
	}
}

func TestACollectionDoesNotWaitForAStoreForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, began := setup(t), time.Now()
		if _, err := b.tel.Watch(waiting(make(chan error, 1))); err != nil {
			t.Fatal(err)
		}
		var all metricdata.ResourceMetrics
		if err := b.reader.Collect(t.Context(), &all); err == nil || !strings.Contains(err.Error(), "the store did not answer within 2s") {
			t.Errorf("collected with %v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestStopEndsACollectionThatWaitsForTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, began, ended, collected := setup(t), time.Now(), make(chan error, 1), make(chan error, 1)
		stop, err := b.tel.Watch(waiting(ended))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			var all metricdata.ResourceMetrics
			collected <- b.reader.Collect(t.Context(), &all)
		}()
		synctest.Wait()
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := <-collected; err != nil {
			t.Errorf("who collects is told of a fault: %v", err)
		}
		if cause := <-ended; !errors.Is(cause, context.Canceled) || time.Since(began) != 0 {
			t.Errorf("%v, after %v", cause, time.Since(began))
		}
	})
}
