package guarantees

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// TestOneNodeWithoutABroker runs the application of the nodes as one, on SQLite and the local transport: handlers do not change from
// one to many. It shows as well that gates hold, and that kills and marks work, where nothing else can go wrong.
func TestOneNodeWithoutABroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := openMarks(redisserver.Run(t, redisserver.Options{}).Addr())
	defer m.close()
	n := newNode(t, nodeSpec{
		Name: "alone", SQLite: filepath.Join(dir, "bank.db"), Acks: filepath.Join(dir, "acks"), Marks: m.client.Options().Addr,
		TTL: time.Minute, Timeout: time.Minute, Idle: 50 * time.Millisecond,
	})
	applied := func(count int) {
		t.Helper()
		eventually(t, time.Minute, "so many events are applied", func() (bool, error) {
			counts, err := m.counts(t.Context())
			return counts["leave"]+counts["leave, overtaken"] >= count, err
		})
	}
	n.start(t)
	n.must(t, "publish", publication{Tasks: interleaved(1, 5, clientA, clientB), Each: 2}, nil)
	applied(10)
	for i, where := range []string{before, inside} {
		m.shut(t, gate(clientA, nil), where)
		n.must(t, "publish", publication{Tasks: tasks(clientA, 6+i, 6+i)}, nil)
		eventually(t, time.Minute, "the behavior waits at the gate", func() (bool, error) {
			inside, err := m.inside(t.Context(), runnerOf(clientA))
			return len(inside) == 1, err
		})
		n.kill(t)
		n.start(t)
		m.open(t, gate(clientA, nil))
		applied(11 + i)
	}
	n.must(t, "publish", publication{Tasks: []task{{Client: clientA, Number: 8, Poison: true}, {Client: clientA, Number: 9}}}, nil)
	var unit admin.Unit
	eventually(t, time.Minute, "the key is halted", func() (bool, error) {
		n.must(t, "unit", runnerOf(clientA), &unit)
		return unit.Halt != nil, nil
	})
	n.must(t, "act", admin.ActRequest{Kind: eventstore.ActSkip, Handler: runnerName, Key: clientA, Actor: "test", Reason: "cannot be done"}, nil)
	applied(14)
	n.must(t, "load", loading{Clients: []string{clientB}, Pause: time.Millisecond}, nil)
	applied(24)
	n.must(t, "unload", nil, nil)
	var deposits int
	n.must(t, "balance", accountOf("alone", clientB), &deposits)
	applied(14 + deposits)

	var tails []event.Sequence
	n.must(t, "tails", []event.LaneRef{{Category: taskCategory, Key: clientA}, {Category: accountCategory, Key: clientB}}, &tails)
	if diff := cmp.Diff([]event.Sequence{9, event.Sequence(deposits)}, tails); diff != "" {
		t.Errorf("tails (-want +got): %s", diff)
	}
	key := "a:b"
	if err := n.call(t.Context(), "publish", publication{Key: &key}, nil); err == nil {
		t.Error("an unsafe key was taken")
	}
	if r := n.report(t); len(r.Errors) > 0 || len(r.Halted) != 1 {
		t.Errorf("the node reports %+v", r)
	}
	n.stop(t)
	counts, err := m.counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if counts["late"]+counts["overlapping"]+counts["backwards"]+counts["skipped"] != 0 {
		t.Errorf("marks: %v", counts)
	}
}

// TestOneNodeOnPostgreSQL is the same on PostgreSQL, of which one process is active at a time: it is killed under load.
func TestOneNodeOnPostgreSQL(t *testing.T) {
	t.Parallel()
	f := newFleet(t, settings{local: true})
	clients := clientsOf(6)
	for life := range 5 {
		f.add("alone")
		n := f.nodes["alone"]
		n.must(t, "load", loading{Clients: clients, Pause: time.Millisecond}, nil)
		f.publish(n, 3, interleaved(10*life+1, 10*life+10, clients...)...)
		n.kill(t)
	}
	f.add("alone")
	f.settle(time.Minute, clients, clients)
	f.nodes["alone"].stop(t)
}
