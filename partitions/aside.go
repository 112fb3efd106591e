package partitions

import "slices"

// Entries that were set aside and are to be applied now come before the stream, which is not read meanwhile: what it would bring
// of a parked category has to go behind them. They are due in the store, so nothing of this is to be remembered here.

// asideTry is what is known of attempts at an entry that was set aside.
type asideTry struct {
	of      AsideRef
	fails   int
	again   Tick
	counted bool // as a suspect, and it has not run yet
	owes    bool // it was counted, and the activation that was to run it is gone
	based   bool // base is known
	base    int  // suspicions before the present one was counted
}

// needsNewer is why a dead letter stays one that this program cannot read.
const needsNewer = "needs a newer program"

// resume takes the next step with what was set aside.
func (m *Machine) resume() bool {
	switch {
	case len(m.asides) == 0:
		m.asked = callFetchAside
		m.eff.asides = FetchAside{Generation: m.gen, Max: m.cfg.ReadAhead}
		m.emit(&m.eff.asides)
		return false
	case m.now < m.asideTry.again:
		return false
	}
	a := &m.asides[0]
	switch m.handling(&a.Entry) {
	case AwaitNewer:
		if a.Dead { // it holds up nobody: a program that knows its type is to be asked again
			m.settle, m.fate = &Failure{
				Lane: a.Lane, Sequence: a.Sequence, EventID: a.Entry.ID, EventType: a.Entry.Type, Attempts: a.Attempts, Reason: needsNewer,
			}, fateStay
			return true
		}
		m.note(Note{Kind: NoteNewer, Lane: a.Lane, Sequence: a.Sequence, Why: a.Entry.Type})
		m.newer, m.asides = true, nil
		return true
	case PassOver:
		m.settleAside(nil)
	default:
		return m.tryAside(a)
	}
	return false
}

// tryAside applies an entry. In a unit that was left unclean that is counted first, in the entry's own row, or one that ends the process
// would do so for ever; and it stays set aside when that has happened too often. All of them run alone: they hold up nobody.
func (m *Machine) tryAside(a *Aside) bool {
	if m.asideTry.of != a.AsideRef {
		m.asideTry = asideTry{of: a.AsideRef}
	}
	switch {
	case m.suspect && !m.asideTry.based:
		m.asideTry.base, m.asideTry.based = a.Suspicions, true
	case m.suspect: // a person may have had it tried anew since
		m.asideTry.base = min(m.asideTry.base, a.Suspicions)
	}
	switch {
	case !m.suspect || m.asideTry.counted:
		m.applyAside(a)
	case m.asideTry.base >= m.cfg.MaxCrashes:
		m.settle, m.fate = &Failure{
			Lane: a.Lane, Sequence: a.Sequence, EventID: a.Entry.ID, EventType: a.Entry.Type, Attempts: a.Attempts + m.asideTry.base, Reason: crashedProcess,
		}, fateStay
		return true
	default:
		m.suspectAside(a.AsideRef, m.asideTry.base+1, true)
	}
	return false
}

// asideBlamed reports whether the entry that is next is suspected although whoever began it has not died of it: it returned, or the unit
// was given up in good order since.
func (m *Machine) asideBlamed() bool {
	return len(m.asides) > 0 && m.asides[0].Suspicions > 0 && !m.suspect
}

// asideDoubt reports whether an entry is suspected without reason: it returned, or was counted and is not going to run now. As long as the store
// says so, a crash of anything else would be counted against it.
func (m *Machine) asideDoubt() bool {
	return m.asideBlamed() || m.asideTry.owes || m.asideTry.counted && (m.acted || m.blocked())
}

// clearAside takes that back.
func (m *Machine) clearAside() {
	if m.asideBlamed() {
		m.suspectAside(m.asides[0].AsideRef, 0, false)
		return
	}
	m.asideTry.counted, m.asideTry.owes = false, true
	m.suspectAside(m.asideTry.of, m.asideTry.base, false)
}

// suspectAside has it written how often an entry was begun: once more, or what was counted is taken back.
func (m *Machine) suspectAside(a AsideRef, suspicions int, alone bool) {
	m.asked = callSuspectAside
	m.eff.suspect = SuspectAside{Generation: m.gen, Aside: a, Suspicions: suspicions, Alone: alone}
	m.emit(&m.eff.suspect)
}

func (m *Machine) suspectAsideDone(in SuspectAsideDone) {
	if in.Outcome != Failed { // where it is not known, what was counted has not run
		m.asideTry.owes = in.Outcome == Unknown && (m.eff.suspect.Alone || m.asideTry.owes)
	}
	switch {
	case in.Outcome == OK:
		m.failures, m.idleSince = 0, m.now
		m.asideTry.counted = m.eff.suspect.Alone
		if len(m.asides) > 0 && m.asides[0].AsideRef == m.eff.suspect.Aside {
			m.asides[0].Suspicions = m.eff.suspect.Suspicions
		}
	case in.Outcome != Failed:
		m.notCommitted("suspect aside", in.Outcome, in.Err)
	default:
		m.trouble("suspect aside", in.Outcome, in.Err)
		if m.draining {
			m.asides, m.settle, m.asideTry.owes, m.again = nil, nil, false, 0 // whoever is next finds it as it is,
			m.hurry = true                                                    // and nothing runs that it could be blamed for
		}
	}
}

func (m *Machine) applyAside(a *Aside) {
	attempt := 1
	if m.asideTry.of == a.AsideRef {
		attempt += m.asideTry.fails
	}
	m.asideTry.counted, m.asideTry.based, m.asideTry.owes = false, false, false // it runs; what was counted is in its row
	m.eff.aside = a.AsideRef
	m.eff.apply = Apply{
		Generation: m.gen, Entry: &a.Entry, Attempt: attempt, Fresh: m.enter(callApply),
		Suspect: m.suspect, Alone: m.suspect, Aside: &m.eff.aside,
	}
	m.emit(&m.eff.apply)
}

// asideCleared: a suspect that was set aside has returned, though nobody knows what became of its commit. Its row may still have what was counted, and nobody died of it.
func (m *Machine) asideCleared() {
	m.asideTry.base, m.asideTry.based, m.asideTry.owes = 0, true, true
}

// settleAside ends the attempts at the next entry that was set aside: for good when there is nothing to apply, f being nil.
func (m *Machine) settleAside(f *Failure) {
	m.asked = callSettleAside
	m.eff.settle = SettleAside{Generation: m.gen, Aside: m.asides[0].AsideRef, Failure: f}
	m.emit(&m.eff.settle)
}

func (m *Machine) fetchAsideDone(in FetchAsideDone) {
	switch {
	case in.Outcome == Stale:
		m.lose("fenced")
	case in.Outcome != OK:
		m.trouble("fetch aside", in.Outcome, in.Err)
	case len(in.Entries) == 0:
		m.due, m.failures, m.idleSince = false, 0, m.now
	default:
		m.asides, m.idleSince = slices.Clone(in.Entries), m.now // suspicions are counted in it
		if m.asideTry.of != m.asides[0].AsideRef {
			m.asideTry = asideTry{}
		}
	}
}

func (m *Machine) asideApplied() {
	a := m.asides[0].AsideRef
	if a.Dead {
		m.note(Note{Kind: NoteReplayed, Lane: a.Lane, Sequence: a.Sequence})
	}
	m.asideThrough()
}

// asideThrough lets go of the entry whose row is gone.
func (m *Machine) asideThrough() {
	m.failures, m.idleSince = 0, m.now
	if a := m.asides[0].AsideRef; !a.Dead {
		m.unparked(a)
	}
	m.popAside()
}

func (m *Machine) popAside() {
	m.eff.apply.Entry = nil
	m.asideTry = asideTry{}
	if m.asides = m.asides[1:]; len(m.asides) == 0 {
		m.asides = nil
	}
}

// asideFailed counts an attempt. A parked entry has as many as one of the stream; a dead letter, which holds up nobody, has one for each
// replay.
func (m *Machine) asideFailed(in ApplyDone) {
	a := &m.asides[0]
	if m.asideTry.of != a.AsideRef {
		m.asideTry = asideTry{of: a.AsideRef}
	}
	m.asideTry.fails++
	if !a.Dead && in.Class == Retry && m.asideTry.fails < m.cfg.Attempts {
		m.asideTry.again = m.retryLater(&a.Entry, m.asideTry.fails, in.Err)
		return
	}
	m.settle, m.fate = failureOf(&a.Entry, a.Attempts+m.asideTry.fails, in), fateStay
}

func (m *Machine) settleAsideDone(in SettleAsideDone) {
	f := m.eff.settle.Failure
	switch {
	case in.Outcome != OK && f != nil:
		m.notSettled("settle aside", in.Outcome, in.Err)
	case in.Outcome == Failed:
		m.trouble("settle aside", in.Outcome, in.Err)
		if m.draining {
			m.again = 0
		}
	case in.Outcome != OK:
		m.notCommitted("settle aside", in.Outcome, in.Err)
	case f == nil:
		m.asideThrough()
	default:
		m.noteFailure(NoteAsideFailed, f)
		m.settle, m.failures, m.idleSince = nil, 0, m.now
		if dead := m.asides[0].Dead; dead {
			m.popAside()
			return
		}
		// What is parked behind it waits with it. Dead letters do not.
		m.asideTry = asideTry{}
		m.asides = slices.DeleteFunc(slices.Clone(m.asides), func(a Aside) bool { return !a.Dead })
	}
}
