package outbox_test

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
)

// rarely has it look less often, for tests of hours.
func rarely(c *outbox.Config) { c.Look = 5 * time.Second }

// send has k events of a lane committed and published, and nobody passed them.
func (w *world) send(n *node, k int, lanes ...event.LaneRef) {
	w.Helper()
	tails := w.commit(k, lanes...)
	n.Committed(tails)
	settle()
	for _, t := range tails {
		w.noted(t.Lane, t.Last)
	}
}

// A quiet key: nothing is committed after the loss, and nobody is told of it.
func TestAQuietKeyIsHealed(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"the stream is gone":       func(w *world) { w.server.Delete(orders) },
		"its tail is lost":         func(w *world) { w.server.LoseTail(orders, 2) },
		"its last event is lost":   func(w *world) { w.server.LoseTail(orders, 1) },
		"everything of it is lost": func(w *world) { w.server.LoseTail(orders, 9) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				n := w.holder("a")
				w.send(n, 4, orders)
				w.after(15 * time.Minute) // looks are as rare as they get
				lose(w)
				w.after(31*time.Second + 260*time.Millisecond)
				w.published(orders, 0)
			})
		})
	}
}

func TestWhatWasPassedIsNotSentAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		w.send(n, 6, orders)
		w.pass("shipping", orders, 0, 3)
		w.pass("billing", orders, 0, 4)
		w.server.Delete(orders)
		w.after(32 * time.Second)
		w.published(orders, 3)
		w.same("healed", []event.LaneRef{orders}, n.mu.healed)
	})
}

func TestWhoHasNotPassedIsMarkedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		w.send(n, 2, orders)
		w.pass("billing", orders, 0, 2)
		for range 3 {
			w.must("unregister", n.broker.Unregister(w.Context(), "shipping")) // its mark is lost, and so is billing's
			w.must("unregister", n.broker.Unregister(w.Context(), "billing"))
			w.after(31 * time.Second)
			if !w.server.IsBusy(event.Unit{Name: "shipping", Key: "k-1"}) {
				t.Error("who has not passed has no work")
			}
			if w.server.IsBusy(event.Unit{Name: "billing", Key: "k-1"}) {
				t.Error("who has passed has work")
			}
		}
	})
}

func TestNothingIsOfferedToWhoIsStopped(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.send(n, 2, orders)
		w.pass("billing", orders, 0, 2)
		w.halt(event.Unit{Name: "shipping", Key: "k-1"}, orders)
		calls := w.counting()
		w.after(10 * time.Minute)
		w.same("appends", 0, calls.of("append"))
	})
}

func TestLooksGetRarer(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.send(n, 2, orders)
		calls := w.counting()
		w.after(time.Hour)
		if n := calls.of("append"); n < 100 || n > 130 {
			t.Errorf("offered %d times in an hour, want every 30 s", n)
		}
	})
}

func TestStreamsAreTrimmedBelowTheLowest(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		w.send(n, 6, orders)
		w.pass("shipping", orders, 0, 3)
		w.pass("billing", orders, 0, 5)
		w.after(10 * time.Second)
		w.published(orders, 3)
		w.pass("shipping", orders, 3, 6)
		w.pass("billing", orders, 5, 6)
		w.after(32 * time.Second)
		w.published(orders, 5) // the newest stays
	})
}

// read has a unit read a lane on the broker, as far as a sequence.
func (n *node) read(name string, lane event.LaneRef, through event.Sequence) {
	n.w.Helper()
	u := event.Unit{Name: name, Key: lane.Key}
	got, err := n.broker.Port().Acquire(n.w.Context(), u, 0)
	n.w.must("acquire", err)
	h := holding(u, got.Generation)
	_, err = n.broker.Port().Fetch(n.w.Context(), h, []event.Position{{Lane: lane, Sequence: through}}, 10)
	n.w.must("fetch", err)
	_, err = n.broker.Port().Advance(n.w.Context(), h, []event.Position{{Lane: lane, Sequence: through}}, 10)
	n.w.must("advance", err)
	n.w.must("release", n.broker.Port().Release(n.w.Context(), h, false))
}

func TestALaneThatAllHavePassedLeaves(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.send(n, 3, orders)
		for _, name := range []string{"shipping", "billing"} {
			w.pass(name, orders, 0, 3)
			n.read(name, orders, 3)
		}
		w.after(50 * time.Minute)
		w.same("stream", 1, len(w.server.Stream(orders)))
		w.after(11 * time.Minute)
		w.same("stream", 0, len(w.server.Stream(orders)))
		w.same("looks", []eventstore.Look{}, w.looks())
		w.same("retired", 1, n.mu.retired)
		live, err := n.broker.Partitions(w.Context(), "order")
		if err != nil || live != 0 {
			t.Errorf("%d keys are live, %v", live, err)
		}
		w.send(n, 2, orders)
		w.published(orders, 3)
	})
}

func TestALaneThatGrowsDoesNotLeave(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.send(n, 3, orders)
		for _, name := range []string{"shipping", "billing"} {
			w.pass(name, orders, 0, 3)
			n.read(name, orders, 3)
		}
		w.after(59 * time.Minute)
		w.send(n, 1, orders)
		w.after(30 * time.Minute)
		w.published(orders, 3) // what was passed is trimmed
	})
}

// The store knows that all have passed; the broker has not heard it from one of them: it is woken, and then the lane leaves.
func TestALaneThatSomebodyHasNotReadStaysUntilItHas(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.send(n, 3, orders)
		for _, name := range []string{"shipping", "billing"} {
			w.pass(name, orders, 0, 3)
		}
		n.read("shipping", orders, 3)
		w.must("lose a mark", n.broker.Unregister(w.Context(), "billing"))
		w.after(61 * time.Minute)
		w.same("stream", 1, len(w.server.Stream(orders)))
		if !w.server.IsBusy(event.Unit{Name: "billing", Key: "k-1"}) {
			t.Error("who has not read has no work")
		}
		n.read("billing", orders, 3)
		w.after(61 * time.Minute)
		w.same("stream", 0, len(w.server.Stream(orders)))
	})
}

func TestAfterALossOfMemoryEverythingIsLookedAtAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		var lanes []event.LaneRef
		for i := range 300 {
			lanes = append(lanes, event.LaneRef{Category: "order", Key: "q-" + event.Sequence(i).String()})
		}
		n := w.holder("a")
		w.send(n, 1, lanes...)
		w.after(15 * time.Minute)
		w.server.Forget()
		n.Forgot()
		w.after(200 * time.Millisecond)
		for _, l := range lanes {
			w.published(l, 0)
			if !w.server.IsBusy(event.Unit{Name: "shipping", Key: l.Key}) {
				t.Errorf("%s: who has not passed has no work", l)
			}
		}
	})
}

// The node that held the part died in the loss. Whoever takes over cannot know whether it had got round to it.
func TestAPartThatIsTakenOverAfterALossIsLookedAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.holder("a"), w.node("b")
		w.send(a, 2, orders)
		w.after(15 * time.Minute)
		w.must("the first dies", a.Stop(w.Context()))
		w.server.Forget()
		b.Forgot()
		settle()
		b.take(orders.Part())
		w.after(2 * time.Second)
		w.published(orders, 0)
		w.server.Delete(orders) // once is enough: the next time comes by itself
		b.Drop(orders.Part())
		b.take(orders.Part())
		w.after(100 * time.Millisecond)
		w.same("stream", 0, len(w.server.Stream(orders)))
	})
}

func TestAStoreThatWentBackStopsTheLaneAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.send(n, 2, orders, others)
		lost := places(w.server.Stream(orders))
		// What the broker has above 2 the store has lost; then it draws 3 again.
		ahead := []event.Envelope{{ID: "of-before", Type: "x", Version: 1, Category: "order", Key: "k-1", Sequence: 3}}
		if got := n.broker.Append(w.Context(), []transport.Append{{Lane: orders, Entries: ahead}}); got[0].Outcome != transport.AppendOK {
			t.Fatalf("%+v", got)
		}
		n.Committed(w.commit(2, orders, others))
		settle()
		w.published(others, 0)
		w.noted(orders, 2)
		w.same("stream", append(lost, places(ahead)...), places(w.server.Stream(orders)))
		if len(n.mu.diverged) != 1 || n.mu.diverged[0].Sequence != 3 || n.mu.diverged[0].EventID != "of-before" || n.mu.diverged[0].StoredEventID == "" {
			t.Errorf("told %+v", n.mu.diverged)
		}
		n.Committed(w.commit(1, orders, others))
		w.after(10 * time.Minute)
		w.published(others, 0)
		w.noted(orders, 2)
		if len(n.mu.diverged) != 1 {
			t.Errorf("told %d times", len(n.mu.diverged))
		}
		list, err := w.store.ListDiverged(w.Context(), event.LaneRef{}, 10)
		if err != nil || len(list) != 1 || list[0].EventID != "of-before" {
			t.Errorf("noted %+v, %v", list, err)
		}

		_, err = w.store.Adopt(w.Context(), n.mu.diverged[0].Position(), "maria", "the backup of Monday")
		w.must("adopt", err)
		w.after(time.Minute)
		all := w.records(orders)
		w.noted(orders, event.Sequence(len(all)))
		stream := places(w.server.Stream(orders))
		w.same("what follows", places(all[3:]), stream[len(stream)-3:])
		w.send(n, 1, orders)
	})
}

// Nothing was drawn again: it is found out when the newest is offered.
func TestAStoreThatWentBackIsFoundOutAtALook(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.send(n, 2, orders)
		n.broker.Append(w.Context(), []transport.Append{{Lane: orders, Entries: []event.Envelope{{ID: "of-before", Category: "order", Key: "k-1", Sequence: 3}}}})
		w.after(time.Minute)
		want := []eventstore.Divergence{{Lane: orders, Sequence: 3, EventID: "of-before", Since: time.Now()}}
		if len(n.mu.diverged) != 1 || n.mu.diverged[0].StoredEventID != "" || n.mu.diverged[0].EventID != want[0].EventID {
			t.Errorf("told %+v, want %+v", n.mu.diverged, want)
		}
		w.after(time.Hour)
		w.same("told", 1, len(n.mu.diverged))

		_, err := w.store.Adopt(w.Context(), n.mu.diverged[0].Position(), "maria", "the backup of Monday")
		w.must("adopt", err)
		w.must("lose a mark", n.broker.Unregister(w.Context(), "shipping"))
		w.after(time.Minute)
		w.noted(orders, 3)
		if !w.server.IsBusy(event.Unit{Name: "shipping", Key: "k-1"}) {
			t.Error("who has not passed has no work, though the lane was adopted")
		}
	})
}

func TestAStreamIsReplacedWhereTheRecordsBetweenArePurged(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		w.send(n, 6, orders)
		w.pass("shipping", orders, 0, 6)
		w.pass("billing", orders, 0, 6)
		w.server.LoseTail(orders, 4) // 1 and 2 are left
		purged, err := w.store.Purge(w.Context(), time.Now().Add(time.Hour), 100)
		w.must("purge", err)
		w.same("purged", 6, purged)
		w.send(n, 2, orders)
		w.same("stream", places(w.records(orders)), places(w.server.Stream(orders)))
	})
}

func TestNothingIsPurgedBeforeItWasPassedAndPublished(t *testing.T) {
	inWorld(t, func(w *world) {
		w.commit(3, orders)
		if n, err := w.store.Purge(w.Context(), time.Now().Add(time.Hour), 100); err != nil || n != 0 {
			t.Errorf("purged %d, %v", n, err)
		}
		w.holder("a", func(c *outbox.Config) { c.HealAfter = time.Second })
		settle()
		w.published(orders, 0)
	})
}
