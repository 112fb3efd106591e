package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/transport"
)

// say writes members as a table has them: id, + what ranks them nowhere, and who has what they run.
func say(all []transport.Member) string {
	var words []string
	for _, m := range all {
		word := m.ID
		if m.Draining {
			word += " draining"
		}
		if m.Apart {
			word += " apart"
		}
		if m.Address != "" {
			word += " at " + m.Address
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestMembersAreThoseOfTheListAndThoseHeardOf(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const heartbeat = 3 * time.Second
	member := func(id string) transport.Member { return transport.Member{ID: id} }
	draining := transport.Member{ID: "b", Draining: true}
	apart := transport.Member{ID: "b", Apart: true}
	heard := func(m transport.Member, s transport.HeardState) []transport.Heard {
		return []transport.Heard{{Member: m, State: s}}
	}
	// beats of b, in the reads of the list, one a heartbeat; -1 = b is not on it, -2 = the broker does not answer
	for _, c := range []struct {
		name  string
		beats []int64
		list  transport.Member
		heard []transport.Heard
		want  string
	}{
		{"on the list alone", []int64{1}, member("b"), nil, "a, b"},
		{"on both", []int64{1}, member("b"), heard(member("b"), transport.HeardAlive), "a, b"},
		{"on neither", []int64{-1}, member("b"), nil, "a"},
		{"heard alone: the list is gone", []int64{1, -1}, member("b"), heard(member("b"), transport.HeardAlive), "a, b"},
		{"heard alone, draining", []int64{-1}, member("b"), heard(draining, transport.HeardAlive), "a, b draining"},
		{"left, by gossip", []int64{1}, member("b"), heard(member("b"), transport.HeardLeft), "a"},
		{"left, off the list", []int64{-1}, member("b"), heard(member("b"), transport.HeardLeft), "a"},
		{"draining, by gossip", []int64{1}, member("b"), heard(draining, transport.HeardAlive), "a, b draining"},
		{"draining, by the list", []int64{1}, draining, heard(member("b"), transport.HeardAlive), "a, b draining"},
		{"apart, by gossip", []int64{1}, member("b"), heard(apart, transport.HeardAlive), "a, b apart"},
		{"apart, by the list", []int64{1}, apart, heard(member("b"), transport.HeardAlive), "a, b apart"},
		{"its address, by gossip", []int64{1}, member("b"), heard(transport.Member{ID: "b", Address: "x:1"}, transport.HeardAlive), "a, b at x:1"},
		{"unreachable, and beats", []int64{1, 2, 3, 4}, member("b"), heard(member("b"), transport.HeardUnreachable), "a, b"},
		{"unreachable, two heartbeats without a beat", []int64{1, 1, 1}, member("b"), heard(member("b"), transport.HeardUnreachable), "a, b"},
		{"unreachable, and longer without a beat", []int64{1, 1, 1, 1}, member("b"), heard(member("b"), transport.HeardUnreachable), "a"},
		{"unreachable, and beats again", []int64{1, 1, 1, 1, 2}, member("b"), heard(member("b"), transport.HeardUnreachable), "a, b"},
		{"alive, and without a beat", []int64{1, 1, 1, 1, 1}, member("b"), heard(member("b"), transport.HeardAlive), "a, b"},
		{"unreachable, and the broker away", []int64{1, -2, -2, -2, -2}, member("b"), heard(member("b"), transport.HeardUnreachable), "a, b"},
		{"unreachable, off the list", []int64{1, -1}, member("b"), heard(member("b"), transport.HeardUnreachable), "a"},
		{"unreachable, and was draining before", []int64{1}, member("b"), heard(draining, transport.HeardUnreachable), "a, b"},
	} {
		var l cluster.Listed
		now := start
		for _, beats := range c.beats {
			now = now.Add(heartbeat)
			b := c.list
			b.Beats = beats
			switch beats {
			case -2:
			case -1:
				cluster.Read(&l, []transport.Member{member("a")}, now)
			default:
				cluster.Read(&l, []transport.Member{member("a"), b}, now)
			}
		}
		if got := say(cluster.Joined(&l, member("a"), c.heard, 2*heartbeat)); got != c.want {
			t.Errorf("%s: members are %s, want %s", c.name, got, c.want)
		}
	}
}

// A node that does not find itself on the list is a member all the same, as it is now and not as the list has it.
func TestANodeIsAlwaysAMember(t *testing.T) {
	t.Parallel()
	var l cluster.Listed
	self := transport.Member{ID: "a", Draining: true}
	if got := say(cluster.Joined(&l, self, nil, time.Second)); got != "a draining" {
		t.Error(got)
	}
	cluster.Read(&l, []transport.Member{{ID: "a"}}, time.Unix(1, 0))
	if got := fmt.Sprint(say(cluster.Joined(&l, self, nil, time.Second))); got != "a draining" {
		t.Error(got)
	}
}
