// Command uow measures what a unit of work on SQLite costs: one event of an entity, which is also the record of its lane,
// committed through the port by 1, 16 and 256 writers at once. Beside it stands the floor, measured in the same run on the same file
// system: the same rows written to the adapter's own tables with their indexes, by prepared statements through database/sql, with
// nothing else in the way and 128 to a commit.
//
//	go run ./cmd/uow -dir . -for 3s -json uow.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// Result is one line of the table.
type Result struct {
	Name      string  `json:"name"`
	Writers   int     `json:"writers"`
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
	Ratio     float64 `json:"ratio"`     // to the floor
	CPU       float64 `json:"cpu_us"`    // processor time of a unit, which others on the machine disturb less
	CPURatio  float64 `json:"cpu_ratio"` // of the floor's to it
}

func main() {
	dir := flag.String("dir", os.TempDir(), "directory for the databases; its file system is what is measured")
	span := flag.Duration("for", 3*time.Second, "time for each measurement")
	out := flag.String("json", "", "file for the results as JSON")
	flag.Parse()
	if err := run(*dir, *span, *out); err != nil {
		fmt.Fprintln(os.Stderr, "uow:", err)
		os.Exit(1)
	}
}

func run(dir string, span time.Duration, out string) error {
	work, err := os.MkdirTemp(dir, "uow-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	before, err := floor(filepath.Join(work, "floor-1.db"), span, floorBatch)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	var results []Result
	for _, writers := range []int{1, 16, 256} {
		r, err := store(filepath.Join(work, fmt.Sprintf("store-%d.db", writers)), span, writers)
		if err != nil {
			return fmt.Errorf("%d writers: %w", writers, err)
		}
		results = append(results, r)
	}
	after, err := floor(filepath.Join(work, "floor-2.db"), span, floorBatch)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	single, err := floor(filepath.Join(work, "floor-3.db"), span, 1)
	if err != nil {
		return fmt.Errorf("floor, one to a commit: %w", err)
	}
	base := Result{
		Name: "floor, 128 to a commit", Writers: 1,
		PerSecond: (before.PerSecond + after.PerSecond) / 2, CPU: (before.CPU + after.CPU) / 2,
	}
	single.Name = "floor, 1 to a commit"
	results = append([]Result{base, single}, results...)
	for i := range results {
		results[i].Ratio = results[i].PerSecond / base.PerSecond
		results[i].CPURatio = base.CPU / max(results[i].CPU, 1)
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

func show(results []Result) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "\twriters\tunits/s\tof the floor\tp50 ms\tp99 ms\tCPU us/unit\tof the floor\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%.0f\t%.2f\t%.2f\t%.2f\t%.1f\t%.2f\t\n", r.Name, r.Writers, r.PerSecond, r.Ratio, r.P50, r.P99, r.CPU, r.CPURatio)
	}
}

// unit is the n-th unit of work of a writer.
func unit(writer, n int) eventstore.Append {
	e := event.Envelope{
		ID: event.NewID(), Type: "order.placed", Version: 1, Encoding: event.JSON, Data: payload, Category: "order",
		Key: fmt.Sprintf("client-%03d", (writer*31+n)%keys), CorrelationID: correlation, CausationID: correlation, Time: time.Now().UTC(),
	}
	stream := event.Stream{Kind: "order", ID: fmt.Sprintf("o-%03d-%04d", writer, n/eventsPerStream)}
	return eventstore.Append{Stream: stream, Expected: uint64(n % eventsPerStream), Events: []event.Envelope{e}}
}

const (
	keys            = 500
	eventsPerStream = 8
	floorBatch      = 128
	correlation     = "0197a2b4-1c00-7000-8000-000000000001"
)

var payload = make([]byte, 200)

// store measures the port.
func store(path string, span time.Duration, writers int) (Result, error) {
	ctx := context.Background()
	s := sqlite.Open(path)
	if _, err := s.Start(ctx, eventstore.StartOptions{Node: "uow"}); err != nil {
		return Result{}, err
	}
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		all   []time.Duration
		errs  []error
		end   = time.Now().Add(span)
	)
	began, used := time.Now(), cpu()
	for w := range writers {
		group.Go(func() {
			took, err := commits(ctx, s, w, end)
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, took...), append(errs, err)
		})
	}
	group.Wait()
	elapsed, spent := time.Since(began), cpu()-used
	slices.Sort(all)
	if err := errors.Join(append(errs, s.Stop(ctx))...); err != nil || len(all) == 0 {
		return Result{}, err
	}
	return Result{
		Name: "unit of work", Writers: writers, PerSecond: float64(len(all)) / elapsed.Seconds(), CPU: us(spent, len(all)),
		P50: ms(all[len(all)/2]), P99: ms(all[len(all)*99/100]),
	}, nil
}

// commits commits until end, and tells how long each took.
func commits(ctx context.Context, s *sqlite.Store, writer int, end time.Time) ([]time.Duration, error) {
	var took []time.Duration
	for n := 0; time.Now().Before(end); n++ {
		began := time.Now()
		if _, err := s.Begin("uow").Commit(ctx, eventstore.Changes{Append: []eventstore.Append{unit(writer, n)}}); err != nil {
			return took, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

// us is the time of one of n, in microseconds.
func us(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / float64(n) / 1000 }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
