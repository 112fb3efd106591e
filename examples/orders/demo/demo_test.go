package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// small is the demo at a tenth of its size.
func small(t *testing.T) plan {
	p := plan{Orders: 200, Clients: 12, Askers: 16, Parallel: 3, Seed: 1}
	if text := os.Getenv("KEYHOLD_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("KEYHOLD_SEED: %v", err)
		}
		p.Seed = seed
	}
	t.Logf("KEYHOLD_SEED=%d", p.Seed)
	return p
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// The demo at a tenth of its size; then what it left, each time with one thing spoilt: the counting is as good as what it is
// shown.
func TestTheStoryEndsWellAndTheCountingWouldNoticeOtherwise(t *testing.T) {
	t.Parallel()
	p, dir := small(t), t.TempDir()
	var story strings.Builder
	s := newScript(p, dir, &screen{out: &story})
	f, faults, err := s.run(t.Context())
	err = errors.Join(err, s.close())
	t.Log(story.String())
	if err != nil || len(faults) > 0 {
		t.Fatalf("%v %q", err, faults)
	}
	if f != (figures{Placed: 200, Shipped: 200, Parallel: f.Parallel, Halted: 1, Resumed: 1, Processes: 1}) || f.Parallel < p.Parallel || f.Parallel > p.Clients {
		t.Errorf("figures: %s", f)
	}
	if strings.ContainsAny(story.String(), "\r\x1b") {
		t.Error("control characters in a log")
	}
	for _, part := range []string{
		"[1/6] ", "[6/6] ", "with SIGKILL after ", " is halted at its event ", " is still halted at its event ", "no such address",
	} {
		if !strings.Contains(story.String(), part) {
			t.Errorf("the story does not say %q", part)
		}
	}

	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		count func(f figures) int
	}{
		"lost": {
			statement(`DELETE FROM shipments WHERE id = 20`), func(f figures) int { return f.Lost },
		},
		"twice": {
			statement(`INSERT INTO shipments (order_id, client_id, cents)
				SELECT order_id, client_id, cents FROM shipments WHERE id = (SELECT max(id) FROM shipments)`),
			func(f figures) int { return f.Twice },
		},
		"reordered": { // the last two of one client change places
			statement(`WITH last AS MATERIALIZED (SELECT id, order_id FROM shipments WHERE client_id = 'client-01' ORDER BY id DESC LIMIT 2)
				UPDATE shipments SET order_id = other.order_id FROM last own, last other WHERE own.id = shipments.id AND other.id <> own.id`),
			func(f figures) int { return f.Reordered },
		},
		"overlapping": {overlap, func(f figures) int { return f.Overlapping }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spoilt := t.TempDir()
			if err := os.CopyFS(spoilt, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, spoilt)
			e, err := gather(t.Context(), at{DB: databaseIn(spoilt)}, spoilt)
			if err != nil {
				t.Fatal(err)
			}
			if f, faults := judge(p, e, s.seen); c.count(f) != 1 || len(faults) == 0 {
				t.Errorf("%s, faults %q", f, faults)
			}
		})
	}
}

func TestADirectoryOfItsOwnGoesWhenAllIsWell(t *testing.T) {
	t.Parallel()
	own, given, wrong := t.TempDir(), t.TempDir(), t.TempDir()
	f := figures{Placed: 200, Shipped: 200, Parallel: 9, Halted: 1, Resumed: 1}
	const well = "orders demo: PASS placed=200 shipped=200 lost=0 reordered=0 overlapping=0 twice=0 parallel=9 halted=1 resumed=1"
	for _, c := range []struct {
		dir    string
		own    bool
		faults []string
		code   int
		last   string
		there  bool
	}{
		{own, true, nil, 0, well, false},
		{given, false, nil, 0, well, true},
		{wrong, true, []string{"lost is 1, not 0"}, 1, strings.Replace(well, "PASS", "FAIL", 1), true},
	} {
		var out strings.Builder
		code := conclude(plan{}, f, c.faults, time.Second, c.dir, c.own, &screen{out: &out})
		_, err := os.Stat(c.dir)
		if code != c.code || lastLine(out.String()) != c.last || (err == nil) != c.there {
			t.Errorf("exit code %d, directory %v:\n%s", code, err, out.String())
		}
		if named := strings.Contains(out.String(), c.dir); named != (c.code != 0) {
			t.Errorf("the directory is named: %v\n%s", named, out.String())
		}
		if len(c.faults) > 0 && !strings.Contains(out.String(), "WRONG: lost is 1, not 0\n") {
			t.Errorf("no reason:\n%s", out.String())
		}
	}
}

func TestADemoThatCannotBeginFails(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "orders.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(s *screen) int{
		"too few orders":        func(s *screen) int { return demo(plan{Orders: 10, Clients: 50}, t.TempDir(), s) },
		"a directory in use":    func(s *screen) int { return demo(small(t), full, s) },
		"a directory not there": func(s *screen) int { return demo(small(t), filepath.Join(full, "sub"), s) },
	} {
		var out strings.Builder
		if code := run(&screen{out: &out}); code != 1 || lastLine(out.String()) != "orders demo: FAIL" {
			t.Errorf("%s: exit code %d:\n%s", name, code, out.String())
		}
	}
}

// statement changes the tables as no application could: behind the back of everybody.
func statement(query string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		ctx := t.Context()
		store := sqlite.Open(databaseIn(dir))
		if _, err := store.Start(ctx, eventstore.StartOptions{Node: "spoiler"}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := store.Stop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}()
		tx := store.Begin("spoiler")
		sql, err := tx.SQL(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sql.ExecContext(ctx, query); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(ctx, eventstore.Changes{}); err != nil {
			t.Fatal(err)
		}
	}
}

// overlap has a client enter twice before it leaves.
func overlap(t *testing.T, dir string) {
	marks, err := readMarksFile(marksIn(dir))
	if err != nil {
		t.Fatal(err)
	}
	last := marks[len(marks)-1]
	m, err := openMarker(marksIn(dir), last.by())
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	for _, k := range []mark{
		{Enter: true, Client: last.Client, Order: last.Order, Event: last.Event, Seq: last.Seq, Attempt: 8, Generation: last.Generation},
		{Enter: true, Client: last.Client, Order: last.Order, Event: last.Event, Seq: last.Seq, Attempt: 9, Generation: last.Generation},
		{Client: last.Client, Order: last.Order, Event: last.Event, Seq: last.Seq, Attempt: 8, Generation: last.Generation},
		{Client: last.Client, Order: last.Order, Event: last.Event, Seq: last.Seq, Attempt: 9, Generation: last.Generation},
	} {
		if err := m.put(k); err != nil {
			t.Fatal(err)
		}
	}
}

// A worker whose output goes nowhere is enough to see that it stops with its input.
func TestAWorkerEndsWithItsInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := openMarker(marksIn(dir), incarnation{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if err := newWorker(alone(dir, 1), m, io.Discard).run(t.Context(), strings.NewReader("")); err != nil {
		t.Error(err)
	}
}

func TestAWorkerRefusesWhatIsNoCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := openMarker(marksIn(dir), incarnation{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if err := newWorker(alone(dir, 1), m, io.Discard).run(t.Context(), strings.NewReader("hello\n")); err == nil {
		t.Error("took it")
	}
}
