package sim

import (
	"fmt"
	"slices"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// Monitor checks what a machine promises its shell, whatever the shell does: step the machine through it.
type Monitor struct {
	Machine *partitions.Machine

	cfg      *partitions.Config
	asked    string // name of the effect that is not answered, "" = none
	inside   bool
	instance bool
	held     bool // granted, and neither given up nor lost
	gen      event.Generation
	sent     partitions.Tick
	deadline partitions.Tick
	timer    partitions.Tick
	moves    []partitions.Move
	lanes    []watched
	aside    watchedAside
	tried    watchedTried
	wrong    error
}

// watched is what the monitor knows of a lane of the present activation.
type watched struct {
	ref     event.LaneRef
	durable event.Sequence
	given   map[event.Sequence]bool // entries read above it: may they be passed over?
}

// NewMonitor makes a machine and watches it.
func NewMonitor(cfg *partitions.Config, unit event.Unit, lanes []event.LaneRef) *Monitor {
	m := &Monitor{Machine: partitions.New(cfg, unit, lanes), cfg: cfg, lanes: make([]watched, len(lanes))}
	for i, ref := range lanes {
		m.lanes[i] = watched{ref: ref, given: make(map[event.Sequence]bool)}
	}
	return m
}

// Timer is the tick that the machine wants to be called back at, 0 = none.
func (m *Monitor) Timer() partitions.Tick { return m.timer }

// Asked names the effect that is to be answered, such as "apply"; "" = none.
func (m *Monitor) Asked() string { return m.asked }

// Err gives the first promise that was broken.
func (m *Monitor) Err() error { return m.wrong }

// Step steps the machine.
func (m *Monitor) Step(now partitions.Tick, in partitions.Input) []partitions.Effect {
	thrownAway := m.before(now, in)
	effects := m.Machine.Step(now, in)
	for _, e := range effects {
		if _, ok := e.(*partitions.Discard); ok {
			m.instance, thrownAway = false, false
		}
		m.effect(now, e)
	}
	if _, ok := in.(partitions.RecoverDone); ok && m.tried.unclean && m.Machine.Serving(now) {
		m.check(false, "takes a unit that was left unclean for a clean one")
	}
	m.check(!thrownAway, "the instance outlives an attempt that did not commit")
	if m.Machine.Serving(now) {
		m.check(m.held && (!m.cfg.Leased || now < m.deadline), "serves without a valid lease")
	}
	return effects
}

func (m *Monitor) check(ok bool, format string, args ...any) {
	if !ok && m.wrong == nil {
		m.wrong = fmt.Errorf("%s: %s", m.Machine, fmt.Sprintf(format, args...))
	}
}

// before notes what an input means; it reports whether the instance must go.
func (m *Monitor) before(now partitions.Tick, in partitions.Input) (throwAway bool) {
	if m.cfg.Leased && m.held && now >= m.deadline {
		m.held = false
	}
	switch in := in.(type) {
	case partitions.TimerFired:
		m.timer = 0
	case partitions.Renewed:
		if m.held && in.Generation == m.gen {
			m.deadline = max(m.deadline, in.Sent.Add(m.cfg.TTL-m.cfg.Margin))
		}
	case partitions.Fenced:
		if in.Generation == m.gen {
			m.held = false
		}
	case partitions.Lost:
		m.held, m.tried.unclean = false, false
	case partitions.Hung:
		m.held = m.held && !(m.inside && m.cfg.Leased)
	case partitions.AcquireDone:
		switch {
		case !m.answered("acquire"):
		case in.Outcome == partitions.Unknown:
			m.tried.untold = m.cfg.Leased
		case in.Outcome == partitions.OK:
			m.held, m.gen, m.deadline = in.Granted, in.Generation, m.sent.Add(m.cfg.TTL-m.cfg.Margin)
			m.tried.unclean = in.Granted && in.Unclean
			m.tried.based = m.tried.based && !m.tried.unclean && (m.tried.suspect || !m.tried.untold)
			m.tried.untold = false
		}
	case partitions.RecoverDone:
		if m.answered("recover") && in.Outcome == partitions.OK && len(in.Checkpoints) == len(m.lanes) {
			for i := range m.lanes {
				m.lanes[i].durable = in.Checkpoints[i].Sequence
				clear(m.lanes[i].given)
			}
			if in.Raised || !m.cfg.Leased {
				m.aside.recovered(in)
				m.tried.recovered(in, m.held)
			}
		}
	case partitions.FetchDone:
		if m.answered("fetch") && in.Outcome == partitions.OK {
			m.given(in.Entries)
			m.tried.suspect = m.tried.suspect && (in.Gap || len(in.Entries) > 0) // there is none where there is nothing
		}
	case partitions.ApplyDone:
		if m.answered("apply") {
			m.tried.suspect = false
			m.tried.ended(in.Outcome)
			m.aside.applied(in.Outcome)
			m.committed(in.Outcome)
			return in.Outcome != partitions.OK
		}
	case partitions.ServeDone:
		if m.answered("serve") {
			m.held = m.held && in.Outcome != partitions.Stale
			return in.Outcome != partitions.OK
		}
	case partitions.WriteHaltDone:
		if m.answered("write halt") {
			m.tried.ended(in.Outcome)
			m.committed(in.Outcome)
		}
	case partitions.WriteDeadDone:
		if m.answered("write dead") {
			m.tried.ended(in.Outcome)
			m.committed(in.Outcome)
		}
	case partitions.WriteParkedDone:
		if m.answered("write parked") {
			if m.aside.failed() {
				m.tried.ended(in.Outcome)
			}
			m.aside.written(in.Outcome)
			m.committed(in.Outcome)
		}
	case partitions.WriteTriedDone:
		if m.answered("write tried") {
			m.tried.written(in.Outcome)
			m.committed(in.Outcome)
		}
	case partitions.FetchAsideDone:
		if m.answered("fetch aside") && in.Outcome == partitions.OK {
			m.aside.given(in.Entries)
		}
	case partitions.SettleAsideDone:
		if m.answered("settle aside") {
			m.aside.settled(in.Outcome)
			m.committed(in.Outcome)
		}
	case partitions.SuspectAsideDone:
		if m.answered("suspect aside") {
			m.aside.suspected(in.Outcome, m.tried.serving)
			m.committed(in.Outcome)
		}
	case partitions.CommitPassedDone:
		if m.answered("commit passed") {
			m.committed(in.Outcome)
		}
	case partitions.PassivateDone:
		if m.answered("passivate") {
			m.instance = false
		}
	case partitions.ReleaseDone:
		if m.answered("release") && (in.Outcome == partitions.OK || in.Outcome == partitions.Stale) {
			m.held = false
		}
	}
	return false
}

func (m *Monitor) answered(what string) bool {
	if m.asked != what {
		return false
	}
	m.asked, m.inside = "", false
	return true
}

func (m *Monitor) given(entries []event.Envelope) {
	for i := range entries {
		e := &entries[i]
		if l := m.lane(e.Ref()); l != nil {
			l.given[e.Sequence] = e.Void() || m.cfg.Handling != nil && m.cfg.Handling(e) == partitions.PassOver
		}
	}
}

func (m *Monitor) committed(o partitions.Outcome) {
	switch o {
	case partitions.OK:
		for _, mv := range m.moves {
			m.lane(mv.Lane).durable = mv.To
		}
	case partitions.Stale:
		m.held = false
	}
	m.moves = m.moves[:0]
}

func (m *Monitor) lane(ref event.LaneRef) *watched {
	for i := range m.lanes {
		if m.lanes[i].ref == ref {
			return &m.lanes[i]
		}
	}
	return nil
}

// effect checks one effect.
func (m *Monitor) effect(now partitions.Tick, e partitions.Effect) {
	switch e := e.(type) {
	case *partitions.Acquire:
		m.ask("acquire", 0)
		m.sent = now
	case *partitions.Recover:
		m.ask("recover", e.Generation)
		m.check(e.Raise == m.cfg.Leased, "raise is %t", e.Raise)
	case *partitions.Fetch:
		m.ask("fetch", e.Generation)
		m.check(!m.aside.due, "reads on while something that was set aside is to be applied")
		for i, p := range e.Positions {
			l := &m.lanes[i]
			m.check(p.Lane == l.ref, "position %d is of %s", i, p.Lane)
			m.check(!e.Ack || p.Sequence <= l.durable, "acknowledges %s #%d, the checkpoint is %d", p.Lane, p.Sequence, l.durable)
		}
	case *partitions.Apply:
		m.ask("apply", e.Generation)
		m.enter(now, e.Fresh)
		m.check(e.Attempt >= 1, "attempt %d", e.Attempt)
		m.apply(e)
	case *partitions.Serve:
		m.ask("serve", e.Generation)
		m.enter(now, e.Fresh)
		m.cool("serves")
		m.check(!m.tried.hot, "serves while the store suspects %s #%d", m.tried.row.Lane, m.tried.row.Sequence)
	case *partitions.WriteHalt:
		m.ask("write halt", e.Generation)
		m.move(e.Moves)
		m.settle(e.Untry, e.Halt)
	case *partitions.WriteDead:
		m.ask("write dead", e.Generation)
		m.move(e.Moves, *e.Dead)
		m.settle(e.Untry, e.Dead)
	case *partitions.WriteParked:
		m.ask("write parked", e.Generation)
		m.move(e.Moves, e.Parked...)
		m.park(e)
	case *partitions.WriteTried:
		m.ask("write tried", e.Generation)
		m.moves = m.moves[:0]
		m.try(e)
	case *partitions.FetchAside:
		m.ask("fetch aside", e.Generation)
		m.check(m.aside.due, "looks for what was set aside, of which nothing is due")
	case *partitions.SettleAside:
		m.ask("settle aside", e.Generation)
		m.moves = m.moves[:0]
		m.settleAside(e)
	case *partitions.SuspectAside:
		m.ask("suspect aside", e.Generation)
		m.moves = m.moves[:0]
		m.suspectAside(e)
	case *partitions.CommitPassed:
		m.ask("commit passed", e.Generation)
		m.check(len(e.Moves) > 0, "commits nothing")
		m.move(e.Moves)
	case *partitions.Passivate:
		m.cool("passivates")
		m.check(!m.tried.hot, "passivates while the store suspects %s #%d", m.tried.row.Lane, m.tried.row.Sequence)
		m.ask("passivate", m.gen)
		m.inside = true
		m.check(m.instance, "passivates no instance")
	case *partitions.Release:
		m.ask("release", e.Generation)
		m.tried.unclean = false
		m.check(!m.instance, "releases with an instance alive")
		m.check(!m.aside.hot || m.aside.gaveUp, "releases while the store suspects %s", &m.aside.suspect)
		m.check(!m.tried.hot || m.tried.gaveUp, "releases while the store suspects %s #%d", m.tried.row.Lane, m.tried.row.Sequence)
	case *partitions.Note:
		switch e.Kind {
		case partitions.NoteSuspect:
			m.tried.isSuspect()
		case partitions.NoteLost:
			m.tried.hot, m.tried.serving, m.tried.unclean, m.aside.hot = false, false, false, false
		case partitions.NoteAnew: // given back now, the unit is clean, which says that nobody died of it
			m.tried.hot, m.tried.serving, m.aside.hot = false, false, false
		}
	case *partitions.Cancel:
		m.check(m.inside, "cancels nothing")
	case *partitions.SetTimer:
		m.timer = e.At
		m.check(e.At == 0 || e.At > now, "timer at %s, which is past", e.At)
	case *partitions.Idle:
		m.check(m.asked == "", "rests with %s unanswered", m.asked)
		m.check(!m.instance, "rests with an instance alive")
	}
}

// ask notes an effect that is to be answered. gen 0 is not compared.
func (m *Monitor) ask(what string, gen event.Generation) {
	m.check(m.asked == "", "asks for %s with %s unanswered", what, m.asked)
	m.check(gen == 0 || gen == m.gen, "%s at generation %d, granted was %d", what, gen, m.gen)
	m.asked = what
}

// enter checks that user code may run.
func (m *Monitor) enter(now partitions.Tick, fresh bool) {
	m.check(m.held && (!m.cfg.Leased || now < m.deadline), "enters the behavior without a valid lease")
	m.check(fresh == !m.instance, "new instance is %t, there is one is %t", fresh, m.instance)
	m.inside, m.instance = true, true
}

// move checks that every entry that moves pass was given and may be passed over, but for those that are dealt with.
func (m *Monitor) move(moves []partitions.Move, past ...partitions.Failure) {
	m.moves = append(m.moves[:0], moves...)
	dealt := 0
	for _, mv := range moves {
		l := m.lane(mv.Lane)
		m.check(mv.From == l.durable, "moves %s from %d, the checkpoint is %d", mv.Lane, mv.From, l.durable)
		m.check(mv.To > mv.From, "moves %s from %d to %d", mv.Lane, mv.From, mv.To)
		for s := mv.From + 1; s <= mv.To; s++ {
			if slices.ContainsFunc(past, func(f partitions.Failure) bool { return f.Lane == mv.Lane && f.Sequence == s }) {
				dealt++
				continue
			}
			m.check(l.given[s], "passes over %s #%d, which it may not", mv.Lane, s)
		}
	}
	m.check(dealt == len(past), "deals with %d entries without moving past them", len(past)-dealt)
}
