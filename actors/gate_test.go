package actors

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// In any crowd, whoever must be alone is, nobody is kept out for good, and in the end nothing is left.
func TestTheGateKeepsApartWhoMustBeAlone(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const many, each = 32, 200
	var g gate
	var inside, alone, together atomic.Int32
	var all sync.WaitGroup
	for i := range uint64(many) {
		dice := rand.New(rand.NewPCG(seed, i))
		all.Go(func() {
			for range each {
				mine := dice.IntN(4) == 0
				turn := g.enter(mine)
				if dice.IntN(3) == 0 { // does not want to wait, but may be in already
					g.leave(turn)
					continue
				}
				<-turn.in
				now := inside.Add(1)
				if mine {
					alone.Add(1)
				}
				if a := alone.Load(); a > 1 || a == 1 && inside.Load() > 1 {
					t.Errorf("%d are inside, and %d of them are to be alone", inside.Load(), a)
				}
				if now > 1 {
					together.Store(1)
				}
				for range dice.IntN(8) {
					runtime.Gosched()
				}
				if mine {
					alone.Add(-1)
				}
				inside.Add(-1)
				g.leave(turn)
			}
		})
	}
	all.Wait()
	if together.Load() == 0 {
		t.Error("nobody was ever inside together: the gate lets in one at a time")
	}
	if g.mu.inside != 0 || g.mu.alone || g.mu.line != nil {
		t.Errorf("left behind: %d inside, alone %v, %d in line", g.mu.inside, g.mu.alone, len(g.mu.line))
	}
}

// Neither kind keeps the other out: everybody comes in before those who came later, but with those of its kind that came next to it.
func TestTheGateLetsInByTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	var g gate
	turns := []*turn{g.enter(false), g.enter(false), g.enter(true), g.enter(true), g.enter(false), g.enter(false), g.enter(true)}
	in := func(want ...int) {
		t.Helper()
		for i, turn := range turns {
			expected := false
			for _, w := range want {
				expected = expected || w == i
			}
			if turn != nil && isClosed(turn.in) != expected {
				t.Errorf("turn %d: inside is %v, want %v", i, !expected, expected)
			}
		}
	}
	leave := func(i int) { g.leave(turns[i]); turns[i] = nil }
	in(0, 1)
	leave(0)
	in(1)
	leave(1)
	in(2)
	leave(3) // does not wait any longer
	in(2)
	leave(2)
	in(4, 5)
	leave(5)
	leave(4)
	in(6)
}

func TestOneThatGivesUpItsPlaceInLineHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g gate
		first, waits, behind := g.enter(false), g.enter(true), g.enter(false)
		synctest.Wait()
		if isClosed(behind.in) {
			t.Fatal("it overtook one that is to be alone")
		}
		g.leave(waits)
		<-behind.in // beside the first
		g.leave(first)
		g.leave(behind)
	})
}
