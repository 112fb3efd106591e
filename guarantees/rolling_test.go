package guarantees

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRollingRestart takes three nodes of a program to a newer one, one after the other, under load: 100 keys, 200 commands in a second, each with an
// id. The newer program knows a type of events that the older does not, and publishes such events as soon as the first of its nodes
// runs: the older nodes may neither pass over them nor take them for poison.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, settings{})
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
