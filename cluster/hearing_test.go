package cluster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/cluster/gossiptest"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/brokertest"
)

// members gives the names of those that a node takes for members, with what ranks them nowhere.
func (f *fake) members() []string { return cluster.Names(f.Placement().Members()) }

func (f *fake) beaten() (n int) {
	f.note(func() { n = f.mu.beats })
	return n
}

// agree checks whom these nodes take for members.
func agree(t *testing.T, want []string, nodes ...*fake) {
	t.Helper()
	for _, f := range nodes {
		if diff := cmp.Diff(want, f.members()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.name, diff)
		}
	}
}

// inGossip runs a test with nodes a, b and c that hear one another.
func inGossip(t *testing.T, run func(t *testing.T, w *world, network *gossiptest.Net, a, b, c *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		network := &gossiptest.Net{}
		w.gossip = func() transport.Gossip { return network.Node() }
		a, b, c := w.join("a"), w.join("b"), w.join("c")
		pass(10 * time.Second)
		agree(t, []string{"a", "b", "c"}, a, b, c)
		if got := a.Unheard(); len(got) > 0 {
			t.Errorf("a does not hear %v", got)
		}
		run(t, w, network, a, b, c)
	})
}

func TestWhoJoinsDrainsAndLeavesIsKnownBeforeTheNextHeartbeat(t *testing.T) {
	t.Parallel()
	inGossip(t, func(t *testing.T, w *world, _ *gossiptest.Net, a, b, c *fake) {
		pass(time.Second)
		before := a.beaten()
		d := w.join("d")
		pass(400 * time.Millisecond) // a heartbeat is 3 s
		if n := a.beaten() - before; n != 1 {
			t.Errorf("a has beaten %d times to be known to who joined", n)
		}
		agree(t, []string{"a", "b", "c", "d"}, a, b, c, d)
		drained := make(chan error, 1)
		go func() { drained <- d.Drain(t.Context()) }()
		pass(400 * time.Millisecond)
		agree(t, []string{"a", "b", "c", "d (draining)"}, a, b, c, d)
		if err := <-drained; err != nil {
			t.Error(err)
		}
		d.leave()
		pass(400 * time.Millisecond)
		agree(t, []string{"a", "b", "c"}, a, b, c)
		for _, f := range []*fake{a, b, c} {
			f.leave()
		}
	})
}

func TestGossipCutAloneMovesNothing(t *testing.T) {
	t.Parallel()
	inGossip(t, func(t *testing.T, _ *world, network *gossiptest.Net, a, b, c *fake) {
		for _, f := range []*fake{a, b, c} {
			for _, o := range []*fake{a, b, c} {
				if f != o {
					network.Cut(f.broker.OwnerID(), o.broker.OwnerID(), true)
				}
			}
		}
		before := []int{a.partCount(), b.partCount(), c.partCount()}
		pass(time.Minute)
		agree(t, []string{"a", "b", "c"}, a, b, c)
		if got := cluster.Names(a.Unheard()); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("a does not hear %v", got)
		}
		if diff := cmp.Diff(before, []int{a.partCount(), b.partCount(), c.partCount()}); diff != "" {
			t.Errorf("parts moved: %s", diff)
		}
		for _, f := range []*fake{a, b, c} {
			f.leave()
		}
	})
}

func TestABrokerThatForgotOrIsAwayMakesNobodyLessAMember(t *testing.T) {
	t.Parallel()
	inGossip(t, func(t *testing.T, w *world, _ *gossiptest.Net, a, b, c *fake) {
		w.server.Break(func(brokertest.Call) brokertest.Fault { return brokertest.Refused })
		pass(time.Minute)
		agree(t, []string{"a", "b", "c"}, a, b, c)
		w.server.Break(nil)
		w.server.Forget()
		for range 40 { // also between the beats, when some are on the list and some are not
			pass(100 * time.Millisecond)
			agree(t, []string{"a", "b", "c"}, a, b, c)
		}
		for _, f := range []*fake{a, b, c} {
			f.leave()
		}
	})
}

func TestWhoIsApartRanksNowhereAndComesBack(t *testing.T) {
	t.Parallel()
	inGossip(t, func(t *testing.T, w *world, _ *gossiptest.Net, a, b, c *fake) {
		u := a.owned(1)[0]
		a.Apart(true)
		pass(400 * time.Millisecond)
		agree(t, []string{"a (its store or broker is out of reach)", "b", "c"}, a, b, c)
		a.take()
		b.take()
		c.take()
		w.mark(b, u)
		if got := a.take(); len(got) > 0 {
			t.Errorf("who is apart goes for %v", got)
		}
		if got := slices.Concat(b.take(), c.take()); !slices.Equal(got, []event.Unit{u}) {
			t.Errorf("the others go for %v", got)
		}
		a.Apart(false)
		pass(4 * time.Second)
		agree(t, []string{"a", "b", "c"}, a, b, c)
		if b.Placement().First(u) != a.broker.OwnerID() {
			t.Error("it does not rank as before")
		}
		for _, f := range []*fake{a, b, c} {
			f.leave()
		}
	})
}
