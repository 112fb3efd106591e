package partitions

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Step tells the machine what happened, and gives what to do about it, in order. now never goes back. The slice is valid
// until the next Step. An answer to nothing that was asked is ignored.
func (m *Machine) Step(now Tick, in Input) []Effect {
	m.out = m.out[:0]
	m.now = max(m.now, now)
	m.checkDeadline()
	m.take(in)
	m.cancel()
	for m.asked == callNone && m.next() {
	}
	m.setTimer()
	return m.out
}

// take notes the facts that an input brings.
func (m *Machine) take(in Input) {
	switch in := in.(type) {
	case Wake:
		if !m.resting || !m.blocked() {
			m.unread, m.woken = true, true
		}
	case Demand:
		m.demand = true
	case Acted:
		m.acted, m.actedAgain = true, true
		m.forgetAttempts()
	case TimerFired:
		m.armed = 0
	case Renewed:
		if m.own >= granted && in.Generation == m.gen && m.lost == "" {
			m.deadline = max(m.deadline, m.leaseEnd(in.Sent))
		}
	case Fenced:
		if m.own >= granted && in.Generation == m.gen {
			m.lose("renewal was fenced")
		}
	case Lost:
		m.lose(cmp.Or(in.Why, "told so"))
	case Hung:
		m.tookTooLong()
	case Drain:
		m.drain(in.Cancel)
	default:
		m.takeAnswer(in)
	}
}

// takeAnswer notes the answer to what is outstanding.
func (m *Machine) takeAnswer(in Input) {
	switch in := in.(type) {
	case AcquireDone:
		if m.answers(callAcquire) {
			m.acquireDone(in)
		}
	case RecoverDone:
		if m.answers(callRecover) {
			m.recoverDone(in)
		}
	case FetchDone:
		if m.answers(callFetch) {
			m.fetchDone(in)
		}
	case ApplyDone:
		if m.answers(callApply) {
			m.applyDone(in)
		}
	case ServeDone:
		if m.answers(callServe) {
			m.serveDone(in)
		}
	case WriteHaltDone:
		if m.answers(callHalt) {
			m.writeHaltDone(in)
		}
	case WriteDeadDone:
		if m.answers(callDead) {
			m.writeDeadDone(in)
		}
	case WriteParkedDone:
		if m.answers(callParked) {
			m.writeParkedDone(in)
		}
	case WriteTriedDone:
		if m.answers(callTried) {
			m.writeTriedDone(in)
		}
	case FetchAsideDone:
		if m.answers(callFetchAside) {
			m.fetchAsideDone(in)
		}
	case SettleAsideDone:
		if m.answers(callSettleAside) {
			m.settleAsideDone(in)
		}
	case SuspectAsideDone:
		if m.answers(callSuspectAside) {
			m.suspectAsideDone(in)
		}
	case CommitPassedDone:
		if m.answers(callPassed) {
			m.commitPassedDone(in)
		}
	case PassivateDone:
		if m.answers(callPassivate) {
			m.instance, m.keep = false, false
		}
	case ReleaseDone:
		if m.answers(callRelease) {
			m.releaseDone(in)
		}
	default:
		panic("partitions: a pointer is no input, inputs are values") // not telling which: in would escape, at one allocation for each Step
	}
}

// answers reports whether c is outstanding, and takes it as answered.
func (m *Machine) answers(c call) bool {
	if m.asked != c {
		return false
	}
	m.asked = callNone
	return true
}

// leaseEnd gives the deadline of a lease that was asked for, or renewed, at sent.
func (m *Machine) leaseEnd(sent Tick) Tick { return sent.Add(m.cfg.TTL - m.cfg.Margin) }

// checkDeadline comes before any input is looked at: a renewal that arrives late never revives.
func (m *Machine) checkDeadline() {
	if m.cfg.Leased && m.own >= granted && m.now >= m.deadline {
		m.lose("deadline passed")
	}
}

// lose notes that what is held must not be relied on. What is inside must come back before anything else is done.
func (m *Machine) lose(why string) {
	if m.lost != "" || m.own == none && m.asked != callAcquire {
		return
	}
	m.lost = why
	if m.own >= granted {
		m.note(Note{Kind: NoteLost, Why: why})
	}
}

// inside reports whether user code is.
func (m *Machine) inside() bool {
	return m.asked == callApply || m.asked == callServe || m.asked == callPassivate
}

// cancel tells user code once that nothing good will come of it any more.
func (m *Machine) cancel() {
	if !m.inside() || m.cancelled || m.lost == "" && !m.hurry {
		return
	}
	m.cancelled, m.spared = true, !m.hung
	m.eff.cancel = Cancel{Why: CancelDrain}
	if m.lost != "" {
		m.eff.cancel.Why = CancelLost
	}
	m.emit(&m.eff.cancel)
}

func (m *Machine) tookTooLong() {
	if !m.inside() || m.hung {
		return
	}
	m.hung = true
	m.note(Note{Kind: NoteHung})
	if m.cfg.Leased {
		m.lose("user code does not return")
	}
}

func (m *Machine) drain(hurry bool) {
	m.draining, m.resting = true, false
	m.again = 0 // nothing of what was to be tried again later is worth waiting for
	m.hurry = m.hurry || hurry
}

func (m *Machine) acquireDone(in AcquireDone) {
	switch {
	case in.Outcome != OK:
		m.untold = m.untold || in.Outcome == Unknown && m.cfg.Leased
		m.trouble("acquire", in.Outcome, in.Err)
	case in.Granted:
		// That it was left unclean is said once. Whoever had it between may have cleared it: then it is suspected for nothing, at the cost of a write.
		m.based = m.based && !in.Unclean && (m.suspect || !m.untold)
		m.suspect, m.untold = m.suspect || in.Unclean || m.untold, false
		if in.Unclean || !m.suspect {
			m.asideTry.based, m.asideTry.owes = false, false // others had it since, or nobody is suspected
		}
		m.own, m.gen = granted, in.Generation
		if m.cfg.Leased {
			m.floor, m.deadline = max(m.floor, m.gen), m.leaseEnd(m.sent)
			m.checkDeadline()
		}
	case in.Forgot:
		m.notToBeHad(NoteForgot, m.cfg.TTL, "", 0)
	default:
		m.notToBeHad(NoteHeld, in.HeldFor, in.Holder, in.HeldAt)
	}
}

// notToBeHad notes that the unit cannot be acquired for a while. Whoever competes for it without knowing who else does would do so for
// nothing: when it is worth another try is for those to say who know the others.
func (m *Machine) notToBeHad(why NoteKind, d time.Duration, holder string, at event.Generation) {
	m.own, m.lost, m.untold = none, "", false // should that acquisition be on its way still, a suspicion is missed; to wait for it would be for ever
	m.elsewhere, m.holder, m.heldAt = max(d, time.Millisecond), holder, at
	m.halt, m.paused, m.newer = nil, false, false // the other owner knows better
	m.note(Note{Kind: why, Again: m.now.Add(m.elsewhere), Why: heldBy(holder, at)})
}

func (m *Machine) recoverDone(in RecoverDone) {
	if in.Outcome == OK && len(in.Checkpoints) != len(m.lanes) {
		in.Outcome, in.Err = Failed, fmt.Errorf("%d checkpoints for %d lanes", len(in.Checkpoints), len(m.lanes))
	}
	switch {
	case in.Outcome == Failed:
		// Somebody who reaches the store may have more luck.
		m.own, m.unfit = refused, m.cfg.Leased
		if m.unfit {
			m.note(Note{Kind: NoteTrouble, Why: "recover failed", Err: in.Err})
			return
		}
		m.trouble("recover", in.Outcome, in.Err)
		return
	case in.Outcome != OK:
		// A row found at our generation is no proof that we put it there: ask for another one.
		m.anew("outcome of recovery: " + in.Outcome.String())
		return
	case m.eff.recover.Raise && !in.Raised:
		m.own, m.floor = refused, max(m.floor, in.Generation)
		m.note(Note{Kind: NoteRefused, Why: fmt.Sprintf("the store is at generation %d, above this lease: a higher one is taken", in.Generation)})
		return
	}
	stopped := m.halt != nil || m.paused || m.acted // after a rest nothing is known of a halt but that somebody acted on it
	m.acted = m.actedAgain
	m.own, m.idleSince, m.unread = serving, m.now, true
	m.halt, m.paused, m.newer = in.Halt, in.Paused, false
	if stopped && !m.blocked() {
		m.note(Note{Kind: NoteResumed})
	}
	for i := range m.lanes {
		l, p := &m.lanes[i], in.Checkpoints[i]
		l.durable, l.durableID, l.at, l.id = p.Sequence, p.EventID, p.Sequence, p.EventID
	}
	m.reack = m.cfg.Leased // the group may be anywhere
	m.parked, m.due = slices.Clone(in.Parked), in.Due
	m.recoverTried(in.Tried)
	if m.suspect {
		m.note(Note{Kind: NoteSuspect})
	}
}

func (m *Machine) fetchDone(in FetchDone) {
	switch in.Outcome {
	case OK:
	case Stale:
		m.unread = true
		m.lose("fenced")
		return
	default:
		m.unread = true
		m.trouble("fetch", in.Outcome, in.Err)
		return
	}
	if m.eff.fetch.Ack {
		m.reack = false
		for i := range m.lanes {
			m.lanes[i].acked = m.eff.fetch.Positions[i].Sequence
		}
	}
	if in.Gap {
		m.missing(in.Lane)
		return
	}
	if in.Diverged {
		m.diverged(in.Found)
		return
	}
	m.entries, m.took = in.Entries, false
	if len(m.entries) == 0 {
		m.failures, m.suspect = 0, false
		return
	}
	m.idleSince = m.now
	m.unread = m.unread || !in.Drained
}

func (m *Machine) applyDone(in ApplyDone) {
	m.suspect, m.counted = false, false
	m.idleSince = m.now
	aside := m.eff.apply.Aside != nil
	switch {
	case in.Outcome == OK && aside:
		m.keep = in.Keep
		m.asideApplied()
		return
	case in.Outcome == OK:
		m.keep = in.Keep
		m.committed(m.eff.apply.Moves)
		m.pop(1)
		return
	}
	m.throwAway()
	givenUp := m.spared || m.lost != "" && !m.hung // on by us: nobody can tell how the attempt would have gone
	switch {
	case in.Outcome != Failed:
		m.notCommitted("apply", in.Outcome, in.Err)
		if aside && m.eff.apply.Suspect {
			m.asideCleared()
		}
	case aside && !givenUp:
		m.asideFailed(in)
	case aside:
	case givenUp:
		m.returned(&m.entries[0])
	default:
		m.failed(in)
	}
}

func (m *Machine) serveDone(in ServeDone) {
	m.idleSince = m.now
	m.demand = m.demand || in.More
	if in.Outcome == OK {
		m.keep, m.failures = in.Keep, 0
		return
	}
	m.throwAway()
	if in.Outcome != Failed {
		m.notCommitted("serve", in.Outcome, in.Err)
	}
}

func (m *Machine) commitPassedDone(in CommitPassedDone) {
	switch {
	case in.Outcome == OK:
		m.committed(m.eff.passed.Moves)
	case in.Outcome != Failed:
		m.notCommitted("commit passed", in.Outcome, in.Err)
	default:
		m.trouble("commit passed", in.Outcome, in.Err)
		if m.draining {
			m.passed, m.again = 0, 0 // the next owner passes over them again
		}
	}
}

func (m *Machine) releaseDone(in ReleaseDone) {
	switch {
	case in.Outcome == Busy && m.eff.release.IfIdle:
		m.unread, m.idleSince = true, m.now
	case in.Outcome == OK, in.Outcome == Stale, m.own < serving, m.hurry, !m.cfg.Leased:
		// Where it is not certain, it will lapse, or an acquisition supersedes it.
		m.forget()
		m.own, m.lost, m.suspect = none, "", m.suspect && !m.isAttended()
	default:
		m.trouble("release", in.Outcome, in.Err)
		if in.Outcome == Unknown {
			m.own = dropped // somebody else may have it already: no ask is answered at this lease any more
		}
	}
}

// committed notes that moves are durable.
func (m *Machine) committed(moves []Move) {
	for i := range moves {
		mv := &moves[i]
		l := m.laneOf(mv.Lane)
		l.durable, l.durableID, l.at, l.id = mv.To, mv.EventID, mv.To, mv.EventID
		l.retryAt = 0
		if mv.Lane == m.tried.Lane && mv.To >= m.tried.Sequence {
			m.tried = Tried{} // with the commit, or because it is void now
		}
	}
	m.passed, m.failures, m.took = 0, 0, true
}

// notCommitted takes a commit that came back stale, refused or unknown. It is not the entry's fault, and nothing that was
// known of the unit can be relied on.
func (m *Machine) notCommitted(what string, o Outcome, err error) {
	if o == Stale {
		m.unread = true
		m.lose(what + " came back stale")
		return
	}
	m.failures++
	m.backOff(m.failures - 1)
	m.anewBecause(fmt.Sprintf("outcome of %s: %s", what, o), err)
}

// anew drops the activation, but not the lease: the unit is acquired above it and recovered anew.
func (m *Machine) anew(why string) { m.anewBecause(why, nil) }

func (m *Machine) anewBecause(why string, err error) {
	n := Note{Kind: NoteAnew, Why: why, Err: err}
	if m.again > m.now {
		n.Again = m.again
	}
	m.note(n)
	m.forget()
	m.own, m.unread = dropped, true
}

// throwAway ends the behavior instance: what it has in memory may have seen what was never committed.
func (m *Machine) throwAway() {
	m.instance, m.keep = false, false
	m.emit(&m.eff.discard)
}

// forget drops everything that belongs to an activation.
func (m *Machine) forget() {
	if m.instance {
		m.throwAway()
	}
	m.entries, m.settle, m.passed, m.reack, m.hung = nil, nil, 0, false, false
	m.parked, m.due, m.asides = nil, false, nil
	m.tried, m.counted, m.owed = Tried{}, false, nil
	m.asideTry.counted, m.asideTry.owes = false, m.asideTry.owes || m.asideTry.counted
}

// trouble notes a call that did not work out and when the next may be made.
func (m *Machine) trouble(what string, o Outcome, err error) {
	m.failures++
	m.backOff(m.failures)
	m.note(Note{Kind: NoteTrouble, Why: what + " " + o.String(), Err: err, Again: m.again})
}

// backOff lets no call be made before the delay after n failures.
func (m *Machine) backOff(n int) {
	if n > 0 {
		m.again = m.now.Add(m.jitter(m.cfg.IO.after(n)))
	}
}

func (m *Machine) jitter(d time.Duration) time.Duration {
	if m.cfg.Jitter == nil {
		return d
	}
	return m.cfg.Jitter(d)
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

func (m *Machine) note(n Note) { m.emit(&n) }

// pop lets go of the next n entries, which were dealt with.
func (m *Machine) pop(n int) {
	m.eff.apply.Entry = nil
	if m.entries = m.entries[n:]; len(m.entries) == 0 {
		m.entries = nil // the array is not to stay as long as the unit
	}
}

func (m *Machine) laneOf(ref event.LaneRef) *lane {
	for i := range m.lanes {
		if m.lanes[i].ref == ref {
			return &m.lanes[i]
		}
	}
	return nil
}
