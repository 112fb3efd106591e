package redis_test

import (
	"errors"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/redis"
)

func retire(t *testing.T, tr *redis.Transport, through event.Sequence, subscribers ...string) error {
	t.Helper()
	return tr.Retire(t.Context(), []transport.Retire{{Lane: orders, Through: through, Subscribers: subscribers}})[0]
}

// passed has a unit read its lane up to a sequence and acknowledge that.
func passed(t *testing.T, tr *redis.Transport, u event.Unit, lane event.LaneRef, through event.Sequence) {
	t.Helper()
	got := granted(t, tr, u)
	if !got.Granted {
		t.Fatalf("acquire %s: %+v", u, got)
	}
	h := partitions.Held{Unit: u, Generation: got.Generation}
	port := tr.Port()
	_, one := port.Fetch(t.Context(), h, []event.Position{{Lane: lane}}, 10)
	_, two := port.Advance(t.Context(), h, []event.Position{{Lane: lane, Sequence: through}}, 10)
	if err := errors.Join(one, two, port.Release(t.Context(), h, false)); err != nil {
		t.Fatal(err)
	}
}

// indexed reports whether the key of orders is live, and whether its stream is there.
func (w *scene) indexed(t *testing.T) (live, there bool) {
	t.Helper()
	return w.do(t, "SISMEMBER", w.prefix()+"order:__partitions__", orders.Key) == int64(1), w.do(t, "EXISTS", w.stream(t, orders)) == int64(1)
}

func each(t *testing.T, run func(t *testing.T, w *scene)) {
	t.Helper()
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		run(t, newScene(t, redisserver.Options{}))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		run(t, newClusterScene(t))
	})
}

// Defect P3: a key that left the index while somebody published is invisible until somebody publishes again.
func TestP3WhatIsPublishedDuringARetirementIsIndexed(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"evalsha", "srem", "exists"} { // it was looked at, has left the index, is deleted
		t.Run("after "+step, func(t *testing.T) {
			t.Parallel()
			w := newClusterScene(t)
			tr, publisher := w.connected(t), w.connected(t)
			published(t, publisher, orders, 1, 2, "shipping")
			passed(t, tr, shipping, orders, 2)
			warm := event.LaneRef{Category: "order", Key: "warm"} // the script is known: the first call is the look
			if err := tr.Retire(t.Context(), []transport.Retire{{Lane: warm}})[0]; err != nil {
				t.Fatal(err)
			}
			tr.After(step, func() { published(t, publisher, orders, 3, 3, "shipping") })
			err := retire(t, tr, 2, "shipping")
			if step != "exists" && !errors.Is(err, transport.ErrBusy) {
				t.Errorf("got %v, want ErrBusy", err)
			}
			if live, there := w.indexed(t); !live || !there {
				t.Errorf("indexed %v, there %v", live, there)
			}
			if step != "exists" {
				w.holds(t, orders, 1, 3)
			} else {
				w.holds(t, orders, 3, 3)
			}
		})
	}
}

// A retirement that ends in the middle leaves what the next one completes.
func TestARetirementThatWasCutShortIsCompleted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		published(t, tr, orders, 1, 2, "shipping")
		passed(t, tr, shipping, orders, 2)
		w.do(t, "SREM", w.prefix()+"order:__partitions__", orders.Key)
		if err := retire(t, tr, 2, "shipping"); err != nil {
			t.Error(err)
		}
		if live, there := w.indexed(t); live || there {
			t.Errorf("indexed %v, there %v", live, there)
		}
	})
}

// Defect P4: groups that exist are not all that read: one that was down, or is new, loses what is deleted.
func TestP4ASubscriberWithoutAGroupHoldsTheLaneAndGetsWork(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		published(t, tr, orders, 1, 2, "shipping")
		passed(t, tr, shipping, orders, 2)
		if err := retire(t, tr, 2, "shipping", "billing"); !errors.Is(err, transport.ErrBusy) {
			t.Errorf("named: got %v, want ErrBusy", err)
		}
		if keys, _, err := tr.Busy(t.Context(), "billing", 0); err != nil || len(keys) != 1 {
			t.Errorf("billing has work on %q, %v", keys, err)
		}
		declare(t, tr, "elsewhere", "audit")
		if err := retire(t, tr, 2, "shipping"); !errors.Is(err, transport.ErrBusy) {
			t.Errorf("registered by another application: got %v, want ErrBusy", err)
		}
		w.holds(t, orders, 1, 2)
		passed(t, tr, event.Unit{Name: "audit", Key: orders.Key}, orders, 2)
		if err := retire(t, tr, 2, "shipping"); err != nil {
			t.Error(err)
		}
	})
}

// Defect P5: what is pending is owed, also where nothing of it is left in the stream.
func TestP5WhatIsPendingHoldsTheLaneAlsoWhenItsEntryIsGone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		published(t, tr, orders, 1, 2, "shipping")
		h := partitions.Held{Unit: shipping, Generation: granted(t, tr, shipping).Generation}
		if _, err := tr.Port().Fetch(t.Context(), h, []event.Position{{Lane: orders}}, 10); err != nil {
			t.Fatal(err)
		}
		w.do(t, "XTRIM", w.stream(t, orders), "MAXLEN", "0")
		if err := retire(t, tr, 2, "shipping"); !errors.Is(err, transport.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		if _, err := tr.Port().Advance(t.Context(), h, []event.Position{{Lane: orders, Sequence: 2}}, 10); err != nil {
			t.Fatal(err)
		}
		if err := retire(t, tr, 2, "shipping"); err != nil {
			t.Error(err)
		}
	})
}

func declare(t *testing.T, tr *redis.Transport, store, name string) {
	t.Helper()
	err := tr.Declare(t.Context(), transport.Declared{StoreID: store, Subscribers: []transport.Subscriber{{Name: name, Category: "order", StoreID: store, Kind: "handler"}}})
	if err != nil {
		t.Fatal(err)
	}
}

// Only its group tells how far a subscriber with a store of its own is: what it has not acknowledged stays.
func TestATrimWaitsForSubscribersOfOtherStores(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		declare(t, tr, "here", "shipping")
		declare(t, tr, "elsewhere", "audit")
		published(t, tr, orders, 1, 9, "shipping", "audit")
		trim := func(through event.Sequence) {
			t.Helper()
			if err := tr.Trim(t.Context(), []transport.Trim{{Lane: orders, Through: through}})[0]; err != nil {
				t.Fatal(err)
			}
		}
		trim(6)
		w.holds(t, orders, 1, 9)
		passed(t, tr, event.Unit{Name: "audit", Key: orders.Key}, orders, 4)
		trim(6)
		w.holds(t, orders, 5, 9)
		if err := tr.Unregister(t.Context(), "audit"); err != nil {
			t.Fatal(err)
		}
		trim(6)
		w.holds(t, orders, 7, 9)
	})
}

// One that does not read the category any more, and still stands in the list, holds nothing: its own store tells who reads.
func TestARetirementGoesByWhatTheProducersStoreSaysOfItsOwn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *scene) {
		tr := w.connected(t)
		declare(t, tr, "here", "shipping")
		declare(t, tr, "here", "former")
		published(t, tr, orders, 1, 2, "shipping")
		passed(t, tr, shipping, orders, 2)
		if err := retire(t, tr, 2, "shipping"); err != nil {
			t.Error(err)
		}
	})
}
