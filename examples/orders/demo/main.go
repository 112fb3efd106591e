package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == workerArg {
		os.Exit(runWorker(os.Args[2:]))
	}
	p := plan{Askers: 32}
	flag.IntVar(&p.Orders, "orders", 2000, "orders that are placed")
	flag.IntVar(&p.Clients, "clients", 50, "clients that place them")
	flag.Uint64Var(&p.Seed, "seed", 1, "of the mix of orders")
	dir := flag.String("dir", "", "existing, empty `directory` for database, marks and log, which is kept; default: a temporary one")
	flag.Parse()
	p.Parallel = min(8, p.Clients/2)
	os.Exit(demo(p, *dir, newScreen(os.Stdout)))
}

// limit is the longest that the demo may take.
const limit = 3 * time.Minute

// demo runs the script and gives the exit code.
func demo(p plan, dir string, s *screen) int {
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s", limit))
	defer cancel()

	own, err := room(p, &dir)
	if err != nil {
		s.say("%v", err)
		s.say("orders demo: FAIL")
		return 1
	}
	introduce(p, dir, own, s)
	began := time.Now()
	f, faults, err := newScript(p, dir, s).run(ctx)
	if err != nil {
		s.say("\nWRONG: the demo broke off: %v", err)
		s.say("kept for a look: %s (orders.db, marks.jsonl, worker.log)", dir)
		s.say("orders demo: FAIL")
		return 1
	}
	return conclude(f, faults, time.Since(began), dir, own, s)
}

// room checks the plan and gives it a directory: a temporary one, which is the demo's own, unless one is named.
func room(p plan, dir *string) (own bool, err error) {
	if err := p.check(); err != nil {
		return false, err
	}
	if *dir == "" {
		*dir, err = os.MkdirTemp("", "keyhold-orders-")
		return true, err
	}
	files, err := os.ReadDir(*dir)
	if err == nil && len(files) > 0 {
		err = errors.New(*dir + " is not empty: name an empty directory")
	}
	return false, err
}

func introduce(p plan, dir string, own bool, s *screen) {
	s.say("Keyhold, the orders demo")
	s.say("")
	s.say("%d clients place %s orders. Shipping takes each client's orders one at a time, in the order in which they", p.Clients, thousands(p.Orders))
	s.say("were placed, and many clients at once. One carrier refuses an order, which halts its client. Halfway, the")
	s.say("process is killed with SIGKILL and started again. At the end everything is counted.")
	s.say("")
	after := "kept"
	if own {
		after = "removed if all is well"
	}
	s.say("seed %d, data in %s (%s)", p.Seed, dir, after)
}

// conclude shows the figures and what is wrong with them, and gives the exit code. Where nothing is wrong, a directory of the
// demo's own goes.
func conclude(f figures, faults []string, took time.Duration, dir string, own bool, s *screen) int {
	s.table([][3]string{
		{"placed", thousands(f.Placed), "orders in the event log"},
		{"shipped", thousands(f.Shipped), "rows in the table shipments"},
		{"lost", thousands(f.Lost), "placed, but not shipped"},
		{"reordered", thousands(f.Reordered), "shipped behind a later order of the same client"},
		{"overlapping", thousands(f.Overlapping), "inside shipping together with another of the same client"},
		{"twice", thousands(f.Twice), "shipped more than once"},
		{"parallel", thousands(f.Parallel), "clients inside shipping at the same moment, at most"},
		{"halted", thousands(f.Halted), "clients still halted after the kill and the new start"},
		{"resumed", thousands(f.Resumed), "of these, resumed and through"},
		{"seconds", strconv.FormatFloat(took.Seconds(), 'f', 1, 64), "from first to last"},
	})
	s.say("")
	const most = 20
	for i, fault := range faults {
		if i == most {
			s.say("WRONG: and %d more", len(faults)-most)
			break
		}
		s.say("WRONG: %s", fault)
	}
	if len(faults) > 0 {
		s.say("kept for a look: %s (orders.db, marks.jsonl, worker.log)", dir)
		s.say("orders demo: FAIL %s", f)
		return 1
	}
	if own {
		if err := os.RemoveAll(dir); err != nil {
			s.say("could not remove %s: %v", dir, err)
		}
	}
	s.say("orders demo: PASS %s", f)
	return 0
}
