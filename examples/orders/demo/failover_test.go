package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
)

// when gives a mark the second of a run in which it was made.
func when(second float64, m mark) mark {
	m.MS = time.Unix(0, 0).Add(time.Duration(second * float64(time.Second))).UnixMilli()
	return m
}

func TestFailoverIsMeasuredFromTheSignal(t *testing.T) {
	t.Parallel()
	e := evidence{Marks: []mark{
		when(1, of(1, 1, true, "a", "a1", 1)), when(1, of(1, 1, false, "a", "a1", 1)),
		when(1, of(1, 1, true, "b", "b1", 1)), when(1, of(1, 1, false, "b", "b1", 1)),
		when(1, of(2, 1, true, "c", "c1", 1)), when(1, of(2, 1, false, "c", "c1", 1)), // another's
		when(1, of(1, 1, true, "d", "d1", 1)), when(1, of(1, 1, false, "d", "d1", 1)), // halted then
		when(1, of(1, 1, true, "e", "e1", 1)), when(1, of(1, 1, false, "e", "e1", 1)),
		when(2, of(2, 2, true, "e", "e2", 2)), when(2, of(2, 2, false, "e", "e2", 2)), // handed over before
		when(1, of(1, 1, true, "f", "f1", 1)), when(1, of(1, 1, false, "f", "f1", 1)), // has no order until its lease has lapsed
		when(1, of(1, 1, true, "g", "g1", 1)), // inside
		when(10, mark{Process: 1, Life: 1, Killed: true}),
		when(10.1, of(2, 1, true, "c", "c2", 2)), when(10.2, of(2, 2, true, "e", "e3", 3)),
		when(14, of(3, 2, true, "a", "a2", 2)), when(15.5, of(2, 2, true, "b", "b2", 2)), when(15, of(3, 2, true, "g", "g1", 1)),
		when(18, of(3, 2, true, "a", "a3", 3)), // long taken over
		when(30, of(2, 2, true, "f", "f2", 2)), when(40, of(2, 2, true, "d", "d2", 2)),
	}}
	for _, m := range e.Marks {
		if m.Enter {
			e.Placed = append(e.Placed, placedEvent{Order: m.Order, Client: m.Client, Seq: m.Seq, Time: m.Time().Add(-time.Second)})
		}
	}
	for i, p := range e.Placed { // came soon after the signal
		if slices.Contains([]string{"a2", "a3", "b2", "d2"}, p.Order) {
			e.Placed[i].Time = time.Unix(11, 0)
		}
	}
	got := measure(e, event.Unit{Name: "shipping", Key: "d"})
	if diff := cmp.Diff(failover{Clients: 3, Median: 5 * time.Second, Max: 5500 * time.Millisecond}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if faults := got.faults(); len(faults) > 0 {
		t.Errorf("faults: %q", faults)
	}
	if got.String() != "5,000 ms at the median, 5,500 ms at most" {
		t.Errorf("it reads %q", got)
	}
}

func TestAFailoverThatIsMissingOrFarTooLongIsAFault(t *testing.T) {
	t.Parallel()
	if got := measure(evidence{Marks: []mark{of(1, 1, true, "a", "a1", 1)}}, event.Unit{}); got != (failover{}) {
		t.Errorf("without a kill: %s", got)
	}
	for _, c := range []struct {
		f     failover
		fault string
	}{
		{failover{}, "no client of the killed process went on"},
		{failover{Clients: 1, Max: ttl + heartbeat + slack + time.Millisecond}, "failover took 16.001s"},
	} {
		if faults := c.f.faults(); len(faults) != 1 || !strings.Contains(faults[0], c.fault) {
			t.Errorf("%+v: %q", c.f, faults)
		}
	}
}

// What an owner leaves inside is none of the next one's: it was killed, or has lost its lease and commits nothing. Two at once under one generation are.
func TestWhoIsInsideIsJudgedByGeneration(t *testing.T) {
	t.Parallel()
	killed := mark{Process: 1, Life: 1, Killed: true}
	for name, c := range map[string]struct {
		marks []mark
		want  insight
	}{
		"the next owner goes in while a stale one is inside": {
			[]mark{of(1, 4, true, "a", "a1", 1), of(2, 5, true, "a", "a1", 1), of(1, 4, false, "a", "a1", 1), of(2, 5, false, "a", "a1", 1)},
			insight{parallel: 1, processes: 2},
		},
		"a stale one goes in": {
			[]mark{of(2, 5, true, "a", "a1", 1), of(1, 4, true, "a", "a1", 1), of(1, 4, false, "a", "a1", 1), of(2, 5, false, "a", "a1", 1)},
			insight{parallel: 1, processes: 2, late: 1},
		},
		"two go in under one generation": {
			[]mark{of(1, 4, true, "a", "a1", 1), of(1, 4, true, "a", "a2", 2), of(1, 4, false, "a", "a1", 1), of(1, 4, false, "a", "a2", 2)},
			insight{parallel: 1, processes: 1, overlapping: 1},
		},
		"two processes have one generation": {
			[]mark{of(1, 4, true, "a", "a1", 1), of(1, 4, false, "a", "a1", 1), of(2, 4, true, "a", "a2", 2), of(2, 4, false, "a", "a2", 2)},
			insight{parallel: 1, processes: 2, faults: []string{"order a2: process 1 and process 2 were both owner number 4 of a"}},
		},
		"the killed are not inside": {
			[]mark{of(1, 4, true, "a", "a1", 1), killed, of(2, 1, true, "b", "b1", 1), of(2, 1, false, "b", "b1", 1)},
			insight{parallel: 1, processes: 2},
		},
		"somebody leaves at a generation that nobody entered": {
			[]mark{of(1, 4, true, "a", "a1", 1), of(2, 5, false, "a", "a1", 1), of(1, 4, false, "a", "a1", 1)},
			insight{parallel: 1, processes: 1, faults: []string{"order a1 left shipping without having entered"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, follow(c.marks), cmp.AllowUnexported(insight{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
