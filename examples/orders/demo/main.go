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
	transport := flag.String("transport", "local", "local, or redis: a server is started for the demo")
	store := flag.String("store", "sqlite", "sqlite, or postgres, with redis: a server is started for the demo")
	nodes := flag.Int("nodes", 0, fmt.Sprintf("processes at the start, 2 to %d, with redis and postgres; one more comes later; default %d", most, many))
	flag.BoolVar(&p.Stay, "stay", false, "keep these servers at the end, until Ctrl-C")
	dir := flag.String("dir", "", "existing, empty `directory` for database, marks and log, which is kept; default: a temporary one")
	flag.Parse()
	p.Parallel = min(8, p.Clients/2)
	screen := newScreen(os.Stdout)
	if err := p.choose(*transport, *store, *nodes); err != nil {
		screen.say("%v", err)
		os.Exit(2)
	}
	os.Exit(demo(p, *dir, screen))
}

// limit is the longest that the demo may take.
const limit = 3 * time.Minute

// demo runs the script and gives the exit code.
func demo(p plan, dir string, s *screen) int {
	interrupted, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	ctx, cancel := context.WithTimeoutCause(interrupted, limit, fmt.Errorf("not done after %s", limit))
	defer cancel()

	own, err := room(p, &dir)
	if err != nil {
		s.say("%v", err)
		s.say("orders demo: FAIL")
		return 1
	}
	introduce(p, dir, own, s)
	began := time.Now()
	story := newScript(p, dir, s)
	f, faults, err := story.run(ctx)
	took := time.Since(began)
	if err == nil {
		stay(interrupted, p, s)
	}
	if failed := story.close(); err == nil {
		err = failed
	}
	if err != nil {
		s.say("\nWRONG: the demo broke off: %v", err)
		if !own || os.Remove(dir) != nil { // it is empty when nothing could be started
			s.say("kept for a look: %s (%s)", dir, p.left())
		}
		s.say("orders demo: FAIL")
		return 1
	}
	return conclude(p, f, faults, took, dir, own, s)
}

// stay keeps the servers, where that is wanted, until ctx ends.
func stay(ctx context.Context, p plan, s *screen) {
	if p.Stay && p.Redis {
		s.say("\nThe servers stay until Ctrl-C.")
		<-ctx.Done()
	}
}

// left says what files there are to look at.
func (p plan) left() string {
	if p.Postgres {
		return "evidence.json, if it was counted; marks.jsonl, worker.log"
	}
	return "orders.db, marks.jsonl, worker.log"
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
	const shipping = "Shipping takes each client's orders one at a time, in the order in which they were placed, and many clients at once."
	const halt = "One carrier refuses an order, which halts its client."
	const count = "At the end everything is counted."
	switch {
	case p.several():
		s.tell("%d clients place %s orders with an application that runs in %d processes, on a Redis and a PostgreSQL that are started for this demo. They find one another by gossip, "+
			"and each is asked for orders that another one has. %s %s Halfway, one process more comes, and one is killed with SIGKILL: the others take over what it had, and then it is started again. %s",
			p.Clients, thousands(p.Orders), p.processes(), shipping, halt, count)
	case p.Redis:
		s.tell("%d clients place %s orders. The application runs in one process, since a SQLite file belongs to one at a time; its events and leases go "+
			"through a Redis that is started for this demo. For several processes choose STORE=postgres. %s %s Halfway, the process is killed with SIGKILL and started again. %s",
			p.Clients, thousands(p.Orders), shipping, halt, count)
	default:
		s.tell("%d clients place %s orders. %s %s Halfway, the process is killed with SIGKILL and started again. %s",
			p.Clients, thousands(p.Orders), shipping, halt, count)
	}
	s.say("")
	after := "kept"
	if own {
		after = "removed if all is well"
	}
	s.say("seed %d, data in %s (%s)", p.Seed, dir, after)
}

// conclude shows the figures and what is wrong with them, and gives the exit code. Where nothing is wrong, a directory of the
// demo's own goes.
func conclude(p plan, f figures, faults []string, took time.Duration, dir string, own bool, s *screen) int {
	rows := [][3]string{
		{"placed", thousands(f.Placed), "orders in the event log"},
		{"shipped", thousands(f.Shipped), "rows in the table shipments"},
		{"lost", thousands(f.Lost), "placed, but not shipped"},
		{"reordered", thousands(f.Reordered), "shipped behind a later order of the same client"},
		{"overlapping", thousands(f.Overlapping), "inside shipping together with another of the same client"},
		{"twice", thousands(f.Twice), "shipped more than once"},
		{"parallel", thousands(f.Parallel), "clients inside shipping at the same moment, at most"},
		{"halted", thousands(f.Halted), "clients still halted after the kill and the new start"},
		{"resumed", thousands(f.Resumed), "of these, resumed and through"},
	}
	if p.Redis {
		rows = append(rows,
			[3]string{"processes", thousands(f.Processes), "that shipped"},
			[3]string{"failover", thousands(int(f.Failover.Max.Milliseconds())), fmt.Sprintf("ms at most (median %s), from the signal until shipping goes on for a",
				thousands(int(f.Failover.Median.Milliseconds())))},
			[3]string{"", "", fmt.Sprintf("client that the process had, of %d; a lease and a heartbeat: %s", f.Failover.Clients, thousands(int((ttl + heartbeat).Milliseconds())))},
		)
	}
	if p.several() {
		rows = append(rows,
			[3]string{"nodes", thousands(f.Nodes), "that hear all others by gossip"},
			[3]string{"asked", thousands(f.Asked), "times how an order is, each process for the same orders"},
			[3]string{"elsewhere", thousands(f.Elsewhere), "of these answers came from the process that has the order, through the one that was asked"},
			[3]string{"wrong", thousands(f.Wrong), "answers that the event log does not bear out, or older than one before"},
		)
	}
	if f.Late > 0 {
		rows = append(rows, [3]string{"late", thousands(f.Late), "entered shipping when another process was owner already; could commit nothing"})
	}
	s.table(append(rows, [3]string{"seconds", strconv.FormatFloat(took.Seconds(), 'f', 1, 64), "from first to last"}))
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
		s.say("kept for a look: %s (%s)", dir, p.left())
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
