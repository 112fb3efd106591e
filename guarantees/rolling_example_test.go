package guarantees

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	children "github.com/keyhold/keyhold/internal/child"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// TestRollingRestartOfTheExample builds examples/orders as it is, and with the tag next, which has shipping handle one type of events more. Three processes of the
// older program are replaced by three of the newer, one after the other, while clients place orders with whichever process answers, and send every second one back
// as soon as a newer process takes that. What was emitted is counted in the event log, and what came of it in the tables of shipping.
func TestRollingRestartOfTheExample(t *testing.T) {
	t.Parallel()
	s := openShops(t)
	older, newer := s.build(t, "older"), s.build(t, "newer", "-tags", "next")

	var old [3]*shop
	for i := range old {
		old[i] = s.start(t, older)
	}
	b := s.buy(t, 24)
	b.until(t, "60 orders are placed with the older program alone", &b.placed, 60)
	for _, o := range old {
		s.start(t, newer)
		b.until(t, "30 orders are sent back to a fleet of two programs", &b.returned, 30)
		o.stop(t)
	}
	b.stop()
	placed, returned := s.settle(t)
	if placed != int(b.placed.Load()) || returned != int(b.returned.Load()) {
		t.Errorf("the event log has %d orders placed and %d returned, and the clients were told of %d and %d", placed, returned, b.placed.Load(), b.returned.Load())
	}

	// Back to the older program: a client waits at what it does not know, and so does what comes after it. Others go on.
	s.must(t, "/orders/w-1", `{"client_id":"c-waits","cents":4200}`)
	s.admin(t, newer, "partitions", "pause", "shipping", "c-waits")
	for _, n := range s.all() { // who does not know of the pause yet would apply what is to wait
		eventually(t, time.Minute, "each process knows of the pause", func() (bool, error) {
			text, err := os.ReadFile(n.log)
			return strings.Contains(string(text), "act=pause unit=shipping/c-waits"), err
		})
	}
	s.must(t, "/orders/w-1/return", "")
	s.must(t, "/orders/w-2", `{"client_id":"c-waits","cents":1300}`)
	for _, n := range s.all() {
		n.stop(t)
	}
	last := s.start(t, older)
	s.admin(t, older, "partitions", "resume", "shipping", "c-waits")
	s.must(t, "/orders/g-1", `{"client_id":"c-goes","cents":4200}`)
	eventually(t, time.Minute, "the log says that c-waits waits", func() (bool, error) {
		text, err := os.ReadFile(last.log)
		return strings.Contains(string(text), `msg="waits for a newer program: this one does not know the type of the next event" unit=shipping/c-waits lane=order:c-waits sequence=2`), err
	})
	eventually(t, time.Minute, "another client is shipped for", func() (bool, error) {
		_, effects := s.read(t)
		return len(effects["c-goes"]) == 1, nil
	})
	if _, effects := s.read(t); !slices.Equal(effects["c-waits"], []event.Sequence{1}) {
		t.Errorf("of c-waits, the older program applied %v, and not 1 alone", effects["c-waits"])
	}
	s.start(t, newer)
	s.settle(t)
}

// shops is the example in several processes, on one database and one Redis.
type shops struct {
	dir, postgres, redis string
	mu                   struct {
		sync.Mutex
		running []*shop
		next    int
	}
}

// shop is one of the processes.
type shop struct {
	*children.Process
	of       *shops
	newer    bool
	log, url string
}

func openShops(t *testing.T) *shops {
	t.Helper()
	return &shops{dir: t.TempDir(), postgres: postgresserver.Database(t), redis: redisserver.Run(t, redisserver.Options{}).URL() + "?ttl=2s"}
}

// build compiles the example, with the race detector where the test has it.
func (s *shops) build(t *testing.T, name string, flags ...string) (path string) {
	t.Helper()
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		flags = append(flags, "-race")
	}
	path = filepath.Join(s.dir, name)
	args := append(append([]string{"build", "-o", path}, flags...), "../examples/orders/cmd/orders")
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return path
}

// start runs a program, and waits until it says where it listens.
func (s *shops) start(t *testing.T, program string) *shop {
	t.Helper()
	home, err := children.NewHome("keyhold-shop", "KILL", nil)
	if err != nil {
		t.Fatal(err)
	}
	n := &shop{of: s, newer: filepath.Base(program) == "newer", log: filepath.Join(home.Dir, "log")}
	if n.Process, err = home.Start(n.log, nil, program, "--db", s.postgres, "--redis", s.redis, "--listen", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if text, err := os.ReadFile(n.log); err == nil && t.Failed() {
			t.Logf("%s, process %d:\n%s", filepath.Base(program), n.PID(), text)
		}
		home.Close()
	})
	eventually(t, time.Minute, filepath.Base(program)+" listens", func() (bool, error) {
		text, err := os.ReadFile(n.log)
		_, after, ok := strings.Cut(string(text), "orders: ")
		n.url, _, _ = strings.Cut(after, ",")
		if !ok && !n.Alive() {
			t.Fatalf("it ended: %s", text)
		}
		return ok, err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.running = append(s.mu.running, n)
	return n
}

// stop ends the process in an orderly way. Clients hear of it by what they ask it.
func (n *shop) stop(t *testing.T) {
	t.Helper()
	if err := n.Quit(syscall.SIGTERM, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	n.of.mu.Lock()
	n.of.mu.running = slices.DeleteFunc(n.of.mu.running, func(o *shop) bool { return o == n })
	n.of.mu.Unlock()
	if text, err := os.ReadFile(n.log); err != nil || !strings.Contains(string(text), "msg=stopped") {
		t.Errorf("process %d did not stop in an orderly way: %v", n.PID(), err)
	}
}

func (s *shops) all() []*shop {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.running)
}

// turn gives the processes in turn, as a load balancer does.
func (s *shops) turn() *shop {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.next++
	return s.mu.running[s.mu.next%len(s.mu.running)]
}

// post asks a process, and reports whether it was done; an answer that it cannot be done now is none.
func (n *shop) post(ctx context.Context, path, body string) (done bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+path, strings.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set("Idempotency-Key", path)
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, nil // it has stopped, or is about to
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	switch {
	case err != nil, w.StatusCode == http.StatusServiceUnavailable:
		return false, nil
	case w.StatusCode == http.StatusNotFound && !n.newer && strings.HasSuffix(path, "/return"):
		return false, nil // the older program has no such command
	case w.StatusCode != http.StatusOK:
		return false, fmt.Errorf("%s: %s: %s", path, w.Status, text)
	}
	return true, nil
}

// must asks one process after the other until it is done.
func (s *shops) must(t *testing.T, path, body string) {
	t.Helper()
	eventually(t, time.Minute, path, func() (bool, error) { return s.turn().post(t.Context(), path, body) })
}

// admin runs the operator's command of a program.
func (s *shops) admin(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), program, append([]string{"admin", "--db", s.postgres}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// buyers are clients, each of which places one order after the other, and sends every second one back.
type buyers struct {
	placed, returned atomic.Int64 // as they were told
	done             chan struct{}
	group            sync.WaitGroup
}

// buy has clients buy until they are told to stop.
func (s *shops) buy(t *testing.T, clients int) *buyers {
	b := &buyers{done: make(chan struct{})}
	t.Cleanup(b.stop)
	for c := range clients {
		b.group.Go(func() { b.client(t, s, fmt.Sprintf("c-%d", c)) })
	}
	return b
}

func (b *buyers) client(t *testing.T, s *shops, name string) {
	var back []string // orders that are to be sent back
	ask := func(n *shop, path, body string, told *atomic.Int64) bool {
		ok, err := n.post(t.Context(), path, body)
		if err != nil {
			t.Error(err)
		}
		if ok {
			told.Add(1)
		}
		return ok
	}
	rest := time.NewTicker(20 * time.Millisecond)
	defer rest.Stop()
	for number := 0; !t.Failed(); <-rest.C {
		n, over := s.turn(), false
		select {
		case <-b.done:
			over = true
		default:
		}
		if over && len(back) == 0 {
			return
		}
		if id := fmt.Sprintf("o-%s-%d", name, number); !over && ask(n, "/orders/"+id, fmt.Sprintf(`{"client_id":%q,"cents":4200}`, name), &b.placed) {
			if number++; number%2 == 0 {
				back = append(back, id)
			}
		}
		back = slices.DeleteFunc(back, func(id string) bool { return ask(n, "/orders/"+id+"/return", "", &b.returned) })
	}
}

// until waits for more of what the clients are told.
func (b *buyers) until(t *testing.T, what string, told *atomic.Int64, more int64) {
	t.Helper()
	before := told.Load()
	eventually(t, time.Minute, what, func() (bool, error) { return t.Failed() || told.Load() >= before+more, nil })
}

// stop has the clients place no more, and waits until they have sent back what they do not keep.
func (b *buyers) stop() {
	select {
	case <-b.done:
	default:
		close(b.done)
	}
	b.group.Wait()
}

// read gives what was emitted, by client, and what came of it, in the order of commits.
func (s *shops) read(t *testing.T) (tails map[string]event.Sequence, effects map[string][]event.Sequence) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), s.postgres)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	tails, effects = map[string]event.Sequence{}, map[string][]event.Sequence{}
	rows, _ := c.Query(t.Context(), `SELECT key, last FROM keyhold_lanes WHERE category = 'order'`)
	var client string
	var sequence event.Sequence
	if _, err = pgx.ForEachRow(rows, []any{&client, &sequence}, func() error { tails[client] = sequence; return nil }); err != nil {
		t.Fatal(err)
	}
	rows, _ = c.Query(t.Context(), `
		SELECT e.client_id, l.sequence FROM (
			SELECT client_id, order_id, 'order.placed' AS type, pg_xact_commit_timestamp(xmin) AS at FROM shipments
			UNION ALL SELECT client_id, order_id, 'order.returned', pg_xact_commit_timestamp(xmin) FROM returns
		) e JOIN keyhold_log l ON l.stream_kind = 'order' AND l.stream_id = e.order_id AND l.type = e.type
		ORDER BY e.at`)
	if _, err = pgx.ForEachRow(rows, []any{&client, &sequence}, func() error { effects[client] = append(effects[client], sequence); return nil }); err != nil {
		t.Fatal(err)
	}
	return tails, effects
}

// settle waits until there is an effect of everything that was emitted, and judges. It gives how many events of either type there are.
func (s *shops) settle(t *testing.T) (placed, returned int) {
	t.Helper()
	var v verdict
	eventually(t, time.Minute, "there is an effect of everything", func() (bool, error) {
		tails, effects := s.read(t)
		var all []effect
		for _, client := range slices.Sorted(maps.Keys(effects)) {
			for _, sequence := range effects[client] {
				all = append(all, effect{client, sequence})
			}
		}
		v = judgeEffects(tails, all)
		return v.Lost == 0, fmt.Errorf("%v", v)
	})
	c, err := pgx.Connect(t.Context(), s.postgres)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	var effects, stopped int
	if err := c.QueryRow(t.Context(), `
		SELECT count(*) FILTER (WHERE type = 'order.placed'), count(*) FILTER (WHERE type = 'order.returned'), (SELECT count(*) FROM returns),
			(SELECT count(*) FROM keyhold_halts) + (SELECT count(*) FROM keyhold_dead) FROM keyhold_log`).Scan(&placed, &returned, &effects, &stopped); err != nil {
		t.Fatal(err)
	}
	t.Logf("emitted: %d order.placed, %d order.returned; rows of returns: %d; halted or dead: %d; %v", placed, returned, effects, stopped, v)
	if !v.good() || v.Effects != placed+returned || effects != returned || returned == 0 || stopped != 0 {
		t.Error("what came of the events is not what was emitted")
	}
	return placed, returned
}
