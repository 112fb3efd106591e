// Command telemetry measures what telemetry costs a unit of work: the same application with none, with metrics, and with metrics
// and traces, in turns within one run, so that what else the machine does disturbs them alike. A unit of work is a command
// asked of one of 500 entities, which emits one event, committed; and that event applied by a handler, committed.
//
//	go run ./cmd/telemetry -dir . -for 2s -rounds 5 -json telemetry.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/telemetry"
	"github.com/keyhold/keyhold/transport/local"
)

// Result is one line of the table: medians over the rounds.
type Result struct {
	Store     string  `json:"store"`
	Telemetry string  `json:"telemetry"`
	PerSecond float64 `json:"per_second"`
	Ratio     float64 `json:"ratio"`     // to none
	CPU       float64 `json:"cpu_us"`    // processor time of a unit
	CPURatio  float64 `json:"cpu_ratio"` // to none's
	Allocs    float64 `json:"allocs"`    // of a unit
}

func main() {
	dir := flag.String("dir", os.TempDir(), "directory for the databases")
	span := flag.Duration("for", 2*time.Second, "time for each measurement")
	rounds := flag.Int("rounds", 5, "measurements of each kind, in turns")
	out := flag.String("json", "", "file for the results as JSON")
	flag.Parse()
	if err := run(*dir, *span, *rounds, *out); err != nil {
		fmt.Fprintln(os.Stderr, "telemetry:", err)
		os.Exit(1)
	}
}

var kinds = []string{"none", "metrics", "metrics and traces"}

// sample is one measurement.
type sample struct{ perSecond, cpu, allocs float64 }

func run(dir string, span time.Duration, rounds int, out string) error {
	work, err := os.MkdirTemp(dir, "telemetry-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var results []Result
	for _, store := range []string{"memory", "sqlite"} {
		samples := map[string][]sample{}
		for round := range rounds {
			for i := range kinds {
				kind := kinds[(i+round)%len(kinds)]
				s, err := measure(store, filepath.Join(work, fmt.Sprintf("%d-%d.db", round, i)), kind, span)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", store, kind, err)
				}
				samples[kind] = append(samples[kind], s)
				fmt.Fprintf(os.Stderr, "round %d of %d: %s, %s: %.0f/s\n", round+1, rounds, store, kind, s.perSecond)
			}
		}
		for _, kind := range kinds {
			r := Result{Store: store, Telemetry: kind,
				PerSecond: median(samples[kind], func(s sample) float64 { return s.perSecond }),
				CPU:       median(samples[kind], func(s sample) float64 { return s.cpu }),
				Allocs:    median(samples[kind], func(s sample) float64 { return s.allocs }),
			}
			none := r
			if kind != kinds[0] {
				none = results[len(results)-slices.Index(kinds, kind)]
			}
			r.Ratio, r.CPURatio = r.PerSecond/none.PerSecond, r.CPU/max(none.CPU, 0.001)
			results = append(results, r)
		}
	}
	show(results)
	if out == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, '\n'), 0o644)
}

func median(all []sample, of func(sample) float64) float64 {
	var vs []float64
	for _, s := range all {
		vs = append(vs, of(s))
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}

func show(results []Result) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "store\ttelemetry\tunits/s\tof none\tCPU us/unit\tof none\tallocs/unit\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%.2f\t%.1f\t%.2f\t%.0f\t\n", r.Store, r.Telemetry, r.PerSecond, r.Ratio, r.CPU, r.CPURatio, r.Allocs)
	}
}

type bump struct{}

type bumped struct {
	Key string `json:"key"`
}

var _ = keyhold.Type[bumped]("bumped", 1)

var counter = keyhold.Entity[int]{
	Kind: "counter", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, _ *bump) (*struct{}, error) {
		c.Emit(bumped{Key: c.ID()})
		return nil, nil
	})},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ bumped) int { return n + 1 })},
}

const (
	entities = 500
	callers  = 64
)

// measure runs the application for a while.
func measure(store, path, kind string, span time.Duration) (sample, error) {
	observer, stop := providers(kind)
	defer stop()
	var s eventstore.Store = memory.Open()
	if store == "sqlite" {
		s = sqlite.Open(path)
	}
	app := keyhold.New(keyhold.Config{
		Name: "bench", Store: s, Transport: local.New(), Observer: observer, Logger: slog.New(slog.DiscardHandler),
	})
	var applied, wanted atomic.Int64
	through := make(chan struct{}, 1)
	type handler struct{}
	app.Register(counter, keyhold.Handler[*handler]{
		Name: "tally", Categories: []string{"counter"}, SequentialBy: "key", StartFrom: keyhold.Oldest,
		New: func(string) *handler { return &handler{} },
		On: keyhold.Behavior[*handler]{keyhold.On(func(*handler, keyhold.Context, bumped) error {
			if applied.Add(1) == wanted.Load() {
				through <- struct{}{}
			}
			return nil
		})},
	})
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		return sample{}, err
	}
	warm := time.Now().Add(span / 4)
	asked, err := ask(ctx, app, warm)
	runtime.GC()
	before, used, began := mallocs(), cpu(), time.Now()
	more, err2 := ask(ctx, app, began.Add(span))
	if wanted.Store(asked + more); errors.Join(err, err2) == nil && applied.Load() < asked+more {
		<-through
	}
	took, spent, allocs := time.Since(began), cpu()-used, mallocs()-before
	if err := errors.Join(err, err2, app.Stop(ctx)); err != nil {
		return sample{}, err
	}
	n := float64(more)
	return sample{perSecond: n / took.Seconds(), cpu: float64(spent.Nanoseconds()) / 1000 / n, allocs: float64(allocs) / n}, nil
}

// ask has callers ask until end, and gives how often they did.
func ask(ctx context.Context, app *keyhold.App, end time.Time) (int64, error) {
	var (
		group sync.WaitGroup
		total atomic.Int64
		fault atomic.Pointer[error]
	)
	for c := range callers {
		group.Go(func() {
			for n := c; time.Now().Before(end); n += callers {
				if _, err := keyhold.Ask[*struct{}](ctx, app, counter.ID(fmt.Sprintf("c-%03d", n%entities)), &bump{}); err != nil {
					fault.Store(&err)
					return
				}
				total.Add(1)
			}
		})
	}
	group.Wait()
	if err := fault.Load(); err != nil {
		return total.Load(), *err
	}
	return total.Load(), nil
}

// providers are real ones: metrics are aggregated, spans are sampled, batched, and thrown away where they would be sent.
func providers(kind string) (keyhold.Observer, func()) {
	if kind == kinds[0] {
		return keyhold.Observer{}, func() {}
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(nowhere{}))
	tel := telemetry.New(telemetry.Options{Meters: meters, Traces: traces, NoTraces: kind == kinds[1]})
	return tel.Observer(keyhold.Observer{}), func() {
		_ = meters.Shutdown(context.Background())
		_ = traces.Shutdown(context.Background())
	}
}

type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                             { return nil }

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
