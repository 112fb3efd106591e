package gossip_test

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/cluster/gossip"
)

// Of a member that has left, nothing is left after a while, however often the others exchange what they know.
func TestWhoHasLeftIsForgottenByAll(t *testing.T) {
	t.Parallel()
	a, b := gossip.NewRoster("a"), gossip.NewRoster("b")
	now := time.Now()
	for _, r := range []*gossip.Roster{a, b} {
		r.Alive("c", now)
	}
	a.Left("c", now)
	now = now.Add(time.Minute)
	b.Merge(a, now)
	if len(b.Leavers()) != 1 {
		t.Fatalf("b knows of %v", b.Leavers())
	}
	b.Alive("d", now)
	a.Left("d", now) // as d says itself, of which a has not heard before
	for range 5 * 60 {
		now = now.Add(time.Minute)
		a.Merge(b, now)
		b.Merge(a, now)
	}
	if len(a.Leavers())+len(b.Leavers()) != 0 {
		t.Errorf("after hours a still tells of %v and b of %v", a.Leavers(), b.Leavers())
	}
}
