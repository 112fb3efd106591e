//go:build linux || darwin

package sqlite

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

const nobody = 65534

func dropRights() error { return syscall.Setuid(nobody) }

// limitFiles makes writes behind that size of a file fail, as on a full disk.
func limitFiles(size uint64) error {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = min(size, limit.Max)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// What was told as done is there, what failed is not, and work goes on once there is room again.
func TestDiskThatIsFullForAWhile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	c := startChild(t, "full", path)
	told := map[string]map[string]bool{"done": {}, "failed": {}, "unknown": {}}
	for phase := range 3 {
		done, all := 0, 0
		for line := c.line(t); line != "phase"; line = c.line(t) {
			what, id, _ := strings.Cut(line, " ")
			if told[what] == nil {
				t.Fatal(line)
			}
			told[what][id] = true
			all++
			if what == "done" {
				done++
			}
		}
		if full := phase == 1; (done < all) != full {
			t.Errorf("phase %d: %d of %d are done", phase, done, all)
		}
	}
	t.Logf("%d done, %d failed, %d unknown", len(told["done"]), len(told["failed"]), len(told["unknown"]))
	if err := c.Wait(); err != nil {
		t.Fatalf("the child: %v", err)
	}
	for id := range checkUnits(t, path, told["done"], len(told["unknown"])) {
		if told["failed"][id] {
			t.Errorf("unit %s failed and is there", id)
		}
	}
}

func TestAnotherProcessIsToldWhoOwnsTheStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	if err := os.WriteFile(path+".lock", []byte("99999999 what an owner that was killed left behind\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, "hold", path)
	c.line(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		_, err := Open(name).Start(t.Context(), eventstore.StartOptions{Node: "parent"})
		var owned *eventstore.OwnedError
		if !errors.As(err, &owned) {
			t.Fatalf("start: %v", err)
		}
		if owned.PID != c.Process.Pid || owned.Node != "child" {
			t.Errorf("owner: %+v, want process %d", owned, c.Process.Pid)
		}
	}
}

// A frozen owner keeps the store for as long as it is frozen; a dead one has lost it at once.
func TestOwnershipOutlivesAFreezeAndEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	c := startChild(t, "hold", path)
	c.line(t)
	c.signal(t, syscall.SIGSTOP)
	s := Open(path)
	if _, err := s.Start(t.Context(), eventstore.StartOptions{}); !errors.Is(err, eventstore.ErrOwned) {
		t.Errorf("start beside a frozen owner: %v", err)
	}
	waits := make(chan eventstore.Notice, 1)
	started := background(func() error {
		_, err := s.Start(t.Context(), eventstore.StartOptions{Node: "parent", Wait: true, Observe: func(n eventstore.Notice) { waits <- n }})
		return err
	})
	select {
	case n := <-waits:
		if n.What != "waiting for owner" || n.Who != "child" || !errors.Is(n.Error, eventstore.ErrOwned) {
			t.Errorf("notice: %+v", n)
		}
	case err := <-started:
		t.Fatalf("did not wait: %v", err)
	}
	c.signal(t, syscall.SIGKILL)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func (c *child) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := c.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func TestKilledInTheMiddleOfCommitsEveryAcknowledgedUnitIsThere(t *testing.T) {
	t.Parallel()
	seed := seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "store.db")
	acknowledged := map[string]bool{}
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		c := startChild(t, "commit", path)
		for range 1 + random.IntN(150) {
			acknowledged[c.unit(t)] = true
		}
		c.signal(t, syscall.SIGKILL)
		for c.lines.Scan() { // what it said before it died
			if id := c.lines.Text(); len(id) == len(event.NewID()) {
				acknowledged[id] = true
			}
		}
		_ = c.Wait() // says that it was killed
		checkUnits(t, path, acknowledged, (round+1)*childWriters)
	}
}

// unit is the id of a unit of work that the child was told is durable.
func (c *child) unit(t *testing.T) string {
	t.Helper()
	id := c.line(t)
	if strings.HasPrefix(id, "error") {
		t.Fatal(id)
	}
	return id
}

// seed gives the seed of a test's random choices: from KEYHOLD_SEED, or a new one that is told.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64()
	if given := os.Getenv("KEYHOLD_SEED"); given != "" {
		var err error
		if n, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEYHOLD_SEED=%d", n)
	return n
}

// checkUnits looks at a store after a fault: all that was acknowledged is there, at most inDoubt units beside, and each is
// whole. It gives the units.
func checkUnits(t *testing.T, path string, acknowledged map[string]bool, inDoubt int) map[string]int {
	t.Helper()
	b := &bundle{T: t, path: path, store: Open(path)}
	b.start()
	defer b.stop()
	var verdict string
	b.must(b.store.Reader().QueryRowContext(t.Context(), `PRAGMA integrity_check`).Scan(&verdict))
	if verdict != "ok" {
		t.Fatalf("integrity check: %s", verdict)
	}
	units := map[string]int{} // places in which a unit is
	for _, category := range []string{"order", "audit"} {
		for i, e := range b.lane(event.LaneRef{Category: category, Key: "a"}) {
			if e.Sequence != event.Sequence(i+1) {
				t.Fatalf("%s has #%d in place %d", category, e.Sequence, i+1)
			}
			units[e.ID]++
		}
	}
	for _, id := range b.ids() {
		units[id]++
	}
	for id, places := range units {
		if places != 2 {
			t.Errorf("unit %s is half there", id)
		}
	}
	for id := range acknowledged {
		if units[id] == 0 {
			t.Errorf("unit %s was acknowledged and is lost", id)
		}
	}
	if more := len(units) - len(acknowledged); more > inDoubt {
		t.Errorf("%d units are there that nobody was told of, at most %d can be", more, inDoubt)
	}
	return units
}

// lane reads a whole lane.
func (b *bundle) lane(ref event.LaneRef) []event.Envelope {
	b.Helper()
	var all []event.Envelope
	for {
		page, err := b.store.ReadLane(b.Context(), ref, event.Sequence(len(all)), eventstore.MaxLimit)
		b.must(err)
		if len(page) == 0 {
			return all
		}
		all = append(all, page...)
	}
}

func TestFileThatCannotBeWrittenIsSaid(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("run as root: only root can give rights up in a child process")
		}
		t.Skip("only root can give rights up in a child process")
	}
	for _, c := range []struct {
		name      string
		dir, file os.FileMode
		want      string
	}{
		{"directory", 0o755, 0o666, "permission denied"},
		{"file", 0o777, 0o444, "cannot be written"},
		{"secret file", 0o777, 0o000, "cannot be opened"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "keyhold") // the directories of t.TempDir are closed to others
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			path := filepath.Join(dir, "store.db")
			s := Open(path)
			if _, err := s.Start(t.Context(), eventstore.StartOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			for name, mode := range map[string]os.FileMode{dir: c.dir, path: c.file} {
				if err := os.Chmod(name, mode); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Remove(path + ".lock"); err != nil {
				t.Fatal(err)
			}
			line := startChild(t, "fail", path).line(t)
			if !strings.Contains(line, c.want) || !strings.Contains(line, path) {
				t.Errorf("the child says %q, want %q", line, c.want)
			}
		})
	}
}
