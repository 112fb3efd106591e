package guarantees

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	placement "github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/netns"
	"github.com/keyhold/keyhold/transport"
)

// TestCluster has nodes come, go, die, stand still and be cut off, under load, each a process on a host of its own. All of them, and a client, ask for entities wherever they are: each
// ask ends by itself within a bound, in an answer or in an error that says whether anything was done, and that is so. Where this system has no hosts to give, what needs none is shown on one, and the rest is skipped.
func TestCluster(t *testing.T) {
	t.Parallel()
	g, why := openGrid(t)
	for _, c := range []struct {
		name  string
		hosts bool // it needs hosts
		test  func(t *testing.T, g *grid)
	}{
		{"gossip cut only", true, gossipCut},
		{"Redis cut only", true, redisCut},
		{"node service cut only", true, peersCut},
		{"full partition of one node, and heal", true, fullPartition},
		{"SIGSTOP", false, clusterStandstill},
		{"SIGKILL", false, clusterKill},
		{"join", false, clusterJoin},
		{"leave", false, clusterLeave},
		{"3 to 5 to 3 nodes", false, clusterGrows},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.hosts && g == nil {
				if errors.Is(why, netns.ErrMissing) && os.Getenv("CI") != "" {
					t.Fatal(why)
				}
				t.Skip(why)
			}
			c.test(t, g)
		})
	}
}

// The nodes of most tests.
var node1, node2, node3, node4, node5 = nodeName(1), nodeName(2), nodeName(3), nodeName(4), nodeName(5)

func anyNode(string) bool { return true }

func not(name string) func(string) bool { return func(n string) bool { return n != name } }

func clusterJoin(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{}, node1, node2)
	began := time.Now()
	c.join(node3)
	c.agree(node1, node2, node3)
	c.takes(node3, began)
	c.quiet(c.settings.ttl)
	c.served(time.Now(), anyNode)
	units, to := moved(c.holdings(began, time.Now()))
	t.Logf("%d of %d units moved, to %v", units, len(c.units()), to)
	c.end(t)
}

func clusterLeave(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{}, node1, node2, node3)
	c.takes(node3, time.Time{})
	c.elsewhere(time.Time{})
	c.traffic.through(c.nodes[node1], c.nodes[node2])
	c.nodes[node3].stop(t)
	gone := time.Now()
	c.agree(node1, node2)
	c.served(gone, anyNode)
	c.elsewhere(gone)
	t.Logf("all units were served %v after the node had gone", time.Since(gone))
	for u, h := range c.holdings(gone, time.Now()) {
		if slices.ContainsFunc(h, func(h holding) bool { return h.node == node3 }) {
			t.Errorf("%s had %s after it had stopped", node3, u)
		}
	}
	c.end(t)
}

func clusterKill(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{}, node1, node2, node3)
	c.takes(node3, time.Time{})
	c.traffic.through(c.nodes[node1], c.nodes[node2])
	c.nodes[node3].kill(t)
	c.killed++
	killed := time.Now()
	c.served(killed, anyNode)
	t.Logf("all units were served %v after the kill, with leases of %v", time.Since(killed), c.settings.ttl)
	c.agree(node1, node2)
	again := time.Now()
	c.join(node3)
	c.agree(node1, node2, node3)
	c.takes(node3, again)
	c.end(t)
}

// clusterStandstill stops a node for longer than its leases last, and lets it go on.
func clusterStandstill(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{}, node1, node2, node3)
	c.takes(node3, time.Time{})
	c.traffic.through(c.nodes[node1], c.nodes[node2])
	c.nodes[node3].freeze(t)
	frozen := time.Now()
	c.frozen += len(c.units()) // each may have been between the last look at its lease and the behavior
	c.served(frozen, not(node3))
	t.Logf("all units were served %v after the stop, with leases of %v", time.Since(frozen), c.settings.ttl)
	time.Sleep(time.Until(frozen.Add(2 * c.settings.ttl)))
	thawed := time.Now()
	c.nodes[node3].thaw(t)
	c.still[node3] = time.Since(frozen)
	c.traffic.through(c.running()...)
	c.agree(node1, node2, node3)
	c.takes(node3, thawed)
	c.served(time.Now(), anyNode)
	c.end(t)
}

// gossipCut cuts the gossip of one node, and then of all. What gossip says of them then must move nothing: they renew their leases, and beat.
func gossipCut(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{ttl: 3 * time.Second, idle: 5 * time.Minute}, node1, node2, node3) // nothing is put away: each new generation is a move
	names, lasts := []string{node1, node2, node3}, 3*c.settings.ttl
	c.quiet(2 * c.settings.ttl)
	before, began := c.generations(), time.Now()
	for _, cut := range [][]string{names[:1], names} {
		c.cut([]string{gossipNet}, cut...)
		at := time.Now()
		c.unheard(node1, names[1:]...)
		c.shown(node1, names[1:]...)
		time.Sleep(time.Until(at.Add(lasts)))
		c.served(at.Add(lasts-c.settings.ttl), anyNode)
	}
	c.mend([]string{gossipNet}, names...)
	c.agree(names...) // each lives again, as all are heard to
	c.shown(node1)
	c.served(time.Now(), anyNode)
	held := c.holdings(began, time.Now())
	c.stayed(before, c.generations(), held, names...)
	t.Logf("gossip was cut for %v at one node, then at all; of %d units none may leave the node that ranks first; handlers: %s", lasts, len(before), sharesOf(held))
	c.end(t)
}

// quiet waits until no unit has moved for a while. Tills count where they are not put away between two asks. Before that each has been needed once more: one that was taken
// before all nodes were there is handed over only then.
func (c *cluster) quiet(during time.Duration) {
	c.t.Helper()
	c.served(time.Now().Add(2*time.Second), anyNode) // a member gets units when it has been there for a second
	units := func() map[event.Unit]event.Generation {
		all := c.generations()
		maps.DeleteFunc(all, func(u event.Unit, _ event.Generation) bool {
			return u.Name == tillCategory && c.settings.idle < time.Minute
		})
		return all
	}
	was, since := units(), time.Now()
	eventually(c.t, time.Minute, "no unit moves", func() (bool, error) {
		now := units()
		if !maps.Equal(was, now) {
			was, since = now, time.Now()
		}
		return time.Since(since) > during, nil
	})
}

// stayed fails the test where a unit has moved while ways were cut. A few that were taken before all nodes were there may go, once, to the node that ranks first: that node asks for what it sees
// at work, so one that has little to do may be late.
func (c *cluster) stayed(before, after map[event.Unit]event.Generation, held map[event.Unit][]holding, names ...string) {
	c.t.Helper()
	var members []transport.Member
	for _, name := range names {
		members = append(members, transport.Member{ID: name, Node: name, Names: []string{runnerName, tellerName}})
	}
	ranks, late := placement.NewPlacement(members), 0
	for u, g := range before {
		switch home := ranks.First(u); whither(g, after[u], held[u], home) {
		case astray:
			c.t.Errorf("%s was at generation %d before the cut, and is at %d: %v; %s ranks first", u, g, after[u], held[u], home)
		case homeward:
			late++
		}
	}
	c.t.Logf("%d of %d units went home late", late, len(before))
	if late > len(held)/8 {
		c.t.Errorf("%d of %d units moved, though to where they rank first", late, len(held))
	}
}

type way int

const (
	still way = iota
	homeward
	astray
)

// whither tells where a unit has gone that was at a generation, by where it is now and who had it. These are not of one moment: a move under way shows in one of them alone.
func whither(was, now event.Generation, held []holding, home string) way {
	switch n := len(held); {
	case now == was && n <= 1:
		return still
	case n == 0 || n > 2 || now > was+1, held[0].generation != was || held[0].node == home, n == 2 && held[1] != holding{home, was + 1}:
		return astray
	}
	return homeward
}

func TestOracleTellsUnitsThatGoHomeFromOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now  event.Generation // it was at 5
		held []holding
		want way
	}{
		"at rest":                              {5, nil, still},
		"at home":                              {5, []holding{{"home", 5}}, still},
		"elsewhere, where it was":              {5, []holding{{"a", 5}}, still},
		"went home":                            {6, []holding{{"a", 5}, {"home", 6}}, homeward},
		"is going home, nothing done yet":      {6, []holding{{"a", 5}}, homeward},
		"went home as it was looked at":        {5, []holding{{"a", 5}, {"home", 6}}, homeward},
		"left home":                            {6, []holding{{"home", 5}, {"a", 6}}, astray},
		"leaves home, nothing done yet":        {6, []holding{{"home", 5}}, astray},
		"new at home":                          {6, []holding{{"home", 5}, {"home", 6}}, astray},
		"went elsewhere":                       {6, []holding{{"a", 5}, {"b", 6}}, astray},
		"went home by way of another":          {7, []holding{{"a", 5}, {"home", 7}}, astray},
		"went home, and back":                  {7, []holding{{"a", 5}, {"home", 6}, {"a", 7}}, astray},
		"had by two at one generation":         {5, []holding{{"a", 5}, {"home", 5}}, astray},
		"moved, and nobody knows whose it was": {6, nil, astray},
	} {
		if got := whither(5, c.now, c.held, "home"); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// unheard waits until a node hears of none of the others that they live.
func (c *cluster) unheard(name string, others ...string) {
	c.t.Helper()
	eventually(c.t, time.Minute, name+" hears nobody", func() (bool, error) {
		var k known
		err := c.nodes[name].call(c.t.Context(), "members", nil, &k)
		return err == nil && !slices.ContainsFunc(others, func(o string) bool { return k.lives(o) }), err
	})
}

// shown waits until a node shows an operator all others as members, and of these alone that gossip does not reach them.
func (c *cluster) shown(name string, unheard ...string) {
	c.t.Helper()
	eventually(c.t, time.Minute, fmt.Sprint(name, " shows as members that are not heard of ", unheard), func() (bool, error) {
		var status admin.Status
		err := c.nodes[name].call(c.t.Context(), "status", nil, &status)
		var got []string
		for _, m := range status.Members {
			if m.Unheard {
				got = append(got, m.Node)
			}
		}
		slices.Sort(got)
		return len(status.Members) == len(c.nodes) && slices.Equal(got, unheard), errors.Join(err, fmt.Errorf("it shows %+v", status.Members))
	})
}

// redisCut cuts Redis from all nodes. Each serves for as long as its leases last, and nobody after that, until Redis is there again.
func redisCut(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{idle: 5 * time.Minute}, node1, node2, node3)
	names, ttl := []string{node1, node2, node3}, c.settings.ttl
	margin := ttl / 5
	c.quiet(ttl)
	c.cut([]string{redisNet}, names...)
	cut := time.Now()
	deadline := cut.Add(ttl - margin) // of the latest renewal that may have come through
	time.Sleep(time.Until(deadline.Add(margin / 2)))
	before := c.generations()
	time.Sleep(time.Until(cut.Add(3 * ttl)))
	after := c.generations()
	healed := time.Now()
	c.mend([]string{redisNet}, names...)

	for u, g := range after {
		if before[u] != g {
			t.Errorf("%s went to generation %d while nobody could have a lease", u, g)
		}
	}
	rows, err := c.effects()
	if err != nil {
		t.Fatal(err)
	}
	commits := c.deposits()
	for _, e := range rows {
		commits = append(commits, e.committed)
	}
	var last time.Time
	served, late := 0, 0
	for _, at := range commits {
		if at.After(cut) && at.Before(healed) {
			served++
			if at.After(last) {
				last = at
			}
			if at.After(deadline.Add(margin / 2)) { // one that was under way may end later
				late++
			}
		}
	}
	if late > 0 {
		t.Errorf("%d commits were made later than leases can be good for, %v after Redis was cut, the last %v after it", late, ttl-margin, last.Sub(cut))
	}
	if served == 0 {
		t.Error("nobody served after Redis was cut, which shows nothing")
	}
	t.Logf("after the cut %d commits, the last %v after it; leases were good for at most %v", served, last.Sub(cut), ttl-margin)
	c.served(healed, anyNode)
	t.Logf("all units were served %v after the heal", time.Since(healed))
	c.agree(names...)
	c.end(t)
}

// peersCut cuts the node service of one node. Nothing moves, each answers for what it has, and who asks across the cut is told that nothing was done.
func peersCut(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{ttl: 5 * time.Second, idle: 5 * time.Minute}, node1, node2, node3) // nothing is put away: each new generation is a move
	c.quiet(c.settings.ttl)
	before, began := c.generations(), time.Now()
	c.cut([]string{peersNet}, node3)
	cut := time.Now()
	time.Sleep(2*quietLink + 3*c.settings.ttl)
	after, healed := c.generations(), time.Now()
	c.mend([]string{peersNet}, node3)
	held := c.holdings(began, healed)
	c.stayed(before, after, held, node1, node2, node3)
	here, across, others := 0, map[outcome]int{}, 0
	for _, a := range c.attempts() {
		if a.Outcome == begun || a.Began.Before(cut.Add(quietLink+time.Second)) || a.Began.Add(a.Took).After(healed) { // what was under way before the link was found broken may be unknown
			continue
		}
		switch {
		case a.By == node3 && a.Node == node3:
			here++
		case a.By == node3 || a.By != node3 && a.Node == node3:
			across[a.Outcome]++
		case a.Outcome == answered && a.By != a.Node:
			others++
		}
	}
	if here == 0 || others == 0 || across[refused] == 0 || across[answered]+across[unknown] > 0 {
		t.Errorf("while its node service was cut, %s answered %d of its own asks, others answered one another %d times, and asks across the cut ended as %v: want some, some, and all refused", node3, here, others, across)
	}
	c.agree(node1, node2, node3)
	eventually(t, time.Minute, node3+" is answered by others, and others by it", func() (bool, error) {
		to, from := false, false
		for _, a := range c.attempts() {
			if a.Outcome == answered && a.Began.After(healed) && a.By != a.Node {
				to, from = to || a.Node == node3, from || a.By == node3
			}
		}
		return to && from, nil
	})
	t.Logf("asks across the cut: %v; %s answered %d of its own, others one another %d", across, node3, here, others)
	c.end(t)
}

// fullPartition cuts one node from everything.
func fullPartition(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{}, node1, node2, node3)
	everything := []string{gossipNet, peersNet, redisNet, postgresNet}
	c.takes(node3, time.Time{})
	process := c.nodes[node3].process.PID()
	c.traffic.through(c.nodes[node1], c.nodes[node2])
	c.cut(everything, node3)
	cut := time.Now()
	c.served(cut.Add(time.Second), not(node3))
	t.Logf("all units were served by others %v after the cut, with leases of %v", time.Since(cut), c.settings.ttl)
	c.agree(node1, node2)
	time.Sleep(time.Until(cut.Add(22 * time.Second))) // the others take it for dead within 5 s, and the library tells it of them for 15 s more: after that it would stay alone
	c.unheard(node3, node1, node2)
	for u, h := range c.holdings(cut.Add(c.settings.ttl), time.Now()) {
		if slices.ContainsFunc(h, func(h holding) bool { return h.node == node3 }) {
			t.Errorf("%s had %s although it was cut off for longer than a lease", node3, u)
		}
	}
	healed := time.Now()
	c.mend(everything, node3)
	c.agree(node1, node2, node3)
	t.Logf("all nodes had one list of members %v after the heal", time.Since(healed))
	c.traffic.through(c.running()...)
	c.takes(node3, healed)
	c.served(time.Now(), anyNode)
	if now := c.nodes[node3].process.PID(); now != process || !c.nodes[node3].process.Alive() {
		t.Errorf("the node was process %d and is %d: it started again", process, now)
	}
	c.end(t)
}

// clusterGrows adds two nodes to three, and takes two others away.
func clusterGrows(t *testing.T, g *grid) {
	c := startCluster(t, g, settings{}, node1, node2, node3)
	grown := time.Now()
	c.join(node4, node5)
	c.agree(node1, node2, node3, node4, node5)
	c.takes(node4, grown)
	c.takes(node5, grown)
	c.quiet(c.settings.ttl)
	five := sharesOf(c.holdings(grown, time.Now()))
	c.traffic.through(c.besides(node1, node2)...)
	for _, name := range []string{node1, node2} {
		c.nodes[name].stop(t)
	}
	shrunk := time.Now()
	c.agree(node3, node4, node5)
	c.served(shrunk, anyNode)
	held := c.holdings(shrunk, time.Now())
	t.Logf("handlers' units: with five nodes %s; with three again %s", five, sharesOf(held))
	for u, h := range held {
		if slices.ContainsFunc(h, func(h holding) bool { return h.node == node1 || h.node == node2 }) {
			t.Errorf("%s was at a node that had stopped: %v", u, h)
		}
	}
	c.end(t)
}
