package partitions

import (
	"fmt"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Machine decides for one unit. It is not for concurrent use.
//
// Inputs only set facts (step.go); what is done next follows from the facts alone (decide.go), and only
// when no answer is outstanding. So an input that comes at an awkward moment is not a case of its own: the fact waits until
// somebody looks.
type Machine struct {
	cfg  *Config
	unit event.Unit
	now  Tick

	// Whose the unit is.
	own      ownership
	gen      event.Generation // of the lease, where one is held
	floor    event.Generation // highest generation known: the next one must be above it
	sent     Tick             // when the last Acquire was asked for
	deadline Tick             // of the lease; where units are leased
	lost     string           // why the lease must not be relied on any more, "" = it may
	suspect  bool             // left unclean, and nothing of it has run yet, whether or not it was lost since
	based    bool             // likewise, and base is known
	untold   bool             // an answer to Acquire is lost, which may have said that it was left unclean
	unfit    bool             // the last recovery failed: another node may have more luck
	// elsewhere is for how long the unit is not to be had; 0 = it may be. If another has it, who that is, and at which generation, may be known.
	elsewhere time.Duration
	holder    string
	heldAt    event.Generation

	// What is wanted.
	unread     bool // there may be something to read
	woken      bool // so said a Wake, since the last read was sent
	demand     bool // an ask waits
	acted      bool // the halt or pause that the store has may be another one than was recovered
	actedAgain bool // so it may after a recovery that was sent, too
	draining   bool // give the unit up
	hurry      bool // and wait for nothing

	// What stops the stream, and what is about to.
	halt   *Failure
	paused bool
	newer  bool
	settle *Failure // entry that cannot be applied
	fate   fate     // what becomes of it

	// What was set aside.
	parked   []Parked // categories of which entries are parked
	due      bool     // entries set aside are to be applied, before the stream
	asides   []Aside  // read and not dealt with yet
	asideTry asideTry

	// What the store knows of attempts at the next entry.
	tried   Tried  // Sequence 0 = nothing
	base    Tried  // the same, before the present suspicion was counted
	counted bool   // it was, and the entry has not run yet
	owed    *Tried // to be written before anything else runs
	must    bool   // what is owed takes something back

	// The stream.
	lanes   []lane
	entries []event.Envelope // read and not applied yet
	took    bool             // the last read brought us on
	reack   bool             // the port gave what was applied already: acknowledge again
	passed  int              // entries passed over since checkpoints were last committed

	// The behavior.
	instance  bool
	keep      bool // it has timers
	served    bool // asks had their turn since the stream had its own
	cancelled bool // the code inside was told to hurry
	spared    bool // by us, before it was reported not to return: what comes of it is not held against the entry
	hung      bool // it was reported not to return

	// What is outstanding, and when to look again.
	asked     call
	again     Tick // no call of port or store before
	failures  int  // of calls, since one brought us on
	idleSince Tick
	armed     Tick // the timer that the shell has set, 0 = none
	resting   bool // Idle was said

	out []Effect
	eff struct { // what out points to; one answer is outstanding at most, so one of each is enough
		acquire   Acquire
		recover   Recover
		fetch     Fetch
		positions []event.Position
		apply     Apply
		serve     Serve
		halt      WriteHalt
		dead      WriteDead
		parked    WriteParked
		failures  []Failure
		write     WriteTried
		tried     Tried
		asides    FetchAside
		aside     AsideRef
		settle    SettleAside
		suspect   SuspectAside
		passed    CommitPassed
		moves     []Move
		passivate Passivate
		release   Release
		discard   Discard
		cancel    Cancel
		timer     SetTimer
		idle      Idle
	}
}

// ownership is how far the machine is with the lease of its unit.
type ownership uint8

const (
	none    ownership = iota // not held
	refused                  // held, but the store would not have it: give it back, acquire above
	dropped                  // held, but not recovered any more: acquire above it, or give it back
	granted                  // held, not recovered yet
	serving                  // held and recovered
)

// call is what the shell was asked for and has not answered.
type call uint8

const (
	callNone call = iota
	callAcquire
	callRecover
	callFetch
	callApply
	callServe
	callHalt
	callDead
	callParked
	callTried
	callFetchAside
	callSettleAside
	callSuspectAside
	callPassed
	callPassivate
	callRelease
)

// fate is what becomes of an entry that cannot be applied.
type fate uint8

const (
	fateHalt fate = iota // the unit halts before it
	fateDead             // it becomes a dead letter
	fatePark             // it is parked
	fateStay             // it stays set aside, as it was before
)

// lane is the unit's place in one lane.
type lane struct {
	ref       event.LaneRef
	durable   event.Sequence // the checkpoint
	durableID string
	at        event.Sequence // applied or passed over; never below durable
	id        string
	acked     event.Sequence // acknowledged to the port; never above durable
	failed    event.Sequence // the entry that attempts counts
	attempts  int            // that failed
	retryAt   Tick
}

// New makes a machine at rest. lanes are those of the unit, at least one, each once; cfg, defaults filled in, may be shared.
func New(cfg *Config, unit event.Unit, lanes []event.LaneRef) *Machine {
	m := &Machine{cfg: cfg, unit: unit, lanes: make([]lane, len(lanes)), resting: true}
	for i, ref := range lanes {
		m.lanes[i].ref = ref
	}
	return m
}

// Unit is the unit the machine decides for.
func (m *Machine) Unit() event.Unit { return m.unit }

// Serving reports whether what the unit's behavior says may be given out: the unit is owned and recovered, is not being given
// back, and its deadline has not passed at now. An answer is given out only if this holds right before.
func (m *Machine) Serving(now Tick) bool {
	return m.own == serving && m.asked != callRelease && m.lost == "" && (!m.cfg.Leased || now < m.deadline)
}

// Held names the lease to renew; false where there is none, or none worth it.
func (m *Machine) Held() (Held, bool) {
	held := m.cfg.Leased && m.own >= granted && m.lost == ""
	return Held{Unit: m.unit, Generation: m.gen}, held
}

// Applied gives the last sequence of a lane that was applied or passed over, whether or not its checkpoint is durable yet; 0
// where nothing is known.
func (m *Machine) Applied(ref event.LaneRef) event.Sequence {
	if l := m.laneOf(ref); l != nil && m.own == serving {
		return l.at
	}
	return 0
}

// Passed tells how many entries were passed over by checkpoints that are not durable yet: the next commit moves past them.
func (m *Machine) Passed() int { return m.passed }

// Halted gives the entry at which the unit is known to be halted, nil where it is not. It must not be changed.
func (m *Machine) Halted() *Failure { return m.halt }

// Phase says what the unit is doing.
func (m *Machine) Phase() Phase {
	switch m.asked {
	case callAcquire:
		return PhaseAcquiring
	case callRecover:
		return PhaseRecovering
	case callFetch:
		if m.eff.fetch.Ack {
			return PhaseAdvancing
		}
		return PhaseFetching
	case callFetchAside:
		return PhaseFetching
	case callApply:
		return PhaseApplying
	case callServe:
		return PhaseServing
	case callHalt, callDead, callParked, callTried, callSettleAside, callSuspectAside:
		return PhaseSettling
	case callPassed:
		return PhasePassing
	case callPassivate, callRelease:
		return PhaseDraining
	}
	switch {
	case m.resting:
		return m.stopped(PhaseIdle)
	case m.draining:
		return PhaseDraining
	case m.own < serving:
		return PhaseAcquiring
	case m.blocked():
		return m.stopped(PhaseReady)
	case m.again > m.now || m.retryAt() > m.now:
		return PhaseBackoff
	}
	return PhaseReady
}

// stopped gives what stops the stream, and otherwise where nothing does.
func (m *Machine) stopped(otherwise Phase) Phase {
	switch {
	case m.halt != nil:
		return PhaseHalted
	case m.paused:
		return PhasePaused
	case m.newer:
		return PhaseWaiting
	}
	return otherwise
}

func (m *Machine) blocked() bool { return m.halt != nil || m.paused || m.newer }

// String gives everything that matters of the machine in one line.
func (m *Machine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", m.unit, m.Phase())
	if m.own != none {
		fmt.Fprintf(&b, " at %d", m.gen)
		if m.cfg.Leased {
			fmt.Fprintf(&b, " until %s", m.deadline)
		}
	}
	if m.own == serving {
		for i := range m.lanes {
			l := &m.lanes[i]
			fmt.Fprintf(&b, ", %s", place(l.ref, l.durable))
			if l.at > l.durable {
				fmt.Fprintf(&b, " (passed to %d)", l.at)
			}
		}
	}
	for _, p := range m.parked {
		fmt.Fprintf(&b, ", %d of %s parked", p.Count, p.Category)
	}
	if t := &m.tried; t.Sequence != 0 {
		fmt.Fprintf(&b, ", tried %s", place(t.Lane, t.Sequence))
	}
	for _, fact := range []struct {
		is   bool
		name string
	}{
		{m.lost != "", "lost"}, {m.unread, "unread"}, {m.demand, "demand"}, {m.acted, "acted"}, {m.draining, "draining"},
		{m.hung, "hung"}, {m.due, "due"}, {m.suspect, "suspect"}, {m.counted, "counted"}, {m.instance, "instance"}, {m.keep, "keep"},
	} {
		if fact.is {
			b.WriteString(", " + fact.name)
		}
	}
	return b.String()
}
