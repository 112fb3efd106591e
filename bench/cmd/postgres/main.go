// Command postgres measures what runs on PostgreSQL, alone and with Redis, beside the same rows written by bare transactions through the same pool, in
// turns: units of work, commands up to the effect that a handler commits, and how soon another node goes on after one is gone, or has come. It starts its own servers.
//
//	go run ./cmd/postgres -for 3s -rounds 5 -json postgres.json
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/keyhold/keyhold/bench/figures"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// settings of a run.
type settings struct {
	span   time.Duration
	rounds int
	fsync  bool
	sheet  figures.Sheet
}

var parts = []struct {
	name    string
	measure func(context.Context, *settings) error
}{{"work", work}, {"ship", ship}, {"kill", killed.failover}, {"stop", stopped.failover}, {"inside", inside.failover}, {"planned", planned.failover}, {"joins", joins}}

// quiet tells of what went wrong alone.
var quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

func main() {
	if spec := os.Getenv(nodeVariable); spec != "" {
		if err := node(spec); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
		return
	}
	var s settings
	flag.DurationVar(&s.span, "for", 3*time.Second, "about the time of each measurement")
	flag.IntVar(&s.rounds, "rounds", 5, "in which everything is measured in turns")
	flag.BoolVar(&s.fsync, "fsync", true, "the server writes to the disk at each commit, as in production")
	out := flag.String("json", "", "file for the results as JSON")
	only := flag.String("only", "", "of work, ship, kill, stop, inside, planned and joins, with commas between; all if empty")
	profile := flag.String("cpuprofile", "", "file for a profile of this program")
	flag.Parse()
	if err := run(&s, *out, *only, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
		os.Exit(1)
	}
}

func run(s *settings, out, only, profile string) error {
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for _, p := range parts {
		if only != "" && !slices.Contains(strings.Split(only, ","), p.name) {
			continue
		}
		if err := p.measure(context.Background(), s); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return s.sheet.Write(os.Stdout, out)
}

// servers are those that a part needs.
type servers struct {
	postgres *postgresserver.Server
	redis    *redisserver.Server
}

func serve(ctx context.Context, s *settings) (*servers, error) {
	p, err := postgresserver.Start(ctx, postgresserver.Options{Fsync: s.fsync, Config: []string{"shared_buffers=128MB", "max_wal_size=1GB"}})
	if err != nil {
		return nil, err
	}
	r, err := redisserver.Start(ctx, redisserver.Options{})
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return &servers{p, r}, nil
}

func (s *servers) stop() { _ = errors.Join(s.redis.Stop(), s.postgres.Stop()) }

// database is a new one.
func (s *servers) database(ctx context.Context) (string, error) {
	name, err := s.postgres.Create(ctx)
	return s.postgres.URL(name), err
}
