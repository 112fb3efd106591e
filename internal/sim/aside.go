package sim

import (
	"cmp"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// What units set aside, as the store has it: a queue of parked entries, of which the first can be due, and dead letters, each of which can be.

// aside is one row.
type aside struct {
	partitions.AsideRef
	rec      *record
	attempts int
	reason   string // "" = it stands behind another
	due      bool

	suspicions int
}

func (u *unit) isDue() bool {
	return len(u.parked) > 0 && u.parked[0].due || slices.ContainsFunc(u.dead, func(a *aside) bool { return a.due })
}

// reads reports whether nothing that the store knows stops the unit.
func (u *unit) reads() bool { return u.halted() == nil && !u.paused }

func (u *unit) parkedOf(category string) []*aside {
	var all []*aside
	for _, a := range u.parked {
		if a.Lane.Category == category {
			all = append(all, a)
		}
	}
	return all
}

func (u *unit) parkedIn() []partitions.Parked {
	var all []partitions.Parked
	for _, a := range u.parked {
		i := slices.IndexFunc(all, func(p partitions.Parked) bool { return p.Category == a.Lane.Category })
		if i < 0 {
			i, all = len(all), append(all, partitions.Parked{Category: a.Lane.Category})
		}
		all[i].Count++
	}
	return all
}

// row gives what a reference names, if it is there and due.
func (u *unit) asideRow(of partitions.AsideRef) *aside {
	switch {
	case of.Dead:
		if i := slices.IndexFunc(u.dead, func(a *aside) bool { return a.AsideRef == of && a.due }); i >= 0 {
			return u.dead[i]
		}
	case len(u.parked) > 0 && u.parked[0].AsideRef == of && u.parked[0].due:
		return u.parked[0]
	}
	return nil
}

func (w *world) fetchAside(u *unit, e *partitions.FetchAside) partitions.FetchAsideDone {
	var in partitions.FetchAsideDone
	if !w.scene.Leased && e.Generation != w.storeGen {
		return partitions.FetchAsideDone{Outcome: partitions.Failed}
	}
	give := func(a *aside) {
		if len(in.Entries) < e.Max {
			in.Entries = append(in.Entries, partitions.Aside{AsideRef: a.AsideRef, Attempts: a.attempts, Suspicions: a.suspicions, Entry: u.lane(a.Lane).envelope(a.Sequence)})
		}
	}
	if len(u.parked) > 0 && u.parked[0].due {
		for _, a := range u.parked {
			give(a)
		}
	}
	for _, a := range u.dead {
		if a.due {
			give(a)
		}
	}
	return in
}

// asidesAgree is compare-and-act: is what a unit of work says of the rows true of them?
func (w *world) asidesAgree(u *unit, j work) bool {
	if j.aside != nil && u.asideRow(*j.aside) == nil && w.scene.Without != Settle {
		return false
	}
	for i := range j.parked {
		if f := &j.parked[i]; f.Reason == "" && len(u.parkedOf(f.Lane.Category)) == 0 && w.scene.Without != Behind && w.scene.Without != Park {
			return false
		}
	}
	return true
}

// setAside changes the rows.
func (w *world) setAside(u *unit, j work) {
	for i := range j.parked {
		f := &j.parked[i]
		a := &aside{AsideRef: partitions.AsideRef{Lane: f.Lane, Sequence: f.Sequence}, rec: u.record(f.Lane, f.Sequence), attempts: f.Attempts, reason: f.Reason}
		a.rec.parked = true
		u.parked = append(u.parked, a)
		u.most = max(u.most, len(u.parked))
	}
	if j.dead != nil {
		u.bury(&aside{AsideRef: partitions.AsideRef{Dead: true, Lane: j.dead.Lane, Sequence: j.dead.Sequence}, rec: u.record(j.dead.Lane, j.dead.Sequence), attempts: j.dead.Attempts})
	}
	if j.aside == nil {
		return
	}
	a := u.asideRow(*j.aside)
	switch {
	case a == nil: // without the rule
	case j.suspicions != nil:
		w.suspectRow(a, *j.suspicions)
	case j.stays != nil:
		a.suspicions, a.due, a.attempts, a.reason = 0, false, j.stays.Attempts, j.stays.Reason
	case a.Dead:
		a.rec.dead = false
		u.dead = slices.DeleteFunc(u.dead, func(other *aside) bool { return other == a })
	default:
		u.dropFirst()
	}
}

func (w *world) suspectRow(a *aside, suspicions int) {
	switch {
	case w.scene.Without == CountAside:
	case w.scene.Without == TakeBackAside:
		a.suspicions = max(a.suspicions, suspicions)
	default:
		a.suspicions = suspicions
	}
}

// makeDue has a row applied. Of what it did before nobody is to speak any more.
func (a *aside) makeDue() {
	if !a.due {
		a.due, a.suspicions = true, 0
		a.rec.crashes, a.rec.calmly, a.rec.alone = 0, 0, 0
	}
}

// dropFirst lets go of the first parked entry. The next one is due then.
func (u *unit) dropFirst() {
	u.parked[0].rec.parked = false
	if u.parked = u.parked[1:]; len(u.parked) > 0 {
		u.parked[0].makeDue()
	}
}

func (u *unit) bury(a *aside) {
	a.rec.dead = true
	u.dead = append(u.dead, a)
	slices.SortStableFunc(u.dead, func(a, b *aside) int {
		return cmp.Or(cmp.Compare(a.Lane.Category, b.Lane.Category), cmp.Compare(a.Lane.Lane, b.Lane.Lane), cmp.Compare(a.Sequence, b.Sequence))
	})
}

func (u *unit) record(ref event.LaneRef, seq event.Sequence) *record {
	return u.lane(ref).records[seq-1]
}

// setsAside reports whether a unit of work makes a row of an entry.
func (j *work) setsAside(ref event.LaneRef, seq event.Sequence) bool {
	is := func(f partitions.Failure) bool { return f.Lane == ref && f.Sequence == seq }
	return j.dead != nil && is(*j.dead) || slices.ContainsFunc(j.parked, is)
}

// watchAsides checks what a unit of work does with rows.
func (w *world) watchAsides(u *unit, j work) {
	if j.dead != nil {
		w.watchFailure(u, j.dead, u.record(j.dead.Lane, j.dead.Sequence))
	}
	for i := range j.parked {
		if f := &j.parked[i]; f.Reason != "" {
			w.watchFailure(u, f, u.record(f.Lane, f.Sequence))
		}
	}
	if j.aside == nil || j.suspicions != nil {
		return
	}
	l, seq := u.lane(j.aside.Lane), j.aside.Sequence
	r := l.records[seq-1]
	switch passable := r.kind == "ignored" || r.kind == "void"; {
	case j.stays != nil:
		w.watchFailure(u, j.stays, r)
		if j.stays.Reason == "crashed the process" {
			w.seen["aside condemned"]++
		}
	case j.counted == 0 && !passable:
		w.fail("%s: %s is through without being applied", u.id, j.aside)
	case j.counted == 0:
	case j.aside.Dead:
		w.countApplied(u, l, seq)
	default:
		w.watchApplied(u, l, seq)
	}
}
