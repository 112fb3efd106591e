package partitions

import (
	"math/bits"
	"slices"

	"github.com/keyhold/keyhold/event"
)

// carryOut does what an owner has asked for, and gives the answer; false where the world ends.
func (x *exploration) carryOut(id, i int, s *smallState) (Input, bool) {
	m := s.m[i]
	fenced := !s.holds(i)
	switch m.asked {
	case callAcquire:
		return x.acquire(i, s)
	case callRecover:
		return x.recovery(i, s), true
	case callFetch:
		if fenced {
			return FetchDone{Outcome: Stale}, true
		}
		in := FetchDone{}
		for seq := m.eff.fetch.Positions[0].Sequence + 1; seq <= s.produced; seq++ {
			in.Entries = append(in.Entries, event.Envelope{Type: "e", Category: smallLane.Category, Key: smallLane.Key, Sequence: seq})
		}
		s.busy = s.busy && !(m.eff.fetch.Ack && len(in.Entries) == 0 && !s.due)
		return in, true
	case callParked, callTried, callSettleAside, callSuspectAside, callFetchAside:
		return x.aside(id, i, s), true
	case callApply:
		return ApplyDone{Outcome: x.commit(id, i, s)}, true
	case callPassivate:
		return PassivateDone{}, true
	case callRelease:
		switch {
		case fenced:
			return ReleaseDone{Outcome: Stale}, true
		case s.busy && m.eff.release.IfIdle:
			return ReleaseDone{Outcome: Busy}, true
		}
		s.holder, s.last, s.gen = 0, 0, 0
		return ReleaseDone{}, true
	}
	panic("asks for " + m.asking())
}

func (x *exploration) acquire(i int, s *smallState) (Input, bool) {
	switch {
	case s.amnesty && x.without != "amnesty":
		return AcquireDone{Acquired: Acquired{Forgot: true}}, true
	case s.holder != 0 && s.holder != int8(i+1):
		return AcquireDone{Acquired: Acquired{HeldFor: 1}}, true
	}
	gen := max(s.counter, s.m[i].eff.acquire.Floor) + 1
	if gen > smallTop {
		return nil, false
	}
	unclean := x.faults.unclean && s.last != 0 && s.last != int8(i+1)
	s.holder, s.gen, s.counter = int8(i+1), gen, gen
	if x.faults.unclean {
		s.last = s.holder
	}
	return AcquireDone{Acquired: Acquired{Granted: true, Generation: gen, Unclean: unclean}}, true
}

func (x *exploration) recovery(i int, s *smallState) Input {
	in := RecoverDone{Generation: s.row, Checkpoints: []event.Position{{Lane: smallLane, Sequence: s.checkpoint}}}
	if gen := s.m[i].gen; x.without == "raise" {
		in.Raised = true
	} else if s.row < gen {
		s.row, in.Raised = gen, true
	}
	if in.Raised {
		s.recovered = max(s.recovered, s.m[i].gen)
	}
	if n := bits.OnesCount8(s.parked); n > 0 && x.without != "park" {
		in.Parked = []Parked{{Category: smallLane.Category, Count: n}}
	}
	in.Due = s.due && x.without != "due"
	if s.tried.seq > s.checkpoint {
		in.Tried = s.tried.of()
	}
	return in
}

// commit applies the entry that owner i has in its behavior.
func (x *exploration) commit(id, i int, s *smallState) Outcome {
	m, e := s.m[i], &s.m[i].eff.apply
	seq := e.Entry.Sequence
	other := s.m[1-i]
	if s.valid(i) && s.valid(1-i) && other.asked == callApply && other.eff.apply.Entry.Sequence != seq {
		x.fail(id, "two entries are in behaviors under valid leases")
	}
	switch {
	case x.stale(s, m.Machine):
		return Stale
	case e.Aside == nil && s.checkpoint != e.Moves[0].From:
		return Moved
	case e.Aside != nil && !s.isFirst(seq) && x.without != "settle":
		return Moved
	case m.gen < s.recovered:
		x.fail(id, "generation %d commits #%d, the unit was recovered at %d", m.gen, seq, s.recovered)
	case seq != s.applied+1:
		x.fail(id, "#%d is applied after #%d", seq, s.applied)
	}
	if x.without == "raise" {
		s.row = m.gen
	}
	s.applied = seq
	if e.Aside != nil {
		s.unpark(seq)
		return OK
	}
	s.checkpoint = seq
	if e.Untry {
		s.tried = smallTried{}
	}
	return OK
}

// stale is the fence.
func (x *exploration) stale(s *smallState, m *Machine) bool {
	return x.without == "raise" && m.gen < s.row || x.without != "raise" && x.without != "fence" && m.gen != s.row
}

// isFirst reports whether an entry is the first that is parked, and due.
func (s *smallState) isFirst(seq event.Sequence) bool {
	return s.due && s.parked != 0 && bits.TrailingZeros8(s.parked) == int(seq-1)
}

func (s *smallWorld) unpark(seq event.Sequence) {
	s.parked &^= 1 << (seq - 1)
	s.due, s.blamed = s.parked != 0, 0
}

// aside answers what has to do with entries that are set aside, and with attempts.
func (x *exploration) aside(id, i int, s *smallState) Input {
	m := s.m[i]
	switch {
	case m.asked == callFetchAside:
		in := FetchAsideDone{}
		for seq := event.Sequence(1); seq <= smallEntries && s.due; seq++ {
			if s.parked&(1<<(seq-1)) != 0 {
				suspicions := int(s.blamed)
				if len(in.Entries) > 0 {
					suspicions = 0
				}
				in.Entries = append(in.Entries, Aside{AsideRef: AsideRef{Lane: smallLane, Sequence: seq}, Suspicions: suspicions, Entry: event.Envelope{Type: "e", Category: smallLane.Category, Key: smallLane.Key, Sequence: seq}})
			}
		}
		return in
	case x.stale(s, m.Machine):
		return unanswered(m.asked, Stale)
	}
	switch m.asked {
	case callParked:
		e := &m.eff.parked
		if s.checkpoint != e.Moves[0].From || e.Parked[0].Reason == "" && s.parked == 0 && x.without != "behind" {
			return WriteParkedDone{Outcome: Moved}
		}
		for _, f := range e.Parked {
			s.parked |= 1 << (f.Sequence - 1)
			if f.Reason != "" {
				s.told |= 1 << (f.Sequence - 1)
			}
		}
		s.checkpoint = e.Moves[0].To
		if e.Untry {
			s.tried = smallTried{}
		}
		return WriteParkedDone{}
	case callTried:
		s.tried = small(m.eff.write.Tried)
		if s.tried.alone > s.crashed+s.late+1 {
			x.fail(id, "#%d was alone %d times", s.tried.seq, s.tried.alone)
		}
		return WriteTriedDone{}
	case callSuspectAside:
		e := &m.eff.suspect
		if !s.isFirst(e.Aside.Sequence) {
			return SuspectAsideDone{Outcome: Moved}
		}
		if s.blamed = int8(e.Suspicions); s.blamed > s.crashed+s.late+1 {
			x.fail(id, "#%d, set aside, was alone %d times", e.Aside.Sequence, s.blamed)
		}
		return SuspectAsideDone{}
	}
	e := &m.eff.settle
	if !s.isFirst(e.Aside.Sequence) {
		return SettleAsideDone{Outcome: Moved}
	}
	s.due, s.blamed = false, 0
	s.told |= s.parked & -s.parked
	return SettleAsideDone{}
}

// unanswered is the answer of a call that did not work out, nil where there is none.
func unanswered(c call, o Outcome) Input {
	switch c {
	case callAcquire:
		return AcquireDone{Outcome: o}
	case callRecover:
		return RecoverDone{Outcome: o}
	case callFetch:
		return FetchDone{Outcome: o}
	case callApply:
		return ApplyDone{Outcome: o}
	case callRelease:
		return ReleaseDone{Outcome: o}
	case callParked:
		return WriteParkedDone{Outcome: o}
	case callTried:
		return WriteTriedDone{Outcome: o}
	case callFetchAside:
		return FetchAsideDone{Outcome: o}
	case callSettleAside:
		return SettleAsideDone{Outcome: o}
	case callSuspectAside:
		return SuspectAsideDone{Outcome: o}
	}
	return nil
}

// machineKey is all of a machine that makes a difference in a small world, without times: those that matter are facts here.
type machineKey struct {
	own                                              ownership
	gen, floor                                       event.Generation
	unread, woken, draining, lost, took, reack       bool
	instance, cancelled, waits, idle, resting, retry bool
	at, durable, acked, first                        event.Sequence
	entries, failures, attempts                      int
	asked                                            call
	ack, ifIdle                                      bool
	acted, actedAgain, due, suspect, based, counted  bool
	untold                                           bool
	settle, asideWaits, owes, must, behind           bool
	parked, asides, asideFails                       int
	aside                                            event.Sequence
	asideOwes, asideCounted, asideBased, alone       bool
	asideBase, blamed, suspicions                    int8
	tried, base, owed, writing                       smallTried
}

func (m *Machine) key() machineKey {
	l := &m.lanes[0]
	k := machineKey{
		own: m.own, gen: m.gen, floor: m.floor,
		unread: m.unread, woken: m.woken, draining: m.draining, lost: m.lost != "", took: m.took, reack: m.reack,
		instance: m.instance, cancelled: m.cancelled, waits: m.again > m.now, idle: m.own == serving && m.idle(), resting: m.resting, retry: l.retryAt > m.now,
		at: l.at, durable: l.durable, acked: l.acked,
		entries: len(m.entries), failures: min(m.failures, 2), attempts: l.attempts,
		asked: m.asked,
	}
	if len(m.entries) > 0 {
		k.first = m.entries[0].Sequence
	}
	k.untold = m.untold
	k.acted, k.actedAgain, k.due, k.suspect, k.based, k.counted = m.acted, m.actedAgain, m.due, m.suspect, m.based, m.counted
	k.settle, k.asideWaits, k.owes, k.must = m.settle != nil, m.asideTry.again > m.now, m.owed != nil, m.must
	k.parked, k.asides, k.asideFails = len(m.parked), len(m.asides), m.asideTry.fails
	k.asideOwes, k.asideCounted, k.asideBased, k.asideBase = m.asideTry.owes, m.asideTry.counted, m.asideTry.based, int8(m.asideTry.base)
	k.tried, k.base = small(&m.tried), small(&m.base)
	if k.parked > 0 {
		k.parked = m.parked[0].Count
	}
	if k.asides > 0 {
		k.aside, k.blamed = m.asides[0].Sequence, int8(m.asides[0].Suspicions)
	}
	if k.owes {
		k.owed = small(m.owed)
	}
	switch m.asked {
	case callParked:
		k.parked, k.behind = len(m.eff.parked.Parked), m.eff.parked.Parked[0].Reason == ""
	case callTried:
		k.writing = small(m.eff.write.Tried)
	case callSuspectAside:
		k.suspicions, k.alone = int8(m.eff.suspect.Suspicions), m.eff.suspect.Alone
	case callFetch:
		k.ack = m.eff.fetch.Ack
	case callRelease:
		k.ifIdle = m.eff.release.IfIdle
	}
	return k
}

func (m *Machine) asking() string {
	return [...]string{"nothing", "acquire", "recover", "fetch", "apply", "serve", "write halt", "write dead", "write parked", "write tried", "fetch aside", "settle aside", "suspect aside", "commit passed", "passivate", "release"}[m.asked]
}

// clone copies a machine with whatever is outstanding.
func (m *Machine) clone() *Machine {
	c := *m
	c.out = nil
	c.lanes = slices.Clone(m.lanes)
	c.parked = slices.Clone(m.parked)
	if m.owed != nil {
		owed := *m.owed
		c.owed = &owed
	}
	c.eff.failures = slices.Clone(m.eff.failures)
	c.eff.parked.Parked, c.eff.parked.Moves = c.eff.failures, nil
	c.eff.write.Tried = &c.eff.tried
	c.eff.positions = slices.Clone(m.eff.positions)
	c.eff.fetch.Positions = c.eff.positions
	c.eff.moves = slices.Clone(m.eff.moves)
	c.eff.apply.Moves, c.eff.passed.Moves, c.eff.parked.Moves = c.eff.moves, c.eff.moves, c.eff.moves
	if m.eff.apply.Aside != nil {
		c.eff.apply.Aside, c.eff.apply.Moves = &c.eff.aside, nil
	}
	return &c
}
