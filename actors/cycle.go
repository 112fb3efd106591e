package actors

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
)

// waits knows which units wait for an answer of which others, so that an ask which would close a circle is refused instead of
// waiting for itself: those of this node, and those of others that what is asked here has behind it. It is touched only where a
// behavior asks, here or elsewhere.
type waits struct {
	mu struct {
		sync.Mutex
		by      map[event.Unit][]*wait
		changed chan struct{} // closed when a wait is forgotten; nil = nobody looks
	}
}

// wait is a unit that waits for another.
type wait struct {
	by       event.Unit
	behavior *attempt // of by; nil for a unit elsewhere
	on       event.Unit
	far      bool  // on is asked at another node, where the wait ends a little earlier than here
	next     *wait // that goes with it
}

// chainOf makes waits of units elsewhere of which each waits for an answer of on, directly or through others; nil for none.
func chainOf(by []event.Unit, on event.Unit) (first *wait) {
	for _, u := range by {
		first = &wait{by: u, on: on, next: first}
	}
	return first
}

// underWay is how long an answer of another node may take to be noticed here, at most, once its entity does something else.
const underWay = 100 * time.Millisecond

// over reports whether it holds up nobody any more, although it is still noted: its behavior has returned.
func (w *wait) over() bool { return w.behavior != nil && w.behavior.isOver() }

// add notes that units, usually one behavior's, are about to wait for a unit; false, and nothing is noted, when that unit is waiting for one of them,
// directly or through others. Looking and noting are one step: of several asks that would close a circle together, exactly the
// last is refused. Where the circle leads through an answer of another node, that may be on its way, it looks again for a moment.
func (w *waits) add(ctx context.Context, first *wait) (*wait, bool) {
	if first == nil {
		return nil, true
	}
	verdict, changed := w.note(first)
	if verdict != circleMayOpen {
		return first, verdict == noCircle
	}
	patience := time.NewTimer(underWay)
	defer patience.Stop()
	for {
		select {
		case <-changed:
		case <-patience.C:
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
		if verdict, changed = w.note(first); verdict != circleMayOpen {
			return first, verdict == noCircle
		}
	}
}

// circle is what a wait would close.
type circle uint8

const (
	noCircle circle = iota
	circleMayOpen
	circleHolds
)

// note notes waits for one unit unless they would close a circle. changed is closed when one may have opened.
func (w *waits) note(first *wait) (_ circle, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	near, all := map[event.Unit]bool{}, map[event.Unit]bool{}
	w.followLocked(first.on, near, false)
	w.followLocked(first.on, all, true)
	verdict := noCircle
	for added := first; added != nil; added = added.next {
		switch {
		case near[added.by]:
			return circleHolds, nil
		case all[added.by]:
			verdict = circleMayOpen
		}
	}
	if verdict == circleMayOpen {
		if w.mu.changed == nil {
			w.mu.changed = make(chan struct{})
		}
		return verdict, w.mu.changed
	}
	if w.mu.by == nil {
		w.mu.by = map[event.Unit][]*wait{}
	}
	for added := first; added != nil; added = added.next {
		w.mu.by[added.by] = append(w.mu.by[added.by], added)
	}
	return noCircle, nil
}

// remove forgets a wait that is over, and what goes with it, if it is still known. An answer is given only after its wait was
// removed: from then on the one who answered may ask the one who asked.
func (w *waits) remove(first *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.changed != nil {
		close(w.mu.changed)
		w.mu.changed = nil
	}
	for gone := first; gone != nil; gone = gone.next {
		left := slices.DeleteFunc(w.mu.by[gone.by], func(other *wait) bool { return other == gone })
		if len(left) == 0 {
			delete(w.mu.by, gone.by)
		} else {
			w.mu.by[gone.by] = left
		}
	}
}

// followLocked adds a unit to seen, and all that it waits for, directly or through others. What a behavior that has returned left
// waiting holds up nobody. Without far it does not follow waits for what other nodes have.
func (w *waits) followLocked(from event.Unit, seen map[event.Unit]bool, far bool) {
	if seen[from] {
		return
	}
	seen[from] = true
	for _, next := range w.mu.by[from] {
		if !next.over() && (far || !next.far) {
			w.followLocked(next.on, seen, far)
		}
	}
}

// behind gives a unit, and after it all that wait for it, directly or through others, the nearest first.
func (w *waits) behind(u event.Unit) []event.Unit {
	w.mu.Lock()
	defer w.mu.Unlock()
	on := map[event.Unit][]event.Unit{}
	for by, all := range w.mu.by {
		for _, next := range all {
			if !next.over() {
				on[next.on] = append(on[next.on], by)
			}
		}
	}
	chain, seen := []event.Unit{u}, map[event.Unit]bool{u: true}
	for i := 0; i < len(chain); i++ {
		by := on[chain[i]]
		slices.SortFunc(by, func(a, b event.Unit) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
		for _, next := range by {
			if !seen[next] {
				seen[next], chain = true, append(chain, next)
			}
		}
	}
	return chain
}
