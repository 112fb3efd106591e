package actors

import (
	"slices"
	"sync"

	"github.com/keyhold/keyhold/event"
)

// waits knows which units wait for an answer of which others, so that an ask which would close a circle is refused instead of
// waiting for itself. It is touched only where a behavior asks.
type waits struct {
	mu struct {
		sync.Mutex
		by map[event.Unit][]*wait
	}
}

// wait is a behavior that waits for a unit.
type wait struct {
	behavior *attempt
	on       event.Unit
}

// add notes that a behavior is about to wait for a unit; false, and nothing is noted, when that unit is waiting for the behavior's,
// directly or through others. Looking and noting are one step: of several asks that would close a circle together, exactly the
// last is refused.
func (w *waits) add(a *attempt, on event.Unit) (*wait, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := a.unit()
	if w.reachesLocked(on, by, map[event.Unit]bool{}) {
		return nil, false
	}
	if w.mu.by == nil {
		w.mu.by = map[event.Unit][]*wait{}
	}
	added := &wait{behavior: a, on: on}
	w.mu.by[by] = append(w.mu.by[by], added)
	return added, true
}

// remove forgets a wait that is over, if it is still known. An answer is given only after its wait was removed: from then on
// the one who answered may ask the one who asked.
func (w *waits) remove(gone *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := gone.behavior.unit()
	left := slices.DeleteFunc(w.mu.by[by], func(other *wait) bool { return other == gone })
	if len(left) == 0 {
		delete(w.mu.by, by)
	} else {
		w.mu.by[by] = left
	}
}

// reachesLocked reports whether a unit is another, or waits for it. What a behavior that has returned left waiting holds up nobody.
func (w *waits) reachesLocked(from, to event.Unit, seen map[event.Unit]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(w.mu.by[from], func(next *wait) bool {
		return !next.behavior.isOver() && w.reachesLocked(next.on, to, seen)
	})
}
