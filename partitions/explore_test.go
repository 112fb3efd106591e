package partitions

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
)

// TestEverySmallWorld drives real machines through every interleaving of a small world: one unit with one lane and two
// entries, two owners, a store and a broker, and a few faults: replies that are lost, calls that fail, leases that run out while an
// owner does not notice, a crash, a drain, a broker that forgets, an entry that fails and is parked until a person acts. Effects land once and in order, no
// stale owner commits, no two owners are inside or serve under valid leases, nobody is suspected after a clean release, and from every
// state the last entry is still applied if no other fault comes.
//
// It finds what goes wrong by the shortest way there is. The large worlds are internal/sim's.
func TestEverySmallWorld(t *testing.T) {
	t.Parallel()
	for _, f := range []faults{
		{late: 1, lost: 1},
		{late: 1, flushed: 1},
		{late: 1, crashed: 1},
		{late: 1, drained: 1},
		{lost: 1, crashed: 1},
		{lost: 1, drained: 1},
		{lost: 1, flushed: 1},
		{failed: 1},
		{failed: 1, single: true, lost: 1},
		{failed: 1, single: true, late: 1},
		{failed: 1, single: true, crashed: 1},
		{failed: 1, single: true, drained: 1},
		{failed: 1, single: true, skipped: 1},
		{failed: 1, single: true, skipped: 1, lost: 1},
		{failed: 2, single: true},
		{unclean: true, single: true, crashed: 2},
		{unclean: true, single: true, crashed: 2, lost: 1},
		{unclean: true, single: true, crashed: 2, drained: 1},
		{unclean: true, late: 1},
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			t.Parallel()
			x := explore("", f)
			if x.wrong != "" {
				t.Fatalf("%s, after\n%s", x.wrong, x.story)
			}
			t.Logf("%+v: %d states, %d of them cut off by the highest generation", f, len(x.states), x.cut)
		})
	}
}

// TestSmallWorldsNeedTheRules takes a rule out of the world, and looks for the harm.
func TestSmallWorldsNeedTheRules(t *testing.T) {
	t.Parallel()
	for without, f := range map[string]faults{
		"raise":   {late: 1},
		"fence":   {late: 1},
		"amnesty": {flushed: 1},
		"heal":    {flushed: 1},
		"park":    {failed: 1, single: true},
		"behind":  {failed: 1, single: true, skipped: 1},
		"settle":  {failed: 1, single: true, skipped: 1},
		"due":     {failed: 1, single: true},
	} {
		t.Run(without, func(t *testing.T) {
			t.Parallel()
			x := explore(without, f)
			if x.wrong == "" {
				t.Fatalf("nothing goes wrong in %d states", len(x.states))
			}
			t.Logf("%s, after\n%s", x.wrong, x.story)
		})
	}
}

const (
	smallEntries = 2
	smallTop     = 6 // generation at which a world is left alone
)

// smallWorld is all of a state but the machines.
type smallWorld struct {
	produced, checkpoint, applied event.Sequence
	row, recovered                event.Generation
	holder                        int8 // of the lease: 0 nobody, 1 and 2 the owners, 3 one that is no more
	gen, counter                  event.Generation
	last                          int8 // who has not given it back, as holder
	busy, amnesty                 bool
	parked, told                  uint8 // bit n: entry n+1; and which of them a person is told of
	due                           bool
	blamed                        int8    // suspicions of the first that is parked
	acted                         [2]bool // and it is on its way to the owner
	tried                         smallTried
	expired                       [2]bool // the lease that the machine holds has run out, whether it knows or not
	faults                                // that there were
}

// faults counts what goes wrong.
type faults struct {
	late    int8 // leases that run out before their owner knows
	lost    int8 // replies that are lost, and calls that fail
	flushed int8 // times that the broker forgets
	crashed int8
	drained int8
	failed  int8 // attempts that cannot succeed
	skipped int8 // parked entries that a person drops
	single  bool // there is one owner, or the worlds were too many
	unclean bool // units that were not given back are said to be unclean, likewise
}

// smallTried is the row about attempts, Sequence 0 = none.
type smallTried struct {
	seq                         event.Sequence
	attempts, suspicions, alone int8
}

func (t smallTried) of() *Tried {
	if t.seq == 0 {
		return nil
	}
	return &Tried{Lane: smallLane, Sequence: t.seq, Attempts: int(t.attempts), Suspicions: int(t.suspicions), Alone: int(t.alone)}
}

func small(t *Tried) smallTried {
	return smallTried{t.Sequence, int8(t.Attempts), int8(t.Suspicions), int8(t.Alone)}
}

type smallKey struct {
	smallWorld
	m [2]int32
}

// mirrored is the same state with the owners' names changed: there is no need to look at both.
func (k smallKey) mirrored() smallKey {
	k.m[0], k.m[1] = k.m[1], k.m[0]
	k.expired[0], k.expired[1] = k.expired[1], k.expired[0]
	k.acted[0], k.acted[1] = k.acted[1], k.acted[0]
	for _, who := range []*int8{&k.holder, &k.last} {
		if *who == 1 || *who == 2 {
			*who = 3 - *who
		}
	}
	return k
}

type smallState struct {
	smallWorld
	m [2]smallMachine
}

// smallMachine is a machine in one of the states that there are. There are far fewer of these than of worlds, which share them: one is never
// stepped, but a clone of it.
type smallMachine struct {
	*Machine
	number int32
}

// exploration is all that is known of the states.
type exploration struct {
	without string
	faults  faults // that there may be
	ids     map[smallKey]int
	known   map[machineKey]smallMachine
	states  []smallState
	from    []int
	label   []string
	back    [][]int32 // over steps that are no faults
	cut     int
	wrong   string
	story   string
}

func explore(without string, f faults) *exploration {
	x := &exploration{without: without, faults: f, ids: make(map[smallKey]int), known: make(map[machineKey]smallMachine)}
	start := smallState{smallWorld: smallWorld{faults: faults{single: f.single}}}
	for i := range start.m {
		start.m[i] = x.machine(newSmallMachine())
	}
	x.visit(-1, "", start, false)
	for i := 0; i < len(x.states) && x.wrong == ""; i++ {
		x.expand(i)
	}
	if x.wrong == "" {
		x.findStuck()
	}
	return x
}

func newSmallMachine() *Machine {
	cfg := Config{
		Traits:    Traits{Leased: true, TTL: 1000 * time.Hour, Heartbeat: time.Hour, Margin: time.Hour},
		IO:        Backoff{Base: 1, Max: 1},
		IdleAfter: time.Hour,
		ReadAhead: 2,
		Policy:    ParkUnit,
		Attempts:  2,
		Backoff:   Backoff{Base: 1, Max: 1},
	}.WithDefaults()
	m := New(&cfg, event.Unit{Name: "u", Key: "k"}, []event.LaneRef{smallLane})
	m.now = 1
	return m
}

var smallLane = event.LaneRef{Category: "c", Key: "k"}

// machine gives the machine that is in the same state as m.
func (x *exploration) machine(m *Machine) smallMachine {
	key := m.key()
	known, ok := x.known[key]
	if !ok {
		known = smallMachine{m, int32(len(x.known))}
		x.known[key] = known
	}
	return known
}

// visit notes a state that is reached from another one.
func (x *exploration) visit(from int, label string, s smallState, progress bool) {
	key := smallKey{smallWorld: s.smallWorld, m: [2]int32{s.m[0].number, s.m[1].number}}
	id, known := x.ids[key]
	if !known {
		id, known = x.ids[key.mirrored()]
	}
	if !known {
		id = len(x.states)
		x.ids[key] = id
		x.states, x.from, x.label, x.back = append(x.states, s), append(x.from, from), append(x.label, label), append(x.back, nil)
		x.check(id)
	}
	if progress && id != from {
		x.back[id] = append(x.back[id], int32(from))
	}
}

func (x *exploration) fail(id int, format string, args ...any) {
	if x.wrong != "" {
		return
	}
	x.wrong = fmt.Sprintf(format, args...)
	var labels []string
	for ; id > 0; id = x.from[id] {
		labels = append(labels, "    "+x.label[id])
	}
	slices.Reverse(labels)
	x.story = strings.Join(labels, "\n")
}

func (x *exploration) check(id int) {
	s := &x.states[id]
	valid := func(i int) bool { return !s.expired[i] && s.m[i].Serving(s.m[i].now) }
	if valid(0) && valid(1) {
		x.fail(id, "two owners serve")
	}
}

// findStuck looks for states from which the last entry cannot be applied without another fault.
func (x *exploration) findStuck() {
	good := make([]bool, len(x.states))
	var queue []int32
	for i := range x.states {
		if x.states[i].applied == smallEntries {
			good[i] = true
			queue = append(queue, int32(i))
		}
	}
	for len(queue) > 0 {
		last := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, i := range x.back[last] {
			if !good[i] {
				good[i] = true
				queue = append(queue, i)
			}
		}
	}
	for i := range x.states {
		switch s := &x.states[i]; {
		case good[i]:
		case max(s.counter, s.row, s.m[0].floor, s.m[1].floor) >= smallTop-1:
			x.cut++ // it says nothing that a world without more generations is stuck
		default:
			x.fail(i, "stuck")
		}
	}
}

// expand takes every step that there is from a state.
func (x *exploration) expand(id int) {
	x.world(id)
	for i := range 2 {
		if i == 0 || !x.faults.single {
			x.owner(id, i)
		}
	}
}

// world takes the steps that are nobody's.
func (x *exploration) world(id int) {
	s := x.states[id]
	step := func(label string, fault bool, change func(*smallWorld)) {
		next := s
		change(&next.smallWorld)
		if next.smallWorld != s.smallWorld {
			x.visit(id, label, next, !fault)
		}
	}
	if s.produced < smallEntries {
		step("an entry is published", false, func(w *smallWorld) { w.produced++; w.busy = true })
	}
	if (s.checkpoint < s.produced || s.due) && x.without != "heal" {
		step("heal", false, func(w *smallWorld) { w.busy = true })
	}
	if s.flushed < x.faults.flushed {
		step("the broker forgets", true, func(w *smallWorld) {
			w.flushed++
			w.holder, w.last, w.gen, w.counter, w.busy, w.amnesty = 0, 0, 0, 0, false, true
		})
	}
	first := s.parked & -s.parked
	if s.told&first != 0 && !s.due {
		step("a person has it tried again", false, func(w *smallWorld) { w.due, w.busy, w.acted = true, true, [2]bool{true, !w.single} })
	}
	if first != 0 && s.skipped < x.faults.skipped {
		step("a person drops it", true, func(w *smallWorld) {
			w.skipped++
			w.applied = event.Sequence(bits.TrailingZeros8(first) + 1)
			w.unpark(w.applied)
			w.busy, w.acted = true, [2]bool{true, !w.single}
		})
	}
	if s.amnesty && !s.valid(0) && !s.valid(1) {
		step("one lease has passed", false, func(w *smallWorld) { w.amnesty = false })
	}
	if s.holder != 0 && !(s.holds(0) && s.valid(0)) && !(s.holds(1) && s.valid(1)) {
		step("the lease lapses", false, func(w *smallWorld) { w.holder, w.gen = 0, 0 })
	}
}

// valid reports whether owner i has a lease by its own clock, or has asked for one and is not told.
func (s *smallState) valid(i int) bool { return s.m[i].own >= granted && !s.expired[i] }

func (s *smallState) holds(i int) bool { return s.holder == int8(i+1) && s.gen == s.m[i].gen }

// owner takes the steps of one owner.
func (x *exploration) owner(id, i int) {
	s := x.states[id]
	name := string(rune('A' + i))
	m := s.m[i]
	if s.busy && !m.woken {
		x.step(id, i, name+" is woken", s, Wake{}, 0, false)
	}
	if s.acted[i] {
		acted := s
		acted.acted[i] = false
		x.step(id, i, name+" is told that a person acted", acted, Acted{}, 0, false)
	}
	if m.asked != callNone {
		x.answers(id, i, name, s)
	} else if at := max(m.againDue(), m.retryAt(), m.idleDue()); at > m.now {
		x.step(id, i, name+": timer", s, TimerFired{}, at, false)
	}
	if s.valid(i) && s.late < x.faults.late {
		next := s
		next.late++
		next.expired[i] = true
		x.visit(id, name+": its lease runs out", next, false)
	}
	if s.expired[i] && m.lost == "" {
		x.step(id, i, name+" notices", s, TimerFired{}, 0, false)
	}
	if s.crashed < x.faults.crashed {
		next := s
		next.crashed++
		next.m[i], next.expired[i], next.acted[i] = x.machine(newSmallMachine()), false, false
		for _, who := range []*int8{&next.holder, &next.last} {
			if *who == int8(i+1) {
				*who = 3
			}
		}
		x.visit(id, name+" crashes and starts again", next, false)
	}
	if s.drained < x.faults.drained && !m.resting && !m.draining {
		drained := s
		drained.drained++
		x.step(id, i, name+" drains", drained, Drain{}, 0, true)
	}
}

// answers answers what an owner has asked for: well, badly, or well with a reply that is lost.
func (x *exploration) answers(id, i int, name string, s smallState) {
	call := name + ": " + s.m[i].asking()
	done := s
	if in, ok := x.carryOut(id, i, &done); ok {
		x.step(id, i, call, done, in, 0, false)
		if s.lost < x.faults.lost {
			lost := done
			lost.lost++
			if in := unanswered(s.m[i].asked, Unknown); in != nil {
				x.step(id, i, call+", reply lost", lost, in, 0, true)
			}
		}
	}
	if s.failed < x.faults.failed && s.m[i].asked == callApply {
		failed := s
		failed.failed++
		x.step(id, i, call+" is poison", failed, ApplyDone{Outcome: Failed, Class: Poison}, 0, true)
	}
	if s.lost < x.faults.lost {
		failed := s
		failed.lost++
		if in := unanswered(s.m[i].asked, Failed); in != nil {
			x.step(id, i, call+" fails", failed, in, 0, true)
		}
	}
}

// step steps a machine that comes out of the world s.
func (x *exploration) step(id, i int, label string, s smallState, in Input, at Tick, fault bool) {
	m := s.m[i].clone()
	if s.expired[i] && m.own >= granted {
		at = max(at, m.deadline)
	}
	m.Step(max(at, m.now), in)
	m.out = nil
	s.m[i] = x.machine(m)
	if got, ok := in.(AcquireDone); ok && got.Granted {
		s.expired[i] = false
	}
	if m.own < granted {
		s.expired[i] = false
	}
	x.visit(id, label, s, !fault)
}
