package guarantees

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

const childVariable = "KEYHOLD_GUARANTEES_CHILD" // "mode dir life"; activations: "mode database count"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == nodeArgument {
		if err := nodeMain(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if args := strings.Fields(os.Getenv(childVariable)); len(args) == 3 {
		life, err := strconv.Atoi(args[2])
		if err == nil && args[0] == "desk" {
			err = deskChild(args[1], life)
		} else if err == nil && args[0] == "activations" {
			err = activate(args[1], life)
		} else if err == nil && args[0] == "idle" {
			err = idle(args[1], life)
		} else if err == nil {
			err = child(args[0], args[1], life)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// process is the application under test.
type process struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	errs  *strings.Builder
}

func start(t *testing.T, mode, dir string, life int) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), errs: &strings.Builder{}}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", childVariable, mode, dir, life))
	p.cmd.Stderr = p.errs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	if !p.lines.Scan() || p.lines.Text() != "started" {
		p.cmd.Wait()
		t.Fatalf("life %d did not start: %q\n%s", life, p.lines.Text(), p.errs)
	}
	return p
}

// kill ends the process a moment after it has acknowledged so much, and collects everything that it acknowledged.
func (p *process) kill(t *testing.T, acks int, moment time.Duration, acked map[string]int) {
	t.Helper()
	alarm := time.AfterFunc(20*time.Second, func() { p.cmd.Process.Kill() }) // in case it hangs
	defer func() { alarm.Stop() }()
	for n := 0; p.lines.Scan(); n++ {
		if id, n, ok := parseAck(p.lines.Text()); ok {
			acked[id] = max(acked[id], n)
		}
		if n == acks && alarm.Stop() {
			alarm = time.AfterFunc(moment, func() { p.cmd.Process.Kill() })
		}
	}
	if err := p.cmd.Wait(); err == nil || p.cmd.ProcessState.ExitCode() == 1 {
		t.Fatalf("ended by itself: %v\n%s", err, p.errs)
	}
	if found := raceReport.FindString(p.errs.String()); found != "" {
		t.Fatal(found)
	}
}

// TestKillLosesNothing kills the application a hundred times at random points under load.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("KEYHOLD_SEED"), 10, 64); err == nil {
		seed = s
	}
	rounds := 100
	if testing.Short() {
		rounds = 15
	}
	t.Logf("KEYHOLD_SEED=%d rounds=%d", seed, rounds)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[string]int{}
	for life := 1; life <= rounds; life++ {
		start(t, "load", dir, life).kill(t, random.IntN(40), time.Duration(random.Int64N(int64(5*time.Millisecond))), acked)
	}
	p := start(t, "drain", dir, rounds+1)
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("stop after drain: %v\n%s", err, p.errs)
	}
	v := judge(t, dir, acked)
	t.Logf("rounds=%d acknowledged=%d %v", rounds, sum(acked), v)
	if !v.good() {
		t.Errorf("guarantee broken: %v (KEYHOLD_SEED=%d)", v, seed)
	}
}

func sum(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// judge reads what the lives of the application left behind.
func judge(t *testing.T, dir string, acked map[string]int) verdict {
	t.Helper()
	ctx := t.Context()
	store := openStore(dir)
	if _, err := store.Start(ctx, eventstore.StartOptions{Node: "oracle"}); err != nil {
		t.Fatal(err)
	}
	defer store.Stop(ctx)
	tails := map[string]event.Sequence{}
	for c := range clients {
		tail, err := store.LaneTail(ctx, laneOf(c))
		if err != nil {
			t.Fatal(err)
		}
		tails[clientName(c)] = tail
	}
	rows, err := store.Reader().QueryContext(ctx, `SELECT client, sequence FROM effects ORDER BY n`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var effects []effect
	for rows.Next() {
		var e effect
		if err := rows.Scan(&e.client, &e.seq); err != nil {
			t.Fatal(err)
		}
		effects = append(effects, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	v := judgeEffects(tails, effects)
	for id, n := range acked {
		events, err := store.ReadStream(ctx, event.Stream{Kind: "account", ID: id}, 0, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) < n {
			v.Unacknowledged += n - len(events)
		}
	}
	file, err := os.ReadFile(filepath.Join(dir, "markers"))
	if err != nil {
		t.Fatal(err)
	}
	if v.Overlapping, err = judgeMarkers(file); err != nil {
		t.Fatal(err)
	}
	return v
}
