package partitions

import (
	"fmt"

	"github.com/keyhold/keyhold/event"
)

// next decides what the facts ask for when no answer is outstanding. It asks for one thing at most; true means that only
// facts have changed, and that it is to be called again.
func (m *Machine) next() bool {
	switch {
	case m.lost != "":
		m.drop()
		return true
	case m.own == refused:
		return m.giveBack(false)
	case m.own < granted:
		return m.seek()
	case m.draining:
		return m.leave(false)
	case m.own == granted:
		m.recover()
		return false
	case m.acted && m.counted: // what is counted and does not run now would be blamed for a crash of others
		m.uncount()
		return true
	case m.owed != nil:
		if !m.must || m.now >= m.again {
			m.writeOwed()
		}
		return false
	case m.asideDoubt():
		if m.now >= m.again {
			m.clearAside()
		}
		return false
	case m.acted:
		m.anew(WhyActed)
		return true
	}
	if m.demand && !m.served && !m.counted && !m.asideTry.counted { // once it is counted, nothing comes before a suspect: it would be blamed
		m.serve() // asks first, but the stream has a turn between two of them
		return false
	}
	m.served = false
	if m.stream() {
		return true
	}
	if m.asked == callNone && m.demand {
		m.serve()
	}
	return false
}

// drop gives up an activation whose lease must not be relied on. The lease itself is left to lapse.
func (m *Machine) drop() {
	m.unread = m.unread || len(m.entries) > 0 || m.settle != nil || m.passed > 0 || m.mustAck()
	m.forget()
	m.own, m.lost = none, ""
	m.backOff(m.failures)
	m.failures++
}

// seek gets hold of the unit if somebody wants it, and rests if nobody does.
func (m *Machine) seek() bool {
	wanted := m.demand || m.acted || m.unread && !m.blocked()
	switch {
	case m.draining || !wanted || m.elsewhere > 0 || m.unfit:
		if m.own == dropped {
			return m.giveBack(!m.draining && !m.blocked())
		}
		m.rest()
	case m.now >= m.again:
		m.resting = false
		m.sent = m.now
		m.asked = callAcquire
		m.eff.acquire = Acquire{Floor: m.floor}
		m.emit(&m.eff.acquire)
	}
	return false
}

// rest says, once, that nothing is held.
func (m *Machine) rest() {
	if m.resting {
		return
	}
	if m.acted { // and we were not to look any more
		m.halt, m.paused, m.newer, m.unread = nil, false, false, true
	}
	because := m.stopped(PhaseIdle)
	m.eff.idle = Idle{Because: because, Unread: m.unread && because == PhaseIdle, Held: m.elsewhere, Holder: m.holder, HeldAt: m.heldAt, Unfit: m.unfit && !m.draining}
	m.elsewhere, m.holder, m.heldAt, m.unfit = 0, "", 0, false
	m.resting, m.draining, m.hurry = true, false, false
	m.unread, m.woken, m.demand, m.acted, m.served, m.again = false, false, false, false, false, 0
	m.emit(&m.eff.idle)
}

func (m *Machine) recover() {
	m.actedAgain = false
	m.asked = callRecover
	m.eff.recover = Recover{Generation: m.gen, Raise: m.cfg.Leased}
	m.emit(&m.eff.recover)
}

// serve lets asks have their turn.
func (m *Machine) serve() {
	m.demand, m.served = false, true
	m.eff.serve = Serve{Generation: m.gen, Fresh: m.enter(callServe)}
	m.emit(&m.eff.serve)
}

// enter notes that user code is about to run, and reports whether it needs a new instance.
func (m *Machine) enter(c call) (fresh bool) {
	fresh = !m.instance
	m.asked, m.instance, m.cancelled, m.spared, m.hung = c, true, false, false, false
	return fresh
}

// stream takes the next step along the streams, if there is one to take now.
func (m *Machine) stream() bool {
	switch {
	case m.blocked():
		if m.demand || m.cfg.Asks && !m.idle() && !m.wantsOther() {
			return false
		}
		return m.leave(false)
	case m.now < m.again:
		return false
	case m.settle != nil:
		m.write()
		return false
	case m.due:
		return m.resume()
	}
	head := m.head()
	switch {
	case m.blocked() || m.now < m.again: // head found out
		return m.blocked()
	case head != nil && head.ref.Lane == event.Backfill && m.woken && !m.counted:
		m.entries, m.unread = nil, true // what woke us may be in the primary lane, which goes first
		return true
	case head != nil && m.parking(head.ref.Category):
		return m.parkBehind()
	case head != nil && m.now < head.retryAt:
	case head != nil && m.suspect && !m.counted:
		return m.count(head)
	case head != nil:
		m.apply(head)
	case m.passed >= m.cfg.PassedMax:
		m.commitPassed()
	case m.unread || m.mustAck():
		m.fetch()
	case m.idle() && !m.demand:
		return m.leave(true)
	}
	return false
}

// wantsOther reports whether another node may get on where this one cannot.
func (m *Machine) wantsOther() bool { return m.newer && m.cfg.Leased && m.halt == nil && !m.paused }

// head passes over what the behavior is not run for, and gives the lane of the entry that is next to be applied.
func (m *Machine) head() *lane {
	for len(m.entries) > 0 {
		e := &m.entries[0]
		l := m.laneOf(e.Ref())
		switch {
		case l == nil:
			m.misread(NoteTrouble, e, "entry of a lane that the unit does not have")
			return nil
		case e.Sequence > l.at+1:
			m.misread(NoteGap, e, fmt.Sprintf("read after #%d", l.at))
			return nil
		case e.Sequence <= l.at: // applied already, all it needs is to be acknowledged
			m.reack = m.cfg.Leased
		default:
			switch how := m.handling(e); {
			case how == Handle, how == AwaitNewer && m.parking(l.ref.Category):
				return l
			case how == AwaitNewer:
				m.newer, m.entries = true, nil
				m.note(Note{Kind: NoteNewer, Lane: l.ref, Sequence: e.Sequence, Why: e.Type})
				return nil
			}
			l.at, l.id = e.Sequence, e.ID
			m.passed++
			m.took = true
		}
		if m.pop(1); len(m.entries) == 0 && !m.took {
			m.misread(NoteTrouble, e, "nothing but what was applied already")
		}
	}
	return nil
}

func (m *Machine) handling(e *event.Envelope) Handling {
	switch {
	case e.Void():
		return PassOver
	case m.cfg.Handling == nil:
		return Handle
	}
	return m.cfg.Handling(e)
}

// misread drops what was read, which does not go on from where we are, and lets it be read again in a while.
func (m *Machine) misread(kind NoteKind, e *event.Envelope, why string) {
	m.entries, m.unread = nil, true
	m.failures++
	m.backOff(m.failures)
	m.note(Note{Kind: kind, Lane: e.Ref(), Sequence: e.Sequence, Why: why, Again: m.again})
}

func (m *Machine) apply(head *lane) {
	e := &m.entries[0]
	attempt := 1
	if head.failed == e.Sequence {
		attempt += head.attempts
	}
	m.eff.apply = Apply{
		Generation: m.gen, Entry: e, Attempt: attempt, Fresh: m.enter(callApply),
		Suspect: m.suspect, Alone: m.suspect && m.tried.Alone > 0, Untry: m.untry(head.ref, e.Sequence), Moves: m.moves(m.entries[:1]),
	}
	m.emit(&m.eff.apply)
}

// moves gives the checkpoints to move with the next commit: past entries that it deals with, in order, and those that are behind
// because entries were passed over.
func (m *Machine) moves(past []event.Envelope) []Move {
	m.eff.moves = m.eff.moves[:0]
	for i := range m.lanes {
		l := &m.lanes[i]
		mv := Move{Lane: l.ref, From: l.durable, To: l.at, EventID: l.id}
		for j := range past {
			if e := &past[j]; e.Ref() == l.ref {
				mv.To, mv.EventID = e.Sequence, e.ID
			}
		}
		if mv.To > mv.From {
			m.eff.moves = append(m.eff.moves, mv)
		}
	}
	return m.eff.moves
}

func (m *Machine) commitPassed() {
	m.asked = callPassed
	m.eff.passed = CommitPassed{Generation: m.gen, Moves: m.moves(nil)}
	m.emit(&m.eff.passed)
}

// mustAck reports whether the port has something to be told. While the checkpoints are behind it is not told: they are
// committed first, and what is above them is read without.
func (m *Machine) mustAck() bool {
	if !m.cfg.Leased || m.passed > 0 {
		return false
	}
	for i := range m.lanes {
		if m.lanes[i].acked < m.lanes[i].durable {
			return true
		}
	}
	return m.reack
}

func (m *Machine) fetch() {
	ack := m.mustAck()
	m.eff.positions = m.eff.positions[:0]
	for i := range m.lanes {
		l := &m.lanes[i]
		p := event.Position{Lane: l.ref, Sequence: l.at, EventID: l.id}
		if ack {
			p.Sequence, p.EventID = l.durable, l.durableID
		}
		m.eff.positions = append(m.eff.positions, p)
	}
	m.unread, m.woken = false, false
	m.asked = callFetch
	m.eff.fetch = Fetch{Generation: m.gen, Positions: m.eff.positions, Max: m.cfg.ReadAhead, Ack: ack}
	m.emit(&m.eff.fetch)
}

// idle reports whether the unit has had nothing to do for long enough.
func (m *Machine) idle() bool { return !m.keep && m.now >= m.idleSince.Add(m.cfg.IdleAfter) }

// leave takes the next step towards giving the unit up. ifIdle: only if nothing is unread.
func (m *Machine) leave(ifIdle bool) bool {
	switch {
	case m.now < m.again && !m.hurry:
	case m.owed != nil && (m.must || !m.hurry):
		m.writeOwed()
	case m.counted:
		m.uncount()
		return true
	case m.asideTry.counted, m.asideDoubt(): // also in a hurry, or it would be blamed for what comes
		m.clearAside()
	case m.settle != nil && !m.hurry:
		m.write()
	case m.passed > 0 && !m.hurry:
		m.commitPassed()
	case m.instance && !m.hurry:
		m.enter(callPassivate)
		m.emit(&m.eff.passivate)
	default:
		return m.giveBack(ifIdle)
	}
	return false
}

// giveBack releases the lease. A suspect unit would be taken for clean then: its lease is left to lapse, and the next owner is to be as careful as
// this one.
func (m *Machine) giveBack(ifIdle bool) bool {
	if m.suspect && m.cfg.Leased && !m.isAttended() {
		m.lose("left to lapse: nothing of a suspect unit has run")
		return true
	}
	m.release(ifIdle)
	return false
}

// isAttended reports whether a person has the unit in hand: what it was suspected of is left to them.
func (m *Machine) isAttended() bool { return m.halt != nil || m.paused }

func (m *Machine) release(ifIdle bool) {
	if m.instance {
		m.throwAway()
	}
	m.asked = callRelease
	m.eff.release = Release{Generation: m.gen, IfIdle: ifIdle}
	m.emit(&m.eff.release)
}

// setTimer has the shell call back when something may be due. A timer that fires too early costs less than setting it anew
// whenever the unit has been at work, so one is only replaced by an earlier one.
func (m *Machine) setTimer() {
	at := m.dueAt()
	if at == 0 && m.resting && m.armed != 0 || at != 0 && (m.armed == 0 || at < m.armed) {
		m.armed = at
		m.eff.timer = SetTimer{At: at}
		m.emit(&m.eff.timer)
	}
}

// dueAt gives the tick at which the facts ask for something else although nothing has happened, 0 when there is none.
func (m *Machine) dueAt() Tick {
	var at Tick
	for _, t := range [...]Tick{m.leaseDue(), m.againDue(), m.retryAt(), m.idleDue()} {
		if t > m.now && (at == 0 || t < at) {
			at = t
		}
	}
	return at
}

func (m *Machine) leaseDue() Tick {
	if m.cfg.Leased && m.own >= granted && m.lost == "" {
		return m.deadline
	}
	return 0
}

func (m *Machine) againDue() Tick {
	if m.asked != callNone || m.resting {
		return 0
	}
	return m.again
}

// retryAt gives when the entry that is next may be tried again, 0 = it may be now.
func (m *Machine) retryAt() Tick {
	switch {
	case m.own != serving || m.asked != callNone || m.blocked():
		return 0
	case m.due && len(m.asides) > 0:
		return m.asideTry.again
	case m.due || len(m.entries) == 0:
		return 0
	}
	if l := m.laneOf(m.entries[0].Ref()); l != nil {
		return l.retryAt
	}
	return 0
}

func (m *Machine) idleDue() Tick {
	if m.own != serving || m.asked != callNone || m.keep || m.due || len(m.entries) > 0 {
		return 0
	}
	return m.idleSince.Add(m.cfg.IdleAfter)
}
