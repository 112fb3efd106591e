package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// gathered is a unit of work on these lanes, in the name of a unit and of a stream.
func gathered(ctx context.Context, unit string, keys ...string) *member {
	w := &work{changes: &eventstore.Changes{Fence: eventstore.Fence{Unit: event.Unit{Name: "shipping", Key: unit}}}}
	if unit == "" {
		w.changes.Fence.Unit.Name = ""
	}
	for _, k := range keys {
		w.grown = append(w.grown, grown{ref: event.LaneRef{Category: "order", Key: k}})
		w.changes.Publish = append(w.changes.Publish, events(k, 1).Publish...)
	}
	return newMember(ctx, w)
}

// come has members wait, and goes on when they do; the transaction of each that carries one out comes on the channel.
func come(t *testing.T, g *gathering, all ...*member) <-chan *together {
	led := make(chan *together, len(all))
	for _, m := range all {
		go func() {
			if t, _ := g.join(t.Context(), m); t != nil {
				for _, other := range t.members {
					other.answer(nil)
				}
				led <- t
			}
		}()
		g.signals.waiting.Wait(t)
	}
	return led
}

func newGathered(t *testing.T) *gathering {
	g := newGathering(0)
	g.slots, g.patience = 1, time.Hour
	g.signals.waiting.Init(t)
	return g
}

func sizes(t *together) int { return len(t.members) }

func TestUnitsOfWorkGatherWhileOthersAreUnderWay(t *testing.T) {
	t.Parallel()
	g := newGathered(t)
	first := <-come(t, g, gathered(t.Context(), "a", "a")) // goes at once
	if sizes(first) != 1 {
		t.Fatalf("%d go at once", sizes(first))
	}
	b, c := gathered(t.Context(), "b", "b"), gathered(t.Context(), "", "c")
	led := come(t, g, b, c)
	select {
	case <-led:
		t.Fatal("one goes, and the only slot is taken")
	default:
	}
	g.leave(first)
	if next := <-led; sizes(next) != 2 || next.members[0] != b {
		t.Fatalf("%d go together", sizes(next))
	} else {
		g.leave(next)
	}
	if g.busy != 0 || len(g.claimed) != 0 || len(g.waiting) != 0 {
		t.Errorf("left over: %d under way, %v claimed, %d waiting", g.busy, g.claimed, len(g.waiting))
	}
}

func TestWhatIsSlowGivesItsSlotUpAndKeepsItsClaims(t *testing.T) {
	t.Parallel()
	g := newGathered(t)
	slow := <-come(t, g, gathered(t.Context(), "a", "a"))
	same, other := gathered(t.Context(), "", "a"), gathered(t.Context(), "", "b")
	led := come(t, g, same, other)
	g.pass(slow.began.Add(g.patience - 1))
	g.mu.Lock()
	if g.busy != 1 || len(g.waiting) != 2 {
		t.Errorf("%d under way, %d waiting, and the only slot is not given up yet", g.busy, len(g.waiting))
	}
	g.mu.Unlock()
	g.pass(slow.began.Add(g.patience))
	next := <-led
	if sizes(next) != 1 || next.members[0] != other {
		t.Fatalf("%d go while the lane of one is under way", sizes(next))
	}
	g.leave(next)
	g.leave(slow) // frees its slot once
	if last := <-led; last.members[0] != same || g.busy != 1 {
		t.Errorf("%d under way", g.busy)
	}
}

func TestWhoGoesTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		members []*member
		want    []int // sizes of the transactions that follow
	}{
		"one lane":                           {[]*member{gathered(t.Context(), "", "a"), gathered(t.Context(), "", "a"), gathered(t.Context(), "", "a", "b")}, []int{3}},
		"one unit twice":                     {[]*member{gathered(t.Context(), "u", "a"), gathered(t.Context(), "u", "b"), gathered(t.Context(), "v", "c")}, []int{2, 1}},
		"nobody overtakes whom he waits for": {[]*member{gathered(t.Context(), "u", "a"), gathered(t.Context(), "u", "b"), gathered(t.Context(), "", "b")}, []int{1, 2}},
		"too many":                           {many(t, groupSize+5), []int{groupSize, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGathered(t)
			under := <-come(t, g, gathered(t.Context(), "x", "x"))
			led := come(t, g, c.members...)
			for _, want := range c.want {
				g.leave(under)
				if under = <-led; sizes(under) != want {
					t.Fatalf("%d go together, want %d", sizes(under), want)
				}
			}
		})
	}
}

func many(t *testing.T, n int) (all []*member) {
	for i := range n {
		all = append(all, gathered(t.Context(), "", fmt.Sprint("k", i)))
	}
	return all
}

func TestWhoGivesUpWhileHeWaitsTakesPartInNothing(t *testing.T) {
	t.Parallel()
	g := newGathered(t)
	first := <-come(t, g, gathered(t.Context(), "", "a"))
	ctx, cancel := context.WithCancel(t.Context())
	result := background(func() error {
		_, err := g.join(ctx, gathered(ctx, "", "b"))
		return err
	})
	g.signals.waiting.Wait(t)
	stays := gathered(t.Context(), "", "c")
	led := come(t, g, stays)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("gave up: %v", err)
	}
	g.leave(first)
	if next := <-led; sizes(next) != 1 || next.members[0] != stays {
		t.Errorf("%d go", sizes(next))
	}
}
