package sim

import (
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// The store: unit rows, checkpoints, halts, what is known of attempts, and the effects of behaviors. All of its calls are atomic.

// work is a unit of work of one unit.
type work struct {
	gen    event.Generation
	moves  []partitions.Move
	lane   *lane          // of the entry that was applied, or set aside; nil where none was
	seq    event.Sequence // likewise
	dead   *partitions.Failure
	halt   *partitions.Failure
	parked []partitions.Failure
	aside  *partitions.AsideRef // what was set aside and is applied, or settled
	stays  *partitions.Failure  // it stays set aside
	tried  *partitions.Tried

	suspicions *int // of what was set aside: nothing else happens to it
	untry      bool
	counted    int // by the instance, with this one; 0 = no behavior ran
}

func (w *world) recover(u *unit, e *partitions.Recover) partitions.RecoverDone {
	in := partitions.RecoverDone{Generation: u.row, Halt: u.halted(), Paused: u.paused, Due: u.isDue() && w.scene.Without != Due}
	switch {
	case !w.scene.Leased && e.Generation != w.storeGen:
		return partitions.RecoverDone{Outcome: partitions.Failed}
	case !w.scene.Leased:
	case w.scene.Without == Raise:
		in.Raised = true
	case u.row < e.Generation:
		u.row, in.Raised = e.Generation, true
	default:
		return in
	}
	if e.Generation < u.recovered {
		w.fail("%s is recovered at %d after %d", u.id, e.Generation, u.recovered)
	}
	u.recovered = max(u.recovered, e.Generation)
	for _, l := range u.lanes {
		in.Checkpoints = append(in.Checkpoints, event.Position{Lane: l.ref, Sequence: l.checkpoint})
	}
	if w.scene.Without != Park {
		in.Parked = u.parkedIn()
	}
	if t := u.tried; t != nil && t.Sequence > u.lane(t.Lane).checkpoint {
		known := *t
		known.Again = 0
		in.Tried = &known
	}
	return in
}

// commit makes a unit of work durable, or nothing of it.
func (w *world) commit(u *unit, j work) partitions.Outcome {
	if !w.fenced(u, j.gen) {
		return partitions.Stale
	}
	for _, mv := range j.moves {
		if l := u.lane(mv.Lane); l.checkpoint != mv.From && w.scene.Without != Compare {
			return partitions.Moved
		}
	}
	if !w.asidesAgree(u, j) {
		return partitions.Moved
	}
	if u.entity && j.counted != 0 && j.counted != u.work+1 {
		return partitions.Failed // version conflict
	}
	w.watchCommit(u, j)
	for _, mv := range j.moves {
		u.lane(mv.Lane).checkpoint = mv.To
	}
	if j.counted != 0 {
		u.work++
	}
	w.setAside(u, j)
	if j.tried == nil && j.suspicions == nil {
		w.disturb(u)
	}
	switch {
	case j.untry:
		u.tried = nil
	case j.tried != nil:
		w.try(u, j.tried)
	}
	if j.halt != nil && j.halt.Sequence > u.lane(j.halt.Lane).checkpoint {
		u.halt = j.halt
	}
	return partitions.OK
}

// fenced reports whether a commit at this generation is let through.
func (w *world) fenced(u *unit, gen event.Generation) bool {
	switch {
	case w.scene.Without == Fence || w.scene.Without == Compare:
		return true
	case !w.scene.Leased:
		return gen == w.storeGen
	case w.scene.Without == Raise: // as a design without it would do
		if gen < u.row {
			return false
		}
		u.row = gen
		return true
	}
	return gen == u.row
}

// halted gives the unit's halt. One at or below the checkpoint, from a commit that came through late, is void.
func (u *unit) halted() *partitions.Failure {
	if u.halt == nil || u.halt.Sequence <= u.lane(u.halt.Lane).checkpoint {
		return nil
	}
	return u.halt
}

func (u *unit) lane(ref event.LaneRef) *lane {
	for _, l := range u.lanes {
		if l.ref == ref {
			return l
		}
	}
	return nil
}

// try takes the place of what was known of attempts.
func (w *world) try(u *unit, t *partitions.Tried) {
	row := *t
	if old := u.tried; old != nil && old.Lane == row.Lane && old.Sequence == row.Sequence && w.scene.Without == TakeBack {
		row.Suspicions, row.Alone = max(row.Suspicions, old.Suspicions), max(row.Alone, old.Alone)
	}
	if w.scene.Without == Count {
		row.Suspicions, row.Alone = 0, 0
	}
	u.tried = &row
}

func duration(t partitions.Tick) time.Duration { return time.Duration(t) }
