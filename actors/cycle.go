package actors

import (
	"cmp"
	"slices"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// waits knows which units wait for an answer of which others, so that an ask which would close a circle is refused instead of
// waiting for itself: those of this node, and those of others that what is asked here has behind it. It is touched only where a
// behavior asks, here or elsewhere.
//
// That a unit of this node waits is sure. Of one of another node it is hearsay: it may have given up meanwhile. A circle that hearsay is part of, or of which each node sees a part, is found by
// probes, see probe.go.
type waits struct {
	node uint64 // of the ids that are given here

	mu struct {
		sync.Mutex
		by      map[event.Unit][]*wait        // all
		on      map[event.Unit][]*wait        // the same, but for far
		numbers uint64                        // of ids; the newest
		far     int                           // waits that are
		served  map[transport.PeerAskID]*wait // by id, asks of other nodes
		look    func()                        // is called when sweep is to be, a probeEvery later; it does not block. nil = not started
		looking bool                          // look was called, and sweep was not since
		sweeps  uint64
		passed  map[passage]bool // what went on since the last sweep
	}
}

// wait is a unit that waits for another.
type wait struct {
	of       *waits
	by       event.Unit
	behavior *attempt // of by; nil for a unit elsewhere
	on       event.Unit
	far      bool  // on is asked at another node, where the wait ends a little earlier than here
	ask      *ask  // in the mailbox of on, or begun; nil for far
	foreign  bool  // by is a unit of another node
	through  bool  // it is not by that waits for ask, but another that by waits for
	next     *wait // that goes with it

	id   transport.PeerAskID // of the ask; the zero value = the node that asks gives none, nor answers probes
	at   string              // far: the address at which it is asked; "" = in this process, or nowhere yet
	due  uint64              // sweep at which it may send its next probes
	rest uint64              // sweeps until the ones after those
}

// chainOf makes waits of units elsewhere of which each waits for an answer of on, directly or through others; nil for none. The first of them waits for an ask with this id.
func chainOf(by []event.Unit, on event.Unit, k *ask, id transport.PeerAskID) (first *wait) {
	for i, u := range by {
		first = &wait{by: u, on: on, next: first, ask: k, foreign: true, through: i > 0, id: id}
	}
	return first
}

// isHearsay reports whether it may have ended without a word to this node, and a probe can find out. Where none can, it counts as sure: else a circle would last until somebody's time is over.
func (w *wait) isHearsay() bool { return w.foreign && w.id != transport.PeerAskID{} }

// over reports whether it holds up nobody any more, although it is still noted: its behavior has returned, or its ask is answered or given up.
func (w *wait) over() bool {
	return w.behavior != nil && w.behavior.isOver() || w.ask != nil && w.ask.isSettled()
}

// AskedAt implements [transport.PeerWhere].
func (w *wait) AskedAt(address string) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.at = address
}

// add notes that units, usually one behavior's, are about to wait for a unit, and has the ask that they wait for know it; false, and nothing is noted, when that unit is known to wait for one of them,
// directly or through others. Looking and noting are one step: of several asks that would close a circle on this node together, exactly the
// last is refused. Where that unit waits by hearsay, out are the probes that find out, to be sent now. What other nodes were asked meanwhile is left to later ones.
func (w *waits) add(first *wait) (out []dispatch, ok bool) {
	if first == nil {
		return nil, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	sure, suspect := map[event.Unit]bool{}, false
	w.followLocked(first.on, sure, (*wait).isHearsay)
	said := sure
	if len(w.mu.by[first.on]) > 0 && (len(w.mu.served) > 0 || first.isHearsay()) {
		said = map[event.Unit]bool{}
		w.followLocked(first.on, said, func(*wait) bool { return false })
	}
	for added := first; added != nil; added = added.next {
		if sure[added.by] && !added.isHearsay() {
			return nil, false
		}
		suspect = suspect || said[added.by]
	}
	if w.mu.by == nil {
		w.mu.by, w.mu.on, w.mu.served = map[event.Unit][]*wait{}, map[event.Unit][]*wait{}, map[transport.PeerAskID]*wait{}
	}
	for added := first; added != nil; added = added.next {
		w.mu.by[added.by] = append(w.mu.by[added.by], added)
		added.of, added.due, added.rest = w, w.mu.sweeps+2, 1
		if k := added.ask; k != nil {
			k.waits, k.wait = w, first
		}
		switch {
		case !added.foreign:
			w.mu.numbers++
			added.id = transport.PeerAskID{Node: w.node, Number: w.mu.numbers}
		case added.isHearsay() && !added.through:
			w.mu.served[added.id] = added
		}
		if added.far {
			w.mu.far++
		} else {
			w.mu.on[added.on] = append(w.mu.on[added.on], added)
		}
		if suspect {
			out = append(out, w.beginLocked(added)...)
		}
	}
	w.lookLocked()
	return out, true
}

// remove forgets a wait that is over, and what goes with it, if it is still known. An answer is given only after its wait was
// removed: from then on the one who answered may ask the one who asked.
func (w *waits) remove(first *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for gone := first; gone != nil; gone = gone.next {
		if !drop(w.mu.by, gone.by, gone) { // it was forgotten before
			continue
		}
		if gone.far {
			w.mu.far--
		} else {
			drop(w.mu.on, gone.on, gone)
		}
		if w.mu.served[gone.id] == gone {
			delete(w.mu.served, gone.id)
		}
	}
}

// drop takes a wait from those of a unit; false when it is not there.
func drop(from map[event.Unit][]*wait, u event.Unit, gone *wait) bool {
	had := from[u]
	left := slices.DeleteFunc(had, func(other *wait) bool { return other == gone })
	switch len(left) {
	case len(had):
		return false
	case 0:
		delete(from, u)
	default:
		from[u] = left
	}
	return true
}

// followLocked adds a unit to seen, and all that it waits for, directly or through others, but for what another node is asked: its answer
// may be on its way. What a behavior that has returned left waiting holds up nobody.
func (w *waits) followLocked(from event.Unit, seen map[event.Unit]bool, leaveOut func(*wait) bool) {
	if seen[from] {
		return
	}
	seen[from] = true
	for _, next := range w.mu.by[from] {
		if !next.over() && !next.far && !leaveOut(next) {
			w.followLocked(next.on, seen, leaveOut)
		}
	}
}

// behind gives a unit, and after it all whose asks led to what it does now, the nearest first: they wait for it whatever becomes of what else waits in mailboxes.
func (w *waits) behind(u event.Unit) []event.Unit {
	w.mu.Lock()
	defer w.mu.Unlock()
	chain, seen := []event.Unit{u}, map[event.Unit]bool{u: true}
	for i := 0; i < len(chain); i++ {
		var by []event.Unit
		for _, next := range w.mu.on[chain[i]] {
			if !next.over() && (next.ask == nil || next.ask.hasTurn()) {
				by = append(by, next.by)
			}
		}
		slices.SortFunc(by, func(a, b event.Unit) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key)) })
		for _, next := range by {
			if !seen[next] {
				seen[next], chain = true, append(chain, next)
			}
		}
	}
	return chain
}
