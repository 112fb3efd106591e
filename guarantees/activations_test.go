package guarantees

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/telemetry"
	"github.com/keyhold/keyhold/transport/local"
)

var activations = flag.Int("activations", 30_000, "how many activations TestActivations has, from 15000")

// few is after how many activations a process is looked at first. The second time is the end.
const few = 5_000

// footing is what a process holds when nothing is live in it.
type footing struct {
	Activations, Passivations int64
	Heap                      uint64 // bytes, after a collection
	Goroutines                int
	Registrations             int64 // instruments with a callback, and callbacks, that are not undone
	Series                    int   // that a collection gives
}

// TestActivations has entities and keys of a handler come to life and be put away. What the process holds in the end is what it held after few of them. With
// -activations=100000 there are so many.
func TestActivations(t *testing.T) {
	t.Parallel()
	many := *activations
	if many < 3*few {
		t.Fatalf("-activations=%d: to show anything it must be at least %d", many, 3*few)
	}
	at := figures[footing](t, fmt.Sprintf("activations %s %d", postgresserver.Database(t), many))
	first, last := at[0], at[1]
	if first.Activations < few || last.Activations < int64(many) || last.Passivations != last.Activations {
		t.Errorf("activations and passivations: %d and %d, then %d and %d", first.Activations, first.Passivations, last.Activations, last.Passivations)
	}
	// What the moment adds, pools that are full and what was not collected, is less than this; a leak of 128 bytes each is more.
	beside := max(5<<19, 32*uint64(last.Activations-first.Activations))
	if most := first.Heap + beside; last.Heap > most {
		t.Errorf("heap is %d bytes after %d activations and was %d after %d, want at most %d", last.Heap, last.Activations, first.Heap, first.Activations, most)
	}
	if most := first.Goroutines + 10; last.Goroutines > most { // connections come and go
		t.Errorf("there are %d goroutines and were %d, want at most %d", last.Goroutines, first.Goroutines, most)
	}
	if first.Registrations == 0 || last.Registrations != first.Registrations {
		t.Errorf("there are %d telemetry registrations and were %d, want the same", last.Registrations, first.Registrations)
	}
	if first.Series == 0 || last.Series != first.Series {
		t.Errorf("there are %d series of metrics and were %d, want the same", last.Series, first.Series)
	}
}

// figures runs a task of the package in a process of its own, and gives the two that it tells.
func figures[T any](t *testing.T, task string) (all []T) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+task)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var f T
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		t.Logf("%+v", f)
		all = append(all, f)
	}
	if err := cmd.Wait(); err != nil || len(all) != 2 {
		t.Fatalf("%d figures, %v\n%s", len(all), err, &errs)
	}
	return all
}

// counting counts what is registered with it.
type counting struct {
	metric.MeterProvider
	registered *atomic.Int64
}

func (c counting) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return countingMeter{c.MeterProvider.Meter(name, opts...), c.registered}
}

type countingMeter struct {
	metric.Meter
	registered *atomic.Int64
}

func (m countingMeter) RegisterCallback(f metric.Callback, of ...metric.Observable) (metric.Registration, error) {
	r, err := m.Meter.RegisterCallback(f, of...)
	if err == nil {
		m.registered.Add(1)
		r = countedRegistration{r, m.registered}
	}
	return r, err
}

func (m countingMeter) Int64ObservableGauge(name string, opts ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	m.registered.Add(1)
	return m.Meter.Int64ObservableGauge(name, opts...)
}

func (m countingMeter) Float64ObservableGauge(name string, opts ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	m.registered.Add(1)
	return m.Meter.Float64ObservableGauge(name, opts...)
}

func (m countingMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	m.registered.Add(1)
	return m.Meter.Int64Counter(name, opts...)
}

type countedRegistration struct {
	metric.Registration
	registered *atomic.Int64
}

func (r countedRegistration) Unregister() error {
	r.registered.Add(-1)
	return r.Registration.Unregister()
}

type tally struct{ booked *atomic.Int64 }

func (t *tally) deposited(keyhold.Context, deposited) error { t.booked.Add(1); return nil }

// activate is the process: it has units come to life and go until there were few, and many, and writes what it holds then.
func activate(database string, many int) error {
	var activated, passivated, booked, registered atomic.Int64
	reader := sdk.NewManualReader()
	meters := counting{sdk.NewMeterProvider(sdk.WithReader(reader)), &registered}
	otel.SetMeterProvider(meters) // whoever has none of its own takes this
	app := keyhold.New(keyhold.Config{
		Name: "bank", Store: postgres.New(postgres.Config{URL: database, MaxConns: 24}), Transport: local.New(), IdleAfter: 20 * time.Millisecond,
		Telemetry: telemetry.New(telemetry.Options{Meters: meters, NoTraces: true}), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Observer: keyhold.Observer{Activated: func(event.Unit) { activated.Add(1) }, Passivated: func(event.Unit) { passivated.Add(1) }},
	})
	app.Register(account, keyhold.Handler[*tally]{
		Name: "ledger", Categories: []string{accountCategory}, SequentialBy: "client", StartFrom: keyhold.Oldest,
		New: func(string) *tally { return &tally{&booked} },
		On:  keyhold.Behavior[*tally]{keyhold.On((*tally).deposited)},
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	if err := app.Start(ctx); err != nil {
		return err
	}
	used, f := 0, footing{}
	for _, target := range []int{few, many} {
		for f.Activations < int64(target) { // once more where a key came to life once for two deposits
			from := used
			used += max(1, (target-int(f.Activations)+5)/6) * 5 // of five accounts one has a deposit, which a key of the handler books
			if err := useOnce(ctx, app, from, used); err != nil {
				return err
			}
			for {
				f.Passivations, f.Activations = passivated.Load(), activated.Load()
				if int(booked.Load()) == used/5 && f.Activations >= int64(used) && f.Passivations == f.Activations {
					break
				}
				if err := rest(ctx, 10*time.Millisecond); err != nil {
					return fmt.Errorf("%d booked, %d activated, %d passivated: %w", booked.Load(), f.Activations, f.Passivations, err)
				}
			}
		}
		var series metricdata.ResourceMetrics
		if err := reader.Collect(ctx, &series); err != nil {
			return err
		}
		f.Series, f.Registrations = points(series), registered.Load()
		runtime.GC()
		runtime.GC() // what a pool held
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		f.Heap, f.Goroutines = m.HeapAlloc, runtime.NumGoroutine()
		if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
			return err
		}
	}
	return app.Stop(ctx)
}

// keys are those of the handler, all of which have been there after few activations: a store remembers the lanes that it has seen lately.
const keys = few / 6

// useOnce uses each of many accounts once: of some it asks how they stand, into some it makes a deposit.
func useOnce(ctx context.Context, app *keyhold.App, from, to int) error {
	use := func(n int) (err error) {
		id := account.ID(fmt.Sprint("account-", n))
		if n%5 == 0 {
			_, err = keyhold.Ask[*receipt](ctx, app, id, &deposit{Client: fmt.Sprint("client-", n/5%keys), Number: 1})
		} else {
			_, err = keyhold.Ask[*receipt](ctx, app, id, &balanceQuery{})
		}
		return err
	}
	var work sync.WaitGroup
	var next atomic.Int64
	next.Store(int64(from))
	errs := make(chan error, 64)
	for range cap(errs) {
		work.Go(func() {
			for n := int(next.Add(1)) - 1; n < to; n = int(next.Add(1)) - 1 {
				if err := use(n); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	work.Wait()
	close(errs)
	return <-errs // nil when there is none
}

// points counts the series of all metrics.
func points(all metricdata.ResourceMetrics) (n int) {
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				n += len(d.DataPoints)
			case metricdata.Sum[float64]:
				n += len(d.DataPoints)
			case metricdata.Gauge[int64]:
				n += len(d.DataPoints)
			case metricdata.Gauge[float64]:
				n += len(d.DataPoints)
			case metricdata.Histogram[int64]:
				n += len(d.DataPoints)
			case metricdata.Histogram[float64]:
				n += len(d.DataPoints)
			}
		}
	}
	return n
}
