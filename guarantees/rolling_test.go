package guarantees

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// TestRollingRestart takes three nodes of a program to a newer one, one after the other, under load: 100 keys, 200 commands in a second, each with an
// id. The newer program knows a type of events that the older does not, and publishes such events as soon as the first of its nodes
// runs: the older nodes may neither pass over them nor take them for poison.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, settings{ttl: 6 * time.Second})
	clients := clientsOf(34)
	load := func(n *node) {
		n.must(t, "load", loading{Clients: clients, Pause: 500 * time.Millisecond}, nil)
	}
	older, newer := []string{"older-1", "older-2", "older-3"}, []string{"newer-1", "newer-2", "newer-3"}
	f.add(older...)
	for _, name := range older {
		load(f.nodes[name])
	}
	f.publish(f.nodes[older[0]], 10, interleaved(1, 2, clients...)...)
	number := 2
	for i := range older {
		f.nodes[older[i]].stop(t) // in an orderly way: its leases are given back
		f.settings.newer = true
		f.add(newer[i])
		load(f.nodes[newer[i]])
		var batch []task
		for range 3 {
			number++
			batch = append(batch, interleaved(number, number, clients...)...)
			number++
			for _, client := range clients {
				batch = append(batch, task{Client: client, Number: number, Ended: true})
			}
		}
		f.publish(f.nodes[newer[i]], 10, batch...)
		time.Sleep(2 * time.Second) // of load on the mixed fleet
	}
	for _, name := range newer {
		n := f.nodes[name]
		n.must(t, "unload", nil, nil)
		if r := n.report(t); len(r.Errors) > 0 || len(r.Halted) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	j := f.settle(2*time.Minute, clients, clients)
	rows, err := f.effects()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]int{}
	for _, e := range rows {
		if e.handler == runnerName {
			got[e.client] = append(got[e.client], e.number)
		}
		if e.kind == "task.ended" && e.node[:5] != "newer" {
			t.Errorf("%s applied a type that it does not know: %+v", e.node, e)
		}
	}
	for _, client := range clients {
		if diff := cmp.Diff(upTo(1, number), got[client]); diff != "" {
			t.Errorf("%s (-published +applied): %s", client, diff)
		}
	}
	t.Logf("across the restarts: %v", j)

	// Back to the older program alone: what it does not know waits, and so does what comes after it.
	f.publish(f.nodes[newer[0]], 0, task{Client: clientA, Number: 1})
	f.applied(runnerName, clientA, 1)
	f.marks.shut(t, gate(clientA, nil), before)
	f.publish(f.nodes[newer[0]], 0, task{Client: clientA, Number: 2, Ended: true}, task{Client: clientA, Number: 3}, task{Client: clientB, Number: 1})
	f.applied(runnerName, clientB, 1)
	for _, name := range newer {
		f.nodes[name].kill(t)
	}
	f.settings.newer = false
	f.nodes[older[0]] = f.newNode(older[0])
	f.nodes[older[0]].start(t)
	f.marks.open(t, gate(clientA, nil))
	f.publish(f.nodes[older[0]], 0, task{Client: clientB, Number: 2})
	f.applied(runnerName, clientB, 2)
	eventually(t, time.Minute, "the key waits for a newer program", func() (bool, error) {
		return slices.Contains(f.nodes[older[0]].report(t).Waits, runnerOf(clientA).String()), nil
	})
	if waiting, err := f.numbers(runnerName, clientA); err != nil || len(waiting) != 1 {
		t.Errorf("the older program applied %v, %v, want 1 alone", waiting, err)
	}
	f.settings.newer = true
	f.add("newer-4")
	f.applied(runnerName, clientA, 3)
	f.settle(time.Minute, append(clients, clientA, clientB), clients)
}

// passed is an effect, and when it was committed.
type passed struct {
	client, node string
	generation   int64
	at           time.Time
}

// TestRestartOfFiveNodes restarts five nodes of one program, one after the other, under load: nothing is lost, and only keys of the one that is restarted move, from it and, sooner or later, back to it. The
// others go on without a pause.
func TestRestartOfFiveNodes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, settings{idle: time.Minute, ttl: 5 * time.Second}) // longer than this machine may pause
	var names []string
	for i := range 5 {
		names = append(names, nodeName(i+1))
	}
	f.add(names...)
	clients := clientsOf(40)
	f.publish(f.nodes[names[0]], 10, interleaved(1, 1, clients...)...)
	time.Sleep(3 * time.Second) // until who ranks first for a key has asked for it

	// One who publishes for all keys, through a node that stays.
	var through atomic.Pointer[node]
	through.Store(f.nodes[names[1]])
	over, published := make(chan struct{}), make(chan int)
	go func() {
		number := 1
		defer func() { published <- number }()
		for {
			select {
			case <-over:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var done int
			batch := publication{Tasks: interleaved(number+1, number+1, clients...), Each: 10}
			if err := through.Load().call(t.Context(), "publish", batch, &done); err != nil || done != len(clients) {
				t.Errorf("published %d of %d: %v", done, len(clients), err)
				return
			}
			number++
		}
	}()
	began := make([]time.Time, len(names))
	for i, name := range names {
		through.Store(f.nodes[names[(i+1)%len(names)]])
		time.Sleep(time.Second) // what goes through this one is through
		began[i] = time.Now()
		f.nodes[name].stop(t)
		took := time.Since(began[i])
		t.Logf("%s stopped in %v", name, took.Round(time.Millisecond))
		if took > 20*time.Second {
			t.Errorf("%s took %v to stop", name, took)
		}
		f.nodes[name].start(t)
		time.Sleep(2 * time.Second) // it gets back what it ranks first for
	}
	close(over)
	number := <-published
	j := f.settle(2*time.Minute, clients, nil)
	t.Logf("%d events of each of %d keys across the restarts: %v", number, len(clients), j)

	rows, err := f.passed()
	if err != nil {
		t.Fatal(err)
	}
	moves, gap := 0, time.Duration(0)
	home := map[string]string{} // where a key is in the end, for that node ranks first; it may have been late in coming there before the first restart, too
	for i := range rows {
		home[rows[i].client] = rows[i].node
	}
	for _, client := range clients {
		var before *passed
		been := false // at home: until then it goes to whoever ranks first of those who are there
		for i := range rows {
			r := &rows[i]
			if r.client != client {
				continue
			}
			if before != nil && r.at.After(began[0]) {
				if before.generation == r.generation {
					gap = max(gap, f.pause(rows, before, r))
				} else if moves++; been && r.node != home[client] && !concerns(began, names, before, r) {
					t.Errorf("%s moved from %s to %s at %v, and had no reason to", client, before.node, r.node, r.at.Sub(began[0]))
				}
			}
			before, been = r, been || r.node == home[client]
		}
	}
	t.Logf("%d moves; the longest pause of a key that did not move was %v", moves, gap.Round(time.Millisecond))
	if moves == 0 {
		t.Error("nothing moved, which shows little")
	}
}

// concerns reports whether a key moved away from the node that was being restarted, or back to one that was restarted before: a key that has little to do goes back late, for a node asks for
// what it sees at work.
func concerns(began []time.Time, names []string, from, to *passed) bool {
	for i := range began {
		end := to.at.Add(time.Second)
		if i+2 < len(began) {
			end = began[i+2]
		}
		switch {
		case to.at.Before(began[i]):
		case to.node == names[i], from.node == names[i] && from.at.Before(end):
			return true
		}
	}
	return false
}

// pause is how long a key waited between two effects. One as long as a lease breaks the promise, unless the others waited as well: then it was this machine.
func (f *fleet) pause(rows []passed, before, after *passed) time.Duration {
	f.t.Helper()
	d, others := after.at.Sub(before.at), 0
	for i := range rows {
		if rows[i].at.After(before.at) && rows[i].at.Before(after.at) {
			others++
		}
	}
	if d > f.settings.ttl && others > 100 {
		f.t.Errorf("%s waited %v on %s, which had it all the time, while others had %d effects", after.client, d, after.node, others)
	}
	return d
}

// passed gives the effects of tasks in the order of their commits.
func (f *fleet) passed() ([]passed, error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 10*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, f.database)
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, `SELECT client, node, generation, pg_xact_commit_timestamp(xmin) FROM effects WHERE handler = $1 ORDER BY 4, n`, runnerName)
	if err != nil {
		return nil, fmt.Errorf("read effects: %w", err)
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (p passed, err error) {
		return p, r.Scan(&p.client, &p.node, &p.generation, &p.at)
	})
}
