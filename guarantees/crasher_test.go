package guarantees

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
)

// TestACrasherHaltsAlthoughItGoesFromNodeToNode has an event end each process that applies it. Nodes are started again, as a supervisor would. The unit must
// halt before it, and no other one: what was in hand beside it is no fault of theirs.
func TestACrasherHaltsAlthoughItGoesFromNodeToNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, settings{crashes: 3})
	names := []string{nodeName(1), nodeName(2), nodeName(3)}
	f.add(names...)
	clients := clientsOf(8)
	const crasher = "crasher"
	f.publish(f.any(), 4, interleaved(1, 5, clients...)...)
	f.publish(f.any(), 1, task{Client: crasher, Number: 1, Fatal: true}, task{Client: crasher, Number: 2})
	var ends int
	eventually(t, 2*time.Minute, "the crasher's unit halts", func() (bool, error) {
		for i, name := range names {
			n := f.nodes[name]
			if !n.process.Alive() {
				ends++
				n.start(t)
			}
			n.call(t.Context(), "publish", publication{Tasks: interleaved(1_000*ends+i, 1_000*ends+i, clients...), Each: 4}, nil) // so that others are in hand as well
		}
		var unit admin.Unit
		err := f.any().call(t.Context(), "unit", event.Unit{Name: runnerName, Key: crasher}, &unit)
		return err == nil && unit.Halt != nil, err
	})
	t.Logf("processes ended %d times", ends)
	if ends < 3 || ends > 8 {
		t.Errorf("processes ended %d times until the unit was halted", ends)
	}
	f.drained(time.Minute, f.lanes(runnerName, taskCategory, clients...))
	for _, client := range clients {
		var unit admin.Unit
		f.any().must(t, "unit", runnerOf(client), &unit)
		if unit.Halt != nil {
			t.Errorf("%s is halted: %+v", client, unit.Halt)
		}
	}
	if rows, err := f.numbers(runnerName, crasher); err != nil || len(rows) > 0 {
		t.Errorf("of the crasher %v were applied (%v)", rows, err)
	}
}
