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
		noted, ok := w.add(t.Context(), &wait{by: a, behavior: by, on: b})
		if !ok {
			t.Fatalf("%s: refused without a circle", name)
		}
		if _, ok := w.add(t.Context(), &wait{by: b, behavior: call(b), on: a}); ok {
			t.Errorf("%s: a circle was not seen", name)
		}
		end(&ask{answer: make(chan answer, 1), waits: &w, wait: noted}, by)
		if _, ok := w.add(t.Context(), &wait{by: b, behavior: call(b), on: a}); !ok {
			t.Errorf("%s: a circle was seen where nobody waits", name)
		}
	}
}
