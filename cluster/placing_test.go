package cluster_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// TestScripts runs the scripts of testdata: what nodes are told, and below the line what each of them does, and when. testdata/README.md explains how to read one.
// go test ./cluster -run TestScripts -rewrite writes down what they do now: commit that only if you can say for each changed line why it is right.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		s := &script{t: t}
		s.stage = newStage(nil, func(at time.Duration, what string) {
			fmt.Fprintf(&s.out, "%7.3fs %s\n", at.Seconds(), what)
		})
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.do(d)
			return s.out.String()
		})
	})
}

type script struct {
	*stage
	t      *testing.T
	out    strings.Builder
	shared map[event.Unit]string // node that ranks first, at the last "shares"
}

func (s *script) do(d *datadriven.TestData) {
	word := func(i int) string {
		if i >= len(d.CmdArgs) {
			return ""
		}
		return d.CmdArgs[i].Key
	}
	span := func(i int) time.Duration {
		took, err := time.ParseDuration(word(i))
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		return took
	}
	key := func(i int) event.Unit { return event.Unit{Name: "shipping", Key: word(i)} }
	p := s.player(word(0))
	switch d.Cmd {
	case "join": // join a b=2: nodes, with their weights
		for _, a := range d.CmdArgs {
			weight := 1
			if len(a.Vals) > 0 {
				weight, _ = strconv.Atoi(a.Vals[0])
			}
			s.join(a.Key, weight)
		}
	case "wait":
		s.pass(span(0))
	case "work": // work n k1 k2: that many events of each key
		n, _ := strconv.Atoi(word(0))
		for i := 1; i < len(d.CmdArgs); i++ {
			s.publish(key(i), n)
		}
		s.pass(0)
	case "keys": // keys n events: that many keys with work, of which nothing is told
		n, _ := strconv.Atoi(word(0))
		each, _ := strconv.Atoi(word(1))
		for i := range n {
			s.publish(unit(i), each)
		}
		s.pass(0)
		s.out.Reset()
	case "quietly": // quietly 10s: what happens is counted, not told
		before := map[event.Unit]event.Generation{}
		for _, u := range s.all {
			before[u] = s.units[u].counter
		}
		s.pass(span(0))
		over := strings.Count(s.out.String(), " over to ")
		s.out.Reset()
		moved := 0
		for _, u := range s.all {
			if s.units[u].counter != before[u] {
				moved++
			}
		}
		fmt.Fprintf(&s.out, "%d handed over, %d acquired\n", over, moved)
	case "drain":
		p.leave()
	case "kill":
		p.kill()
	case "freeze":
		p.freeze(span(1))
	case "apart", "together":
		p.apart = d.Cmd == "apart"
	case "cut", "mend": // cut a list gossip leases
		for i := 1; i < len(d.CmdArgs); i++ {
			p.cut[word(i)] = d.Cmd == "cut"
		}
	case "unfit": // unfit a k1 5s
		p.unfit[key(1)] = s.now.Add(span(2))
	case "believes": // believes a b=9: to a, b weighs so much, whatever it says itself
		for _, other := range d.CmdArgs[1:] {
			p.believes[other.Key], _ = strconv.Atoi(other.Vals[0])
		}
	case "ranks": // of each node for a key, as it sees it itself
		for _, p := range s.up() {
			fmt.Fprintf(&s.out, "%s ranks %d for %s\n", p.name, p.placement.Rank(key(0), p.id, s.now.Before(p.unfit[key(0)])), word(0))
		}
	case "owners":
		s.owners()
	case "shares":
		s.shares()
	default:
		d.Fatalf(s.t, "what is %q?", d.Cmd)
	}
}

// believed are members as a node takes them.
func (p *player) believed(members []transport.Member) []transport.Member {
	for i, m := range members {
		if weight, otherwise := p.believes[m.Node]; otherwise {
			members[i].Weight = weight
		}
	}
	return members
}

func (s *script) up() []*player {
	return slices.DeleteFunc(slices.Clone(s.players), func(p *player) bool { return !p.up })
}

func (s *script) owners() {
	for _, u := range s.all {
		who := "nobody"
		for _, p := range s.up() {
			if h := p.live[u]; h != nil && s.now.Before(h.deadline) {
				who = fmt.Sprintf("%s, generation %d", p.name, h.gen)
			}
		}
		fmt.Fprintf(&s.out, "%s: %s, the lease lasts %v\n", u.Key, who, s.left(u))
	}
}

// shares tells for how many of 1,000 keys each node ranks first, as the first node sees it, and what moved since it was told last.
func (s *script) shares() {
	now, count, moves := map[event.Unit]string{}, map[string]int{}, map[string]int{}
	p := s.up()[0].placement
	for i := range units {
		u := unit(i)
		for _, m := range p.Members() {
			if m.ID == p.First(u) {
				now[u] = m.Node
			}
		}
		count[now[u]]++
		if was := s.shared[u]; s.shared != nil && was != now[u] {
			moves[was+" to "+now[u]]++
		}
	}
	weights := 0
	for _, m := range p.Members() {
		if !m.Draining && !m.Apart {
			weights += max(m.Weight, 1)
		}
	}
	for _, m := range p.Members() {
		fair := float64(units*max(m.Weight, 1)) / float64(weights)
		if !m.Draining && !m.Apart {
			fmt.Fprintf(&s.out, "%s has %d, %+.0f%%\n", m.Node, count[m.Node], 100*(float64(count[m.Node])-fair)/fair)
		}
	}
	for _, way := range slices.Sorted(maps.Keys(moves)) {
		fmt.Fprintf(&s.out, "%d moved from %s\n", moves[way], way)
	}
	s.shared = now
}
