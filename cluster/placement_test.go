package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

func member(node string) transport.Member {
	return transport.Member{ID: "id-" + node, Node: node, Names: []string{"billing", "shipping"}}
}

func members(nodes ...string) []transport.Member {
	var all []transport.Member
	for _, n := range nodes {
		all = append(all, member(n))
	}
	return all
}

const units = 1000

func unit(i int) event.Unit { return event.Unit{Name: "shipping", Key: fmt.Sprintf("client-%d", i)} }

// shares counts for how many units each member ranks first.
func shares(p *cluster.Placement) map[string]int {
	n := map[string]int{}
	for i := range units {
		n[p.First(unit(i))]++
	}
	return n
}

func TestUnitsSpreadOverTheMembers(t *testing.T) {
	t.Parallel()
	got := shares(cluster.NewPlacement(members("a", "b", "c", "d", "e")))
	for id, n := range got {
		if n < units/5*8/10 || n > units/5*12/10 {
			t.Errorf("%s has %d of %d units among 5", id, n, units)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d members have units", len(got))
	}
}

func TestSharesFollowTheWeights(t *testing.T) {
	t.Parallel()
	all := members("a", "b", "c")
	all[1].Weight = 2
	if n := shares(cluster.NewPlacement(all))["id-b"]; n < 420 || n > 580 {
		t.Errorf("a member of weight 2 beside two of weight 1 has %d of %d units", n, units)
	}
}

func TestOnlyWhatAMemberGainsOrHadMoves(t *testing.T) {
	t.Parallel()
	before := cluster.NewPlacement(members("a", "b", "c", "d"))
	after := cluster.NewPlacement(members("a", "b", "c", "d", "e"))
	for i := range units {
		was, is := before.First(unit(i)), after.First(unit(i))
		if was != is && is != "id-e" {
			t.Errorf("%s went from %s to %s when e came", unit(i), was, is)
		}
	}
}

func TestAMemberThatRestartsGetsItsUnitsBack(t *testing.T) {
	t.Parallel()
	before := cluster.NewPlacement(members("a", "b", "c"))
	again := members("a", "b", "c")
	again[1].ID, again[1].Since = "another", time.Unix(1, 0)
	after := cluster.NewPlacement(again)
	for i := range units {
		was, is := before.First(unit(i)), after.First(unit(i))
		if was != is && (was != "id-b" || is != "another") {
			t.Errorf("%s went from %s to %s", unit(i), was, is)
		}
	}
}

func TestMembersOfOneNameAreToldApart(t *testing.T) {
	t.Parallel()
	all := members("a", "a", "a")
	for i := range all {
		all[i].ID, all[i].Since = fmt.Sprint("id-", i), time.Unix(int64(i), 0)
	}
	forwards := cluster.NewPlacement(all)
	slices.Reverse(all)
	backwards := cluster.NewPlacement(all)
	for id, n := range shares(forwards) {
		if n < units/3*8/10 {
			t.Errorf("%s has %d of %d units among 3", id, n, units)
		}
	}
	for i := range units {
		if a, b := forwards.First(unit(i)), backwards.First(unit(i)); a != b {
			t.Fatalf("%s is placed on %s and on %s by the same members", unit(i), a, b)
		}
	}
}

func TestRanksAreAPermutation(t *testing.T) {
	t.Parallel()
	all := members("a", "b", "c", "d", "e")
	p := cluster.NewPlacement(all)
	for i := range units {
		var ranks []int
		for _, m := range all {
			r := p.Rank(unit(i), m.ID, false)
			if r == 0 && p.First(unit(i)) != m.ID {
				t.Fatalf("%s: %s ranks first, First says %s", unit(i), m.ID, p.First(unit(i)))
			}
			ranks = append(ranks, r)
		}
		slices.Sort(ranks)
		if !slices.Equal(ranks, []int{0, 1, 2, 3, 4}) {
			t.Fatalf("%s: ranks %v", unit(i), ranks)
		}
	}
}

func TestWhoDoesNotRunAUnitOrDrainsIsNotAmongThem(t *testing.T) {
	t.Parallel()
	all := members("a", "b", "c")
	all[0].Names, all[1].Draining = []string{"billing"}, true
	p := cluster.NewPlacement(all)
	for i := range units {
		if first := p.First(unit(i)); first != "id-c" {
			t.Fatalf("%s is placed on %s", unit(i), first)
		}
		if a, b := p.Rank(unit(i), "id-a", false), p.Rank(unit(i), "id-b", false); a < 3 || b < 3 {
			t.Fatalf("%s: a ranks %d, b %d", unit(i), a, b)
		}
	}
	if first := p.First(event.Unit{Name: "nobody", Key: "k"}); first != "" {
		t.Errorf("what nobody runs is placed on %s", first)
	}
	if first := p.First(event.Part(7).Unit()); first != "id-a" && first != "id-c" {
		t.Errorf("a part is placed on %q", first)
	}
}

// Whoever reaches the store first again is not to wait until all have said so.
func TestWhereAllAreApartTheyRankAsIfNoneWere(t *testing.T) {
	t.Parallel()
	all := members("a", "b", "c")
	all[2].Names = []string{"billing"}
	whole := cluster.NewPlacement(all)
	all[0].Apart, all[1].Draining = true, true
	p := cluster.NewPlacement(all)
	part := event.Part(3).Unit()
	for i := range units {
		u := unit(i) // c does not run it
		if got := p.First(u); got != "id-a" || p.Rank(u, "id-a", false) != 0 || p.Rank(u, "id-b", false) != 3 {
			t.Fatalf("%s is %q's, rank %d", u, got, p.Rank(u, "id-a", false))
		}
		if got := p.First(event.Unit{Name: "billing", Key: u.Key}); got != "id-c" {
			t.Fatalf("what c runs as well is %q's", got)
		}
	}
	if got := p.First(part); got != "id-c" {
		t.Errorf("the part is %q's", got)
	}
	for i := range all {
		all[i].Apart, all[i].Draining = true, false
	}
	p = cluster.NewPlacement(all)
	for i := range units {
		if got, want := p.First(unit(i)), whole.First(unit(i)); got != want {
			t.Fatalf("%s is %q's, before it was %q's", unit(i), got, want)
		}
	}
	if got, want := p.First(part), whole.First(part); got != want {
		t.Errorf("the part is %q's, before it was %q's", got, want)
	}
}

func TestTheUnfitRankLast(t *testing.T) {
	t.Parallel()
	p := cluster.NewPlacement(members("a", "b", "c"))
	for i := range units {
		if r := p.Rank(unit(i), p.First(unit(i)), true); r != 2 {
			t.Fatalf("%s: the first, unfit, ranks %d", unit(i), r)
		}
	}
}
