package redis_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/redis"
)

var consoles = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")

// cli is a directory in which redis-cli talks to the server of the scene, and prints as it does to people.
func (w *scene) cli(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("redis-cli")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no redis-cli in the path: install it (Debian: apt-get install redis-tools)")
	}
	dir := t.TempDir()
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %q -s %q --no-raw \"$@\"\n", program, w.server.Socket())
	if err := os.WriteFile(filepath.Join(dir, "redis-cli"), []byte(wrapper), 0o700); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join("scripts", "append.lua"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "append.lua"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sample is a command of a page, and what the page says that it prints.
type sample struct{ command, prints string }

func samples(page string) []sample {
	var all []sample
	for _, block := range consoles.FindAllStringSubmatch(page, -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, prints, _ := strings.Cut(part, "\n")
			all = append(all, sample{command, strings.TrimRight(prints, "\n")})
		}
	}
	return all
}

// TestWhatThePageShowsIsWhatRedisSays runs the samples of docs/wire.md, in order.
func TestWhatThePageShowsIsWhatRedisSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "wire.md"))
	if err != nil {
		t.Fatal(err)
	}
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	lane := event.LaneRef{Category: "order", Key: "client-123"}
	placed := event.Envelope{
		ID: "0197f9a2-0000-7000-8000-000000000001", StoreID: "5b1c", Type: "order.placed", Version: 1, Encoding: event.JSON,
		Time: time.UnixMilli(1767225600000).UTC(), Data: []byte(`{"client_id":"client-123","cents":1200}`),
		Category: lane.Category, Key: lane.Key, Sequence: 1,
	}
	answered(t, tr.Append(t.Context(), []transport.Append{{Lane: lane, Start: true, Entries: []event.Envelope{placed}, Subscribers: []string{"shipping"}}})[0], transport.AppendOK, 1)

	dir := w.cli(t)
	all := samples(string(page))
	for _, s := range all {
		run := exec.CommandContext(t.Context(), "sh", "-c", s.command)
		run.Dir, run.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := run.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", s.command, err)
		}
		if diff := cmp.Diff(s.prints, strings.TrimRight(string(out), "\n")); diff != "" {
			t.Errorf("%s (-page +redis):\n%s", s.command, diff)
		}
	}
	if len(all) < 15 {
		t.Errorf("%d samples were found", len(all))
	}
	t.Run("and what it writes is read as any other", func(t *testing.T) {
		u := event.Unit{Name: "shipping", Key: "client-9"}
		h := partitions.Held{Unit: u, Generation: granted(t, tr, u).Generation}
		got, err := tr.Port().Fetch(t.Context(), h, []event.Position{{Lane: event.LaneRef{Category: "order", Key: "client-9"}}}, 10)
		want := []event.Envelope{{ID: "e-1", StoreID: "crm", Type: "order.placed", Version: 1, Encoding: event.JSON, Data: []byte(`{"client_id":"client-9"}`),
			Category: "order", Key: "client-9", Sequence: 1}}
		if diff := cmp.Diff(want, got.Entries); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if keys, _, err := tr.Busy(t.Context(), "shipping", 0); err != nil || len(keys) != 2 {
			t.Errorf("shipping has work on %q, %v", keys, err)
		}
		if n, err := tr.Partitions(t.Context(), "order"); err != nil || n != 2 {
			t.Errorf("%d keys are live, %v", n, err)
		}
	})
	t.Run("the account is the one that is tried", func(t *testing.T) {
		want := redis.Config{Namespace: "prod"}.ACL("shop")
		line := strings.ReplaceAll(all[len(all)-1].command, "'", "")
		if got := strings.Replace(strings.TrimPrefix(line, "redis-cli "), ">secret ", "", 1); got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	})
	t.Run("and it names all that is kept", func(t *testing.T) {
		for kind := event.NameKind(1); !strings.HasPrefix(kind.String(), "name kind"); kind++ {
			if kind == event.NameDeadLetters { // never written
				continue
			}
			name, err := event.Names{}.Build(event.Name{Kind: kind, Owner: "o"})
			if err != nil {
				if name, err = (event.Names{}).Build(event.Name{Kind: kind, Owner: "o", Key: "k"}); err != nil {
					t.Fatal(err)
				}
			}
			if suffix := name[strings.LastIndexByte(name, ':')+1:]; suffix != "k" && !strings.Contains(string(page), suffix) {
				t.Errorf("nothing of %s, %s", kind, name)
			}
		}
	})
}

// TestAKeyCostsWhatThePageSays measures keys that are live and idle.
func TestAKeyCostsWhatThePageSays(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	used := func() int64 {
		info, err := w.server.Info(t.Context(), "memory")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(info["used_memory_dataset"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const keys = 500
	cost := func(names ...string) int64 {
		before := used()
		for i := range keys {
			lane := event.LaneRef{Category: "order", Key: fmt.Sprintf("client-%06d-%s", i, names[len(names)-1])}
			e := entries(lane, 1, 1)
			e[0].ID, e[0].Data = event.NewID(), []byte(strings.Repeat("x", 200))
			answered(t, tr.Append(t.Context(), []transport.Append{{Lane: lane, Start: true, Entries: e, Subscribers: names}})[0], transport.AppendOK, 1)
			for _, name := range names {
				passed(t, tr, event.Unit{Name: name, Key: lane.Key}, lane, 1)
			}
		}
		w.do(t, "MEMORY", "PURGE")
		return (used() - before) / keys
	}
	one, two := cost("shipping"), cost("shipping", "billing")
	if t.Logf("one handler: %d bytes a key, two: %d", one, two); one > 5500 || two-one > 1500 {
		t.Errorf("one handler: %d bytes a key, two: %d; docs/wire.md says about 5 KB and half a KB for each further one", one, two)
	}
}
