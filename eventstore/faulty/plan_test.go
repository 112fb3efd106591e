package faulty_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
)

// faults gives what a plan has for the first n commits, in the order given.
func faults(p faulty.Plan, order []int) map[int]string {
	out := make(map[int]string)
	for _, n := range order {
		switch f := p(faulty.Op{Call: faulty.Commit, N: n}); {
		case f.Before != nil:
			out[n] = "before"
		case f.After != nil:
			out[n] = "after"
		}
	}
	return out
}

func TestSeededPlanDependsOnSeedMethodAndNumberAlone(t *testing.T) {
	t.Parallel()
	const count = 4000
	forward, backward := make([]int, count), make([]int, count)
	for i := range count {
		forward[i], backward[count-1-i] = i+1, i+1
	}
	rates := faulty.Rates{Before: 0.2, After: 0.1, Error: errBoom}
	got := faults(faulty.Seeded(7, rates), forward)
	if diff := cmp.Diff(got, faults(faulty.Seeded(7, rates), backward)); diff != "" {
		t.Fatalf("order of calls matters:\n%s", diff)
	}
	if cmp.Equal(got, faults(faulty.Seeded(8, rates), forward)) {
		t.Fatal("the seed does not matter")
	}
	kinds := make(map[string]int)
	for _, kind := range got {
		kinds[kind]++
	}
	if b, a := kinds["before"], kinds["after"]; b < 700 || b > 900 || a < 320 || a > 480 {
		t.Fatalf("%d faults before and %d after in %d calls", b, a, count)
	}
}

func TestSeededPlanHitsTheMethodsNamed(t *testing.T) {
	t.Parallel()
	always := faulty.Rates{Before: 1, Error: errBoom}
	for _, c := range []struct {
		plan faulty.Plan
		call faulty.Call
		hit  bool
	}{
		{faulty.Seeded(1, always), faulty.LaneTail, true},
		{faulty.Seeded(1, always, faulty.Commit, faulty.Raise), faulty.Raise, true},
		{faulty.Seeded(1, always, faulty.Commit, faulty.Raise), faulty.LaneTail, false},
	} {
		if got := c.plan(faulty.Op{Call: c.call, N: 1}); (got.Before != nil) != c.hit {
			t.Errorf("%s: %+v", c.call, got)
		}
	}
}

func TestFirstPlanWithAFaultCounts(t *testing.T) {
	t.Parallel()
	p := faulty.All(
		faulty.Nth(faulty.Commit, 2, faulty.Fault{After: errBoom}),
		faulty.Nth(faulty.Commit, 2, faulty.Fault{Before: errBoom}),
		faulty.Nth(faulty.Commit, 3, faulty.Fault{Before: errBoom}),
	)
	if diff := cmp.Diff(map[int]string{2: "after", 3: "before"}, faults(p, []int{1, 2, 3, 4})); diff != "" {
		t.Fatal(diff)
	}
}

func TestPlanSeesWhatACommitChanges(t *testing.T) {
	t.Parallel()
	var seen []faulty.Op
	s := open(t, nil)
	s.SetPlan(func(op faulty.Op) faulty.Fault {
		seen = append(seen, op)
		return faulty.Fault{}
	})
	c := one()
	for range 2 {
		if _, err := s.Begin("relay").Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ReadLane(t.Context(), event.LaneRef{}, 0, 1); err != nil {
		t.Fatal(err)
	}
	want := []faulty.Op{
		{Call: faulty.Commit, N: 1, Who: "relay", Changes: &eventstore.Changes{Publish: c.Publish}},
		{Call: faulty.Commit, N: 2, Who: "relay", Changes: &eventstore.Changes{Publish: c.Publish}},
		{Call: faulty.ReadLane, N: 1},
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Fatal(diff)
	}
	if got := s.Calls(faulty.Commit); got != 2 {
		t.Fatalf("%d commits counted", got)
	}
}
