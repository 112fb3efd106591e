package outbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle/lifecycletest"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

func TestCommitsOfThisProcessGoOutAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		began := time.Now()
		n.Committed(w.commit(3, orders, others))
		n.Committed(w.commit(2, orders))
		settle()
		w.published(orders, 0)
		w.published(others, 0)
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		for _, name := range []string{"shipping", "billing"} {
			if !w.server.IsBusy(event.Unit{Name: name, Key: "k-2"}) {
				t.Errorf("%s has no work", name)
			}
		}
	})
}

func TestCommitsOfOthersAreFoundWithinALook(t *testing.T) {
	inWorld(t, func(w *world) {
		w.holder("a")
		settle()
		w.commit(3, orders)
		w.after(260 * time.Millisecond)
		w.published(orders, 0)
	})
}

func TestALookThatIsAskedForIsMadeAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		w.commit(3, orders)
		n.Look(orders.Part())
		settle()
		w.published(orders, 0)
		w.commit(3, others)
		n.Notify()
		settle()
		w.published(others, 0)
	})
}

func TestHoldersOfOtherPartsAreTold(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node("a")
		n.take(orders.Part())
		if orders.Part() == others.Part() {
			t.Fatal("the two lanes must be in two parts")
		}
		n.Committed(w.commit(1, orders, others))
		w.after(time.Second)
		w.published(orders, 0)
		w.noted(others, 0)
		w.same("told", []event.Part{others.Part()}, n.mu.told)
		n.Notify()
		w.same("told", int(event.Parts), len(n.mu.told))
	})
}

func TestWhatWasCommittedBeforeAPartCameIsFound(t *testing.T) {
	inWorld(t, func(w *world) {
		w.commit(3, orders)
		n := w.node("a")
		n.take(orders.Part())
		settle()
		w.published(orders, 0)
	})
}

func TestNothingIsDoneForAPartThatWasDropped(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		n.Drop(orders.Part())
		n.Committed(w.commit(1, orders, others))
		n.Look(orders.Part())
		w.after(time.Minute)
		w.noted(orders, 0)
		w.same("stream", []event.Envelope{}, w.server.Stream(orders))
		w.published(others, 0)
	})
}

func TestDropWaitsForTheCallUnderWay(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		entered, leave := make(chan struct{}), make(chan struct{})
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "append" {
				close(entered)
				<-leave
			}
			return brokertest.None
		})
		n.Committed(w.commit(1, orders))
		<-entered
		n.Drop(others.Part()) // not under way
		dropped := make(chan struct{})
		go func() { defer close(dropped); n.Drop(orders.Part()) }()
		settle()
		select {
		case <-dropped:
			t.Error("dropped while the broker is appending")
		default:
		}
		close(leave)
		<-dropped
		w.noted(orders, 0)
		w.after(time.Second)
		w.noted(orders, 0)
	})
}

func TestACategoryOfNobodyIsNotSentOnlyNoted(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		calls := w.counting()
		n.Committed(w.commit(3, notes))
		settle()
		w.noted(notes, 3)
		if n := calls.of("append"); n != 0 {
			t.Errorf("%d lanes were appended to", n)
		}
		w.after(time.Minute)
		w.same("looks", []eventstore.Look{}, w.looks())
	})
}

func TestWhoSubscribesLaterGetsWhatWasNotSent(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		n.Committed(w.commit(3, notes))
		settle()
		w.register(eventstore.Handler{Name: "archive", Kind: eventstore.EventHandler, Categories: []string{"note"}})
		w.after(2 * time.Second)
		w.published(notes, 0)
		if !w.server.IsBusy(event.Unit{Name: "archive", Key: "k-1"}) {
			t.Error("it has no work")
		}
	})
}

// The relay has asked who subscribes; somebody registers, and what is committed after that is still taken for nobody's.
func TestWhoSubscribesWhileItIsSentIsFoundOut(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		n.Committed(w.commit(1, notes))
		settle()
		w.pass("archive", notes, 0, 1)
		w.register(eventstore.Handler{Name: "archive", Kind: eventstore.EventHandler, Categories: []string{"note"}})
		n.Committed(w.commit(1, notes))
		settle()
		w.noted(notes, 2)
		w.same("not sent", 0, len(w.server.Stream(notes)))
		w.after(32 * time.Second)
		w.published(notes, 1)
	})
}

func TestRecordsOfManyLanesGoInOneCall(t *testing.T) {
	inWorld(t, func(w *world) {
		var lanes []event.LaneRef
		for i := range 200 {
			lanes = append(lanes, event.LaneRef{Category: "order", Key: "m-" + event.Sequence(i).String()})
		}
		tails := w.commit(2, lanes...)
		batches := &batches{}
		n := w.node("a", func(c *outbox.Config) { batches.Broker = c.Broker; c.Broker = batches })
		n.Committed(tails)
		for p := range event.Parts {
			n.take(event.Part(p))
		}
		settle()
		for _, l := range lanes {
			w.published(l, 0)
		}
		if len(batches.sizes) > 4 {
			t.Errorf("%d calls for 200 lanes: %v", len(batches.sizes), batches.sizes)
		}
	})
}

// batches writes down how many lanes each append has.
type batches struct {
	outbox.Broker
	sizes []int
}

func (b *batches) Append(ctx context.Context, runs []transport.Append) []transport.Appended {
	b.sizes = append(b.sizes, len(runs))
	return b.Broker.Append(ctx, runs)
}

func TestALongBacklogGoesOutInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 20 {
			w.commit(150, orders)
		}
		w.commit(1, others)
		w.holder("a", func(c *outbox.Config) { c.MaxAhead = 5000 })
		settle()
		w.published(orders, 0)
		w.published(others, 0)
	})
}

func TestAStreamBeginsAfterWhatWasPassedWithoutABroker(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 4 {
			w.commit(150, orders)
		}
		w.pass("shipping", orders, 0, 590)
		w.pass("billing", orders, 0, 580)
		w.holder("a")
		settle()
		w.published(orders, 580)
	})
}

func TestAStreamBeginsNoFurtherBackThanItMayBeLong(t *testing.T) {
	inWorld(t, func(w *world) {
		for range 4 {
			w.commit(150, orders)
		}
		w.holder("a", func(c *outbox.Config) { c.MaxAhead = 100 })
		settle()
		w.published(orders, 500)
	})
}

func TestAKeyThatNoBrokerCanHoldIsAbandoned(t *testing.T) {
	inWorld(t, func(w *world) {
		bad := event.LaneRef{Category: "order", Key: "a:b"}
		n := w.holder("a", rarely)
		n.Committed(w.commit(2, bad, orders))
		settle()
		w.published(orders, 0)
		w.noted(bad, 2)
		for _, e := range w.records(bad) {
			if !e.Void() {
				t.Errorf("#%d is no void", e.Sequence)
			}
		}
		left, err := w.store.Abandoned(w.Context(), event.Position{}, 10)
		w.must("abandoned", err)
		if len(left) != 2 || left[0].Reason == "" || len(n.mu.abandoned) != 2 {
			t.Errorf("abandoned %+v, told %v", left, n.mu.abandoned)
		}
		w.after(time.Hour)
		w.same("stream", 0, len(w.server.Stream(bad)))
	})
}

func TestAStaleHolderNotesNothingAndGivesUpThatPartAlone(t *testing.T) {
	inWorld(t, func(w *world) {
		var back []event.Part
		n := w.holder("a", func(c *outbox.Config) { c.GiveBack = func(p event.Part) { back = append(back, p) } })
		other := w.node("b")
		settle()
		other.take(orders.Part())
		n.Committed(w.commit(1, orders, others))
		settle()
		w.published(others, 0)
		w.same("stale", []event.Part{orders.Part()}, n.mu.stale)
		w.same("leases to be given back", []event.Part{orders.Part()}, back)
		w.after(time.Second)
		w.published(orders, 0)
		n.Committed(w.commit(1, orders))
		w.same("told", []event.Part{orders.Part()}, n.mu.told)
	})
}

func TestTwoRelaysOfOnePartDoNoHarm(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.holder("a"), w.holder("b")
		for i := range 50 {
			tails := w.commit(1+i%3, orders, others)
			a.Committed(tails)
			b.Committed(tails)
		}
		w.after(time.Second)
		w.published(orders, 0)
		w.published(others, 0)
		if len(a.mu.diverged)+len(b.mu.diverged) > 0 {
			t.Error("diverged")
		}
	})
}

func TestARelayIsStartedAndStoppedByAnybody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brokertest.Config{RealTime: true})
	n := w.holder("a")
	w.must("stop", n.Stop(t.Context()))
	lifecycletest.Stress(t, n.Relay)
}

func TestSettingsThatCannotHoldAreRefusedAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := outbox.New(outbox.Config{Look: -1, Lanes: -2, Keys: event.KeyRules{BackfillSuffix: "dlq"}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Store, Broker and StoreID must be set", "Look is", "Lanes is", "backfill suffix"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}
