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
		case l == j.lane && seq == j.seq && j.dead:
			if r.failed == 0 {
				w.fail("%s: %s #%d is set aside and never failed", u.id, l.ref, seq)
			}
			r.dead = true
		case l == j.lane && seq == j.seq:
			if seq <= l.applied {
				w.fail("%s: %s #%d is applied after #%d", u.id, l.ref, seq, l.applied)
			}
			l.applied = seq
		case r.kind != "ignored" && r.kind != "void" && !r.dead && seq > l.applied:
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
	case r.failed == 0:
		w.fail("%s halts at %s #%d, which never failed", u.id, l.ref, f.Sequence)
	}
}

// atTheEnd checks that nothing is left undone.
func (w *world) atTheEnd() {
	for _, u := range w.units {
		for _, l := range u.lanes {
			if tail := event.Sequence(len(l.records)); l.checkpoint < tail {
				w.fail("%s is stuck: %s is at #%d of %d", u.id, l.ref, l.checkpoint, tail)
			}
		}
	}
	if !w.settled() {
		w.fail("not everything was given up")
	}
}
