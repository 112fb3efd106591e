package guarantees

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
)

// TestClusterTimes measures how long nobody serves a key. It is not parallel with other tests of this package: what is judged are times.
//
// Failover is from the signal to the next behavior of a key that was in one, and may take what is left of a lease and a heartbeat. A hand-over, by nodes
// that join and leave in good order, is from the end of the event in hand to the beginning of the next, by keys that always have a next one.
func TestClusterTimes(t *testing.T) {
	t.Run("failover", func(t *testing.T) {
		for _, c := range []struct {
			name, where string
			stop, begin func(c *cluster, victim *node)
		}{
			{"kill -9", before, killed, startedAgain},
			{"SIGSTOP", before, stoodStill, goneOn},
			{"frozen inside a PostgreSQL transaction", inside, stoodStill, goneOn},
		} {
			t.Run(c.name, func(t *testing.T) { failoverTimes(t, c.name, c.where, c.stop, c.begin) })
		}
	})
	t.Run("hand-over", handOverTimes)
}

const handOverBar = 100 * time.Millisecond

func killed(c *cluster, victim *node)       { victim.kill(c.t) }
func startedAgain(c *cluster, victim *node) { victim.start(c.t) }

func stoodStill(c *cluster, victim *node) {
	c.frozen += len(c.clients)
	victim.freeze(c.t)
}
func goneOn(c *cluster, victim *node) { victim.thaw(c.t) }

// failoverTimes holds one node inside a behavior of each key that it has, ends or stops it there, and has the others take over; then the next node.
func failoverTimes(t *testing.T, name, where string, stop, begin func(c *cluster, victim *node)) {
	const rounds = 2
	s := settings{ttl: 4 * time.Second, idle: time.Minute, cluster: true}
	names := []string{node1, node2, node3}
	c := &cluster{fleet: newFleet(t, s), clients: clientsOf(24)}
	c.add(names...)
	c.agree(names...)
	var took []time.Duration
	for round := range rounds {
		victim := c.nodes[names[round]]
		for _, client := range c.clients {
			c.marks.shut(t, gate(client, victim), where)
		}
		c.publish(c.besides(victim.spec.Name)[0], 6, interleaved(round+1, round+1, c.clients...)...)
		held := c.caught(victim, round+1)
		if len(held) == 0 {
			t.Fatalf("%s has none of %d keys, which shows nothing", victim.spec.Name, len(c.clients))
		}
		if where == inside {
			c.inTransaction(min(len(held), 8)) // at least so many a node has at once
		}
		signalled := time.Now()
		stop(c, victim)
		took = append(took, c.successors(victim, held, signalled)...)
		for _, client := range c.clients {
			c.marks.open(t, gate(client, victim))
		}
		begin(c, victim)
		c.agree(names...)
		for _, client := range c.clients {
			c.applied(runnerName, client, round+1)
		}
	}
	bar := s.ttl + s.ttl/5
	p50, p99 := percentile(took, 50), percentile(took, 99)
	t.Logf("failover, %s: keys=%d p50=%v p99=%v; bar: %v (TTL %v and a heartbeat): %s", name, len(took), p50, p99, bar, s.ttl, met(p99 <= bar))
	if p99 > bar {
		t.Errorf("failover took %v, want at most %v", p99, bar)
	}
	c.settle(time.Minute, c.clients, nil)
}

// caught waits until each key is inside its behavior at a node, or has been served by another, and gives the units of the first kind.
func (c *cluster) caught(victim *node, number int) (held []event.Unit) {
	c.t.Helper()
	eventually(c.t, time.Minute, "all keys are inside or done", func() (bool, error) {
		held = nil
		done := 0
		for _, client := range c.clients {
			open, err := c.marks.inside(c.t.Context(), runnerOf(client))
			if err != nil {
				return false, err
			}
			for _, name := range open {
				if name == victim.spec.Name {
					held = append(held, runnerOf(client))
				}
			}
		}
		rows, err := c.effects()
		for _, e := range rows {
			if e.handler == runnerName && e.number == number {
				done++
			}
		}
		return done+len(held) == len(c.clients), err
	})
	return held
}

// inTransaction waits until so many sessions have a transaction open in which they do nothing.
func (c *cluster) inTransaction(sessions int) {
	c.t.Helper()
	eventually(c.t, time.Minute, fmt.Sprint(sessions, " transactions are open"), func() (bool, error) {
		open, err := selected(c.fleet, pgx.RowTo[int], `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'`)
		return err == nil && open[0] >= sessions, errors.Join(err, fmt.Errorf("%v are", open))
	})
}

// successors waits until another node has entered each unit, and gives how long after the signal.
func (c *cluster) successors(victim *node, units []event.Unit, signalled time.Time) (took []time.Duration) {
	c.t.Helper()
	eventually(c.t, time.Minute, "another node enters each unit", func() (bool, error) {
		log, err := c.marks.log(c.t.Context())
		first := map[string]time.Time{}
		for _, n := range log {
			if _, known := first[n.unit]; !known && n.what == "enter" && n.node != victim.spec.Name && !n.at.Before(signalled.Truncate(time.Millisecond)) {
				first[n.unit] = n.at
			}
		}
		took = nil
		for _, u := range units {
			if at, entered := first["unit:"+u.String()]; entered {
				took = append(took, at.Sub(signalled))
			}
		}
		return len(took) == len(units), err
	})
	return took
}

// handOverTimes has nodes join and leave while each key has work in hand and more to come.
func handOverTimes(t *testing.T) {
	const each, work, settled = 300, 80 * time.Millisecond, 3 * time.Second // a joiner asks for what it is first for after a second
	c := &cluster{fleet: newFleet(t, settings{cluster: true, ttl: 6 * time.Second, idle: time.Minute}), clients: clientsOf(16)}
	c.add(node1, node2, node3)
	c.agree(node1, node2, node3)
	all := interleaved(1, each, c.clients...)
	for i := range all {
		all[i].Work = work
	}
	c.publish(c.nodes[node2], 160, all...)
	for _, client := range c.clients {
		c.applied(runnerName, client, 1)
	}
	var spans []span
	step := func(what string, do func(), names ...string) {
		began := time.Now()
		do()
		c.agree(names...)
		time.Sleep(settled)
		spans = append(spans, span{what, began, time.Now()})
	}
	step("joins", func() { c.add(node4) }, node1, node2, node3, node4)
	step("leaves", func() { c.nodes[node4].stop(t) }, node1, node2, node3)
	step("leaves", func() { c.nodes[node1].stop(t) }, node2, node3)
	step("joins", func() { c.add(node5) }, node2, node3, node5)
	for _, client := range c.clients {
		if done, err := c.numbers(runnerName, client); err != nil || len(done) == each {
			t.Errorf("%s had nothing left to do (%v): what was measured may be its rest", client, err)
		}
	}
	log, err := c.marks.log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"joins", "leaves"} {
		took := handedOver(log, spans, what)
		if len(took) == 0 {
			t.Errorf("no key was handed over as a node %s, which shows nothing", what)
			continue
		}
		p50, p99 := percentile(took, 50), percentile(took, 99)
		t.Logf("hand-over, a node %s: keys=%d p50=%v p99=%v; bar: %v: %s", what, len(took), p50, p99, handOverBar, met(p99 < handOverBar))
	}
	c.settle(2*time.Minute, c.clients, nil)
}

// span is a time in which one thing happened.
type span struct {
	what     string
	from, to time.Time
}

// handedOver gives, of the marks, how long after the end of an event at one node the next one of its unit began at another.
func handedOver(log []noted, spans []span, what string) (took []time.Duration) {
	last := map[string]noted{}
	for _, n := range log {
		l := last[n.unit]
		during := slices.ContainsFunc(spans, func(s span) bool { return s.what == what && n.at.After(s.from) && n.at.Before(s.to) })
		if during && n.what == "enter" && l.what == "leave" && l.node != n.node {
			took = append(took, n.at.Sub(l.at))
		}
		last[n.unit] = n
	}
	return took
}

func percentile(took []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[(len(sorted)*p+99)/100-1]
}

func met(is bool) string {
	if is {
		return "met"
	}
	return "not met"
}

func TestGapsBetweenNodesAreMeasured(t *testing.T) {
	t.Parallel()
	at := func(ms int64) time.Time { return time.UnixMilli(1_000_000 + ms) }
	note := func(ms int64, what, unit, node string) noted {
		return noted{at: at(ms), what: what, unit: unit, node: node}
	}
	log := []noted{
		note(10, "enter", "a", "n1"), note(15, "enter", "b", "n1"), note(20, "leave", "a", "n1"), note(27, "enter", "a", "n2"), note(30, "leave", "a", "n2"),
		note(31, "enter", "a", "n2"), note(40, "enter", "b", "n2"), // which had not been left
		note(50, "leave", "a", "n2"), note(90, "enter", "a", "n1"), note(95, "leave", "a", "n1"), note(130, "enter", "a", "n2"), // after the span
	}
	spans := []span{{"joins", at(0), at(100)}, {"leaves", at(100), at(120)}}
	if diff := cmp.Diff([]time.Duration{7 * time.Millisecond, 40 * time.Millisecond}, handedOver(log, spans, "joins")); diff != "" {
		t.Errorf("gaps (-want +got): %s", diff)
	}
	if got := handedOver(log, spans, "leaves"); len(got) > 0 {
		t.Errorf("gaps without a hand-over: %v", got)
	}
	var took []time.Duration
	for n := range 100 {
		took = append(took, time.Duration(100-n))
	}
	if p50, p99, only := percentile(took, 50), percentile(took, 99), percentile(took[:1], 99); p50 != 50 || p99 != 99 || only != 100 {
		t.Errorf("of 1 to 100: p50 is %d and p99 is %d; of 100 alone it is %d", p50, p99, only)
	}
}
