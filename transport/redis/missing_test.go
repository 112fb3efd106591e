package redis_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/redis"
)

// asked is what a unit gets of what it misses.
func asked(t *testing.T, tr *redis.Transport, u event.Unit, lane event.LaneRef, after event.Sequence) (last event.Sequence, gone bool) {
	t.Helper()
	run, gone, err := tr.Missing(t.Context(), u, lane, after, 600)
	if err != nil {
		t.Fatal(err)
	}
	for i := range run {
		if run[i].Sequence != after+event.Sequence(i)+1 {
			t.Fatalf("entry %d is %d", i, run[i].Sequence)
		}
		last = run[i].Sequence
	}
	return last, gone
}

func wanted(t *testing.T, tr *redis.Transport, want ...transport.Wanted) {
	t.Helper()
	got, err := tr.Wanted(t.Context(), "order")
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].ID = ""
	}
	if diff := cmp.Diff(want, append([]transport.Wanted(nil), got...)); diff != "" {
		t.Errorf("wanted (-want +got):\n%s", diff)
	}
}

func TestAskingTwiceIsAskingOnceAndAskingForMoreWithdraws(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		node := start(t, tr, "billing")
		billing := event.Unit{Name: "billing", Key: orders.Key}
		for range 2 {
			asked(t, tr, billing, orders, 4)
		}
		wanted(t, tr, transport.Wanted{Unit: billing, Lane: orders, After: 4})
		earlier, err := tr.Wanted(t.Context(), "order")
		if err != nil {
			t.Fatal(err)
		}
		asked(t, tr, billing, orders, 7)
		wanted(t, tr, transport.Wanted{Unit: billing, Lane: orders, After: 7})
		if err := tr.Serve(t.Context(), earlier[0], entries(orders, 5, 6)); err != nil { // withdrawn
			t.Fatal(err)
		}
		if last, gone := asked(t, tr, billing, orders, 7); last != 0 || gone {
			t.Errorf("got up to %d, gone %v", last, gone)
		}
		now, err := tr.Wanted(t.Context(), "order")
		if err != nil || len(now) != 1 {
			t.Fatalf("%v, %v", now, err)
		}
		if err := tr.Serve(t.Context(), now[0], entries(orders, 8, 1500)); err != nil {
			t.Fatal(err)
		}
		node.woken.WaitFor(t, func(u event.Unit) bool { return u == billing })
		wanted(t, tr)
		if err := tr.Serve(t.Context(), earlier[0], entries(orders, 5, 6)); err != nil { // late, and in nobody's place
			t.Fatal(err)
		}
		for after := event.Sequence(7); after < 1007; { // a thousand, six hundred at a time
			last, gone := asked(t, tr, billing, orders, after)
			if last == 0 || gone {
				t.Fatalf("after %d: nothing, gone %v", after, gone)
			}
			after = last
		}
		if last, gone := asked(t, tr, billing, orders, 1007); last != 0 || gone {
			t.Errorf("got up to %d, gone %v", last, gone)
		}
		wanted(t, tr, transport.Wanted{Unit: billing, Lane: orders, After: 1007})
	})
}

func TestARunIsOfOneLaneAndWhatIsNowhereIsSaid(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		billing := event.Unit{Name: "billing", Key: orders.Key}
		late := orders
		late.Lane = event.Backfill
		asked(t, tr, billing, late, 2)
		asked(t, tr, billing, orders, 2)
		wanted(t, tr, transport.Wanted{Unit: billing, Lane: late, After: 2}, transport.Wanted{Unit: billing, Lane: orders, After: 2})
		all, err := tr.Wanted(t.Context(), "order")
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Serve(t.Context(), all[0], nil); err != nil {
			t.Fatal(err)
		}
		if last, gone := asked(t, tr, billing, late, 2); last != 0 || !gone {
			t.Errorf("got up to %d, gone %v, want it gone", last, gone)
		}
		if last, gone := asked(t, tr, billing, orders, 2); last != 0 || gone {
			t.Errorf("the other lane: got up to %d, gone %v", last, gone)
		}
	})
}

func TestRequestsThatNobodyCanHaveMadeArePassedOver(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		w.do(t, "HSET", w.prefix()+"order:__missing__", "billing", "1", "billing:sideways:k", "1", "billing:primary:k", "x")
		wanted(t, tr)
	})
}
