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
