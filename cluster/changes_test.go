package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/transport"
)

func TestWhyMembersHaveChanged(t *testing.T) {
	t.Parallel()
	one := func(change func(m *transport.Member)) []transport.Member {
		m := transport.Member{ID: "a", Node: "shop-0", PID: 7, Address: "10.0.0.1:7947", Names: []string{"billing", "shipping"}}
		if change != nil {
			change(&m)
		}
		return []transport.Member{m}
	}
	other := transport.Member{ID: "b", Node: "shop-1", PID: 8}
	for want, c := range map[string]struct{ was, now []transport.Member }{
		"":                      {one(nil), one(nil)},
		"shop-1 joined":         {one(nil), append(one(nil), other)},
		"shop-1 is gone: b":     {append(one(nil), other), one(nil)},
		"shop-0 drains":         {one(nil), one(func(m *transport.Member) { m.Draining = true })},
		"shop-0 drains no more": {one(func(m *transport.Member) { m.Draining = true }), one(nil)},
		"shop-0 does not reach its store or broker":                         {one(nil), one(func(m *transport.Member) { m.Apart = true })},
		"shop-0 reaches its store and broker again":                         {one(func(m *transport.Member) { m.Apart = true }), one(nil)},
		"shop-0 is asked at 10.0.0.2:7947":                                  {one(nil), one(func(m *transport.Member) { m.Address = "10.0.0.2:7947" })},
		"shop-0 is not asked any more":                                      {one(nil), one(func(m *transport.Member) { m.Address = "" })},
		"shop-0 weighs 3, and 1 before":                                     {one(nil), one(func(m *transport.Member) { m.Weight = 3 })},
		"shop was shop-0 before":                                            {one(nil), one(func(m *transport.Member) { m.Node = "shop" })},
		"shop-0 takes up ads, apples, bees and 1 more and gives up billing": {one(nil), one(func(m *transport.Member) { m.Names = []string{"ads", "apples", "bees", "cats", "shipping"} })},
		"shop-0 (process 7) is gone: a; shop-0 (process 9) joined":          {one(nil), []transport.Member{{ID: "c", Node: "shop-0", PID: 9}}},
	} {
		got := strings.Join(cluster.Changes(c.was, c.now, func(id string) string { return "is gone: " + id }), "; ")
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	var many []transport.Member
	for i := range 50 {
		many = append(many, transport.Member{ID: fmt.Sprint(i), Node: fmt.Sprint("shop-", i)})
	}
	if got := cluster.Changes(nil, many, nil); len(got) != 21 || got[20] != "and 30 more" || !slices.IsSorted(got[:20]) {
		t.Errorf("of many: %q", got)
	}
}

func TestWhyAMemberIsGone(t *testing.T) {
	t.Parallel()
	a := transport.Member{ID: "a", Node: "shop-0"}
	listed := []transport.Member{a}
	heard := func(s transport.HeardState) []transport.Heard { return []transport.Heard{{Member: a, State: s}} }
	for want, got := range map[string]string{
		"left in good order": cluster.Gone("a", listed, heard(transport.HeardLeft)),
		"is not heard, and its lease on the list of members is not renewed":        cluster.Gone("a", listed, heard(transport.HeardUnreachable)),
		"is not heard, and its lease on the list of members has lapsed":            cluster.Gone("a", nil, heard(transport.HeardUnreachable)),
		"is not on the list of members any more: it left, or its lease has lapsed": cluster.Gone("a", nil, nil),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
