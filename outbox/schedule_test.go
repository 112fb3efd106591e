package outbox_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/outbox"
	"github.com/keyhold/keyhold/transport/brokertest"
)

const (
	schedules = 12
	steps     = 100
)

// TestSchedules has relays work while everything goes wrong, by seed. An oracle looks after each step: what a stream has is what the store has, without a gap, in order. In
// the end everything that was committed is published, whoever has not passed it has work, here or in another application, and nothing has diverged. KEYHOLD_SEED runs one seed alone.
func TestSchedules(t *testing.T) {
	first, n := uint64(1), schedules
	if s := os.Getenv("KEYHOLD_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, n = seed, 1
	}
	for seed := first; seed < first+uint64(n); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, func(w *world) {
				s := &schedule{world: w, rng: rand.New(rand.NewPCG(seed, 0)), passed: make(map[passing]event.Sequence)}
				for _, key := range []string{"a", "b", "c", "d"} {
					for _, lane := range []event.Lane{event.Primary, event.Backfill} {
						s.lanes = append(s.lanes, event.LaneRef{Category: "order", Key: key, Lane: lane})
					}
					s.lanes = append(s.lanes, event.LaneRef{Category: "note", Key: key})
				}
				s.join()
				s.join()
				s.audit = s.foreign("audit", "order")
				settle()
				for range steps {
					s.step()
					s.look()
				}
				s.end()
			})
		})
	}
}

// schedule is one run.
type schedule struct {
	*world
	rng    *rand.Rand
	lanes  []event.LaneRef
	nodes  []*node
	audit  *brokertest.Broker // of another application, which has its checkpoints elsewhere
	passed map[passing]event.Sequence
	joined int
	log    []string
}

type passing struct {
	name string
	lane event.LaneRef
}

func (s *schedule) tell(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *schedule) one() bool           { return s.rng.IntN(2) == 0 }
func (s *schedule) lane() event.LaneRef { return s.lanes[s.rng.IntN(len(s.lanes))] }
func (s *schedule) node() *node         { return s.nodes[s.rng.IntN(len(s.nodes))] }
func (s *schedule) some() []event.LaneRef {
	var all []event.LaneRef
	for _, l := range s.lanes {
		if s.rng.IntN(3) == 0 {
			all = append(all, l)
		}
	}
	return all
}

// join starts a node, which takes half of the parts: whoever has them may not know.
func (s *schedule) join() {
	s.joined++
	n := s.world.node(fmt.Sprint("node-", s.joined), func(c *outbox.Config) {
		c.Look, c.RetireAfter, c.MaxAhead, c.Lanes = time.Second, 5*time.Minute, 200, 1+s.rng.IntN(8)
	})
	s.nodes = append(s.nodes, n)
	for p := range event.Parts {
		if s.one() || s.joined == 1 {
			n.take(event.Part(p))
		}
	}
}

func (s *schedule) step() {
	switch k := s.rng.IntN(100); {
	case k < 35:
		lanes, n := s.some(), 1+s.rng.IntN(4)
		tails := s.commit(n, lanes...)
		if s.one() {
			s.node().Committed(tails)
		}
		s.tell("%d each to %v", n, lanes)
	case k < 55:
		s.advance()
	case k < 60:
		s.tell("flush")
		s.server.Forget()
		for _, n := range s.nodes {
			if s.one() { // else it is not heard, and a look finds it out
				n.Forgot()
			}
		}
	case k < 65:
		l, n := s.lane(), 1+s.rng.IntN(5)
		s.tell("%s loses %d", l, n)
		s.server.LoseTail(l, n)
	case k < 68:
		l := s.lane()
		s.tell("%s is deleted", l)
		s.server.Delete(l)
	case k < 75:
		s.move()
	case k < 79:
		s.die()
	case k < 84:
		s.breakThings()
	case k < 87:
		purged, err := s.store.Purge(s.Context(), time.Now().Add(time.Second), 100)
		s.must("purge", err)
		s.tell("purged %d", purged)
	default:
		d := time.Duration(s.rng.IntN(40_000)) * time.Millisecond
		if s.one() {
			d /= 100
		}
		s.tell("%v", d)
		s.after(d)
	}
	if s.one() {
		settle()
	}
}

// advance has a handler pass something, and tell the broker.
func (s *schedule) advance() {
	p := passing{[]string{"shipping", "billing", "audit"}[s.rng.IntN(3)], s.lane()}
	if p.lane.Category != "order" {
		return
	}
	st := s.world.passing(p.lane)
	to := st.Tail
	if p.name == "audit" { // it knows what it reads alone
		if to = 0; len(s.server.Stream(p.lane)) > 0 {
			to = s.server.Stream(p.lane)[len(s.server.Stream(p.lane))-1].Sequence
		}
		to = max(to, s.passed[p])
	}
	if to == s.passed[p] {
		return
	}
	if s.one() {
		to = s.passed[p] + 1 + event.Sequence(s.rng.IntN(int(to-s.passed[p])))
	}
	if p.name != "audit" {
		s.pass(p.name, p.lane, s.passed[p], to)
	}
	s.passed[p] = to
	if newest := s.server.Stream(p.lane); len(newest) > 0 && s.one() {
		u := event.Unit{Name: p.name, Key: p.lane.Key}
		b := s.node().broker
		if p.name == "audit" {
			b = s.audit
		}
		got, err := b.Port().Acquire(s.Context(), u, 0)
		if err != nil || !got.Granted {
			return
		}
		_, _ = b.Port().Advance(s.Context(), holding(u, got.Generation), []event.Position{{Lane: p.lane, Sequence: to}}, 1)
		_ = b.Port().Release(s.Context(), holding(u, got.Generation), false)
	}
	s.tell("%s passes %s #%d", p.name, p.lane, to)
}

// move has a node take a part; the one that had it drops it before, or does not know.
func (s *schedule) move() {
	n, l := s.node(), s.lane()
	part := l.Part()
	for _, other := range s.nodes {
		if other != n && s.one() {
			other.Drop(part)
		}
	}
	n.take(part)
	s.tell("part %d moves", part)
}

// die ends a node in the middle of what it does, and another one comes.
func (s *schedule) die() {
	if len(s.nodes) < 2 {
		return
	}
	i := s.rng.IntN(len(s.nodes))
	s.must("die", s.nodes[i].Stop(s.Context()))
	gone := s.nodes[i]
	s.nodes = append(s.nodes[:i], s.nodes[i+1:]...)
	s.join()
	for p := range gone.held { // of those nobody else took over, nobody would know
		s.node().take(p)
	}
	s.tell("a node dies")
}

// breakThings has calls fail for a while, or not any more.
func (s *schedule) breakThings() {
	if s.one() {
		s.tell("all is well")
		s.mend()
		return
	}
	seed, rate := s.rng.Uint64(), 1+s.rng.IntN(10)
	s.tell("one of %d calls fails", rate)
	var n atomic.Uint64
	s.server.Break(func(c brokertest.Call) brokertest.Fault {
		if c.Op == "connect" {
			return brokertest.None
		}
		r := rand.New(rand.NewPCG(seed, n.Add(1)))
		if r.IntN(rate) > 0 {
			return brokertest.None
		}
		return brokertest.Refused + brokertest.Fault(r.IntN(2))
	})
	s.faults.SetPlan(faulty.Seeded(seed, faulty.Rates{Before: 1 / float64(2*rate), After: 1 / float64(2*rate), Error: errBroken},
		faulty.Unpublished, faulty.ReadLanes, faulty.NotePublished, faulty.DueLooks, faulty.SetLooks, faulty.AllLooksDue, faulty.Passing, faulty.LoadRegistry))
}

func (s *schedule) mend() {
	s.server.Break(nil)
	s.faults.SetPlan(nil)
}

// look is the oracle of every moment.
func (s *schedule) look() {
	for _, l := range s.lanes {
		stored := make(map[event.Sequence]string)
		for _, e := range s.records(l) {
			stored[e.Sequence] = e.ID
		}
		first := s.world.passing(l).First
		var last event.Sequence
		for _, e := range s.server.Stream(l) {
			if last > 0 && e.Sequence != last+1 {
				s.fail("%s: #%d follows #%d", l, e.Sequence, last)
			}
			if last = e.Sequence; stored[last] != e.ID && (first > 0 && last >= first) {
				s.fail("%s #%d is %q, the store has %q", l, last, e.ID, stored[last])
			}
		}
		if p := s.world.passing(l); last > p.Tail || p.Published > p.Tail {
			s.fail("%s has #%d, noted is #%d, drawn were %d", l, last, p.Published, p.Tail)
		}
	}
}

func (s *schedule) fail(format string, args ...any) {
	s.Helper()
	for _, line := range s.log {
		s.Log(line)
	}
	s.Fatalf(format, args...)
}

// end has all faults end, and time pass: then everything is where it belongs.
func (s *schedule) end() {
	s.mend()
	settle()
	for i := range event.Parts { // each part is somebody's
		s.nodes[0].take(event.Part(i))
	}
	s.tell("the end")
	s.after(75 * time.Second)
	s.look()
	s.all(false)
	s.after(6 * time.Minute) // what an application elsewhere lacks of a lane, and nobody was told of, is found when the lane would leave
	s.look()
	s.all(true)
}

// all looks whether everything is where it belongs: for this store's own handlers, or for those of others.
func (s *schedule) all(foreign bool) {
	for _, n := range s.nodes {
		if len(n.mu.diverged) > 0 {
			s.fail("diverged: %+v", n.mu.diverged)
		}
	}
	for _, l := range s.lanes {
		p := s.world.passing(l)
		if p.Published != p.Tail {
			s.fail("%s: %d of %d are published", l, p.Published, p.Tail)
		}
		stream := s.server.Stream(l)
		for _, sub := range p.Subscribers {
			if sub.Foreign != foreign {
				continue
			}
			if foreign {
				sub.Checkpoint = s.passed[passing{sub.Name, l}]
			}
			if sub.Checkpoint == p.Tail {
				continue
			}
			if len(stream) == 0 || stream[len(stream)-1].Sequence != p.Tail {
				s.fail("%s: %s is at %d of %d, the stream has %v", l, sub.Name, sub.Checkpoint, p.Tail, places(stream))
			}
			if !s.server.IsBusy(event.Unit{Name: sub.Name, Key: l.Key}) {
				s.fail("%s: %s is at %d of %d and has no work", l, sub.Name, sub.Checkpoint, p.Tail)
			}
		}
	}
}
