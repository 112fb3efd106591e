package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport"
)

// Wakes that were sent while nobody listened are lost: the node is told to scan whenever listening begins.
func TestALostConnectionForWakesIsFollowedByAScan(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	node := start(t, tr, "shipping")
	node.rescans.Wait(t)
	for range 3 {
		if n := w.do(t, "CLIENT", "KILL", "TYPE", "pubsub"); n != int64(1) {
			t.Fatalf("%v connections listen", n)
		}
		node.rescans.Wait(t)
		published(t, tr, event.LaneRef{Category: "order", Key: event.NewID()}, 1, 1, "shipping")
		node.woken.Wait(t)
	}
}

// Only what was quiet is woken: an append for a key that has work already is heard by whoever has it, or found by its successor.
func TestAnAppendWakesOnlyWhatHadNoWork(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		node := start(t, tr, "shipping")
		runs := func(seq event.Sequence, n int) {
			var all []transport.Append
			for i := range n {
				lane := event.LaneRef{Category: "order", Key: fmt.Sprintf("k-%d", i)}
				all = append(all, transport.Append{Lane: lane, Start: true, Entries: entries(lane, seq, seq), Subscribers: []string{"shipping"}})
			}
			for _, got := range tr.Append(t.Context(), all) {
				answered(t, got, transport.AppendOK, seq)
			}
		}
		runs(1, 3)
		runs(2, 3)
		if err := tr.Mark(t.Context(), []event.Unit{{Name: "shipping", Key: "last"}}); err != nil {
			t.Fatal(err)
		}
		var woken []string
		node.woken.WaitFor(t, func(u event.Unit) bool {
			woken = append(woken, u.Key)
			return u.Key == "last"
		})
		slices.Sort(woken)
		if diff := cmp.Diff([]string{"k-0", "k-1", "k-2", "last"}, woken); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
	})
}

// A subscriber that is halted keeps the key among its own that have work, and nobody else's wakes from them.
func TestAHaltedSubscriberSilencesNobodyElse(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		published(t, tr, orders, 1, 1, "shipping", "billing")
		if err := tr.Halted(t.Context(), event.Unit{Name: "billing", Key: orders.Key}, true); err != nil {
			t.Fatal(err)
		}
		passed(t, tr, shipping, orders, 1)
		node := start(t, tr, "shipping", "billing")
		published(t, tr, orders, 2, 2, "shipping", "billing")
		var woken []event.Unit
		if err := tr.Mark(t.Context(), []event.Unit{{Name: "billing", Key: "last"}}); err != nil {
			t.Fatal(err)
		}
		for len(woken) < 2 {
			woken = append(woken, node.woken.Wait(t))
		}
		if !slices.Contains(woken, shipping) || slices.Contains(woken, event.Unit{Name: "billing", Key: orders.Key}) {
			t.Errorf("woken: %v", woken)
		}
		if keys, _, err := tr.Busy(t.Context(), "billing", 0); err != nil || slices.Contains(keys, orders.Key) {
			t.Errorf("billing: %q, %v", keys, err)
		}
	})
}

func TestMemoryThatRunsShortIsReported(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	w.fill(t, true)
	node := start(t, w.connected(t), "shipping")
	node.reported.WaitFor(t, func(err error) bool { return strings.Contains(err.Error(), "of its maxmemory of 1 MB") })
}

// A server that is away is reported once, and that it is back shows in the scan that follows.
func TestAServerThatIsAwayIsReportedOnceAndLookedForUntilItIsBack(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{AOF: true})
	tr := w.connected(t)
	listening, looked := tr.Signals(t)
	node := start(t, tr, "shipping")
	listening.Wait(t)
	if err := w.server.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		looked.WaitFor(t, func(err error) bool { return err != nil })
	}
	if err := w.server.Restart(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	listening.Wait(t)
	looked.WaitFor(t, func(err error) bool { return err == nil })
	if err := tr.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for range 2 {
		words := strings.Fields(node.reported.Wait(t).Error())
		seen[words[0]]++
	}
	if diff := cmp.Diff(map[string]int{"listen": 1, "watch": 1}, seen); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

// A server that says nothing, on a connection that stays: nobody would ever be woken again.
func TestAServerThatHangsIsLeftAndListenedToAnew(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	w.cfg.Timeout = time.Second
	tr := w.connected(t)
	node := start(t, tr, "shipping")
	node.rescans.Wait(t)
	if err := w.server.Freeze(); err != nil {
		t.Fatal(err)
	}
	node.reported.WaitFor(t, func(err error) bool { return strings.Contains(err.Error(), "the server has not answered for") })
	if err := w.server.Thaw(); err != nil {
		t.Fatal(err)
	}
	node.rescans.Wait(t)
	published(t, tr, orders, 1, 1, "shipping")
	node.woken.WaitFor(t, func(u event.Unit) bool { return u == shipping })
}
