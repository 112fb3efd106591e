package cluster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/cluster"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// Both nodes that go for a unit cannot: they do not reach the store, or do not know its next event. Others must, although they rank lower: during a rolling deploy the only
// newer program may be one of them.
func TestAUnitThatTheFirstTwoCannotRunGoesToAnother(t *testing.T) {
	t.Parallel()
	for name, cannot := range map[string]func(*cluster.Node, event.Unit){"they do not reach the store": (*cluster.Node).Unfit, "it waits for a newer program": (*cluster.Node).Newer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				all := []*fake{w.join("a"), w.join("b"), w.join("c"), w.join("d")}
				pass(10 * time.Second)
				p, u := all[0].Placement(), unit(1)
				able := func(f *fake) bool { return p.Rank(u, f.broker.OwnerID(), false) > 1 }
				w.mark(all[0], u)
				var took time.Duration
				for s := time.Second; s <= 3*time.Minute && took == 0; s += time.Second {
					pass(time.Second)
					for _, f := range all {
						switch got := f.take(); {
						case !slices.Contains(got, u):
						case able(f):
							took = s
						default:
							cannot(f.Node, u)
						}
					}
				}
				if took == 0 || took > time.Minute {
					t.Errorf("another went for it after %v, want that within a minute", took)
				}
				if took < 15*time.Second {
					t.Errorf("another went for it after %v: the first two would be given no time", took)
				}
				for _, f := range all {
					f.leave()
				}
			})
		})
	}
}

// An older program that ranks first for a unit, and could not go on with it, does not ask the newer one for it again and again: each time the unit would wait until the newer one comes
// for it anew.
func TestWhatWaitedForANewerProgramIsNotAskedBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		older, newer := w.join("older"), w.join("newer")
		pass(5 * time.Second)
		u, other := older.owned(2)[0], older.owned(2)[1]
		w.mark(older, u)
		if got := older.take(); !slices.Contains(got, u) {
			t.Errorf("the first goes for %v", got)
		}
		older.Newer(u)
		newer.note(func() { newer.mu.live[u], newer.mu.live[other] = true, true })
		held := []partitions.Held{}
		for _, u := range []event.Unit{u, other} {
			got, err := newer.broker.Port().Acquire(t.Context(), u, 0)
			if err != nil || !got.Granted {
				t.Error(got, err)
			}
			held = append(held, partitions.Held{Unit: u, Generation: got.Generation})
			w.mark(newer, u)
		}
		for range 60 {
			pass(5 * time.Second)
			newer.broker.Port().Renew(t.Context(), held)
		}
		got := slices.Compact(slices.SortedFunc(slices.Values(newer.handed()), cmpKeys))
		if diff := cmp.Diff([]event.Unit{other}, got); diff != "" {
			t.Errorf("asked for, within five minutes (-want +got): %s", diff)
		}
		older.leave()
		newer.leave()
	})
}
