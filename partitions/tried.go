package partitions

import "github.com/keyhold/keyhold/event"

const crashedProcess = "crashed the process"

// What is known of attempts at the next entry is one row of the store, and only there while it is in trouble. Attempts are counted
// after they failed: a row that could not be written costs a restart some patience. Suspicions are counted before the entry
// runs, or a crash would not leave a trace; and taken back when it returned, or when it did not run after all.

// isTried reports whether the store knows of attempts at an entry.
func (m *Machine) isTried(lane event.LaneRef, seq event.Sequence) bool {
	return m.tried.Sequence == seq && seq != 0 && m.tried.Lane == lane
}

// untry reports whether a commit that deals with an entry has something to forget.
func (m *Machine) untry(lane event.LaneRef, seq event.Sequence) bool {
	return m.tried.Sequence != 0 && m.tried.Sequence <= seq && m.tried.Lane == lane
}

// recoverTried takes what the store knows.
func (m *Machine) recoverTried(t *Tried) {
	m.tried = Tried{}
	if t != nil {
		if l := m.laneOf(t.Lane); l != nil && t.Sequence > l.durable {
			m.tried = *t
			if l.failed != t.Sequence {
				l.failed, l.attempts, l.retryAt = t.Sequence, 0, 0
			}
			l.attempts = max(l.attempts, t.Attempts) // here there may be one that could not be written
		}
	}
	switch {
	case !m.suspect && m.tried.Suspicions > 0:
		// Whoever counted it has given the unit back, or is us: nobody died of it.
		m.takeBack(0, 0)
	case m.suspect && !m.based:
		m.base, m.based = m.tried, true
	case m.suspect && m.isTried(m.base.Lane, m.base.Sequence):
		// An outcome that was not known may have counted the present suspicion already.
		m.base.Suspicions, m.base.Alone = min(m.base.Suspicions, m.tried.Suspicions), min(m.base.Alone, m.tried.Alone)
	case m.suspect:
		m.base = Tried{}
	}
	if m.suspect && (m.blocked() || m.due || m.demand) && m.tried.Suspicions > m.base.Suspicions {
		m.takeBack(m.base.Suspicions, m.base.Alone) // what was counted has not run, and other code will before it
	}
}

// triedAt tells of the attempts that failed at the next entry of a lane.
func (m *Machine) triedAt(l *lane, e *event.Envelope, err error) Tried {
	t := Tried{Lane: l.ref, Sequence: e.Sequence, EventID: e.ID, EventType: e.Type, Again: l.retryAt}
	if l.failed == e.Sequence {
		t.Attempts = l.attempts
	}
	switch {
	case err != nil:
		t.Error = err.Error()
	case m.isTried(l.ref, e.Sequence):
		t.Error = m.tried.Error
	}
	return t
}

// count makes a suspicion durable before the suspect runs; or has it run no more, if it has crashed its owners while it was alone.
func (m *Machine) count(l *lane) bool {
	e := &m.entries[0]
	t := m.triedAt(l, e, nil)
	if m.base.Lane == l.ref && m.base.Sequence == e.Sequence {
		t.Suspicions, t.Alone = m.base.Suspicions, m.base.Alone
	}
	if t.Alone >= m.cfg.MaxCrashes {
		m.giveUp(&Failure{
			Lane: l.ref, Sequence: e.Sequence, EventID: e.ID, EventType: e.Type,
			Attempts: t.Attempts + t.Suspicions, Reason: crashedProcess, Error: t.Error,
		})
		return true
	}
	alone := t.Suspicions > 0
	if t.Suspicions++; alone {
		t.Alone++
	}
	m.writeTried(t, alone)
	m.eff.write.Begins = true
	return false
}

// uncount takes back the suspicion of an entry that is not going to run here.
func (m *Machine) uncount() {
	m.counted = false
	suspicions, alone := 0, 0
	if m.isTried(m.base.Lane, m.base.Sequence) {
		suspicions, alone = m.base.Suspicions, m.base.Alone
	}
	m.takeBack(suspicions, alone)
}

// returned takes back what an entry was suspected of, if it was.
func (m *Machine) returned(e *event.Envelope) {
	if m.isTried(e.Ref(), e.Sequence) && m.tried.Suspicions > 0 {
		m.takeBack(0, 0)
	}
}

func (m *Machine) takeBack(suspicions, alone int) {
	t := m.tried
	t.Suspicions, t.Alone = suspicions, alone
	m.owe(t, true)
}

// owe has something written of attempts before anything else runs. If it must be, it is tried until it is.
func (m *Machine) owe(t Tried, must bool) { m.owed, m.must = &t, must }

func (m *Machine) writeOwed() { m.writeTried(*m.owed, false) }

func (m *Machine) writeTried(t Tried, alone bool) {
	m.asked = callTried
	m.eff.tried = t
	m.eff.write = WriteTried{Generation: m.gen, Tried: &m.eff.tried, Alone: alone}
	m.emit(&m.eff.write)
}

func (m *Machine) writeTriedDone(in WriteTriedDone) {
	owed := m.owed != nil
	switch {
	case in.Outcome == OK:
		m.tried, m.owed, m.counted = m.eff.tried, nil, !owed
	case in.Outcome != Failed:
		m.notCommitted("write tried", in.Outcome, in.Err)
	case owed && !m.must:
		m.owed = nil // all it would be good for is a restart
		m.note(Note{Kind: NoteTrouble, Why: "write tried failed", Err: in.Err})
	default:
		m.trouble("write tried", in.Outcome, in.Err)
		if m.draining {
			// Given back, the unit is clean, and so is the entry for whoever finds it. Left to lapse, it would be blamed; and so it would be for
			// what runs until then.
			m.suspect, m.hurry = m.suspect && !owed, m.hurry || owed
			m.owed, m.again = nil, 0
		}
	}
}

// forgetAttempts gives everything all its attempts again.
func (m *Machine) forgetAttempts() {
	for i := range m.lanes {
		m.lanes[i].attempts, m.lanes[i].retryAt = 0, 0
	}
	m.asideTry.fails, m.asideTry.again = 0, 0
}
