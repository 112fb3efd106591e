package outbox_test

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// asksWhereItBegins has a unit of audit, which begins at a time, read a lane in which it has no place.
func (w *world) asksWhereItBegins(b *brokertest.Broker, from time.Time) {
	w.Helper()
	w.must("declare", b.Declare(w.Context(), transport.Declared{StoreID: "another-store", Subscribers: []transport.Subscriber{
		{Name: "audit", Category: "note", StoreID: "another-store", Kind: "handler", Begins: from}}}))
	u := event.Unit{Name: "audit", Key: notes.Key}
	got, err := b.Port().Acquire(w.Context(), u, 0)
	w.must("acquire", err)
	if _, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), []event.Position{{Lane: notes}}, 10); err == nil {
		w.Error("read what is not there")
	}
}

func TestOneWhoBeginsIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		from  time.Duration // after the first event, which is an hour before the last three
		purge int
		want  []int // served, and 0 where it begins with what is to come
	}{
		"with the oldest":               {from: -time.Hour, want: []int{5}},
		"with the oldest that is kept":  {from: -time.Hour, purge: 2, want: []int{3}},
		"with the first after a time":   {from: time.Minute, want: []int{3}},
		"with what is to come":          {from: 24 * time.Hour, want: nil},
		"with what is to come of a few": {from: 24 * time.Hour, purge: 4, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				n := w.holder("a", rarely)
				settle()
				first := time.Now()
				b := w.foreign("audit", "note")
				w.send(n, 2, notes)
				w.after(time.Hour)
				w.send(n, 3, notes)
				w.server.Cut(notes, 4)
				if c.purge > 0 {
					if purged, err := w.store.Purge(w.Context(), time.Now().Add(time.Hour), c.purge); err != nil || purged != c.purge {
						t.Fatalf("purged %d, %v", purged, err)
					}
				}
				var told []transport.Wanted
				w.server.Break(func(call brokertest.Call) brokertest.Fault {
					if call.Op == "serve" {
						told = append(told, transport.Wanted{Unit: call.Unit, Lane: call.Lane})
					}
					return brokertest.None
				})
				w.asksWhereItBegins(b, first.Add(c.from))
				w.after(10 * time.Second)
				w.same("told", []transport.Wanted{{Unit: event.Unit{Name: "audit", Key: notes.Key}, Lane: notes}}, told)
				after, run := w.server.Served(event.Unit{Name: "audit", Key: notes.Key}, notes)
				kept := w.records(notes)
				if len(c.want) == 0 {
					w.same("begins behind", event.Sequence(5), after)
					w.same("run", 0, len(run))
					return
				}
				w.same("run", places(kept[len(kept)-c.want[0]:]), places(run))
				w.same("begins behind", event.Sequence(5-c.want[0]), after)
			})
		})
	}
}

func TestNothingIsKeptForASubscriberOfAnotherApplicationThatIsGone(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		settle()
		b := w.foreign("audit", "order")
		w.send(n, 3, orders)
		w.subscribes("audit", "order")
		for _, name := range []string{"shipping", "billing"} {
			w.pass(name, orders, 0, 3)
			n.read(name, orders, 3)
		}
		w.after(3 * time.Hour)
		w.same("held", 3, len(w.server.Stream(orders)))
		w.must("unregister", b.Unregister(w.Context(), "audit"))
		w.after(time.Minute)
		registry, err := w.store.LoadRegistry(w.Context())
		w.must("load registry", err)
		for _, h := range registry.Handlers {
			if h.Name == "audit" {
				t.Errorf("%s is registered still", h.Name)
			}
		}
		acts, err := w.store.ListActs(w.Context(), eventstore.ActQuery{Limit: 10})
		w.must("acts", err)
		if len(acts) != 1 || acts[0].Kind != eventstore.ActRemove || acts[0].Unit.Name != "audit" {
			t.Errorf("acts %+v", acts)
		}
		wanted, err := b.Wanted(w.Context(), "order")
		w.must("wanted", err)
		w.same("wanted", 0, len(wanted))
		w.after(2 * time.Hour)
		w.same("left", 0, len(w.server.Stream(orders)))
	})
}

// It came back before its producer had noticed.
func TestASubscriberOfAnotherApplicationThatIsBackStays(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		settle()
		b := w.foreign("audit", "order")
		w.send(n, 1, orders)
		w.subscribes("audit", "order")
		w.after(time.Minute)
		w.must("unregister", b.Unregister(w.Context(), "audit"))
		w.foreign("audit", "order")
		w.after(time.Minute)
		w.subscribes("audit", "order")
		wanted, err := b.Wanted(w.Context(), "order")
		w.must("wanted", err)
		w.same("wanted", 0, len(wanted))
	})
}

func TestAStreamIsTrimmedAsFarAsASubscriberOfAnotherApplicationHasAcknowledged(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		settle()
		b := w.foreign("audit", "order")
		w.send(n, 3, orders)
		for _, name := range []string{"shipping", "billing"} {
			w.pass(name, orders, 0, 3)
		}
		w.after(10 * time.Second)
		w.same("nothing was read", 3, len(w.server.Stream(orders)))
		u := event.Unit{Name: "audit", Key: orders.Key}
		got, err := b.Port().Acquire(w.Context(), u, 0)
		w.must("acquire", err)
		_, err = b.Port().Advance(w.Context(), holding(u, got.Generation), []event.Position{{Lane: orders, Sequence: 2}}, 10)
		w.must("advance", err)
		w.send(n, 1, orders)
		for _, name := range []string{"shipping", "billing"} {
			w.pass(name, orders, 3, 4)
		}
		w.after(10 * time.Second)
		w.same("what it has not acknowledged", places(w.records(orders)[2:]), places(w.server.Stream(orders)))
	})
}

// A handler here that is stopped has nothing to do with it: only the other application knows how far its own is.
func TestASubscriberOfAnotherApplicationIsOfferedWhatWasLostThoughOneHereIsStopped(t *testing.T) {
	for name, lose := range map[string]func(w *world, n *node){
		"the broker forgot": func(w *world, n *node) {
			w.server.Forget()
			n.Forgot()
		},
		"the broker forgot while nobody ran": func(w *world, n *node) {
			for p := range event.Parts {
				n.Drop(event.Part(p))
			}
			w.server.Forget()
			w.after(2 * time.Hour)
			for p := range event.Parts {
				n.take(event.Part(p))
			}
		},
		"the broker forgot, and another took over, whose clock is behind": func(w *world, n *node) {
			for p := range event.Parts {
				n.Drop(event.Part(p))
			}
			w.server.Forget()
			w.holder("b", rarely, func(c *outbox.Config) { c.Now = func() time.Time { return time.Now().Add(-time.Minute) } })
			w.after(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				n := w.holder("a", rarely)
				settle()
				w.foreign("audit", "order")
				w.send(n, 2, orders)
				w.subscribes("audit", "order")
				w.pass("billing", orders, 0, 2)
				w.halt(event.Unit{Name: "shipping", Key: orders.Key}, orders)
				w.after(10 * time.Minute)
				lose(w, n)
				w.after(time.Minute)
				if !w.server.IsBusy(event.Unit{Name: "audit", Key: orders.Key}) || len(w.server.Stream(orders)) == 0 {
					t.Errorf("audit has no work; the stream has %d entries", len(w.server.Stream(orders)))
				}
				if w.server.IsBusy(event.Unit{Name: "shipping", Key: orders.Key}) {
					t.Error("who is stopped has work")
				}
				calls := w.counting()
				w.after(10 * time.Minute)
				w.same("appends, when it has been offered", 0, calls.of("append"))
			})
		})
	}
}

// halt stops a unit before the first event of a lane.
func (w *world) halt(u event.Unit, lane event.LaneRef) {
	w.Helper()
	_, err := w.store.Begin("test").Commit(w.Context(), eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Halt: &eventstore.Halt{
		Unit: u, Lane: lane, Sequence: 1, EventID: "e-1", EventType: "order.happened", Attempts: 1, Reason: "poison", Error: "x", Since: time.Now(), Generation: 1,
	}})
	w.must("halt", err)
}
