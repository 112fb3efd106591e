package cluster_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// What a monitoring system wants to know of a node: whether the broker answers it, what wakes it, what it loses and holds.
func TestBeatsWakesAndLossesAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join("a")
		pass(10 * time.Millisecond)
		if n := a.Parts(); n != event.Parts {
			t.Errorf("it holds %d parts", n)
		}
		w.mark(a, unit(1))
		w.mark(a, event.Part(3).Unit())
		a.note(func() {
			if diff := cmp.Diff([]string{"shipping", event.PartName}, a.mu.wakes); diff != "" {
				t.Error(diff)
			}
			if a.mu.beats == 0 || a.mu.failed != 0 {
				t.Errorf("%d beats, %d failed", a.mu.beats, a.mu.failed)
			}
		})
		w.server.Break(func(brokertest.Call) brokertest.Fault { return brokertest.Refused })
		pass(30 * time.Second)
		a.note(func() {
			if a.mu.failed == 0 || len(a.mu.lost) != event.Parts || a.mu.lost[0] != "deadline passed" {
				t.Errorf("%d beats failed, lost %v", a.mu.failed, a.mu.lost)
			}
			a.mu.failed = 0
		})
		if n := a.Parts(); n != 0 {
			t.Errorf("it holds %d parts after their deadline", n)
		}
		w.server.Break(nil)
		pass(62 * time.Second)
		a.note(func() {
			if a.mu.failed > 1 || fmt.Sprint(a.mu.counted) != "map[order:0]" {
				t.Errorf("%d beats failed, counted %v", a.mu.failed, a.mu.counted)
			}
		})
		a.leave()
	})
}

func TestMembersOfOneNameAreToldApartByTheirProcesses(t *testing.T) {
	t.Parallel()
	got := cluster.Names([]transport.Member{{Node: "shop@vm", PID: 20}, {Node: "shop@vm", PID: 7, Draining: true}, {Node: "shop@other", PID: 7}})
	if diff := cmp.Diff([]string{"shop@other", "shop@vm (process 20)", "shop@vm (process 7) (draining)"}, got); diff != "" {
		t.Error(diff)
	}
}
