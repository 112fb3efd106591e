package main

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// tell tells a story of ten seconds, in a hundred pauses.
func tell(s *screen, pause func()) {
	s.step(1, 2, "placing %d", 3)
	for range 100 {
		pause()
		s.progress("%d placed", 1)
	}
	s.note("done")
	s.table([][3]string{{"placed", "2,000", "orders"}, {"lost", "0", ""}})
}

func TestALogHasNoControlCharactersAndLittleProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		tell(&screen{out: &out}, func() { time.Sleep(100 * time.Millisecond) })
		want := "\n[1/2] placing 3\n" + strings.Repeat("      1 placed\n", 5) + "      done\n" +
			"      placed  2,000   orders\n" + "      lost        0\n"
		if out.String() != want {
			t.Errorf("got:\n%q\nwant:\n%q", out.String(), want)
		}
	})
}

func TestATerminalHasOneLineOfProgressWhichGoesAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		tell(&screen{out: &out, live: true}, func() { time.Sleep(100 * time.Millisecond) })
		if n := strings.Count(out.String(), "\n"); n != 5 {
			t.Errorf("%d lines:\n%q", n, out.String())
		}
		if !strings.Contains(out.String(), "1 placed\r\x1b[K      done\n") {
			t.Errorf("the progress stays:\n%q", out.String())
		}
	})
}

func TestAFileIsNoTerminal(t *testing.T) {
	t.Parallel()
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if newScreen(file).live {
		t.Error("taken for a terminal")
	}
}

func TestThousands(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 2000: "2,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q", n, got)
		}
	}
}
