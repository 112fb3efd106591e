package actors

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

func TestNobodyWaitsForAnAnswerThatWasGivenNorOnceItsCallIsOver(t *testing.T) {
	t.Parallel()
	a, b := event.Unit{Name: "thing", Key: "a"}, event.Unit{Name: "thing", Key: "b"}
	call := func(u event.Unit) *attempt { return &attempt{of: &unit{id: u}} }
	for name, end := range map[string]func(*ask, *attempt){
		"answered": func(k *ask, _ *attempt) { k.deliver(answer{}) },
		"over":     func(_ *ask, by *attempt) { _, _ = by.run(func() error { return nil }) },
	} {
		var w waits
		by := call(a)
		noted := &wait{by: a, behavior: by, on: b}
		w.mustAdd(t, noted)
		if _, ok := w.add(&wait{by: b, behavior: call(b), on: a}); ok {
			t.Errorf("%s: a circle was not seen", name)
		}
		end(&ask{answer: make(chan answer, 1), waits: &w, wait: noted}, by)
		if _, ok := w.add(&wait{by: b, behavior: call(b), on: a}); !ok {
			t.Errorf("%s: a circle was seen where nobody waits", name)
		}
	}
}

// An ask that was given up, or answered, is noted a little longer. It is part of no circle, and what is asked on behalf of its unit meanwhile must not say that somebody waits behind it.
func TestNobodyIsBehindAnAskThatIsOver(t *testing.T) {
	t.Parallel()
	a, b := event.Unit{Name: "thing", Key: "a"}, event.Unit{Name: "thing", Key: "b"}
	for _, c := range []struct {
		state          uint32
		behind, circle bool
	}{{askWaiting, false, true}, {askOpening, true, true}, {askBegun, true, true}, {askAnswered, false, false}, {askLeft, false, false}} {
		var w waits
		k := &ask{answer: make(chan answer, 1)}
		w.mustAdd(t, &wait{by: a, on: b, ask: k})
		k.state.Store(c.state)
		if got := len(w.behind(b)) == 2; got != c.behind {
			t.Errorf("state %d: somebody is behind it: %v", c.state, got)
		}
		if _, ok := w.add(&wait{by: b, on: a, ask: &ask{}}); ok == c.circle {
			t.Errorf("state %d: b may ask a: %v", c.state, ok)
		}
	}
}

// Where nobody can be asked whether somebody still waits, he counts as waiting: what nodes ask that know no probes.
func TestWhatAnOlderNodeSaysCounts(t *testing.T) {
	t.Parallel()
	a, b := event.Unit{Name: "thing", Key: "a"}, event.Unit{Name: "thing", Key: "b"}
	for _, id := range []transport.PeerAskID{{}, {Node: 7, Number: 1}} {
		var w waits
		w.node = 1
		w.mustAdd(t, chainOf([]event.Unit{a}, b, &ask{}, id))
		back := &wait{by: b, on: a, far: true}
		if _, ok := w.add(back); ok != (id != transport.PeerAskID{}) {
			t.Errorf("%v: b may ask a: %v", id, ok)
		}
		w.remove(back)
		far := &wait{by: b, on: event.Unit{Name: "thing", Key: "c"}, far: true}
		w.mustAdd(t, far)
		out, ok := w.add(chainOf([]event.Unit{{Name: "thing", Key: "c"}, b, a}, b, &ask{}, id))
		if ok != (id != transport.PeerAskID{}) || len(out) != map[bool]int{true: 1}[ok] {
			t.Errorf("%v: c may ask b: %v, and probes are sent: %v", id, ok, out)
		}
	}
}

// One call carries what is small, however many probes that are.
func TestProbesAreSentInCallsOfABoundedSize(t *testing.T) {
	t.Parallel()
	var p probing
	long := transport.PeerProbe{Way: make([]transport.PeerStep, mostProbeHops)}
	p.mu.unsent = map[string][]transport.PeerProbe{"b": slices.Repeat([]transport.PeerProbe{long}, 300)}
	var got []int
	for some := p.take("b"); len(some) > 0; some = p.take("b") {
		got = append(got, len(some))
	}
	if !slices.Equal(got, []int{128, 128, 44}) || len(p.mu.unsent) != 0 {
		t.Errorf("probes of %d steps are sent as %v, and left is %d", mostProbeHops, got, len(p.mu.unsent))
	}
}

// Whom an ask has behind it costs as much as there are, however many others wait for one another.
func TestWhoIsBehindCostsNoLookAtAllOthers(t *testing.T) {
	unit := func(i int) event.Unit { return event.Unit{Name: "thing", Key: strconv.Itoa(i)} }
	var w waits
	turn := func() *ask {
		k := &ask{answer: make(chan answer, 1)}
		k.state.Store(askBegun)
		return k
	}
	w.mustAdd(t, &wait{by: unit(1), on: unit(2), ask: turn()})
	w.mustAdd(t, &wait{by: unit(2), on: unit(3), ask: turn()})
	var others []*wait
	fill := func(to int) {
		for i := len(others); i < to; i++ {
			others = append(others, &wait{by: unit(1000 + 2*i), on: unit(1001 + 2*i), ask: turn()})
			w.mustAdd(t, others[i])
		}
	}
	var got []event.Unit
	fastest := func() time.Duration { // of some runs: others use the processor as well
		best := time.Hour
		for range 50 {
			began := time.Now()
			got = w.behind(unit(3))
			best = min(best, time.Since(began))
		}
		return best
	}
	fill(100)
	few := fastest()
	fill(50_000)
	if many := fastest(); many > 20*few+20*time.Microsecond {
		t.Errorf("it takes %v beside a hundred others, and %v beside %d", few, many, len(others))
	}
	if want := []event.Unit{unit(3), unit(2), unit(1)}; !slices.Equal(got, want) {
		t.Errorf("behind it are %v, want %v", got, want)
	}
	for _, other := range others {
		w.remove(other)
	}
	if len(w.mu.by) != 2 || len(w.mu.on) != 2 {
		t.Errorf("of what is removed, %d and %d are left", len(w.mu.by)-2, len(w.mu.on)-2)
	}
}

// Asks of which each waits for a unit that waits for nobody are looked at, and no more: there are many where one unit is slow, and all of it is under one lock.
func TestAsksOfAUnitThatWaitsForNobodyAreNotFollowed(t *testing.T) {
	unit := func(i int) event.Unit { return event.Unit{Name: "thing", Key: strconv.Itoa(i)} }
	var w waits
	for i := range 1000 {
		w.mustAdd(t, &wait{by: unit(i + 1), on: unit(0), ask: &ask{answer: make(chan answer, 1)}})
	}
	w.mustAdd(t, chainOf([]event.Unit{unit(2000)}, unit(2001), &ask{answer: make(chan answer, 1)}, transport.PeerAskID{Node: 7, Number: 1}))
	if n := testing.AllocsPerRun(20, func() { w.sweep() }); n > 10 {
		t.Errorf("a sweep takes %v allocations", n)
	}
}
