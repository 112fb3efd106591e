package sim

import (
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// run is user code on its way through: from entering the behavior to the answer.
type run struct {
	actor    *actor
	visit    *visit
	obeys    bool // a cancelled context
	returned bool // from the behavior; its commit may still be under way
	answered bool
}

const hangs = 6 * time.Second // that much beyond its time, a behavior is reported

// enter starts user code. Its instance counts right away what it is going to commit: memory is not transactional.
func (n *node) enter(a *actor, fresh bool, l *lane, seq event.Sequence, work int) *run {
	w := n.w
	if a.instance == nil || fresh && w.scene.Without != Discard {
		a.instance = &instance{counted: a.unit.work}
	}
	a.instance.counted += work
	r := &run{actor: a, visit: w.enter(a, l, seq), obeys: w.rng.IntN(3) > 0}
	n.later(hangs, func() {
		if !r.returned && !r.answered {
			n.step(a, partitions.Hung{})
		}
	})
	return r
}

// takes is how long user code works.
func (w *world) takes() time.Duration {
	if w.chance(10) {
		return w.between(time.Second, 2*ttl)
	}
	return w.between(time.Millisecond, 300*time.Millisecond)
}

// done answers for user code that has returned, once.
func (n *node) done(r *run, in partitions.Input) {
	r.returned = true
	n.suspects = slices.DeleteFunc(n.suspects, func(other *run) bool { return other == r })
	n.w.leave(r.actor.unit, r.visit)
	if !r.answered {
		r.answered = true
		n.step(r.actor, in)
	}
}

// onCancel says what a cancelled context does: the code comes back early, if it obeys and has not got to its commit.
func (n *node) onCancel(r *run, cut func() partitions.Input) {
	r.actor.cancel = func() {
		switch {
		case n.w.scene.Without == Return:
			n.later(0, func() { // answered for code that is still inside
				if !r.answered {
					r.answered = true
					n.step(r.actor, cut())
				}
			})
		case r.obeys:
			n.later(10*time.Millisecond, func() {
				if !r.returned {
					n.done(r, cut())
				}
			})
		}
	}
}

// apply runs the behavior with an entry.
func (n *node) apply(a *actor, e *partitions.Apply) {
	l, seq := a.unit.lane(e.Entry.Ref()), e.Entry.Sequence
	rec := l.records[seq-1]
	j := work{gen: e.Generation, moves: slices.Clone(e.Moves), lane: l, seq: seq, untry: e.Untry}
	if e.Aside != nil {
		of := *e.Aside
		j.aside = &of
	}
	fresh, suspect := e.Fresh, e.Suspect
	if !suspect {
		n.run(a, rec, fresh, false, j)
		return
	}
	n.whenItMay(a, e.Alone, func() { n.run(a, rec, fresh, true, j) })
}

// run runs the behavior, whose turn it is.
func (n *node) run(a *actor, rec *record, fresh, suspect bool, j work) {
	w := n.w
	if w.scene.Without == Checkpoint && j.aside == nil {
		w.trim(j.lane, j.seq)
	}
	r := n.enter(a, fresh, j.lane, j.seq, 1)
	if suspect {
		n.suspects = append(n.suspects, r)
	}
	n.onCancel(r, func() partitions.Input {
		rec.failed++
		return partitions.ApplyDone{Outcome: partitions.Failed, Err: errTransient}
	})
	j.counted = a.instance.counted
	began := w.now
	n.later(w.takes(), func() {
		if r.returned {
			return
		}
		if rec.kind == "crash" || rec.kind == "trap" && j.aside != nil {
			w.tell("%s: %s #%d ends the process", n.name, j.lane.ref, j.seq)
			w.watchCrash(a.unit, rec, j, began)
			n.crash(w.between(time.Millisecond, 5*time.Second))
			return
		}
		if in, failed := n.fails(rec); failed {
			n.done(r, in)
			return
		}
		r.returned = true
		n.commitRun(r, j, func(o partitions.Outcome) partitions.Input {
			switch {
			case o == partitions.Failed:
				rec.failed++
			case o == partitions.Unknown && suspect:
				rec.alone++ // what was counted may stand: its owner may lose the unit, or end, before it can take that back
			}
			return partitions.ApplyDone{Outcome: o, Err: errTransient}
		})
	})
}

// fails decides how the behavior gets on with a record.
func (n *node) fails(rec *record) (partitions.ApplyDone, bool) {
	in := partitions.ApplyDone{Outcome: partitions.Failed, Err: errTransient}
	switch {
	case rec.kind == "poison" || rec.kind == "trap":
		in.Class = partitions.Poison
	case rec.kind == "flaky" && rec.fails > 0:
		rec.fails--
	case n.w.chance(20):
	default:
		return in, false
	}
	rec.failed++
	return in, true
}

// commitRun commits what user code that has returned has done, and answers for it.
func (n *node) commitRun(r *run, j work, done func(partitions.Outcome) partitions.Input) {
	w, u := n.w, r.actor.unit
	there, back := w.latency(), w.latency()
	answer := func(o partitions.Outcome) { n.later(back, func() { n.done(r, done(o)) }) }
	switch {
	case w.chance(20):
		answer(partitions.Failed)
	case w.chance(20):
		w.after(there, func() { w.commit(u, j); answer(partitions.Unknown) })
	case w.scene.Leased && w.chance(30):
		answer(partitions.Unknown)
		w.after(w.between(time.Millisecond, ttl), func() { w.commit(u, j) })
	default:
		w.after(there, func() { answer(w.commit(u, j)) })
	}
}

// serve answers the asks that wait, in one go. Some are rejected, which changes nothing.
func (n *node) serve(a *actor, e *partitions.Serve) {
	w := n.w
	asks, work := a.asks, 0
	a.asks = 0
	if asks > 0 && w.rng.IntN(4) > 0 {
		work = 1
	}
	r := n.enter(a, e.Fresh, nil, 0, work)
	n.onCancel(r, func() partitions.Input {
		return partitions.ServeDone{Outcome: partitions.Failed, More: a.asks > 0, Err: errTransient}
	})
	j := worked(e.Generation, a.instance.counted)
	n.later(w.takes(), func() {
		switch {
		case r.returned:
		case work == 0:
			n.done(r, partitions.ServeDone{More: a.asks > 0})
		case w.chance(20):
			n.done(r, partitions.ServeDone{Outcome: partitions.Failed, More: a.asks > 0, Err: errTransient})
		default:
			r.returned = true
			n.commitRun(r, j, func(o partitions.Outcome) partitions.Input {
				return partitions.ServeDone{Outcome: o, More: a.asks > 0, Err: errTransient}
			})
		}
	})
}

func worked(gen event.Generation, counted int) work { return work{gen: gen, counted: counted} }
