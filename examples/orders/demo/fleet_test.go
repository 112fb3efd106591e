package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// The story on a Redis and a PostgreSQL, at a seventh of its size: three processes, a fourth that comes, and one that is killed.
func TestTheStoryOfSeveralProcessesEndsWell(t *testing.T) {
	t.Parallel()
	p, dir := small(t), t.TempDir()
	p.Orders, p.Clients, p.Redis, p.Postgres = 288, 24, true, true
	f, story := told(t, p, dir)
	if f.Placed != p.Orders || f.Processes != many+1 || f.Failover.Clients == 0 || !strings.Contains(f.String(), "processes=4 failover_ms=") {
		t.Errorf("figures: %s", f)
	}
	if f.Nodes != many+1 || f.Asked < 2*4*50 || f.Elsewhere < f.Asked/2 || f.Wrong != 0 || !strings.Contains(f.String(), " nodes=4 asked=") {
		t.Errorf("figures: %s", f)
	}
	for _, part := range []string{
		"starting Redis, PostgreSQL, and 3 processes", "redis-cli -p ", "order:client-", ":__lease__", "order:__partitions__", "process 3 is pid ",
		"its leases end by themselves", "again\n", "it gets its share of clients back",
		"[1/7] ", "each of the 3 hears all others by gossip", "one process more comes", "process 4 is pid ", "each of the 4 hears all others by gossip", "asked each of the 4 processes",
	} {
		if !strings.Contains(story, part) {
			t.Errorf("the story does not say %q", part)
		}
	}
}

func TestTheStoryOfOneProcessOnRedisEndsWell(t *testing.T) {
	t.Parallel()
	p := small(t)
	p.Redis = true
	if f, _ := told(t, p, t.TempDir()); f.Placed != p.Orders || f.Processes != 1 || f.Failover.Clients == 0 {
		t.Errorf("figures: %s", f)
	}
}

// told tells a story that needs servers.
func told(t *testing.T, p plan, dir string) (figures, string) {
	t.Helper()
	var story strings.Builder
	s := newScript(p, dir, &screen{out: &story})
	f, faults, err := s.run(t.Context())
	err = errors.Join(err, s.close())
	t.Log(story.String())
	if os.Getenv("CI") == "" && (errors.Is(err, redisserver.ErrMissing) || errors.Is(err, postgresserver.ErrMissing)) {
		t.Skip(err)
	}
	if err != nil || len(faults) > 0 {
		t.Fatalf("%v %q", err, faults)
	}
	if _, err := os.Stat(evidenceIn(dir)); err == nil {
		t.Error("evidence is kept of what went well")
	}
	return f, story.String()
}

func TestAMissingServerIsSaidWithWhatInstallsIt(t *testing.T) {
	t.Setenv("KEYHOLD_REDIS_SERVER", "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	var out strings.Builder
	code := demo(plan{Orders: 200, Clients: 12, Redis: true}, "", &screen{out: &out})
	text := out.String()
	if code != 1 || !strings.Contains(text, "no redis-server") || !strings.Contains(text, "`make services` installs") || lastLine(text) != "orders demo: FAIL" {
		t.Errorf("exit code %d:\n%s", code, text)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 || strings.Contains(text, "kept") {
		t.Errorf("%d files are left (%v):\n%s", len(left), err, text)
	}
}

func TestServersStayAsLongAsIsWanted(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		p    plan
		ctx  context.Context
		says string
	}{
		{plan{Stay: true, Redis: true}, over, "\nThe servers stay until Ctrl-C.\n"},
		{plan{Redis: true}, t.Context(), ""},
		{plan{Stay: true}, t.Context(), ""}, // there are none
	} {
		var out strings.Builder
		stay(c.ctx, c.p, &screen{out: &out})
		if out.String() != c.says {
			t.Errorf("%+v says %q", c.p, out.String())
		}
	}
}

func TestWhatTheDemoRunsOnIsChosen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		transport, store string
		nodes            int
		processes        int
		refused          string
	}{
		{"local", "sqlite", 0, 1, ""}, {"redis", "sqlite", 1, 1, ""}, {"redis", "postgres", 0, many, ""}, {"redis", "postgres", 5, 5, ""},
		{"local", "postgres", 0, 0, "one process at a time"}, {"kafka", "sqlite", 0, 0, "choose local and sqlite"}, {"local", "memory", 0, 0, "choose local and sqlite"},
		{"local", "sqlite", 3, 0, "for NODES=3 choose"}, {"redis", "sqlite", 2, 0, "for NODES=2 choose"},
		{"redis", "postgres", 1, 0, "choose 2 to 9"}, {"redis", "postgres", 10, 0, "choose 2 to 9"}, {"redis", "postgres", -1, 0, "choose 2 to 9"},
	} {
		var p plan
		err := p.choose(c.transport, c.store, c.nodes)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s, %s: %v", c.transport, c.store, err)
			}
			continue
		}
		if err != nil || p.processes() != c.processes {
			t.Errorf("%s, %s: %d processes, %v", c.transport, c.store, p.processes(), err)
		}
	}
}

// feigned is a process that answers as a test says; nil is its end.
func feigned(number int, answers func(c call) *answer) *process {
	p := &process{incarnation: incarnation{number, 1}, gone: make(chan struct{})}
	p.mu.waiting = map[uint64]chan answer{}
	p.in = written(func(text []byte) {
		var c call
		if err := json.Unmarshal(bytes.TrimSpace(text), &c); err != nil {
			panic(err)
		}
		if a := answers(c); a != nil {
			a.ID = c.ID
			p.deliver(*a)
		} else {
			close(p.gone)
		}
	})
	return p
}

type written func(text []byte)

func (w written) Write(p []byte) (int, error) { w(p); return len(p), nil }
func (w written) Close() error                { return nil }

func TestAnAskGoesFromProcessToProcessUntilOneDoesIt(t *testing.T) {
	t.Parallel()
	does := func(call) *answer { return &answer{} }
	held := func(call) *answer { return &answer{Error: "another node has it", Again: true} }
	refuses := func(call) *answer { return &answer{Error: "rejected: no"} }
	dies := func(call) *answer { return nil }
	for name, c := range map[string]struct {
		fleet []func(call) *answer
		lost  int
		err   string
	}{
		"done at once":         {[]func(call) *answer{does}, 0, ""},
		"held by another":      {[]func(call) *answer{held, does}, 0, ""},
		"killed meanwhile":     {[]func(call) *answer{dies, held, does}, 1, ""},
		"refused for good":     {[]func(call) *answer{refuses, does}, 0, "rejected: no"},
		"nobody is left":       {[]func(call) *answer{dies, dies}, 2, errGone.Error()},
		"nobody was there":     {nil, 0, errGone.Error()},
		"nobody ever takes it": {[]func(call) *answer{held, held}, 0, "refused for 20s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var f fleet
				for i, answers := range c.fleet {
					f.add(feigned(i+1, answers))
				}
				lost, err := ask(t.Context(), &f, call{Verb: place})
				if lost != c.lost || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%d asks were lost, %v", lost, err)
				}
			})
		})
	}
}

func TestAnAskEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f fleet
		f.add(feigned(1, func(call) *answer { return &answer{Error: "another node has it", Again: true} }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ask(ctx, &f, call{Verb: place}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
