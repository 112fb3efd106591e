package outbox_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

var errBroken = errors.New("broken")

// everything has a relay go through all it can do: lanes that are fine, that nobody subscribes to, that no broker can hold, that have diverged, that were lost;
// a subscriber of another application that is new, and one that misses a run.
func (w *world) everything(n *node) {
	w.Helper()
	bad := event.LaneRef{Category: "order", Key: "a:b"}
	diverged := event.LaneRef{Category: "order", Key: "diverged"}
	n.broker.Append(w.Context(), []transport.Append{{Lane: diverged, Start: true, Entries: []event.Envelope{{ID: "of-before", Category: "order", Key: diverged.Key, Sequence: 3}}}})
	w.foreign("audit", "payment")
	n.Committed(w.commit(3, bad, diverged, orders, others, notes, payments))
	w.server.Delete(others)
	n.Forgot()
}

// all checks that all of it was done, when the lane others was passed up to a sequence.
func (w *world) all(passed event.Sequence) {
	w.Helper()
	w.published(orders, 0)
	w.published(others, passed)
	w.noted(notes, 3)
	w.noted(event.LaneRef{Category: "order", Key: "a:b"}, 3)
	w.noted(event.LaneRef{Category: "order", Key: "diverged"}, 0)
	list, err := w.store.ListDiverged(w.Context(), event.LaneRef{}, 10)
	if err != nil || len(list) != 1 || list[0].EventID != "of-before" {
		w.Errorf("diverged: %+v, %v", list, err)
	}
	left, err := w.store.Abandoned(w.Context(), event.Position{}, 10)
	if err != nil || len(left) != 3 {
		w.Errorf("abandoned: %+v, %v", left, err)
	}
	w.published(payments, 0)
	w.subscribes("audit", "payment")
}

func (w *world) subscribes(name, category string) {
	w.Helper()
	for _, s := range w.passing(event.LaneRef{Category: category, Key: "any"}).Subscribers {
		if s.Name == name && s.Foreign {
			return
		}
	}
	w.Errorf("the store does not know that %s of another application subscribes to %s", name, category)
}

func TestEveryTroubleOfTheStoreIsSurvived(t *testing.T) {
	for _, call := range []faulty.Call{
		faulty.Unpublished, faulty.ReadLanes, faulty.NotePublished, faulty.DueLooks, faulty.SetLooks, faulty.AllLooksDue, faulty.Passing, faulty.Diverge,
		faulty.Abandon, faulty.LoadRegistry, faulty.SaveRegistry,
	} {
		for what, f := range map[string]faulty.Fault{"refused": {Before: errBroken}, "lost": {After: errBroken}} {
			t.Run(string(call)+" "+what, func(t *testing.T) {
				inWorld(t, func(w *world) {
					n := w.holder("a")
					settle()
					w.faults.SetPlan(func(op faulty.Op) faulty.Fault {
						if op.Call == call {
							return f
						}
						return faulty.Fault{}
					})
					before := w.faults.Calls(call)
					w.everything(n)
					w.after(20 * time.Second)
					if n := w.faults.Calls(call) - before; n == 0 || n > 100 {
						t.Errorf("%s was called %d times in 20 s", call, n)
					}
					if n.mu.trouble == 0 {
						t.Error("nobody was told")
					}
					w.faults.SetPlan(nil)
					w.after(40 * time.Second)
					w.all(0)
				})
			})
		}
	}
}

func TestEveryTroubleOfTheBrokerIsSurvived(t *testing.T) {
	for _, op := range []string{"append", "trim", "retire", "subscribers", "wanted"} {
		for what, fault := range map[string]brokertest.Fault{"refused": brokertest.Refused, "lost": brokertest.Lost} {
			t.Run(op+" "+what, func(t *testing.T) {
				inWorld(t, func(w *world) {
					n := w.holder("a", func(c *outbox.Config) { c.HealAfter = 10 * time.Second })
					settle()
					calls := 0
					w.everything(n)
					w.pass("shipping", others, 0, 1)
					w.pass("billing", others, 0, 1)
					w.server.Break(func(c brokertest.Call) brokertest.Fault {
						if c.Op == op {
							calls++
							return fault
						}
						return brokertest.None
					})
					w.after(20 * time.Second)
					if calls == 0 || calls > 300 {
						t.Errorf("%s was called %d times in 20 s", op, calls)
					}
					w.server.Break(nil)
					w.after(40 * time.Second)
					w.all(1)
				})
			})
		}
	}
}

func TestALaneThatFailsIsInTheWayOfNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		var told []string
		n := w.holder("a", func(c *outbox.Config) {
			c.Observer.Trouble = func(what string, err error) { told = append(told, what+": "+err.Error()) }
		})
		settle()
		tries := 0
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "append" && c.Lane == orders {
				tries++
				return brokertest.Refused
			}
			return brokertest.None
		})
		n.Committed(w.commit(1, orders))
		for range 100 {
			n.Committed(w.commit(1, others))
			w.after(100 * time.Millisecond)
		}
		w.published(others, 0)
		w.noted(orders, 0)
		if tries < 2 || tries > 30 {
			t.Errorf("tried %d times in 10 s", tries)
		}
		if !slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "send what a lane has: order:k-1: ") }) {
			t.Errorf("nobody is told that a lane goes on failing: %q", told)
		}
		w.server.Break(nil)
		w.after(6 * time.Second)
		w.published(orders, 0)
	})
}

// Nothing else is going on, so that each call there is fails: what is committed then is not kept waiting for the next try.
func TestALaneThatFailsAloneDelaysNobody(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "append" && c.Lane == orders {
				return brokertest.Refused
			}
			return brokertest.None
		})
		n.Committed(w.commit(1, orders))
		w.after(time.Minute)
		for range 20 {
			w.after(500 * time.Millisecond)
			n.Committed(w.commit(1, others))
			w.after(time.Millisecond)
			w.published(others, 0)
		}
	})
}

func TestABrokerThatIsFullIsTriedAgainNowAndThen(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		w.server.Fill(true)
		calls := w.counting()
		n.Committed(w.commit(1, orders))
		w.after(time.Minute)
		if n := calls.of("append"); n < 5 || n > 60 {
			t.Errorf("%d appends in a minute", n)
		}
		w.server.Fill(false)
		w.after(6 * time.Second)
		w.published(orders, 0)
	})
}

// The relay dies between the append and the note, and another one takes over.
func TestADeathBetweenAppendAndNote(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.holder("a")
		settle()
		w.faults.SetPlan(faulty.Nth(faulty.NotePublished, w.faults.Calls(faulty.NotePublished)+1, faulty.Fault{Before: errBroken}))
		a.Committed(w.commit(3, orders))
		settle()
		w.must("dies", a.Stop(w.Context()))
		w.noted(orders, 0)
		w.commit(2, orders)
		b := w.node("b")
		b.take(orders.Part())
		w.after(time.Second)
		w.published(orders, 0)
		w.same("diverged", 0, len(b.mu.diverged))
	})
}

func TestManyLanesThatFailAreLeftAloneForAWhile(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		w.server.Fill(true)
		var lanes []event.LaneRef
		for i := range 2200 {
			lanes = append(lanes, event.LaneRef{Category: "order", Key: "f-" + event.Sequence(i).String()})
		}
		calls := w.counting()
		n.Committed(w.commit(1, lanes...))
		w.after(time.Minute)
		if n := calls.of("append"); n > 60*1000 {
			t.Errorf("%d lanes were tried in a minute", n)
		}
		w.server.Fill(false)
		w.after(20 * time.Second)
		for _, l := range lanes {
			w.noted(l, 1)
		}
	})
}

// A lane that is about to leave cannot be asked for: what was lost of others, which are looked at with it, comes back all the same.
func TestALaneThatCannotLeaveIsInTheWayOfNoOther(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		settle()
		w.foreign("audit", "order")
		w.send(n, 1, orders)
		for _, name := range []string{"shipping", "billing"} {
			w.pass(name, orders, 0, 1)
		}
		w.after(time.Minute)
		w.server.Break(func(c brokertest.Call) brokertest.Fault {
			if c.Op == "append" && c.Lane == orders {
				return brokertest.Refused
			}
			return brokertest.None
		})
		w.after(2 * time.Hour) // it is to leave by now
		for range 5 {
			w.send(n, 1, others)
			w.server.Delete(others)
			w.after(time.Minute)
			w.published(others, 0)
		}
		w.server.Break(nil)
		w.after(time.Minute)
		w.published(orders, 0)
	})
}

// A handler whose checkpoints are in another store.
func (w *world) foreign(name, category string) *brokertest.Broker {
	w.Helper()
	b := w.server.Node(name)
	b.Bind(w.store, eventstore.Identity{StoreID: "another-store"})
	w.must("connect", b.Connect(w.Context()))
	w.must("declare", b.Declare(w.Context(), transport.Declared{StoreID: "another-store", Categories: []transport.Produced{{Category: category, StoreID: w.id.StoreID}},
		Subscribers: []transport.Subscriber{{Name: name, Category: category, StoreID: "another-store", Kind: "handler"}}}))
	return b
}

func TestASubscriberOfAnotherApplicationIsServed(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		b := w.foreign("audit", "note")
		n.Committed(w.commit(5, notes))
		settle()
		w.published(notes, 0)
		w.subscribes("audit", "note")
		u := event.Unit{Name: "audit", Key: "k-1"}
		if !w.server.IsBusy(u) {
			t.Error("it has no work")
		}

		w.server.Cut(notes, 4)
		got, err := b.Port().Acquire(w.Context(), u, 0)
		w.must("acquire", err)
		above := []event.Position{{Lane: notes, Sequence: 1}}
		if _, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), above, 10); err == nil {
			t.Error("read what is not there")
		}
		w.after(4 * time.Second)
		read, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), above, 10)
		w.must("fetch", err)
		w.same("read", places(w.records(notes)[1:]), places(read.Entries))
		w.same("served", []int{4}, n.mu.served)
	})
}

func TestARunThatCouldNotBeServedIsServedLater(t *testing.T) {
	for _, fault := range []brokertest.Fault{brokertest.Refused, brokertest.Lost} {
		inBubble(t, func(w *world) {
			n := w.holder("a")
			settle()
			b := w.foreign("audit", "note")
			w.send(n, 5, notes)
			w.server.Cut(notes, 4)
			served := 0
			w.server.Break(func(c brokertest.Call) brokertest.Fault {
				if c.Op != "serve" {
					return brokertest.None
				}
				served++
				return fault
			})
			u := event.Unit{Name: "audit", Key: "k-1"}
			got, err := b.Port().Acquire(w.Context(), u, 0)
			w.must("acquire", err)
			above := []event.Position{{Lane: notes, Sequence: 1}}
			if _, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), above, 10); err == nil {
				t.Error("read what is not there")
			}
			w.after(10 * time.Second)
			w.server.Break(nil)
			w.after(4 * time.Second)
			read, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), above, 10)
			w.must("fetch", err)
			w.same("read", places(w.records(notes)[1:]), places(read.Entries))
			if served == 0 || served > 5 {
				t.Errorf("tried %d times", served)
			}
		})
	}
}

// Others are served where one is not: its request is none, or what it is to be given cannot be written.
func TestARequestThatCannotBeServedIsInTheWayOfNoOther(t *testing.T) {
	for name, unit := range map[string]event.Unit{"no key": {Name: "audit", Key: "a:b"}, "refused": {Name: "audit", Key: "a-1"}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				n := w.holder("a")
				settle()
				b := w.foreign("audit", "note")
				bad := event.LaneRef{Category: "note", Key: unit.Key}
				n.Committed(w.commit(5, notes))
				settle()
				w.server.Cut(notes, 4)
				w.server.Want(unit, bad, 1)
				var asked []event.Unit
				w.server.Break(func(c brokertest.Call) brokertest.Fault {
					if c.Op == "serve" {
						asked = append(asked, c.Unit)
					}
					if c.Op == "serve" && c.Unit == unit {
						return brokertest.Refused
					}
					return brokertest.None
				})
				u := event.Unit{Name: "audit", Key: "k-1"}
				got, err := b.Port().Acquire(w.Context(), u, 0)
				w.must("acquire", err)
				above := []event.Position{{Lane: notes, Sequence: 1}}
				if _, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), above, 10); err == nil {
					t.Error("read what is not there")
				}
				w.after(4 * time.Second)
				read, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), above, 10)
				w.must("fetch", err)
				w.same("read", places(w.records(notes)[1:]), places(read.Entries))
				if tried := slices.Contains(asked, unit); tried != (name == "refused") {
					t.Errorf("asked to serve %v", asked)
				}
			})
		})
	}
}

func TestWhatIsNowhereAnyMoreIsSaid(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a")
		settle()
		b := w.foreign("audit", "note")
		n.Committed(w.commit(5, notes))
		settle()
		w.server.Cut(notes, 4)
		if purged, err := w.store.Purge(w.Context(), time.Now().Add(time.Hour), 3); err != nil || purged != 3 {
			t.Fatalf("purged %d, %v", purged, err)
		}
		u := event.Unit{Name: "audit", Key: "k-1"}
		got, err := b.Port().Acquire(w.Context(), u, 0)
		w.must("acquire", err)
		above := []event.Position{{Lane: notes, Sequence: 1}}
		if _, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), above, 10); err == nil {
			t.Error("read what is not there")
		}
		w.after(4 * time.Second)
		read, err := b.Port().Fetch(w.Context(), holding(u, got.Generation), above, 10)
		if err != nil || !read.Gap {
			t.Errorf("got %+v, %v; want a gap", read, err)
		}
		w.same("served", []int{0}, n.mu.served)
	})
}

// The broker forgot who subscribes, and the other application is down: its events stay until it has read them.
func TestASubscriberOfAnotherApplicationIsNotForgotten(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		settle()
		b := w.foreign("audit", "note")
		w.send(n, 2, notes)
		w.must("goes down", b.Stop(w.Context()))
		w.server.Forget()
		n.Forgot()
		w.send(n, 1, notes)
		w.after(3 * time.Hour)
		u := event.Unit{Name: "audit", Key: "k-1"}
		stream := w.server.Stream(notes)
		if len(stream) == 0 || stream[len(stream)-1].Sequence != 3 || !w.server.IsBusy(u) {
			t.Errorf("stream %v, busy %v", places(stream), w.server.IsBusy(u))
		}
	})
}

// It had not read the last event of a quiet key when the broker lost that: nobody here knows. It sees by the newest that there was more.
func TestAQuietKeyOfAnotherApplicationIsHealed(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		settle()
		w.foreign("audit", "order")
		w.send(n, 3, orders)
		w.pass("shipping", orders, 0, 3)
		w.pass("billing", orders, 0, 3)
		w.after(time.Minute)
		w.server.Forget()
		n.Forgot()
		w.after(20 * time.Second)
		w.published(orders, 2)
		if !w.server.IsBusy(event.Unit{Name: "audit", Key: "k-1"}) {
			t.Error("it has no work")
		}
	})
}

// What is to be offered to another application is offered by whoever has the part then: also where the one that began to lost the part over it, or a call failed.
func TestAnOfferToAnotherApplicationThatIsCutShortIsMadeAgain(t *testing.T) {
	for name, cut := range map[string]func(w *world, a, b *node){
		"the part is lost": func(w *world, a, b *node) {
			a.Drop(orders.Part())
			b.take(orders.Part())
		},
		"the process dies": func(w *world, a, b *node) {
			w.must("stop", a.Stop(w.Context()))
			b.take(orders.Part())
		},
		"nothing happens": func(*world, *node, *node) {},
	} {
		for _, looked := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", looked at before: ", looked), func(t *testing.T) {
				inWorld(t, func(w *world) {
					a, b := w.holder("a", rarely), w.node("b", rarely)
					settle()
					w.foreign("audit", "order")
					w.send(a, 3, orders)
					w.pass("shipping", orders, 0, 3)
					w.pass("billing", orders, 0, 3)
					if looked {
						w.after(time.Minute)
					}
					w.server.Forget()
					w.server.Break(func(c brokertest.Call) brokertest.Fault {
						if c.Op == "append" {
							return brokertest.Refused
						}
						return brokertest.None
					})
					a.Forgot()
					w.after(3 * time.Second)
					cut(w, a, b)
					w.server.Break(nil)
					w.after(40 * time.Second)
					w.published(orders, 2)
					if !w.server.IsBusy(event.Unit{Name: "audit", Key: "k-1"}) {
						t.Error("it has no work")
					}
					w.after(10 * time.Minute)
					for _, l := range w.looks() {
						if !l.Retire || time.Until(l.Due) < 40*time.Minute {
							t.Errorf("it is looked at again and again: %+v", l)
						}
					}
				})
			})
		}
	}
}

func TestALaneLeavesWhenAnotherApplicationHasReadItToo(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.holder("a", rarely)
		settle()
		b := w.foreign("audit", "note")
		w.send(n, 2, notes)
		w.after(130 * time.Minute)
		w.same("stream", 2, len(w.server.Stream(notes)))
		reader := &node{w: w, broker: b}
		reader.read("audit", notes, 2)
		w.after(61 * time.Minute)
		w.same("stream", 0, len(w.server.Stream(notes)))
		w.same("looks", []eventstore.Look{}, w.looks())
	})
}

func TestANameThatIsTakenHereIsNotSentTo(t *testing.T) {
	inWorld(t, func(w *world) {
		w.register(eventstore.Handler{Name: "audit", Kind: eventstore.EventHandler, Categories: []string{"payment"}})
		n := w.holder("a")
		settle()
		w.foreign("audit", "note")
		w.foreign("reports", "note")
		w.send(n, 2, notes)
		w.published(notes, 0)
		w.subscribes("reports", "note")
		if w.server.IsBusy(event.Unit{Name: "audit", Key: "k-1"}) {
			t.Error("a name that is another one's has work")
		}
	})
}

// That a name is taken here is said now and then, and not with every event that is published.
func TestThatANameIsTakenHereIsSaidNowAndThen(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		w.register(eventstore.Handler{Name: "audit", Kind: eventstore.EventHandler, Categories: []string{"payment"}})
		n := w.holder("a", rarely, func(c *outbox.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		settle()
		w.foreign("audit", "note")
		for range 60 {
			w.send(n, 1, notes)
			w.after(time.Second)
		}
		if said := strings.Count(log.String(), "give one of the two another name"); said < 1 || said > 4 {
			t.Errorf("it is said %d times in a minute", said)
		}
	})
}
