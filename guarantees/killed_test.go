package guarantees

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/admin"
)

// mostCrashes is what MaxCrashes is by default.
const mostCrashes = 3

// suspicion is what is written down of the next event of a unit.
type suspicion struct {
	key               string
	suspicions, alone int
}

func (f *fleet) suspicions() ([]suspicion, error) {
	return selected(f, func(r pgx.CollectableRow) (s suspicion, err error) {
		return s, r.Scan(&s.key, &s.suspicions, &s.alone)
	}, `SELECT key, suspicions, alone FROM keyhold_tried WHERE name = $1 AND suspicions > 0`, runnerName)
}

// killAll ends all nodes at once, and starts them again.
func (f *fleet) killAll() {
	f.t.Helper()
	all := f.running()
	for _, n := range all {
		n.kill(f.t)
	}
	for _, n := range all {
		if err := n.launch(); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, n := range all {
		if err := n.started(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// suspected waits until it is so of all that is suspected.
func (f *fleet) suspected(what string, so func(all map[string]suspicion) bool) {
	f.t.Helper()
	var all map[string]suspicion
	eventually(f.t, time.Minute, what, func() (bool, error) {
		found, err := f.suspicions()
		all = map[string]suspicion{}
		for _, s := range found {
			all[s.key] = s
		}
		return so(all), errors.Join(fmt.Errorf("suspected are %+v", found), err)
	})
	f.t.Logf("%s: %+v", what, all)
}

// TestKillsFromOutsideCondemnNobody kills all nodes at once, at the worst of moments, as often as nobody may be condemned for: while behaviors of all keys are inside, while all of them are
// suspects, and then twice while one is inside that is slow, and alone. By default three of those are needed.
func TestKillsFromOutsideCondemnNobody(t *testing.T) {
	t.Parallel()
	f := newFleet(t, settings{crashes: mostCrashes, ttl: 6 * time.Second}) // a lease that lapses because its node paused is an end that nobody counts here
	f.two()
	clients := clientsOf(8)
	slow, others := clients[0], clients[1:]
	for _, client := range clients {
		f.marks.shut(t, gate(client, nil), regardless) // whatever gives up has returned, and is no suspect any more
	}
	f.publish(f.any(), 4, interleaved(1, 3, clients...)...)
	for _, client := range clients {
		f.owner(runnerOf(client))
	}

	f.killAll()
	f.suspected("all are suspected", func(all map[string]suspicion) bool { return len(all) == len(clients) })
	f.killAll()
	alone := 0
	f.suspected("one runs alone", func(all map[string]suspicion) bool {
		alone = 0
		for _, s := range all {
			alone += s.alone
		}
		return alone > 0
	})
	if alone > len(f.running()) {
		t.Errorf("%d are alone on %d nodes", alone, len(f.running()))
	}
	for _, client := range others {
		f.marks.open(t, gate(client, nil))
	}
	next := 4
	for ends := range mostCrashes {
		if ends > 0 {
			f.killAll()
		}
		f.publish(f.any(), 4, interleaved(next, next+2, others...)...)
		next += 3
		f.suspected(fmt.Sprintf("the slow one runs alone, after %d ends in which it was alone", ends), func(all map[string]suspicion) bool { return all[slow].alone == ends+1 })
	}
	f.marks.open(t, gate(slow, nil))

	f.applied(runnerName, slow, 3)
	for _, client := range others {
		f.applied(runnerName, client, next-1)
	}
	for _, client := range clients {
		var unit admin.Unit
		f.any().must(t, "unit", runnerOf(client), &unit)
		if unit.Halt != nil {
			t.Errorf("%s is halted: %+v", client, unit.Halt)
		}
	}
	f.suspected("nobody is suspected any more", func(all map[string]suspicion) bool { return len(all) == 0 })
	f.settle(time.Minute, clients, nil)
}
