package redis

import (
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
)

// TestLookForAUnitThatBeginsLater: in a Cluster the second look knows who looks. What comes to a stream between the two may lie before the time from which on the unit begins, and is
// not for it then; and what is lost is asked for by its name.
func TestLookForAUnitThatBeginsLater(t *testing.T) {
	t.Parallel()
	w, node := newWorld(t, sharedRedis(t, true), Config{})
	w.declareForeign(node, "order")
	h := w.acquire(node, shipping)
	at := []event.Position{place(orders, 0)}
	w.advance(node, h, 5, at...)
	w.publish(orders, 1, "shipping")
	p := node.conn.Load().port
	tenure, err := p.tenure(h)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.readApart(t.Context(), h, tenure, at, 5)
	if err == nil || !strings.Contains(err.Error(), "was asked for that") || len(got.Entries) > 0 || !w.isBusy(shipping) {
		t.Errorf("got %+v, %v, busy %v", got, err, w.isBusy(shipping))
	}
	if wanted, err := node.Wanted(t.Context(), "order"); err != nil || len(wanted) != 1 || wanted[0].Unit != shipping || !wanted[0].Begin {
		t.Errorf("asked for: %+v, %v", wanted, err)
	}
}

// TestAUnitMissesSomethingOfTwoApplications: there is one place for what a unit asked for, so the answer of one producer takes that of the other's. Whatever the order in which they answer,
// the unit gets on, and gets everything.
func TestAUnitMissesSomethingOfTwoApplications(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"standalone": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, node := newWorld(t, sharedRedis(t, cluster), Config{})
			w.declareForeign(node, "order", "payment")
			kept := map[event.LaneRef][]event.Envelope{}
			for _, lane := range []event.LaneRef{orders, payments} {
				kept[lane] = w.publish(lane, 9, "shipping")
				w.do("xtrim", w.stream(lane), "minid", entryID(8))
			}
			h := w.acquire(node, shipping)
			at := map[event.LaneRef]event.Sequence{orders: 1, payments: 1}
			for rounds := 0; at[orders] < 9 || at[payments] < 9; rounds++ {
				if rounds == 40 {
					t.Fatalf("it got no further than %v", at)
				}
				got, err := node.Port().Advance(t.Context(), h, []event.Position{place(orders, at[orders]), place(payments, at[payments])}, 3)
				if err != nil && !strings.Contains(err.Error(), "was asked for that") || got.Gap {
					t.Fatalf("at %v: %+v, %v", at, got, err)
				}
				for i := range got.Entries {
					if e := &got.Entries[i]; e.Sequence != at[e.Ref()]+1 {
						t.Fatalf("at %v: got %s #%d", at, e.Ref(), e.Sequence)
					}
					at[got.Entries[i].Ref()]++
				}
				for _, category := range []string{"order", "payment"} { // each producer looks now and then
					wanted, err := node.Wanted(t.Context(), category)
					if err != nil {
						t.Fatal(err)
					}
					for _, one := range wanted {
						if err := node.Serve(t.Context(), one, kept[one.Lane][one.After:]); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}
