package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
)

// TestSchedulesOfNodesWhoseViewsDiffer runs 1,000 schedules, others every time, in which nodes are cut off from the list, from gossip, from both, or from their renewals alone,
// freeze, end, drain, and lose what they know. KEYHOLD_SEED=n runs that one alone and tells what happens in it; KEYHOLD_SCHEDULES=n runs that many.
func TestSchedulesOfNodesWhoseViewsDiffer(t *testing.T) {
	t.Parallel()
	number := func(name string) (uint64, bool) {
		n, err := strconv.ParseUint(os.Getenv(name), 10, 64)
		return n, err == nil
	}
	if seed, ok := number("KEYHOLD_SEED"); ok {
		var story strings.Builder
		_, wrong := played(seed, "", &story)
		t.Logf("%s\n%s", story.String(), wrong)
		if wrong != "" {
			t.Error(wrong)
		}
		return
	}
	many := uint64(1000)
	if n, ok := number("KEYHOLD_SCHEDULES"); ok {
		many = n
	}
	first, served, moved := uint64(rand.Uint32())<<16, 0, 0
	t.Logf("%d schedules, seeds from %d", many, first)
	for seed := first; seed < first+many; seed++ {
		s, wrong := played(seed, "", nil)
		if wrong != "" {
			t.Fatalf("seed %d: %s\nKEYHOLD_SEED=%d tells the story", seed, wrong, seed)
		}
		for _, r := range s.units {
			served += r.applied
			moved += int(r.counter) - 1
		}
	}
	t.Logf("%d events were applied, and units changed hands %d times", served, moved)
	if moved == 0 {
		t.Error("nothing ever moved, which shows little")
	}
}

// TestTheRulesOfLeasesAreNeeded takes them out: where views differ, something must go wrong soon.
func TestTheRulesOfLeasesAreNeeded(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"deadline", "raise"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			const most = 1000
			for seed := range uint64(most) {
				if _, wrong := played(seed, rule, nil); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Errorf("nothing goes wrong in %d schedules", most)
		})
	}
}

// TestSameSeedSameStory makes sure that a seed is worth printing.
func TestSameSeedSameStory(t *testing.T) {
	t.Parallel()
	var one, other strings.Builder
	seed := rand.Uint64()
	played(seed, "", &one)
	played(seed, "", &other)
	if one.String() != other.String() {
		t.Errorf("seed %d tells two stories", seed)
	}
}

const (
	faulty = 60 * second
	// served is how long a unit with work may wait for a node after the last fault: a lease that somebody left has to lapse, and whoever is to go for it has to learn of it.
	servedWithin = ttl + 4*heartbeat
	settledAfter = 40 * second
)

// played plays a schedule: a minute of faults, and then one of calm.
func played(seed uint64, without string, story *strings.Builder) (*stage, string) {
	rng := rand.New(rand.NewPCG(seed, 0x706c6163))
	var tell func(time.Duration, string)
	if story != nil {
		tell = func(at time.Duration, what string) { fmt.Fprintf(story, "%12v %s\n", at, what) }
	}
	s := newStage(rng, tell)
	s.without = without
	for i := range 3 + rng.IntN(3) {
		s.join(string(rune('a'+i)), 1+rng.IntN(2))
	}
	var units []event.Unit
	for i := range 1 + rng.IntN(6) {
		u := unit(i)
		units = append(units, u)
		var publish func()
		publish = func() { // some all the time
			s.publish(u, rng.IntN(4))
			s.after(time.Duration(rng.Int64N(int64(4*second))), publish)
		}
		s.after(time.Duration(rng.Int64N(int64(4*second))), publish)
	}
	for range 4 + rng.IntN(12) {
		s.after(time.Duration(rng.Int64N(int64(faulty))), s.fault)
	}
	s.pass(faulty)
	s.calm()
	s.pass(servedWithin)
	calm := start.Add(faulty)
	for _, u := range units {
		if r := s.units[u]; r != nil && r.servedAt.Before(calm) && r.busy() {
			s.fail("%s has had work, and no node for it, since %v, of which %v were calm", u.Key, r.servedAt.Sub(start), servedWithin)
		}
	}
	for _, u := range units { // work for as long as this takes: what has none is asked for by nobody
		s.publish(u, 1_000_000)
	}
	s.pass(settledAfter)
	s.settled(units)
	return s, s.wrong
}

// fault is one of the things that go wrong, and is over after a while.
func (s *stage) fault() {
	p := s.players[s.rng.IntN(len(s.players))]
	d := time.Duration(s.rng.Int64N(int64(2 * ttl)))
	cut := func(ways ...string) {
		s.say("%s is cut from %v for %v", p.name, ways, d)
		for _, way := range ways {
			p.cut[way] = true
		}
		s.after(d, func() {
			for _, way := range ways {
				delete(p.cut, way)
			}
		})
	}
	switch s.rng.IntN(8) {
	case 0:
		cut("list")
	case 1:
		cut("gossip")
	case 2:
		cut("list", "gossip")
	case 3:
		cut("leases")
	case 4:
		s.say("%s is frozen for %v", p.name, d)
		p.freeze(d)
	case 5:
		if p.up {
			p.kill()
			s.after(d/2, func() {
				if !p.up {
					s.join(p.name, p.weight)
				}
			})
		}
	case 6:
		if p.up && !p.draining && !s.now.Before(p.thaws) {
			s.say("%s drains", p.name)
			p.leave()
			s.after(d/2+2*heartbeat, func() {
				if !p.up {
					s.join(p.name, p.weight)
				}
			})
		}
	case 7:
		s.say("%s is apart for %v", p.name, d)
		p.apart = true
		s.after(d, func() { p.apart = false })
	}
}

// calm ends all faults.
func (s *stage) calm() {
	s.say("calm")
	s.calmed = true
	for _, p := range s.players {
		clear(p.cut)
		p.apart = false
		if s.now.Before(p.thaws) {
			p.freeze(0)
		}
		if !p.up {
			s.join(p.name, p.weight)
		}
	}
}

// settled checks that all nodes have come to one view, that every unit is where it ranks first, and that nothing was lost on the way.
func (s *stage) settled(units []event.Unit) {
	for _, p := range s.players {
		if !p.up {
			continue // it drained as the faults ended
		}
		for _, o := range s.players {
			if o.up && p.known != o.known {
				s.fail("%s sees %s, and %s sees %s", p.name, p.known, o.name, o.known)
			}
		}
		for _, u := range units {
			if h := p.live[u]; h != nil && s.now.Before(h.deadline) && s.now.Sub(h.since) > settledAfter/2 && p.placement.First(u) != p.id {
				s.fail("%s still has %s, for which %s ranks first", p.name, u.Key, p.placement.First(u))
			}
		}
	}
	for _, u := range units {
		if r := s.units[u]; s.now.Sub(r.servedAt) > second {
			s.fail("%s has had work, and no node for it, since %v", u.Key, r.servedAt.Sub(start))
		}
	}
}
