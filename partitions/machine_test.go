package partitions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// TestHotPathDoesNotAllocate: read, apply, commit, read on, at no allocation of the machine's.
func TestHotPathDoesNotAllocate(t *testing.T) {
	const batch = 16
	for _, leased := range []bool{false, true} {
		t.Run(fmt.Sprintf("leased=%t", leased), func(t *testing.T) {
			cfg := partitions.Config{}.WithDefaults()
			if leased {
				cfg.Traits = partitions.Traits{Leased: true, TTL: 15 * time.Second, Heartbeat: 3 * time.Second, Margin: 3 * time.Second}
			}
			m := partitions.New(&cfg, event.Unit{Name: "shipping", Key: "a"}, []event.LaneRef{lane("order"), lane("order/backfill")})
			now := partitions.Tick(1)
			m.Step(now, partitions.Wake{})
			m.Step(now, partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 1}})
			m.Step(now, partitions.RecoverDone{Raised: true, Checkpoints: make([]event.Position, 2)})
			entries := make([]event.Envelope, batch)
			last := event.Sequence(0)
			allocs := testing.AllocsPerRun(200, func() {
				for i := range entries {
					last++
					entries[i] = entry("order", last)
				}
				effects := m.Step(now, partitions.FetchDone{Fetched: partitions.Fetched{Entries: entries}})
				for range batch {
					e := effects[0].(*partitions.Apply)
					now = now.Add(time.Millisecond)
					m.Step(now, partitions.Renewed{Generation: e.Generation, Sent: now})
					effects = m.Step(now, partitions.ApplyDone{})
				}
				if _, ok := effects[0].(*partitions.Fetch); !ok {
					t.Fatalf("got %v", effects[0])
				}
			})
			if allocs != 0 {
				t.Errorf("%v allocations for %d entries", allocs, batch)
			}
		})
	}
}

// TestAskDoesNotAllocate: so do asks.
func TestAskDoesNotAllocate(t *testing.T) {
	cfg := partitions.Config{Asks: true}.WithDefaults()
	m := partitions.New(&cfg, event.Unit{Name: "order", Key: "a"}, []event.LaneRef{lane("order.commands")})
	m.Step(1, partitions.Demand{})
	m.Step(1, partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 1}})
	m.Step(1, partitions.RecoverDone{Checkpoints: make([]event.Position, 1)})
	m.Step(1, partitions.ServeDone{})
	m.Step(1, partitions.FetchDone{})
	allocs := testing.AllocsPerRun(200, func() {
		if _, ok := m.Step(1, partitions.Demand{})[0].(*partitions.Serve); !ok || !m.Serving(1) {
			t.Fatal("not served")
		}
		m.Step(1, partitions.ServeDone{})
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestPointerIsNoInput(t *testing.T) {
	t.Parallel()
	cfg := partitions.Config{}.WithDefaults()
	m := partitions.New(&cfg, event.Unit{}, []event.LaneRef{lane("order")})
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "inputs are values") {
			t.Errorf("got %q", got)
		}
	}()
	m.Step(1, &partitions.Wake{})
}

// TestRenewalCountsForItsGenerationOnly: what is left of an earlier lease says nothing about this one.
func TestRenewalCountsForItsGenerationOnly(t *testing.T) {
	t.Parallel()
	cfg := partitions.Config{Traits: partitions.Traits{Leased: true, TTL: 15 * time.Second, Heartbeat: 3 * time.Second, Margin: 3 * time.Second}}.WithDefaults()
	m := partitions.New(&cfg, event.Unit{Name: "shipping", Key: "a"}, []event.LaneRef{lane("order")})
	m.Step(1, partitions.Wake{})
	m.Step(1, partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 6}})
	m.Step(1, partitions.RecoverDone{Raised: true, Checkpoints: make([]event.Position, 1)})
	for _, renewal := range []struct {
		of   event.Generation
		ends partitions.Tick
	}{{5, 12*partitions.Tick(time.Second) + 1}, {6, 13 * partitions.Tick(time.Second)}} {
		m.Step(partitions.Tick(time.Second), partitions.Renewed{Generation: renewal.of, Sent: partitions.Tick(time.Second)})
		if !m.Serving(renewal.ends-1) || m.Serving(renewal.ends) {
			t.Errorf("after a renewal of %d the lease does not end at %s", renewal.of, renewal.ends)
		}
	}
}

// TestClockNeverGoesBack: a tick from before is as good as the last one.
func TestClockNeverGoesBack(t *testing.T) {
	t.Parallel()
	cfg := partitions.Config{}.WithDefaults()
	m := partitions.New(&cfg, event.Unit{Name: "shipping", Key: "a"}, []event.LaneRef{lane("order")})
	m.Step(100, partitions.Wake{})
	got := m.Step(50, partitions.AcquireDone{Outcome: partitions.Failed})
	want := "timer at " + partitions.Tick(100).Add(cfg.IO.Base).String()
	if last := got[len(got)-1].String(); last != want {
		t.Errorf("got %q, want %q", last, want)
	}
}

func TestJitterIsAskedForEveryDelay(t *testing.T) {
	t.Parallel()
	var asked []time.Duration
	cfg := partitions.Config{Attempts: 4, Jitter: func(d time.Duration) time.Duration {
		asked = append(asked, d)
		return d / 4
	}}.WithDefaults()
	m := partitions.New(&cfg, event.Unit{Name: "shipping", Key: "a"}, []event.LaneRef{lane("order")})
	now := partitions.Tick(1)
	m.Step(now, partitions.Wake{})
	m.Step(now, partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 1}})
	m.Step(now, partitions.RecoverDone{Checkpoints: make([]event.Position, 1)})
	m.Step(now, read(entry("order", 1)))
	for _, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		m.Step(now, failed(partitions.Retry))
		m.Step(now, partitions.WriteTriedDone{})
		m.Step(now, partitions.TimerFired{}) // early
		now = now.Add(want/4 - 1)
		if m.Step(now, partitions.TimerFired{}); m.Phase() != partitions.PhaseBackoff {
			t.Errorf("%s before %v are over", m.Phase(), want/4)
		}
		now = now.Add(1)
		if m.Step(now, partitions.TimerFired{}); m.Phase() != partitions.PhaseApplying {
			t.Errorf("%s after %v", m.Phase(), want/4)
		}
	}
	if diff := cmp.Diff([]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}, asked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfigReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	if err := (partitions.Config{}).WithDefaults().Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	bad := partitions.Config{
		Traits: partitions.Traits{Leased: true, TTL: 5 * time.Second, Heartbeat: 3 * time.Second, Margin: 2 * time.Second},
		Policy: 9, Attempts: -1, MaxParked: -1, MaxCrashes: -1, ReadAhead: 5000, PassedMax: -1, IdleAfter: -1,
		Backoff: partitions.Backoff{Base: time.Second, Max: time.Millisecond},
		IO:      partitions.Backoff{Base: -1, Max: time.Second},
	}
	err := bad.Validate()
	for _, want := range []string{"policy 9", "attempts is -1", "max-parked is -1", "max-crashes is -1", "read-ahead is 5000", "passed-max is -1", "idle-after is -1ns", "backoff goes from 1s to 1ms", "I/O backoff", "one renewal must come in time"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q: %v", want, err)
		}
	}
}

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]partitions.Outcome{
		nil: partitions.OK,
		fmt.Errorf("x: %w", partitions.ErrFenced):  partitions.Stale,
		fmt.Errorf("x: %w", partitions.ErrUnknown): partitions.Unknown,
		fmt.Errorf("x: %w", partitions.ErrBusy):    partitions.Busy,
		errors.New("x"):                            partitions.Failed,
	} {
		if got := partitions.OutcomeOf(err); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}

// TestApplied tells who waits for a sequence that it was passed, before its checkpoint is durable.
func TestApplied(t *testing.T) {
	t.Parallel()
	cfg := partitions.Config{Handling: func(e *event.Envelope) partitions.Handling { return partitions.PassOver }}.WithDefaults()
	m := partitions.New(&cfg, event.Unit{Name: "shipping", Key: "a"}, []event.LaneRef{lane("order"), lane("payment")})
	m.Step(1, partitions.Wake{})
	m.Step(1, partitions.AcquireDone{Acquired: partitions.Acquired{Granted: true, Generation: 1}})
	if got := m.Applied(lane("order")); got != 0 {
		t.Errorf("before recovery: %d", got)
	}
	m.Step(1, partitions.RecoverDone{Checkpoints: []event.Position{{Lane: lane("order"), Sequence: 3}, {Lane: lane("payment")}}})
	m.Step(1, read(entry("order", 4), entry("order", 5)))
	got := map[string]event.Sequence{"order": m.Applied(lane("order")), "payment": m.Applied(lane("payment")), "other": m.Applied(lane("other"))}
	if diff := cmp.Diff(map[string]event.Sequence{"order": 5, "payment": 0, "other": 0}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
