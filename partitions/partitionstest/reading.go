package partitionstest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
)

func emptyLane(s *suite) {
	h := s.acquire(s.port, shipping, 0)
	got := s.fetch(s.port, h, 10, at(orders, 0), at(backfill(orders), 0))
	if len(got.Entries) != 0 || got.Gap {
		s.Errorf("got %+v", got)
	}
}

func entriesInOrder(s *suite) {
	s.Append(s.T, orders, 5)
	h := s.acquire(s.port, shipping, 0)
	got := s.fetch(s.port, h, 10, at(orders, 0), at(backfill(orders), 0))
	s.same("from the start", run(orders, 1, 5), places(got.Entries))
	s.same("above 3", run(orders, 4, 5), places(s.fetch(s.port, h, 10, at(orders, 3), at(backfill(orders), 0)).Entries))
	if got := s.fetch(s.port, h, 10, at(orders, 5), at(backfill(orders), 0)); len(got.Entries) != 0 || got.Gap {
		s.Errorf("above the last: got %+v", got)
	}
}

func noMoreThanMax(s *suite) {
	s.Append(s.T, orders, 5)
	h := s.acquire(s.port, shipping, 0)
	for _, max := range []int{1, 2, 5} {
		got := s.fetch(s.port, h, max, at(orders, 0))
		if len(got.Entries) > max || len(got.Entries) == 0 {
			s.Errorf("up to %d: got %d entries", max, len(got.Entries))
		}
		if got.Drained && max < 5 {
			s.Errorf("up to %d: said to be drained", max)
		}
	}
	s.same("one after the other", run(orders, 1, 5), s.drain(s.port, h, 1, at(orders, 0)))
}

func sameCallSameEntries(s *suite) {
	s.Append(s.T, orders, 3)
	s.Append(s.T, payments, 3)
	h := s.acquire(s.port, shipping, 0)
	first := s.fetch(s.port, h, 10, at(orders, 1), at(payments, 0))
	second := s.fetch(s.port, h, 10, at(orders, 1), at(payments, 0))
	if diff := cmp.Diff(first, second); diff != "" {
		s.Errorf("the second time (-first +second):\n%s", diff)
	}
}

func appendedLater(s *suite) {
	h := s.acquire(s.port, shipping, 0)
	s.Append(s.T, orders, 2)
	s.same("first", run(orders, 1, 2), places(s.fetch(s.port, h, 10, at(orders, 0)).Entries))
	s.Append(s.T, orders, 1)
	s.same("then", run(orders, 3, 3), places(s.fetch(s.port, h, 10, at(orders, 2)).Entries))
	s.same("all of it", run(orders, 1, 3), places(s.fetch(s.port, h, 10, at(orders, 0)).Entries))
}

func advanceReadsAbove(s *suite) {
	s.Append(s.T, orders, 4)
	h := s.acquire(s.port, shipping, 0)
	s.same("above 2", run(orders, 3, 4), places(s.advance(s.port, h, 10, at(orders, 2), at(backfill(orders), 0)).Entries))
	if got := s.advance(s.port, h, 10, at(orders, 4), at(backfill(orders), 0)); len(got.Entries) != 0 || got.Gap {
		s.Errorf("above the last: got %+v", got)
	}
}

func advanceTwice(s *suite) {
	s.Append(s.T, orders, 4)
	h := s.acquire(s.port, shipping, 0)
	first := s.advance(s.port, h, 1, at(orders, 2))
	second := s.advance(s.port, h, 1, at(orders, 2))
	if diff := cmp.Diff(first, second); diff != "" {
		s.Errorf("the second time (-first +second):\n%s", diff)
	}
	s.same("both", run(orders, 3, 3), places(second.Entries))
}

func primaryFirst(s *suite) {
	s.Append(s.T, backfill(orders), 2)
	s.Append(s.T, orders, 2)
	h := s.acquire(s.port, shipping, 0)
	got := s.drain(s.port, h, 10, at(orders, 0), at(backfill(orders), 0))
	s.same("read", append(run(orders, 1, 2), run(backfill(orders), 1, 2)...), got)
}

func everyLane(s *suite) {
	lanes := []event.LaneRef{orders, backfill(orders), payments, backfill(payments)}
	var start []event.Position
	for i, l := range lanes {
		s.Append(s.T, l, 2+i)
		start = append(start, at(l, 0))
	}
	h := s.acquire(s.port, shipping, 0)
	for _, max := range []int{1, 3, 100} {
		got := make(map[event.LaneRef][]event.Position)
		for _, p := range s.drain(s.port, h, max, append([]event.Position(nil), start...)...) {
			got[p.Lane] = append(got[p.Lane], p)
		}
		for i, l := range lanes {
			s.same(fmt.Sprintf("%s, %d at a time", l, max), run(l, 1, event.Sequence(2+i)), got[l])
		}
	}
}

func keysApart(s *suite) {
	other := orders
	other.Key = "k-2"
	s.Append(s.T, other, 3)
	s.Append(s.T, orders, 1)
	h := s.acquire(s.port, shipping, 0)
	s.same("read", run(orders, 1, 1), places(s.fetch(s.port, h, 10, at(orders, 0)).Entries))
}

func unitsApart(s *suite) {
	s.Append(s.T, orders, 3)
	billing := event.Unit{Name: "billing", Key: shipping.Key}
	a, b := s.acquire(s.port, shipping, 0), s.acquire(s.port, billing, 0)
	s.advance(s.port, a, 10, at(orders, 3))
	s.same("the other unit", run(orders, 1, 3), places(s.fetch(s.port, b, 10, at(orders, 0)).Entries))
}

func gap(s *suite) {
	if s.Purge == nil {
		s.Skip("this port's world loses nothing")
	}
	s.Append(s.T, orders, 5)
	s.Purge(s.T, orders, 3)
	h := s.acquire(s.port, shipping, 0)
	got := s.fetch(s.port, h, 10, at(orders, 0), at(backfill(orders), 0))
	if !got.Gap || got.Lane != orders || len(got.Entries) != 0 {
		s.Errorf("above 0: got %+v, want a gap in %s and no entries", got, orders)
	}
	s.same("above what is gone", run(orders, 4, 5), places(s.fetch(s.port, h, 10, at(orders, 3), at(backfill(orders), 0)).Entries))
}

func concurrentUnits(s *suite) {
	for i := range 8 {
		u := event.Unit{Name: "shipping", Key: fmt.Sprintf("c-%d", i)}
		lane := event.LaneRef{Category: "order", Key: u.Key}
		s.Append(s.T, lane, 5)
		s.Run(u.Key, func(t *testing.T) {
			t.Parallel()
			s := &suite{T: t, Harness: s.Harness, port: s.port, traits: s.traits}
			h := s.acquire(s.port, u, 0)
			s.same("read", run(lane, 1, 5), s.drain(s.port, h, 2, at(lane, 0)))
			if err := s.port.Release(s.Context(), h, false); err != nil {
				s.Errorf("release: %v", err)
			}
		})
	}
}

func cancelled(s *suite) {
	s.Append(s.T, orders, 1)
	h := s.acquire(s.port, shipping, 0)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.port.Acquire(ctx, shipping, 0); !errors.Is(err, context.Canceled) {
		s.Errorf("acquire: %v", err)
	}
	if _, err := s.port.Fetch(ctx, h, []event.Position{at(orders, 0)}, 1); !errors.Is(err, context.Canceled) {
		s.Errorf("fetch: %v", err)
	}
	if err := s.port.Release(ctx, h, false); !errors.Is(err, context.Canceled) {
		s.Errorf("release: %v", err)
	}
}
