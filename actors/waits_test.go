package actors

import (
	"testing"

	"github.com/keyhold/keyhold/event"
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
		if !w.add(noted) {
			t.Fatalf("%s: refused without a circle", name)
		}
		if w.add(&wait{by: b, behavior: call(b), on: a}) {
			t.Errorf("%s: a circle was not seen", name)
		}
		end(&ask{answer: make(chan answer, 1), waits: &w, wait: noted}, by)
		if !w.add(&wait{by: b, behavior: call(b), on: a}) {
			t.Errorf("%s: a circle was seen where nobody waits", name)
		}
	}
}

// An ask that was given up, or answered, is noted a little longer. What is asked on behalf of its unit meanwhile must not say that somebody waits behind it: he would be refused there.
func TestNobodyIsBehindAnAskThatIsOver(t *testing.T) {
	t.Parallel()
	a, b := event.Unit{Name: "thing", Key: "a"}, event.Unit{Name: "thing", Key: "b"}
	for _, c := range []struct {
		state  uint32
		behind bool
	}{{askWaiting, false}, {askOpening, true}, {askBegun, true}, {askAnswered, false}, {askLeft, false}} {
		var w waits
		k := &ask{answer: make(chan answer, 1)}
		if !w.add(&wait{by: a, on: b, ask: k}) {
			t.Fatal("refused")
		}
		k.state.Store(c.state)
		if got := len(w.behind(b)) == 2; got != c.behind {
			t.Errorf("state %d: somebody is behind it: %v", c.state, got)
		}
	}
}
