package cluster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
)

const (
	grace    = 300 * time.Millisecond
	debounce = time.Second
	second   = time.Second
)

var start = time.Unix(1_700_000_000, 0)

// at is a time after the start.
func at(d time.Duration) time.Time { return start.Add(d) }

func contest() *cluster.Contest { return cluster.NewContest(grace, debounce) }

// due steps a contest to a time, and gives what is due then.
func due(c *cluster.Contest, d time.Duration) []event.Unit { return c.Due(at(d)) }

func wants(c *cluster.Contest, d time.Duration) []event.Unit {
	units, _ := c.Wants(at(d), 2)
	return units
}

func TestTheFirstGoesAtOnceWhenNobodyHoldsTheUnit(t *testing.T) {
	t.Parallel()
	c := contest()
	if !c.See(start, cluster.Seen{Unit: unit(1)}) {
		t.Error("it does not go")
	}
	if _, waits := c.Next(); waits {
		t.Error("it waits as well")
	}
}

func TestTheFirstLooksAgainWhenTheLeaseLapses(t *testing.T) {
	t.Parallel()
	c := contest()
	if c.See(start, cluster.Seen{Unit: unit(1), Left: 5 * second}) {
		t.Error("it goes for what another holds")
	}
	if got := due(c, 5*second-1); got != nil {
		t.Errorf("due before the lapse: %v", got)
	}
	if diff := cmp.Diff([]event.Unit{unit(1)}, due(c, 5*second)); diff != "" {
		t.Error(diff)
	}
	if c.See(at(5*second), cluster.Seen{Unit: unit(1), Left: 4 * second, Due: true}) {
		t.Error("it goes for what was renewed")
	}
	due(c, 9*second)
	if !c.See(at(9*second), cluster.Seen{Unit: unit(1), Due: true}) {
		t.Error("it does not go although the lease lapsed")
	}
}

func TestTheSecondGivesTheFirstAGrace(t *testing.T) {
	t.Parallel()
	c := contest()
	free := cluster.Seen{Unit: unit(1), Rank: 1}
	if c.See(start, free) {
		t.Error("it goes at once")
	}
	if c.See(at(grace/2), free) { // a scan that comes meanwhile does not begin the grace anew
		t.Error("it goes during the grace")
	}
	if diff := cmp.Diff([]event.Unit{unit(1)}, due(c, grace)); diff != "" {
		t.Error(diff)
	}
	free.Due = true
	if !c.See(at(grace), free) {
		t.Error("it does not go after the grace")
	}
}

func TestTheSecondStaysAwayWhenTheFirstCame(t *testing.T) {
	t.Parallel()
	c := contest()
	c.See(start, cluster.Seen{Unit: unit(1), Rank: 1})
	due(c, grace)
	if c.See(at(grace), cluster.Seen{Unit: unit(1), Rank: 1, Left: 10 * second, Due: true}) {
		t.Error("it goes for what the first holds")
	}
	if next, ok := c.Next(); !ok || !next.Equal(at(10*second+2*grace)) {
		t.Errorf("looks again at %v, %v", next.Sub(start), ok)
	}
}

func TestThoseFurtherDownDoNothing(t *testing.T) {
	t.Parallel()
	c := contest()
	c.See(start, cluster.Seen{Unit: unit(1), Left: second})
	if c.See(start, cluster.Seen{Unit: unit(1), Rank: 2}) {
		t.Error("the third goes")
	}
	if next, waits := c.Next(); waits {
		t.Errorf("the third waits until %v", next.Sub(start))
	}
}

func TestWhatOthersHoldIsAskedForAfterAWhileTheLongestFirstAndFewAtOnce(t *testing.T) {
	t.Parallel()
	c := contest()
	for i := range 3 {
		c.See(at(time.Duration(3-i)*100*time.Millisecond), cluster.Seen{Unit: unit(i), Left: 10 * second})
	}
	if got, next := c.Wants(at(debounce), 2); len(got) != 0 || !next.Equal(at(100*time.Millisecond+debounce)) {
		t.Errorf("asks too early for %v, and again at %v", got, next.Sub(start))
	}
	if diff := cmp.Diff([]event.Unit{unit(2), unit(1)}, wants(c, 2*second)); diff != "" {
		t.Error(diff)
	}
	c.Forget(unit(2)) // it runs here now
	c.Keep("shipping", map[event.Unit]bool{unit(0): true})
	if diff := cmp.Diff([]event.Unit{unit(0)}, wants(c, 2*second)); diff != "" {
		t.Error(diff)
	}
	c.See(at(2*second), cluster.Seen{Unit: unit(0), Rank: 1, Left: 10 * second}) // another ranks first
	if got := wants(c, 9*second); len(got) != 0 {
		t.Errorf("asks for %v, which it does not rank first for", got)
	}
}

func TestAUnitThatRunsHereIsDueNoMore(t *testing.T) {
	t.Parallel()
	c := contest()
	c.See(start, cluster.Seen{Unit: unit(1), Left: second})
	c.See(start, cluster.Seen{Unit: unit(2), Left: 2 * second})
	c.Forget(unit(1))
	if diff := cmp.Diff([]event.Unit{unit(2)}, due(c, 5*second)); diff != "" {
		t.Error(diff)
	}
}

// What ranks behind the second goes for a unit that nobody held at two looks, one after the other, which are far apart.
func TestTheThirdGoesForWhatIsLeftByTheOthers(t *testing.T) {
	t.Parallel()
	c := contest()
	look := func(left time.Duration) bool {
		return c.See(start, cluster.Seen{Unit: unit(1), Rank: 2, Left: left, Wide: true})
	}
	for i, step := range []struct {
		left time.Duration
		gone bool // it had no work meanwhile
		goes bool
	}{
		{left: second}, {}, {left: second}, {}, {goes: true}, {}, {gone: true}, {goes: true}, {},
	} {
		if step.gone {
			c.Keep("shipping", map[event.Unit]bool{unit(2): true})
		}
		if got := look(step.left); got != step.goes {
			t.Errorf("look %d: it goes: %v, want %v", i, got, step.goes)
		}
	}
	if c.See(start, cluster.Seen{Unit: unit(1), Rank: 2}) {
		t.Error("it goes at a look that is not meant for it")
	}
	if _, waits := c.Next(); waits {
		t.Error("it waits for its turn")
	}
}
