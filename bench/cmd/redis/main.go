// Command redis measures the broker on Redis, beside what the same client does with the same server and nothing in between, in turns: publishing,
// reading under a lease, waking, and keys that have nothing to do. It starts its own Redis.
//
//	go run ./cmd/redis -for 2s -rounds 5 -json redis.json
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/bench/figures"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// settings of a run.
type settings struct {
	span   time.Duration
	rounds int
	keys   int    // that are idle
	heap   string // file
	dir    string
	sheet  figures.Sheet
}

var parts = []struct {
	name    string
	measure func(context.Context, *settings) error
}{{"publish", publish}, {"consume", consume}, {"idle", idle}, {"retire", retire}}

func main() {
	var s settings
	flag.DurationVar(&s.span, "for", 2*time.Second, "about the time of each measurement")
	flag.IntVar(&s.rounds, "rounds", 5, "in which everything is measured in turns")
	flag.IntVar(&s.keys, "keys", 10_000, "that are idle")
	flag.StringVar(&s.dir, "dir", os.TempDir(), "directory for the database of idle keys")
	flag.StringVar(&s.heap, "heapprofile", "", "file for a profile of the heap while keys are idle")
	out := flag.String("json", "", "file for the results as JSON")
	only := flag.String("only", "", "of publish, consume, idle and retire, with commas between; all if empty")
	profile := flag.String("cpuprofile", "", "file for a profile of this program")
	flag.Parse()
	if err := run(&s, *out, *only, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "redis:", err)
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

// served is a server for one measurement.
type served struct {
	*redisserver.Server
	client *goredis.Client // as the transport has it
}

func serve(ctx context.Context) (*served, error) {
	s, err := redisserver.Start(ctx, redisserver.Options{})
	if err != nil {
		return nil, err
	}
	return &served{s, goredis.NewClient(&goredis.Options{Addr: s.Addr(), MaxRetries: -1, Protocol: 2, DisableIdentity: true})}, nil
}

func (s *served) stop() {
	s.client.Close()
	s.Stop()
}

// info is a number of INFO.
func (s *served) info(ctx context.Context, section, field string) (float64, error) {
	all, err := s.Info(ctx, section)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(all[field], 64)
}

// cpu is the processor time that the server has used.
func (s *served) cpu(ctx context.Context) (time.Duration, error) {
	user, err := s.info(ctx, "cpu", "used_cpu_user")
	if err != nil {
		return 0, err
	}
	sys, err := s.info(ctx, "cpu", "used_cpu_sys")
	return time.Duration((user + sys) * float64(time.Second)), err
}

// clock measures a round.
type clock struct {
	server *served
	began  time.Time
	client time.Duration
	served time.Duration
}

func (s *served) begin(ctx context.Context) (c clock, err error) {
	c.server = s
	c.served, err = s.cpu(ctx)
	c.began, c.client = time.Now(), figures.CPU()
	return c, err
}

func (c clock) end(ctx context.Context, n int) (figures.Round, error) {
	took, client := time.Since(c.began), figures.CPU()-c.client
	server, err := c.server.cpu(ctx)
	return figures.Timed(n, took, client, server-c.served), err
}
