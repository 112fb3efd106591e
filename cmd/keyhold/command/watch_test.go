package command

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// watched runs a command that goes on until it is interrupted. Script runs beside it: each tick that it gives is taken when the command has
// shown all there was to show before.
func (d *desktop) watched(t *testing.T, out *bytes.Buffer, script func(tick func()), args ...string) result {
	t.Helper()
	ticks := make(chan time.Time)
	d.env.tick = func(time.Duration) (<-chan time.Time, func()) { return ticks, func() {} }
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	done := make(chan struct{})
	go func() {
		defer close(done)
		script(func() {
			select {
			case ticks <- time.Time{}:
			case <-ctx.Done():
			}
		})
		interrupt()
	}()
	var errs bytes.Buffer
	c := d.command(args...)
	c.SetOut(out)
	c.SetErr(&errs)
	code := Execute(ctx, c)
	interrupt()
	<-done
	return result{d.scrub(out.String()), d.scrub(errs.String()), code}
}

func TestAWatchAppendsWhatIsNewWhereNoTerminalIs(t *testing.T) {
	t.Parallel()
	d := setup(t)
	var out bytes.Buffer
	r := d.watched(t, &out, func(tick func()) {
		tick()
		tick()
		if r := d.run(t, "partitions", "pause", "clients", "client-1"); r.code != ExitOK {
			t.Errorf("%+v", r)
		}
		tick()
		tick()
	}, "partitions", "ls", "clients", "--status", "paused", "--watch")
	if r.code != ExitOK || r.err != "" {
		t.Errorf("an interrupted watch: %+v", r)
	}
	want := "2024-02-29 03:04:05Z\nNo partition is paused.\n\n2024-02-29 03:04:05Z\nHANDLER  KEY       CATEGORY  STATE   FOR  BEHIND  APPLIED  WHY\n" +
		"clients  client-1  order     paused   0s       -      2/2  paused by ada\n"
	if r.out != want {
		t.Errorf("shown:\n%s", r.out)
	}
}

func TestAWatchRedrawsATerminalWhenThePictureChanged(t *testing.T) {
	t.Parallel()
	d := setup(t)
	var out bytes.Buffer
	d.terminal[&out] = terminal{is: true, width: 100, height: 12}
	r := d.watched(t, &out, func(tick func()) {
		tick()
		tick()
		if r := d.run(t, "partitions", "pause", "clients", "client-1"); r.code != ExitOK {
			t.Errorf("%+v", r)
		}
		tick()
		tick()
	}, "partitions", "ls", "clients", "--watch")
	if r.code != ExitOK {
		t.Errorf("%+v", r)
	}
	if n := strings.Count(r.out, home); n != 2 {
		t.Errorf("drawn %d times, want 2:\n%q", n, r.out)
	}
	if n := strings.Count(r.out, clearAll); n != 1 {
		t.Errorf("cleared %d times, want once: it flickers", n)
	}
	if !strings.Contains(r.out, "… and 4 more lines") {
		t.Errorf("13 rows on 12 lines:\n%s", r.out)
	}
	if !strings.HasPrefix(r.out, hideCursor) || !strings.HasSuffix(r.out, showCursor) {
		t.Errorf("the cursor: %q", r.out)
	}
}

// Time that goes by changes a picture, and what it tells nothing of.
func TestAWatchLetsAgesGrowOnATerminalOnly(t *testing.T) {
	t.Parallel()
	for _, onTerminal := range []bool{true, false} {
		d := setup(t)
		now := night
		d.env.now = func() time.Time { now = now.Add(time.Hour); return now }
		var out bytes.Buffer
		d.terminal[&out] = terminal{is: onTerminal, width: 100, height: 50}
		r := d.watched(t, &out, func(tick func()) { tick(); tick() }, "status", "--watch")
		if r.code != ExitOK {
			t.Errorf("an interrupted watch of a degraded store: %+v", r)
		}
		want := 1
		if onTerminal {
			want = 2
		}
		if n := strings.Count(r.out, "BEHIND"); n < want || !onTerminal && n > want {
			t.Errorf("on a terminal %v: shown %d times:\n%s", onTerminal, n, r.out)
		}
	}
}

func TestAWatchInJSONIsADocumentALine(t *testing.T) {
	t.Parallel()
	d := setup(t)
	var out bytes.Buffer
	r := d.watched(t, &out, func(tick func()) {
		tick()
		if r := d.run(t, "handlers", "pause", "clients"); r.code != ExitOK {
			t.Errorf("%+v", r)
		}
		tick()
		tick()
	}, "handlers", "ls", "--watch", "-o", "json")
	lines := strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
	if len(lines) != 2 || strings.Contains(lines[0], `"pause"`) || !strings.Contains(lines[1], `"pause":{`) {
		t.Errorf("shown:\n%s", r.out)
	}
}

func TestATailShowsTheNewestAndThenThoseThatCome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line  string
		first []string // ids of orders shown at once
		later bool     // the one that comes is shown
	}{
		"a partition":   {"events tail order client-4 -n 2", []string{"o-4-3", "o-4-4"}, true},
		"another":       {"events tail order client-7 -n 1", []string{"o-7-7"}, false},
		"a category":    {"events tail order -n 3", []string{"o-12-2", "o-12-3", "o-12-4"}, true},
		"all":           {"events tail -n 1 -o json", []string{"o-12-4"}, true},
		"none at first": {"events tail order -n 0", nil, true},
		"an empty one":  {"events tail payment", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := setup(t)
			store := sqlite.Open(d.db)
			if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
				t.Fatal(err)
			}
			defer store.Stop(context.Background())
			var out bytes.Buffer
			r := d.watched(t, &out, func(tick func()) {
				tick()
				e := event.Envelope{ID: "e-new", Type: "order.placed", Version: 1, Encoding: event.JSON, Category: "order", Key: "client-4", Data: []byte(`{"order_id":"o-new"}`), Time: night}
				if _, err := store.Begin("test").Commit(t.Context(), eventstore.Changes{Publish: []event.Envelope{e}}); err != nil {
					t.Error(err)
				}
				tick()
				tick()
			}, words(c.line)...)
			var want []string
			want = append(want, c.first...)
			if c.later {
				want = append(want, "o-new")
			}
			var got []string
			for line := range strings.Lines(r.out) {
				if _, after, ok := strings.Cut(line, `"order_id":"`); ok {
					id, _, _ := strings.Cut(after, `"`)
					got = append(got, id)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) || r.code != ExitOK || r.err != "" {
				t.Errorf("shown %v, want %v; exit %d\n%s%s", got, want, r.code, r.out, r.err)
			}
		})
	}
}

func TestATailThatCannotBe(t *testing.T) {
	t.Parallel()
	d := setup(t)
	for line, says := range map[string]string{
		"events tail -n 101":      "it can be 0 to 100",
		"events tail --every 0s":  "--every is 0s",
		"events tail ordre":       "Did you mean order?",
		"events tail --entity xx": "names no entity",
	} {
		if r := d.run(t, words(line)...); r.code == ExitOK || !strings.Contains(r.err, says) {
			t.Errorf("%s: %+v", line, r)
		}
	}
}
