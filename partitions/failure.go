package partitions

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/event"
)

// missing halts the unit at an entry that the port says exists nowhere any more.
func (m *Machine) missing(ref event.LaneRef) {
	l := m.laneOf(ref)
	if l == nil {
		m.unread = true
		m.trouble("fetch", Failed, fmt.Errorf("gap in %s, which is no lane of the unit", ref))
		return
	}
	m.settle, m.fate = &Failure{Lane: ref, Sequence: l.at + 1, Reason: "missing"}, fateHalt
}

// diverged halts the unit behind the place where the stream tells another history than the one it has applied. The halt has the id of the event that the stream has there: whoever
// lifts it has seen both, and goes on behind that one.
func (m *Machine) diverged(found event.Position) {
	l := m.laneOf(found.Lane)
	if l == nil || l.at != found.Sequence {
		m.unread = true
		m.trouble("fetch", Failed, fmt.Errorf("%s is said to have diverged at #%d, where the unit is not", found.Lane, found.Sequence))
		return
	}
	m.settle, m.fate = &Failure{
		Lane: found.Lane, Sequence: l.at + 1, EventID: found.EventID, Reason: "diverged",
		Error: fmt.Sprintf("event %q was applied at #%d, and the stream has %q there: the store of its producer went back in time", l.id, l.at, found.EventID),
	}, fateHalt
}

// failed counts an attempt that failed by itself, and decides what comes of it.
func (m *Machine) failed(in ApplyDone) {
	e := &m.entries[0]
	l := m.laneOf(e.Ref())
	if l.failed != e.Sequence {
		l.failed, l.attempts = e.Sequence, 0
	}
	l.attempts++
	if in.Class == Retry && l.attempts < m.cfg.Attempts {
		l.retryAt = m.retryLater(e, l.attempts, in.Err)
		m.owe(m.triedAt(l, e, in.Err), m.isTried(l.ref, e.Sequence) && m.tried.Suspicions > 0)
		return
	}
	m.returned(e)
	m.giveUp(failureOf(e, l.attempts, in))
}

// retryLater notes that another attempt will be made after the n-th failed, and gives when.
func (m *Machine) retryLater(e *event.Envelope, n int, err error) Tick {
	at := m.now.Add(m.jitter(m.cfg.Backoff.after(n)))
	m.note(Note{Kind: NoteRetry, Lane: e.Ref(), Sequence: e.Sequence, Attempt: n, Err: err, Again: at})
	return at
}

// failureOf tells of an entry at which the last attempt has been made.
func failureOf(e *event.Envelope, attempts int, in ApplyDone) *Failure {
	f := &Failure{Lane: e.Ref(), Sequence: e.Sequence, EventID: e.ID, EventType: e.Type, Attempts: attempts, Reason: "retries exhausted"}
	if in.Class == Poison {
		f.Reason = cmp.Or(in.Reason, "poison")
	}
	if in.Err != nil {
		f.Error = in.Err.Error()
	}
	return f
}

// giveUp has an entry of the stream dealt with as the policy says.
func (m *Machine) giveUp(f *Failure) {
	m.settle, m.fate = f, fateHalt
	switch {
	case m.cfg.Policy == SetAside:
		m.fate = fateDead
	case m.cfg.Policy == ParkUnit && m.parkedRoom() > 0:
		m.fate = fatePark
	case m.cfg.Policy == ParkUnit:
		f.Reason = tooManyParked
	}
}

// write makes durable what becomes of an entry that cannot be applied.
func (m *Machine) write() {
	f := m.settle
	untry := m.untry(f.Lane, f.Sequence)
	switch m.fate {
	case fateHalt:
		m.asked = callHalt
		m.eff.halt = WriteHalt{Generation: m.gen, Halt: f, Untry: untry, Moves: m.moves(nil)}
		m.emit(&m.eff.halt)
	case fateDead:
		m.asked = callDead
		m.eff.dead = WriteDead{Generation: m.gen, Dead: f, Untry: untry, Moves: m.moves(m.entries[:1])}
		m.emit(&m.eff.dead)
	case fatePark:
		m.park(append(m.eff.failures[:0], *f))
	case fateStay:
		m.settleAside(f)
	}
}

func (m *Machine) writeHaltDone(in WriteHaltDone) {
	if in.Outcome != OK {
		m.notSettled("write halt", in.Outcome, in.Err)
		return
	}
	m.committed(m.eff.halt.Moves)
	m.halt, m.settle, m.entries = m.settle, nil, nil
	m.idleSince = m.now
	m.settled(m.eff.halt.Untry)
	m.noteFailure(NoteHalted, m.halt)
}

func (m *Machine) writeDeadDone(in WriteDeadDone) {
	if in.Outcome != OK {
		m.notSettled("write dead letter", in.Outcome, in.Err)
		return
	}
	m.committed(m.eff.dead.Moves)
	m.noteFailure(NoteDead, m.settle)
	m.settle = nil
	m.settled(m.eff.dead.Untry)
	m.pop(1)
	m.idleSince = m.now
}

// settled notes that it is durable what becomes of the entry that was next. If it was a suspect, it was the one.
func (m *Machine) settled(untry bool) {
	m.suspect = false
	if untry {
		m.tried = Tried{}
	}
}

func (m *Machine) notSettled(what string, o Outcome, err error) {
	if o != Failed {
		m.notCommitted(what, o, err)
		return
	}
	m.trouble(what, o, err)
	if m.draining {
		m.settle, m.again = nil, 0 // the next owner will find out for itself
	}
}

func (m *Machine) noteFailure(kind NoteKind, f *Failure) {
	n := Note{Kind: kind, Lane: f.Lane, Sequence: f.Sequence, Why: f.Reason}
	if f.Error != "" {
		n.Err = errors.New(f.Error)
	}
	m.note(n)
}
