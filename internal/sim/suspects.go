package sim

import (
	"time"

	"github.com/keyhold/keyhold/partitions"
)

// A node lets suspects run beside one another until one is to be alone.

// free reports whether a suspect of a may begin now, alone or not.
func (n *node) free(a *actor, alone bool) bool {
	if n.alone != nil && n.alone != a {
		return false
	}
	if alone {
		for _, r := range n.suspects {
			if r.actor != a {
				return false
			}
		}
	}
	return true
}

// companion ends being alone when the machine asks for something else.
func (n *node) companion(a *actor, e partitions.Effect) {
	if n.alone != a {
		return
	}
	switch e := e.(type) {
	case *partitions.WriteTried, *partitions.SuspectAside, *partitions.Discard, *partitions.Cancel, *partitions.SetTimer, *partitions.Note:
	case *partitions.Apply:
		if !e.Alone {
			n.alone = nil
		}
	default:
		n.alone = nil
	}
}

// writeTried commits what is known of attempts, alone where it counts that.
func (n *node) writeTried(a *actor, e *partitions.WriteTried) {
	row := *e.Tried
	if e.Alone {
		a.next = a.unit.record(row.Lane, row.Sequence)
		if n.w.scene.Without != Alone {
			if !n.free(a, true) {
				n.later(50*time.Millisecond, func() { n.step(a, partitions.WriteTriedDone{Outcome: partitions.Failed}) })
				return
			}
			n.alone = a
		}
	}
	alone, rec := e.Alone, a.unit.record(row.Lane, row.Sequence)
	n.commit(a, work{gen: e.Generation, tried: &row}, func(o partitions.Outcome) partitions.Input {
		rec.counted(alone, o)
		return partitions.WriteTriedDone{Outcome: o}
	})
}

// suspectAside is the same for what was set aside.
func (n *node) suspectAside(a *actor, e *partitions.SuspectAside) {
	of, suspicions := e.Aside, e.Suspicions
	if e.Alone {
		a.next = a.unit.record(of.Lane, of.Sequence)
		if n.w.scene.Without != Alone {
			if !n.free(a, true) {
				n.later(50*time.Millisecond, func() { n.step(a, partitions.SuspectAsideDone{Outcome: partitions.Failed}) })
				return
			}
			n.alone = a
		}
	}
	alone, rec := e.Alone, a.unit.record(of.Lane, of.Sequence)
	n.commit(a, work{gen: e.Generation, aside: &of, suspicions: &suspicions}, func(o partitions.Outcome) partitions.Input {
		rec.counted(alone, o)
		return partitions.SuspectAsideDone{Outcome: o}
	})
}

// counted: what was counted may stand although nothing runs, where nobody knows whether it was, or it could not be taken back. The unit may be lost before it is.
func (r *record) counted(alone bool, o partitions.Outcome) {
	if o == partitions.Unknown || o != partitions.OK && !alone {
		r.alone++
	}
}

// whenItMay runs a suspect when nobody keeps it from it. Given up before, it has never begun.
func (n *node) whenItMay(a *actor, alone bool, run func()) {
	if n.free(a, alone) {
		if alone {
			n.alone = a
		}
		run()
		return
	}
	cancelled := false
	a.cancel = func() { cancelled = true }
	n.later(20*time.Millisecond, func() {
		if cancelled {
			n.step(a, partitions.ApplyDone{Outcome: partitions.Failed, Err: errTransient})
			return
		}
		n.whenItMay(a, alone, run)
	})
}

// blame notes whose crash the end of a process was, for the oracle: that of the one that was alone with it.
func (n *node) blame() {
	n.each(func(a *actor) {
		if a.next != nil && (n.alone == a && n.free(a, true) || a.doubt) {
			a.next.alone++
		}
	})
	n.suspects, n.alone = nil, nil
}
