package outbox_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// What is committed after an outage does not wait until all lanes have gone out that grew meanwhile.
func TestWhatIsCommittedNowDoesNotWaitForABacklog(t *testing.T) {
	inWorld(t, func(w *world) {
		var lanes []event.LaneRef
		for i := range 500 {
			lanes = append(lanes, event.LaneRef{Category: "order", Key: event.Sequence(i).String()})
		}
		n := w.holder("a", func(c *outbox.Config) { c.Lanes, c.Look = 8, time.Hour })
		settle()
		w.commit(1, lanes...)
		before, done := 0, false
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			switch {
			case c.Op != "append":
			case c.Lane == others:
				done = true
			case before == 0:
				before++
				n.Committed(w.commit(1, others))
			case !done:
				before++
			}
			return brokertest.None
		})
		n.Notify()
		settle()
		w.published(others, 0)
		w.noted(lanes[499], 1)
		if before > 50 {
			t.Errorf("%d lanes went out first", before)
		}
	})
}

// Nor does the backlog wait for what is committed all the time.
func TestABacklogDoesNotWaitForWhatIsCommittedNow(t *testing.T) {
	inWorld(t, func(w *world) {
		var busy []event.LaneRef
		for i := range 20 {
			busy = append(busy, event.LaneRef{Category: "order", Key: "busy-" + event.Sequence(i).String()})
		}
		n := w.holder("a", func(c *outbox.Config) { c.Lanes, c.Look = 8, time.Hour })
		settle()
		w.commit(1, orders)
		before, done := 0, false
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if done = done || c.Lane == orders; c.Op == "append" && !done && before < 2_000 {
				before++
				n.Committed(w.commit(1, busy[before%len(busy)]))
			}
			return brokertest.None
		})
		n.Committed(w.commit(1, busy...))
		n.Notify()
		settle()
		w.published(orders, 0)
		if before > 500 {
			t.Errorf("%d lanes went out first", before)
		}
	})
}

// Nor until everything is on the broker again that it has lost.
func TestWhatIsCommittedNowDoesNotWaitForWhatWasLost(t *testing.T) {
	inWorld(t, func(w *world) {
		var lanes []event.LaneRef
		for i := range 500 {
			lanes = append(lanes, event.LaneRef{Category: "order", Key: event.Sequence(i).String()})
		}
		n := w.holder("a", func(c *outbox.Config) { c.Lanes, c.Look = 8, time.Hour })
		n.Committed(w.commit(1, lanes...))
		settle()
		for _, l := range lanes {
			w.server.Delete(l)
		}
		before, done := 0, false
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			switch {
			case c.Op != "append":
			case c.Lane == others:
				done = true
			case before == 0:
				before++
				n.Committed(w.commit(1, others))
			case !done:
				before++
			}
			return brokertest.None
		})
		n.Relay.Forgot()
		settle()
		w.published(others, 0)
		w.published(lanes[499], 0)
		if before > 100 {
			t.Errorf("%d times something else was sent first", before)
		}
	})
}

// Nor until all are served that miss something: after a loss that may be one for each key.
func TestWhatIsCommittedNowDoesNotWaitForThoseThatMissSomething(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		settle()
		b := w.foreign("audit", "note")
		const units = 500
		for i := range units {
			lane := event.LaneRef{Category: "note", Key: event.Sequence(i).String()}
			w.send(n, 3, lane)
			w.server.Cut(lane, 2)
		}
		w.subscribes("audit", "note")
		for i := range units {
			lane := event.LaneRef{Category: "note", Key: event.Sequence(i).String()}
			u := event.Unit{Name: "audit", Key: lane.Key}
			got, err := b.Port().Acquire(w.Context(), u, 0)
			w.must("acquire", err)
			if _, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), []event.Position{{Lane: lane}}, 10); err == nil {
				t.Fatal("read what is not there")
			}
		}
		before, served, done := 0, 0, false
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			switch {
			case c.Op == "serve":
				if served++; served == 1 {
					n.Committed(w.commit(1, others))
				}
				if !done {
					before++
				}
			case c.Op == "append" && c.Lane == others:
				done = true
			}
			return brokertest.None
		})
		w.after(10 * time.Second)
		w.published(others, 0)
		if served != units {
			t.Errorf("%d of %d are served", served, units)
		}
		if before > 50 {
			t.Errorf("%d were served first", before)
		}
	})
}

// late is a broker whose answer to those who are served never comes: the connection gives up after a while, whatever the context says.
type late struct {
	outbox.Broker
	serves *int
	first  func()
}

func (l late) Serve(context.Context, transport.Wanted, []event.Envelope) error {
	if *l.serves++; *l.serves == 1 {
		l.first()
	}
	gone, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	<-gone.Done()
	return fmt.Errorf("read tcp: %w", os.ErrDeadlineExceeded)
}

// Nor until a broker that hangs has been asked to serve all of them.
func TestWhatIsCommittedNowDoesNotWaitForABrokerThatDoesNotServe(t *testing.T) {
	inWorld(t, func(w *world) {
		var n *node
		serves, committed, out := 0, time.Time{}, time.Time{}
		n = w.holder("a", rarely, func(c *outbox.Config) {
			c.Broker = late{c.Broker, &serves, func() {
				committed = time.Now()
				n.Committed(w.commit(1, others))
			}}
		})
		settle()
		w.foreign("audit", "note")
		for i := range 200 {
			lane := event.LaneRef{Category: "note", Key: event.Sequence(i).String()}
			w.send(n, 3, lane)
			w.server.Want(event.Unit{Name: "audit", Key: lane.Key}, lane, 1)
		}
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "append" && c.Lane == others && out.IsZero() {
				out = time.Now()
			}
			return brokertest.None
		})
		w.after(time.Minute)
		w.published(others, 0)
		if took := out.Sub(committed); took > 6*time.Second {
			t.Errorf("what was committed meanwhile waited for %v", took)
		}
		if serves == 0 || serves > 10 {
			t.Errorf("asked %d times in a minute", serves)
		}
		for range 5 {
			n.Committed(w.commit(1, orders))
			w.after(10 * time.Second)
			w.published(orders, 0)
		}
		n.note(func() {
			if n.mu.trouble == 0 {
				t.Error("nobody is told")
			}
		})
	})
}

// Nor until it is found where one begins, in a long lane.
func TestWhatIsCommittedNowDoesNotWaitForOneWhoBegins(t *testing.T) {
	inWorld(t, func(w *world) {
		const long = 15_000
		n := w.holder("a", rarely)
		settle()
		b := w.foreign("audit", "note")
		w.send(n, long, notes)
		w.server.Cut(notes, long)
		reads, before, done := 0, 0, false
		w.asksWhereItBegins(b, time.Now().Add(time.Hour))
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "append" && c.Lane == others && !done {
				before, done = reads, true
			}
			return brokertest.None
		})
		w.commit(1, others)
		w.faults.SetPlan(func(op faulty.Op) faulty.Fault {
			if op.Call != faulty.ReadLanes {
				return faulty.Fault{}
			}
			if reads++; reads == 2 {
				n.Committed([]event.Tail{{Lane: others, First: 1, Last: 1}})
			}
			return faulty.Fault{}
		})
		w.after(10 * time.Second)
		w.published(others, 0)
		if before == 0 || before > 40 {
			t.Errorf("%d times the store was read first, of %d", before, reads)
		}
		after, run := w.server.Served(event.Unit{Name: "audit", Key: notes.Key}, notes)
		w.same("begins behind", event.Sequence(long), after)
		w.same("run", 0, len(run))
	})
}
