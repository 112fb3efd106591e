package sim

import (
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// watchedAside is what a monitor knows of what the unit has set aside.
type watchedAside struct {
	parked map[string]int
	due    bool
	queue  []partitions.Aside // given and not dealt with
	under  *partitions.AsideRef
	stays  bool // what is being settled stays where it is
	asked  []partitions.Failure

	suspect partitions.AsideRef // counted last
	hot     bool                // in this activation: a crash now is counted against it
	asking  partitions.SuspectAside
	gaveUp  bool // on taking it back
}

func (a *watchedAside) recovered(in partitions.RecoverDone) {
	*a = watchedAside{parked: make(map[string]int), due: in.Due, suspect: a.suspect}
	for _, p := range in.Parked {
		a.parked[p.Category] = p.Count
	}
}

func (a *watchedAside) given(all []partitions.Aside) {
	a.queue, a.due = append([]partitions.Aside(nil), all...), len(all) > 0
}

// through lets go of the first.
func (a *watchedAside) through() {
	if first := a.queue[0]; !first.Dead {
		if a.parked[first.Lane.Category]--; a.parked[first.Lane.Category] <= 0 {
			delete(a.parked, first.Lane.Category)
		}
	}
	a.queue = a.queue[1:]
}

func (a *watchedAside) applied(o partitions.Outcome) {
	if a.under != nil && o == partitions.OK {
		a.through()
		a.hot = false
	}
	a.under = nil
}

// suspected: what was asked for is in the store.
func (a *watchedAside) suspected(o partitions.Outcome, serving bool) {
	if o == partitions.OK {
		a.hot = a.asking.Alone && serving
	}
	a.gaveUp = o == partitions.Failed
}

func (a *watchedAside) settled(o partitions.Outcome) {
	switch {
	case o != partitions.OK:
	case !a.stays:
		a.through()
	case a.queue[0].Dead:
		a.queue = a.queue[1:]
	default:
		var dead []partitions.Aside
		for _, x := range a.queue {
			if x.Dead {
				dead = append(dead, x)
			}
		}
		a.queue = dead
	}
}

func (a *watchedAside) written(o partitions.Outcome) {
	if o == partitions.OK {
		for _, f := range a.asked {
			a.parked[f.Lane.Category]++
		}
	}
	a.asked = a.asked[:0]
}

// failed reports whether what is being parked is an entry that failed.
func (a *watchedAside) failed() bool { return a.asked[0].Reason != "" }

func (a *watchedAside) count() int {
	n := 0
	for _, c := range a.parked {
		n += c
	}
	return n
}

// watchedTried is what a monitor knows of the row about attempts.
type watchedTried struct {
	unclean bool             // so says the port, and the store has not been read since
	untold  bool             // an answer of the port is lost that may have said so
	based   bool             // base is known
	suspect bool             // left unclean, and nothing has run
	base    partitions.Tried // the row when the unit was taken over
	row     partitions.Tried // Sequence 0 = none
	asked   partitions.Tried
	untry   bool // what is outstanding forgets the row
	serving bool // recovered, and not dropped since
	hot     bool // the present suspicion is in the row: a crash now is counted
	gaveUp  bool // on taking it back
}

func (t *watchedTried) recovered(in partitions.RecoverDone, held bool) {
	t.row = partitions.Tried{}
	if in.Tried != nil {
		for _, p := range in.Checkpoints {
			if p.Lane == in.Tried.Lane && in.Tried.Sequence > p.Sequence {
				t.row = *in.Tried
			}
		}
	}
	switch known := t.is(t.base.Lane, t.base.Sequence); {
	case !t.based, known && t.row.Suspicions < t.base.Suspicions:
		t.base = t.row
	case !known:
		t.base = partitions.Tried{} // what the row says came after the unit was taken over
	}
	t.suspect, t.gaveUp = false, false // the first of which a note may change
	t.serving, t.hot = held, held && t.row.Suspicions > 0
}

// isSuspect: the machine has noted that the unit was left unclean.
func (t *watchedTried) isSuspect() { t.unclean, t.based, t.suspect, t.hot = false, true, true, false }

func (t *watchedTried) written(o partitions.Outcome) {
	if o == partitions.OK {
		t.row = t.asked
		t.hot = t.serving && t.row.Suspicions > 0 && (!t.suspect || !t.is(t.base.Lane, t.base.Sequence) || t.row.Suspicions > t.base.Suspicions)
	}
	t.gaveUp = o == partitions.Failed
}

// ended: the entry that was next was applied, or it is settled what becomes of it.
func (t *watchedTried) ended(o partitions.Outcome) {
	if o == partitions.OK {
		t.suspect = false
		if t.untry {
			t.row, t.hot = partitions.Tried{}, false
		}
	}
	t.untry = false
}

func (t *watchedTried) is(lane event.LaneRef, seq event.Sequence) bool {
	return t.row.Sequence == seq && t.row.Lane == lane
}

// apply checks what is to be applied.
func (m *Monitor) apply(e *partitions.Apply) {
	ref, seq := e.Entry.Ref(), e.Entry.Sequence
	m.check(e.Suspect == m.tried.suspect, "a suspect is %t, applied as one is %t", m.tried.suspect, e.Suspect)
	m.check(e.Suspect || !e.Alone, "is alone and no suspect")
	if e.Aside != nil {
		m.check(m.aside.due && len(m.aside.queue) > 0 && *e.Aside == m.aside.queue[0].AsideRef, "applies %s, which is not what was set aside first", e.Aside)
		m.check(len(e.Moves) == 0 && !e.Untry, "moves a checkpoint for %s", e.Aside)
		m.check(!m.tried.hot, "applies %s while the store suspects another", e.Aside)
		m.check(e.Alone == e.Suspect, "%s is a suspect and not alone", e.Aside)
		m.check(e.Suspect == m.aside.hot && (!e.Suspect || m.aside.suspect == *e.Aside), "a suspect is %t, counted is %s: %t", e.Suspect, &m.aside.suspect, m.aside.hot)
		m.moves, m.tried.untry = m.moves[:0], false
		of := *e.Aside
		m.aside.under = &of
		return
	}
	m.cool("applies from the stream")
	m.check(!m.aside.due, "applies %s #%d before what was set aside", ref, seq)
	m.check(m.aside.parked[ref.Category] == 0, "applies %s #%d past what is parked", ref, seq)
	passable, given := m.lane(ref).given[seq]
	m.check(given && !passable, "applies %s #%d, which it was not given to apply", ref, seq)
	m.move(e.Moves, partitions.Failure{Lane: ref, Sequence: seq})
	m.checkUntry(e.Untry, ref, seq)
	is := m.tried.is(ref, seq)
	switch {
	case e.Suspect:
		m.check(is && m.tried.hot, "runs suspect %s #%d before it was counted", ref, seq)
		m.check(e.Alone == (m.tried.row.Suspicions > 1), "suspected %d times, alone is %t", m.tried.row.Suspicions, e.Alone)
	default:
		m.check(!m.tried.hot, "runs %s #%d while the store suspects %s #%d", ref, seq, m.tried.row.Lane, m.tried.row.Sequence)
	}
}

// checkUntry checks that what is known of attempts goes with what ends the trouble, and with nothing else.
func (m *Monitor) checkUntry(untry bool, ref event.LaneRef, seq event.Sequence) {
	m.tried.untry = untry
	if m.tried.is(ref, seq) {
		m.check(untry, "leaves attempts at %s #%d behind", ref, seq)
	}
	if untry {
		m.check(m.tried.row.Lane == ref && m.tried.row.Sequence <= seq, "%s #%d forgets attempts at %s #%d", ref, seq, m.tried.row.Lane, m.tried.row.Sequence)
	}
}

func (m *Monitor) settle(untry bool, f *partitions.Failure) {
	m.checkUntry(untry, f.Lane, f.Sequence)
	m.check(f.Reason != "", "nobody knows why %s #%d is not applied", f.Lane, f.Sequence)
}

// park checks that only what failed, or stands behind it, is parked.
func (m *Monitor) park(e *partitions.WriteParked) {
	m.check(m.cfg.Policy == partitions.ParkUnit || e.Parked[0].Reason == "", "parks and has another policy")
	m.check(m.aside.count()+len(e.Parked) <= m.cfg.MaxParked, "parks %d, with %d parked already", len(e.Parked), m.aside.count())
	for i, f := range e.Parked {
		passable, given := m.lane(f.Lane).given[f.Sequence]
		m.check(given && !passable, "parks %s #%d, which it was not given to apply", f.Lane, f.Sequence)
		m.check(i == 0 || f.Reason == "", "parks a second one that failed, %s #%d", f.Lane, f.Sequence)
		m.check(f.Reason != "" || m.aside.parked[f.Lane.Category] > 0, "parks %s #%d behind nothing", f.Lane, f.Sequence)
	}
	last := e.Parked[len(e.Parked)-1]
	m.checkUntry(e.Untry, last.Lane, last.Sequence)
	m.aside.asked = append(m.aside.asked[:0], e.Parked...)
}

// try checks that nobody is suspected who does not run next, and that counts go back only to where they were.
func (m *Monitor) try(e *partitions.WriteTried) {
	t := *e.Tried
	m.check(t.Sequence > m.lane(t.Lane).durable, "attempts at %s #%d, the checkpoint is %d", t.Lane, t.Sequence, m.lane(t.Lane).durable)
	m.check(t.Alone <= t.Suspicions && t.Suspicions >= 0 && t.Alone >= 0, "alone %d of %d times", t.Alone, t.Suspicions)
	m.check(!e.Alone || t.Alone > 0 && m.tried.suspect, "counts nothing as alone")
	if !m.tried.suspect {
		m.check(t.Suspicions == 0, "suspects %s #%d in a unit that was left clean, or has run", t.Lane, t.Sequence)
	}
	m.tried.asked = t
}

// cool checks that the store suspects nothing of what was set aside that may have returned.
func (m *Monitor) cool(what string) {
	m.check(!m.aside.hot, "%s while the store suspects %s", what, &m.aside.suspect)
}

// suspectAside checks that it is the first that is suspected, and that counts go back only for what was counted.
func (m *Monitor) suspectAside(e *partitions.SuspectAside) {
	first := len(m.aside.queue) > 0 && e.Aside == m.aside.queue[0].AsideRef
	m.check(first || !e.Alone && e.Aside == m.aside.suspect, "suspects %s, which is not what was set aside first", &e.Aside)
	m.check(!e.Alone || m.tried.suspect && e.Suspicions > 0, "counts %s in a unit that was left clean, or has run", &e.Aside)
	m.aside.suspect, m.aside.asking = e.Aside, *e
}

// settleAside checks that it is the first that is settled.
func (m *Monitor) settleAside(e *partitions.SettleAside) {
	m.cool("settles")
	m.check(len(m.aside.queue) > 0 && e.Aside == m.aside.queue[0].AsideRef, "settles %s, which is not what was set aside first", &e.Aside)
	m.aside.stays = e.Failure != nil
	if e.Failure == nil && len(m.aside.queue) > 0 {
		x := &m.aside.queue[0].Entry
		m.check(x.Void() || m.cfg.Handling != nil && m.cfg.Handling(x) == partitions.PassOver, "%s goes without being applied", &e.Aside)
	}
}
