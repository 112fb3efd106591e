package sim

import (
	"time"

	"github.com/keyhold/keyhold/partitions"
)

// waits reports whether the unit waits for a person: one who sees that it was paused, has halted, or could not apply what it parked.
func (u *unit) waits() bool {
	if u.halted() != nil || u.paused {
		return true
	}
	if len(u.parked) == 0 {
		return false
	}
	first := u.parked[0]
	return !first.due && first.reason != ""
}

// act is a person who deals with a unit. An act is one commit that nobody fences: it may come between any two of the unit's.
func (w *world) act(u *unit) {
	switch {
	case u.paused:
		w.tell("person: %s goes on", u.id)
		u.paused = false
	case u.halted() != nil:
		w.actOnHalt(u)
	case len(u.parked) > 0 && (u.waits() || w.rng.IntN(3) == 0):
		w.actOnParked(u)
	case !w.calm && w.rng.IntN(3) == 0:
		w.tell("person: %s is paused", u.id)
		u.paused = true
	case len(u.dead) > 0:
		w.replay(u)
	default:
		return
	}
	w.disturb(u)
	u.busy = u.busy || u.reads()
	for _, n := range w.nodes {
		if n.up {
			n.deliver(func() { n.acted(u) })
		}
	}
}

func (w *world) actOnHalt(u *unit) {
	f := u.halt
	l, r := u.lane(f.Lane), u.record(f.Lane, f.Sequence)
	switch pick := w.rng.IntN(5); {
	case pick == 0 && !w.calm:
		w.tell("person: %s is to try %s #%d again", u.id, l.ref, f.Sequence)
	case pick == 1:
		w.tell("person: %s skips %s #%d", u.id, l.ref, f.Sequence)
		l.checkpoint, r.skipped = f.Sequence, true
	case pick == 2:
		w.tell("person: %s makes %s #%d a dead letter", u.id, l.ref, f.Sequence)
		l.checkpoint = f.Sequence
		u.bury(&aside{AsideRef: partitions.AsideRef{Dead: true, Lane: f.Lane, Sequence: f.Sequence}, rec: r, attempts: f.Attempts})
	default:
		w.mend(u, r)
	}
	u.halt, u.tried = nil, nil
}

func (w *world) actOnParked(u *unit) {
	a := u.parked[0]
	switch pick := w.rng.IntN(5); {
	case pick == 0 && !w.calm:
		w.tell("person: %s is to try %s again", u.id, &a.AsideRef)
		a.makeDue()
	case pick == 1:
		w.tell("person: %s skips %s", u.id, &a.AsideRef)
		a.rec.skipped = true
		u.dropFirst()
	case pick == 2:
		w.tell("person: %s makes %s a dead letter", u.id, &a.AsideRef)
		u.dropFirst()
		u.bury(&aside{AsideRef: partitions.AsideRef{Dead: true, Lane: a.Lane, Sequence: a.Sequence}, rec: a.rec, attempts: a.attempts})
	default:
		w.mend(u, a.rec)
		a.makeDue()
	}
	if a.due && w.chance(2) { // and thinks better of it
		w.after(w.between(time.Millisecond, time.Second), func() { w.act(u) })
	}
	u.tried = nil
}

// mend does away with what made a record fail.
func (w *world) mend(u *unit, r *record) {
	w.tell("person: %s is mended", u.id)
	if r.kind != "ignored" && r.kind != "void" {
		r.kind = "placed"
	}
}

// replay hands out dead letters, some of which were mended.
func (w *world) replay(u *unit) {
	w.tell("person: %s applies its dead letters", u.id)
	for _, a := range u.dead {
		a.makeDue()
		if w.rng.IntN(2) == 0 {
			w.mend(u, a.rec)
		}
	}
}
