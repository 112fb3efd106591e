package keyhold

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsOutOfReachIsToldOnceAndWhenItIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := &reach{what: "the store", then: "wait", log: slog.New(slog.NewTextHandler(&out, nil)), patience: 15 * time.Second}
		if err := r.fault(); err == nil {
			t.Error("it has not answered yet, and is well")
		}
		r.told(nil)
		if err := r.fault(); err != nil {
			t.Error(err)
		}
		time.Sleep(16 * time.Second)
		if err := r.fault(); err == nil || err.Error() != "the store has not answered for 16s" {
			t.Errorf("a call that hangs: %v", err)
		}
		r.told(errors.New("refused"))
		time.Sleep(3 * time.Second)
		r.told(errors.New("refused again"))
		if err := r.fault(); err == nil || err.Error() != "the store is out of reach for 3s: refused again" {
			t.Errorf("fault: %v", err)
		}
		r.told(nil)
		r.told(nil)
		if err := r.fault(); err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], `"out of reach: the store: wait" error=refused`) ||
			!strings.Contains(lines[1], `"reached again: the store" out_of_reach_for=3s failed=2`) {
			t.Errorf("said:\n%s", out.String())
		}
	})
}

func TestLostLeasesAreToldOfOncePerMinuteAndReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		app, out := logged(slog.LevelInfo, Observer{})
		o := app.observer()
		for range 1000 {
			o.LeaseLost(Unit{Name: "shipping", Key: "ada"}, "deadline passed")
			o.LeaseLost(Unit{Name: "shipping", Key: "ada"}, "host was suspended")
		}
		time.Sleep(time.Minute)
		o.LeaseLost(Unit{Name: "shipping", Key: "ada"}, "deadline passed")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[1], "this host stood still") || !strings.Contains(lines[2], "unsaid=999") {
			t.Errorf("said:\n%s", out.String())
		}
	})
}

// One answer that is late, or one error, is no reason to give everything to others.
func TestWhatIsGoneForLongerThanAHeartbeat(t *testing.T) {
	t.Parallel()
	const beat = 3 * time.Second
	for name, c := range map[string]struct {
		errors bool // or it does not answer at all
		within time.Duration
	}{"it refuses": {true, beat}, "it hangs": {false, 3 * beat}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := &reach{what: "the store", log: slog.New(slog.DiscardHandler)}
				if r.gone(beat) {
					t.Error("it was not asked yet, and is gone")
				}
				for range 3 {
					r.told(nil)
					if c.errors {
						r.told(errors.New("refused"))
					}
					time.Sleep(c.within)
					if r.gone(beat) {
						t.Errorf("gone after %v", c.within)
					}
					time.Sleep(time.Millisecond)
					if !r.gone(beat) {
						t.Errorf("not gone after more than %v", c.within)
					}
				}
				r.told(nil)
				if r.gone(beat) {
					t.Error("it answers, and is gone")
				}
			})
		})
	}
}
