package sim

import (
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// visit is user code of a unit that is inside: of an entry, of an ask, or of a hook.
type visit struct {
	actor *actor
	owner int
	lane  *lane
	seq   event.Sequence // 0 = not of an entry
}

// enter checks that user code may run here and now, and notes that it does.
func (w *world) enter(a *actor, l *lane, seq event.Sequence) *visit {
	u := a.unit
	v := &visit{actor: a, owner: a.node.owner, lane: l, seq: seq}
	for _, other := range u.visits {
		switch {
		case other.owner == v.owner:
			w.fail("%s: two behaviors are inside on node %s, #%d and #%d", u.id, a.node.name, other.seq, seq)
		case other.actor.m.Machine.Serving(w.now):
			w.fail("%s: behaviors are inside on nodes %s (#%d) and %s (#%d), both under valid leases", u.id, other.actor.node.name, other.seq, a.node.name, seq)
		}
	}
	u.visits = append(u.visits, v)
	return v
}

func (w *world) leave(u *unit, v *visit) {
	for i, other := range u.visits {
		if other == v {
			u.visits = append(u.visits[:i], u.visits[i+1:]...)
			return
		}
	}
}

// watchServing checks that a unit is served by one node at most.
func (w *world) watchServing(u *unit) {
	var who *node
	for _, n := range w.nodes {
		if a := n.actors[u.number]; a != nil && a.m.Machine.Serving(w.now) {
			if who != nil {
				w.fail("%s is served by nodes %s and %s", u.id, who.name, n.name)
			}
			who = n
		}
	}
}

// watchCommit checks a unit of work that is about to be made durable.
func (w *world) watchCommit(u *unit, j work) {
	switch {
	case w.scene.Without == Compare: // with the fence in place it is hard to see: see the scene's rules
	case w.scene.Leased && j.gen < u.recovered:
		w.fail("%s: a stale owner commits at %d, the unit was recovered at %d", u.id, j.gen, u.recovered)
	case !w.scene.Leased && j.gen != w.storeGen:
		w.fail("%s: a stale process commits at %d, the store is at %d", u.id, j.gen, w.storeGen)
	}
	if j.counted != 0 && j.counted != u.work+1 {
		w.fail("%s: the instance has counted %d units of work, with this one, and the store %d", u.id, j.counted, u.work+1)
	}
	if j.halt != nil {
		w.watchHalt(u, j.halt)
	}
	w.watchAsides(u, j)
	for _, mv := range j.moves {
		w.watchMove(u, j, mv)
	}
}

// watchMove checks that nothing that was to be applied is skipped, and nothing is applied twice.
func (w *world) watchMove(u *unit, j work, mv partitions.Move) {
	l := u.lane(mv.Lane)
	for seq := mv.From + 1; seq <= mv.To; seq++ {
		r := l.records[seq-1]
		switch {
		case l == j.lane && seq == j.seq:
			if len(u.parkedOf(l.ref.Category)) > 0 {
				w.fail("%s: %s #%d is applied past what is parked", u.id, l.ref, seq)
			}
			w.watchApplied(u, l, seq)
		case j.setsAside(l.ref, seq):
		case r.kind != "ignored" && r.kind != "void" && !r.dead && !r.skipped && !r.parked && seq > l.applied:
			w.fail("%s: %s #%d (%s) is skipped", u.id, l.ref, seq, r.kind)
		}
	}
}

// watchHalt checks that a unit halts only where something failed.
func (w *world) watchHalt(u *unit, f *partitions.Failure) {
	l := u.lane(f.Lane)
	switch r := l.records[f.Sequence-1]; {
	case f.Reason == "missing":
		w.fail("%s halts: %s #%d is missing", u.id, l.ref, f.Sequence)
	case f.Reason == "too many parked":
		w.seen[f.Reason]++
		if u.most < w.cfg[0][index(u.entity)].MaxParked { // there may be fewer by now: a person was quicker
			w.fail("%s halts at %s #%d for %d parked", u.id, l.ref, f.Sequence, u.most)
		}
	default:
		w.watchFailure(u, f, r)
	}
}

// watchFailure checks that nothing is given up on that has not failed, and nobody condemned for a crash of others.
func (w *world) watchFailure(u *unit, f *partitions.Failure, r *record) {
	w.seen[f.Reason]++
	switch most := w.cfg[0][index(u.entity)].MaxCrashes; {
	case f.Reason == "needs a newer program" && r.kind == "newer":
	case f.Reason != "crashed the process":
		if r.failed == 0 {
			w.fail("%s gives up on %s #%d, which never failed", u.id, f.Lane, f.Sequence)
		}
	case r.crashes == 0 && r.alone+w.stillAlone(r) < most:
		w.fail("%s condemns %s #%d, which was alone in %d crashes", u.id, f.Lane, f.Sequence, r.alone)
	}
}

// stillAlone counts the nodes on which a record is alone as far as they know, though its unit may have another owner by now.
func (w *world) stillAlone(r *record) (n int) {
	for _, node := range w.nodes {
		if node.alone != nil && node.alone.next == r {
			n++
		}
	}
	return n
}

// disturb: of what was known of attempts in a unit something was lost, or another entry is next.
func (w *world) disturb(u *unit) {
	u.disturbed, u.missed = w.now, 0
	for _, l := range u.lanes {
		for _, r := range l.records {
			r.calmly = 0
		}
	}
}

// watchCrash checks that what ends the process is condemned. In a unit that is not disturbed and does not get on it does that as often as it may, and once before it is suspected at
// all, and, unless it was set aside, once when it is suspected for the first time and others are beside it. What says that the unit was left unclean may be lost: an
// acquisition that comes so late that its owner has had another answer since, and knows of nothing that it might have missed.
func (w *world) watchCrash(u *unit, r *record, j work, began partitions.Tick) {
	r.crashes++
	most := w.cfg[0][index(u.entity)].MaxCrashes + 1 + u.missed
	if j.aside != nil {
		w.seen["aside crash"]++
	} else {
		most++
	}
	if w.calm && began > max(u.disturbed, w.amnesty) {
		r.calmly++
	}
	if r.calmly > most {
		w.fail("%s: %s #%d ends the process for the %d. time", u.id, j.lane.ref, j.seq, r.calmly)
	}
}

// watchApplied checks effects of a lane: in order, and none twice.
func (w *world) watchApplied(u *unit, l *lane, seq event.Sequence) {
	if seq <= l.applied {
		w.fail("%s: %s #%d is applied after #%d", u.id, l.ref, seq, l.applied)
	}
	l.applied = seq
	w.countApplied(u, l, seq)
}

func (w *world) countApplied(u *unit, l *lane, seq event.Sequence) {
	r := l.records[seq-1]
	if r.applied++; r.applied > 1 || r.skipped {
		w.fail("%s: %s #%d is applied %d times, skipped is %t", u.id, l.ref, seq, r.applied, r.skipped)
	}
}

// atTheEnd checks that nothing is left undone.
func (w *world) atTheEnd() {
	for _, u := range w.units {
		if len(u.parked) > 0 {
			w.fail("%s is stuck: it has %d parked", u.id, len(u.parked))
		}
		for _, l := range u.lanes {
			if tail := event.Sequence(len(l.records)); l.checkpoint < tail {
				w.fail("%s is stuck: %s is at #%d of %d", u.id, l.ref, l.checkpoint, tail)
			}
			for i, r := range l.records {
				if handled := r.kind != "ignored" && r.kind != "void"; handled && r.applied+index(r.dead)+index(r.skipped) != 1 {
					w.fail("%s: %s #%d (%s) is applied %d times, a dead letter is %t, skipped is %t", u.id, l.ref, i+1, r.kind, r.applied, r.dead, r.skipped)
				}
			}
		}
	}
	if !w.settled() {
		w.fail("not everything was given up")
	}
}
