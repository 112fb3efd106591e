package cluster_test

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/cluster"
)

// However often a node reads what others want, it lets go of no more than its moves in a second.
func TestHandOversKeepTheirPace(t *testing.T) {
	t.Parallel()
	p := cluster.NewPace(50, 3*second, start)
	took := func(d time.Duration) (n int) {
		for ; p.Left(at(d)) > 0; n++ {
			p.Take()
		}
		return n
	}
	for _, step := range []struct {
		at   time.Duration
		want int
	}{
		{0, 150}, {0, 0}, {second / 10, 5}, {second, 45}, {second, 0}, {second / 2, 0}, {4 * second, 150}, {time.Hour, 150}, {time.Hour + 10*time.Millisecond, 0}, {time.Hour + 20*time.Millisecond, 1},
	} {
		if got := took(step.at); got != step.want {
			t.Errorf("after %v it lets go of %d, want %d", step.at, got, step.want)
		}
	}
	if slow := cluster.NewPace(1, time.Millisecond, start); slow.Left(start) != 1 {
		t.Error("a node with short heartbeats lets go of nothing")
	}
}

func TestANodeAsksForAsManyAsTheOthersLetGoOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ members, want int }{{0, 150}, {1, 150}, {2, 150}, {4, 450}, {100, 1000}} {
		if got := cluster.MostWants(50, 3*second, c.members); got != c.want {
			t.Errorf("of %d members one asks for %d at once, want %d", c.members, got, c.want)
		}
	}
}
