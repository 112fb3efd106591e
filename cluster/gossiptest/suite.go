package gossiptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// World is where the gossip under test lives: made in a bubble of testing/synctest, so that its time is virtual.
type World struct {
	// Node makes a gossip that is not started.
	Node func() transport.Gossip
	// Vanish ends a started one without a word, as if its process was killed.
	Vanish func(g transport.Gossip)
	// Soon is the time in which everybody has heard of what somebody said; Late that in which everybody has noticed who does not answer.
	Soon, Late time.Duration
}

// Run checks that the gossip of a world keeps the promises of [transport.Gossip].
func Run(t *testing.T, world func(t *testing.T) World) {
	for _, c := range checks {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &suite{T: t, World: world(t)}
				defer s.stopAll()
				c.run(s)
			})
		})
	}
}

type suite struct {
	*testing.T
	World
	all []*peer
}

// peer is one gossip of a world.
type peer struct {
	transport.Gossip
	self  transport.Member
	told  atomic.Int64
	ended bool
}

func (s *suite) pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

// member is a node as it may be: with names, and with everything that is said of one.
func member(id string) transport.Member {
	return transport.Member{
		ID: id, Node: "node-" + id, PID: 7, StoreID: "store", Start: 3, Names: []string{"billing", "shipping"}, Weight: 2,
		Since: time.Date(2030, 1, 2, 3, 4, 5, 678, time.UTC), Address: "10.0.0.1:9000", Version: "v1.2.3",
	}
}

// start starts a peer whose seeds are all those started before.
func (s *suite) start(m transport.Member) *peer {
	s.Helper()
	p := &peer{Gossip: s.Node(), self: m}
	before := slices.Clone(s.all)
	seeds := func(context.Context) []string {
		var at []string
		for _, o := range before {
			if a := o.Address(); a != "" {
				at = append(at, a)
			}
		}
		return at
	}
	if err := p.Start(s.Context(), m, seeds, func() { p.told.Add(1) }); err != nil {
		s.Fatal(err)
	}
	s.all = append(s.all, p)
	return p
}

func (s *suite) stop(p *peer) {
	s.Helper()
	p.ended = true
	if err := p.Stop(context.WithoutCancel(s.Context())); err != nil {
		s.Error(err)
	}
}

func (s *suite) stopAll() {
	for _, p := range s.all {
		if !p.ended {
			s.stop(p)
		}
	}
	s.pass(time.Minute) // what the library has under way ends by itself
}

// expect checks what a peer hears, by id and state.
func (s *suite) expect(p *peer, want map[string]transport.HeardState) {
	s.Helper()
	got := map[string]transport.HeardState{}
	for _, h := range p.Heard() {
		got[h.Member.ID] = h.State
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("%s hears (-want +got):\n%s", p.self.ID, diff)
	}
}

type states = map[string]transport.HeardState

var checks = []struct {
	name string
	run  func(s *suite)
}{
	{"Members hear all of one another", func(s *suite) {
		b := member("b")
		a := s.start(member("a"))
		b.Names, b.Draining, b.Apart, b.Wants = []string{"billing"}, true, true, []event.Unit{{Name: "billing", Key: "1"}}
		pb := s.start(b)
		s.pass(s.Soon)
		heard := a.Heard()
		b.Wants, b.Gossip = nil, pb.Address()
		if diff := cmp.Diff([]transport.Heard{{Member: b, State: transport.HeardAlive}}, heard); diff != "" {
			s.Errorf("a hears (-want +got):\n%s", diff)
		}
		s.expect(pb, states{"a": transport.HeardAlive})
	}},
	{"An address is there from Start to Stop", func(s *suite) {
		g := s.Node()
		if at := g.Address(); at != "" {
			s.Errorf("address %q before start", at)
		}
		a := s.start(member("a"))
		if a.Address() == "" {
			s.Error("no address after start")
		}
		s.stop(a)
		s.stop(a)
		if at := a.Address(); at != "" {
			s.Errorf("address %q after stop", at)
		}
	}},
	{"Heard is in order of id and without oneself", func(s *suite) {
		for _, id := range []string{"c", "a", "d", "b"} {
			s.start(member(id))
		}
		s.pass(s.Soon)
		for _, p := range s.all {
			var got, want []string
			for _, h := range p.Heard() {
				got = append(got, h.Member.ID)
			}
			for _, id := range []string{"a", "b", "c", "d"} {
				if id != p.self.ID {
					want = append(want, id)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				s.Errorf("%s: %s", p.self.ID, diff)
			}
		}
	}},
	{"What has changed of a member is heard and told", func(s *suite) {
		a, b := s.start(member("a")), s.start(member("b"))
		s.pass(s.Soon)
		told := a.told.Load()
		if told == 0 {
			s.Error("a was not told of b")
		}
		b.self.Draining, b.self.Apart, b.self.Names = true, true, []string{"audit"}
		b.Update(b.self)
		s.pass(s.Soon)
		h := a.Heard()
		if len(h) != 1 || !h[0].Member.Draining || !h[0].Member.Apart || !slices.Equal(h[0].Member.Names, []string{"audit"}) {
			s.Errorf("a hears %+v", h)
		}
		if a.told.Load() == told {
			s.Error("a was not told of the change")
		}
	}},
	{"Who stops has left and who vanishes is unreachable", func(s *suite) {
		a, b, c := s.start(member("a")), s.start(member("b")), s.start(member("c"))
		s.pass(s.Soon)
		s.stop(b)
		s.pass(s.Soon)
		s.expect(a, states{"b": transport.HeardLeft, "c": transport.HeardAlive})
		s.Vanish(c.Gossip)
		s.pass(s.Late)
		s.expect(a, states{"b": transport.HeardLeft, "c": transport.HeardUnreachable})
	}},
	{"Members of another application are not heard", func(s *suite) {
		a := s.start(member("a"))
		other := member("b")
		other.StoreID = "elsewhere"
		b := s.start(other)
		s.pass(s.Late)
		s.expect(a, states{})
		s.expect(b, states{})
	}},
	{"A gossip may be started again after a Stop", func(s *suite) {
		a, b := s.start(member("a")), s.start(member("b"))
		s.pass(s.Soon)
		s.stop(b)
		next := member("b2")
		if err := b.Start(s.Context(), next, func(context.Context) []string { return []string{a.Address()} }, func() {}); err != nil {
			s.Fatal(err)
		}
		b.ended = false
		s.pass(s.Soon)
		s.expect(a, states{"b": transport.HeardLeft, "b2": transport.HeardAlive})
		if h := b.Heard(); len(h) == 0 || h[0].Member.ID != "a" || h[0].State != transport.HeardAlive { // it may have heard of its earlier self
			s.Errorf("b2 hears %+v", h)
		}
	}},
	{"Any number of names is heard", func(s *suite) {
		a, b := s.start(member("a")), member("b")
		b.Names = nil
		for i := range 1000 {
			b.Names = append(b.Names, fmt.Sprintf("%0200d", i))
		}
		p := s.start(b)
		c := s.start(member("c"))
		s.pass(s.Soon)
		for _, who := range []*peer{a, c} {
			for _, h := range who.Heard() {
				if h.Member.ID == "b" && !slices.Equal(h.Member.Names, b.Names) {
					s.Errorf("%s hears %d names", who.self.ID, len(h.Member.Names))
				}
			}
		}
		s.expect(a, states{"b": transport.HeardAlive, "c": transport.HeardAlive})
		b.Names = append(slices.Clone(b.Names), "zebra")
		p.Update(b)
		s.pass(s.Soon)
		if h := a.Heard(); len(h) != 2 || len(h[0].Member.Names) != 1001 {
			s.Errorf("a does not hear the names that came later")
		}
	}},
}
