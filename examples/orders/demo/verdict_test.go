package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// run builds marks as processes write them.
type run struct{ marks []mark }

// put takes the life of the only process for the generation of all its clients, as without leases.
func (r *run) put(enter bool, life int, client, order string, seq uint64, attempt int) {
	r.marks = append(r.marks, entry(life, enter, client, order, seq, attempt))
}
func (r *run) enter(life int, client, order string, seq uint64) {
	r.put(true, life, client, order, seq, 1)
}
func (r *run) leave(life int, client, order string, seq uint64) {
	r.put(false, life, client, order, seq, 1)
}

func entry(life int, enter bool, client, order string, seq uint64, attempt int) mark {
	return mark{
		Process: 1, Life: life, Enter: enter, Generation: uint64(life), Client: client, Order: order, Event: "event of " + order, Seq: seq, Attempt: attempt,
	}
}

// of is a mark of a process at a generation.
func of(process int, generation uint64, enter bool, client, order string, seq uint64) mark {
	m := entry(1, enter, client, order, seq, 1)
	m.Process, m.Generation = process, generation
	return m
}

// allWell is a small run as it should be: three clients, of which c is halted at its second event; the process is killed while b's
// second is inside.
func allWell() (plan, evidence, seen) {
	e := evidence{
		Placed: []placedEvent{{Order: "a1", Client: "a", Seq: 1}, {Order: "b1", Client: "b", Seq: 1}, {Order: "c1", Client: "c", Seq: 1}, {Order: "c2", Client: "c", Seq: 2}, {Order: "c3", Client: "c", Seq: 3}, {Order: "b2", Client: "b", Seq: 2}, {Order: "a2", Client: "a", Seq: 2}},
		Shipments: []shipment{
			{"b1", "b"}, {"a1", "a"}, {"c1", "c"}, {"b2", "b"}, {"a2", "a"}, {"c2", "c"}, {"c3", "c"},
		},
		Paid:    map[string]int{"a": 1},
		Clients: map[string]clientRow{"a": {2, 1}, "b": {2, 0}, "c": {3, 0}},
	}
	var r run
	r.enter(1, "a", "a1", 1)
	r.enter(1, "b", "b1", 1)
	r.enter(1, "c", "c1", 1) // three at once
	r.leave(1, "b", "b1", 1)
	r.leave(1, "a", "a1", 1)
	r.leave(1, "c", "c1", 1)
	r.put(true, 1, "c", "c2", 2, 1) // refused twice
	r.put(false, 1, "c", "c2", 2, 1)
	r.put(true, 1, "c", "c2", 2, 2)
	r.put(false, 1, "c", "c2", 2, 2)
	r.enter(1, "b", "b2", 2)
	r.marks = append(r.marks, mark{Process: 1, Life: 1, Killed: true})
	r.enter(2, "b", "b2", 2)
	r.enter(2, "a", "a2", 2)
	r.leave(2, "b", "b2", 2)
	r.leave(2, "a", "a2", 2)
	lifted := len(r.marks)
	r.enter(2, "c", "c2", 2)
	r.leave(2, "c", "c2", 2)
	r.enter(2, "c", "c3", 3)
	r.leave(2, "c", "c3", 3)
	e.Marks = r.marks
	halt := eventstore.Halt{Unit: event.Unit{Name: "shipping", Key: "c"}, Sequence: 2}
	return plan{Orders: 7, Clients: 3, Parallel: 3}, e, seen{Before: halt, Halted: []eventstore.Halt{halt}, Marks: lifted}
}

func TestARunAsItShouldBeIsWithoutFault(t *testing.T) {
	t.Parallel()
	f, faults := judge(allWell())
	want := figures{Placed: 7, Shipped: 7, Parallel: 3, Halted: 1, Resumed: 1, Processes: 1}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
	if len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
}

func TestWhatIsWrongIsCountedAndNamed(t *testing.T) {
	t.Parallel()
	well := figures{Placed: 7, Shipped: 7, Parallel: 3, Halted: 1, Resumed: 1, Processes: 1}
	insert := func(e *evidence, after func(mark) bool, marks ...mark) {
		i := slices.IndexFunc(e.Marks, after)
		e.Marks = slices.Insert(e.Marks, i+1, marks...)
	}
	entered := func(order string) func(mark) bool {
		return func(m mark) bool { return m.Order == order && m.Enter }
	}
	for _, c := range []struct {
		name  string
		spoil func(e *evidence, s *seen)
		want  func(f *figures)
		fault string
	}{
		{
			"a shipment is missing",
			func(e *evidence, _ *seen) { e.Shipments = slices.Delete(e.Shipments, 4, 5) },
			func(f *figures) { f.Shipped, f.Lost = 6, 1 }, "lost is 1",
		}, {
			"an order is shipped twice",
			func(e *evidence, _ *seen) { e.Shipments = slices.Insert(e.Shipments, 1, e.Shipments[0]) },
			func(f *figures) { f.Shipped, f.Twice = 8, 1 }, "twice is 1",
		}, {
			"two orders of a client are shipped the wrong way round",
			func(e *evidence, _ *seen) { e.Shipments[5], e.Shipments[6] = e.Shipments[6], e.Shipments[5] },
			func(f *figures) { f.Reordered = 1 }, "reordered is 1",
		}, {
			"two events of a client are inside at once",
			func(e *evidence, _ *seen) {
				insert(e, entered("a1"), entry(1, true, "a", "a2", 2, 1), entry(1, false, "a", "a2", 2, 1))
			},
			func(f *figures) { f.Overlapping = 1 }, "overlapping is 1",
		}, {
			"an attempt begins before the one before it has left",
			func(e *evidence, _ *seen) {
				insert(e, entered("a1"), entry(1, true, "a", "a1", 1, 2), entry(1, false, "a", "a1", 1, 2))
			},
			func(f *figures) { f.Overlapping = 1 }, "overlapping is 1",
		}, {
			"clients wait for one another",
			func(e *evidence, _ *seen) {
				e.Marks = slices.DeleteFunc(e.Marks, func(m mark) bool { return m.Life == 1 && m.Client == "c" })
				insert(e, entered("b2"), entry(1, true, "c", "c1", 1, 1))
			},
			func(f *figures) { f.Parallel = 2 }, "parallel is 2, less than 3",
		}, {
			"an acknowledged order is not in the log",
			func(e *evidence, _ *seen) {
				e.Placed, e.Shipments = e.Placed[:6], slices.Delete(e.Shipments, 4, 5)
				e.Clients["a"], e.Paid["a"] = clientRow{1, 1}, 1
			},
			func(f *figures) { f.Placed, f.Shipped = 6, 6 }, "placed is 6, not 7",
		}, {
			"an order is placed twice",
			func(e *evidence, _ *seen) { e.Placed = append(e.Placed, placedEvent{Order: "a1", Client: "a", Seq: 3}) },
			func(f *figures) { f.Placed = 8; f.Reordered = 1 }, "order a1 was placed twice",
		}, {
			"something is shipped that nobody ordered",
			func(e *evidence, _ *seen) { e.Shipments[0].Order = "x1" },
			func(f *figures) { f.Lost = 1 }, "order x1 was shipped, and never placed",
		}, {
			"a shipment has no mark",
			func(e *evidence, _ *seen) {
				e.Marks = slices.DeleteFunc(e.Marks, func(m mark) bool { return m.Order == "a2" })
			},
			func(*figures) {}, "order a2 was shipped, and never entered shipping",
		}, {
			"a killed process works on",
			func(e *evidence, _ *seen) { insert(e, entered("a2"), entry(1, false, "b", "b2", 2, 1)) },
			func(*figures) {}, "order b2: process 1 was in shipping after it had been killed",
		}, {
			"a mark is lost at the way in",
			func(e *evidence, _ *seen) {
				i := slices.IndexFunc(e.Marks, entered("a2"))
				e.Marks = slices.Delete(e.Marks, i, i+1)
			},
			func(*figures) {}, "order a2 left shipping without having entered",
		}, {
			"a mark is lost at the way out",
			func(e *evidence, _ *seen) { e.Marks = e.Marks[:len(e.Marks)-1] },
			func(*figures) {}, "order c3 entered shipping and never left",
		}, {
			"the read model counts an event twice",
			func(e *evidence, _ *seen) { e.Clients["b"] = clientRow{3, 0} },
			func(*figures) {}, "b: the read model has 3 orders, 0 paid; the log has 2, 0 paid",
		}, {
			"a payment is not applied",
			func(e *evidence, _ *seen) { e.Clients["a"] = clientRow{2, 0} },
			func(*figures) {}, "a: the read model has 2 orders, 0 paid; the log has 2, 1 paid",
		}, {
			"the halt does not survive the kill",
			func(_ *evidence, s *seen) { s.Halted = nil },
			func(f *figures) { f.Halted, f.Resumed = 0, 0 }, "halted is 0, not 1",
		}, {
			"the halt is not lifted",
			func(e *evidence, _ *seen) {
				e.Halts = []eventstore.Halt{{Unit: event.Unit{Name: "shipping", Key: "c"}}}
			},
			func(f *figures) { f.Resumed = 0 }, "resumed is 0, not 1",
		}, {
			"the halt is made anew",
			func(_ *evidence, s *seen) { s.Halted[0].Since = s.Before.Since.Add(time.Second) },
			func(*figures) {}, "the halt of shipping/c is not the one from before the kill",
		}, {
			"the halted event is run after the new start",
			func(e *evidence, s *seen) {
				insert(e, func(m mark) bool { return m.Life == 2 }, entry(2, true, "c", "c2", 2, 1), entry(2, false, "c", "c2", 2, 1))
				s.Marks += 2
			},
			func(f *figures) {}, "order c2 of c entered shipping although c was halted",
		}, {
			"the halted event is passed over",
			func(e *evidence, s *seen) {
				e.Marks = slices.DeleteFunc(e.Marks, func(m mark) bool { return m.Life == 2 && m.Order == "c2" })
			},
			func(f *figures) {}, "c went on with its event 3, it was halted at 2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, e, s := allWell()
			c.spoil(&e, &s)
			f, faults := judge(p, e, s)
			want := well
			c.want(&want)
			if diff := cmp.Diff(want, f); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
			if !slices.ContainsFunc(faults, func(fault string) bool { return strings.Contains(fault, c.fault) }) {
				t.Errorf("faults: %q, none says %q", faults, c.fault)
			}
		})
	}
}

func TestTheLastLineNamesEveryFigure(t *testing.T) {
	t.Parallel()
	f := figures{Placed: 2000, Shipped: 1999, Lost: 1, Reordered: 2, Overlapping: 3, Twice: 4, Parallel: 50, Halted: 1, Processes: 3}
	want := "placed=2000 shipped=1999 lost=1 reordered=2 overlapping=3 twice=4 parallel=50 halted=1 resumed=0"
	if got := f.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	f.Failover = failover{Clients: 17, Median: 5 * time.Second, Max: 5300 * time.Millisecond}
	if got := f.String(); got != want+" processes=3 failover_ms=5300" {
		t.Errorf("with leases: %s", got)
	}
}
