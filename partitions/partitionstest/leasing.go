package partitionstest

import (
	"errors"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// refused checks that a unit is not granted, and gives the answer.
func (s *suite) refused(port partitions.Port, u event.Unit, floor event.Generation) partitions.Acquired {
	s.Helper()
	got, err := port.Acquire(s.Context(), u, floor)
	if err != nil {
		s.Fatalf("acquire: %v", err)
	}
	if got.Granted {
		s.Fatalf("granted at %d", got.Generation)
	}
	return got
}

func heldAgainstOthers(s *suite) {
	s.needsLeases()
	h := s.acquire(s.port, s.unit, 0)
	got := s.refused(s.Other(s.T), s.unit, 0)
	if got.Forgot || got.HeldFor <= 0 || got.HeldFor > s.traits.TTL {
		s.Errorf("got %+v, want what is left of %v", got, s.traits.TTL)
	}
	if got.Holder == "" || got.Holder != s.Owner || got.HeldAt != h.Generation {
		s.Errorf("got %+v, want it held by %q at %d", got, s.Owner, h.Generation)
	}
	if err := s.port.Renew(s.Context(), []partitions.Held{h})[0]; err != nil {
		s.Errorf("the holder: %v", err)
	}
	s.acquire(s.Other(s.T), s.sibling(), 0)
}

func aboveFloor(s *suite) {
	s.needsLeases()
	if h := s.acquire(s.port, s.unit, 41); h.Generation <= 41 {
		s.Errorf("granted %d above 41", h.Generation)
	}
	if h := s.acquire(s.port, s.unit, 7); h.Generation <= 42 {
		s.Errorf("granted %d, the port knows 42", h.Generation)
	}
}

func generationsGrow(s *suite) {
	s.needsLeases()
	ports := []partitions.Port{s.port, s.Other(s.T)}
	var last event.Generation
	for i := range 6 {
		port := ports[i%2]
		h := s.acquire(port, s.unit, 0)
		if h.Generation <= last {
			s.Fatalf("granted %d after %d", h.Generation, last)
		}
		last = h.Generation
		if i%3 == 0 {
			s.Pass(s.T, s.traits.TTL+time.Millisecond)
		} else if err := port.Release(s.Context(), h, false); err != nil {
			s.Fatalf("release: %v", err)
		}
	}
}

func releaseHandsOver(s *suite) {
	s.needsLeases()
	s.Append(s.T, orders, 2) // unread, which a hand-over does not mind
	h := s.acquire(s.port, s.unit, 0)
	if err := s.port.Release(s.Context(), h, false); err != nil {
		s.Fatalf("release: %v", err)
	}
	got, err := s.Other(s.T).Acquire(s.Context(), s.unit, 0)
	if err != nil || !got.Granted || got.Unclean {
		s.Errorf("got %+v, %v; want it granted, clean", got, err)
	}
	s.leaseFenced(s.port, h)
	if s.unit != part {
		s.allFenced(s.port, h)
	}
}

func releaseIfIdle(s *suite) {
	s.needsLeases()
	h := s.acquire(s.port, shipping, 0)
	s.Append(s.T, orders, 2)
	s.fetch(s.port, h, 10, at(orders, 0), at(backfill(orders), 0))
	if err := s.port.Release(s.Context(), h, true); !errors.Is(err, partitions.ErrBusy) {
		s.Fatalf("read, not acknowledged: got %v, want ErrBusy", err)
	}
	s.refused(s.Other(s.T), shipping, 0)
	s.advance(s.port, h, 10, at(orders, 2), at(backfill(orders), 0))
	if err := s.port.Release(s.Context(), h, true); err != nil {
		s.Errorf("nothing unread: %v", err)
	}
}

func lapses(s *suite) {
	s.needsLeases()
	s.Append(s.T, orders, 1)
	h := s.acquire(s.port, s.unit, 0)
	other := s.Other(s.T)
	s.Pass(s.T, s.traits.TTL+time.Millisecond)
	got, err := other.Acquire(s.Context(), s.unit, 0)
	if err != nil || !got.Granted || !got.Unclean || got.Generation <= h.Generation {
		s.Errorf("got %+v, %v; want it granted above %d, unclean", got, err, h.Generation)
	}
}

func renewalExtends(s *suite) {
	s.needsLeases()
	h := s.acquire(s.port, s.unit, 0)
	other := s.Other(s.T)
	for range 3 {
		s.Pass(s.T, s.traits.TTL*2/3)
		if err := s.port.Renew(s.Context(), []partitions.Held{h})[0]; err != nil {
			s.Fatalf("renew: %v", err)
		}
		s.refused(other, s.unit, 0)
	}
}

func lateRenewal(s *suite) {
	s.needsLeases()
	h := s.acquire(s.port, s.unit, 0)
	s.Pass(s.T, s.traits.TTL+time.Millisecond)
	s.fenced("nobody has it", s.port.Renew(s.Context(), []partitions.Held{h})[0])
	other := s.Other(s.T)
	mine := s.acquire(other, s.unit, 0)
	s.fenced("another has it", s.port.Renew(s.Context(), []partitions.Held{h})[0])
	if err := other.Renew(s.Context(), []partitions.Held{mine})[0]; err != nil {
		s.Errorf("the other: %v", err)
	}
}

func fencedOwner(s *suite) {
	s.needsLeases()
	s.Append(s.T, orders, 3)
	h := s.acquire(s.port, shipping, 0)
	s.fetch(s.port, h, 10, at(orders, 0))
	other := s.Other(s.T)
	s.Pass(s.T, s.traits.TTL+time.Millisecond)
	mine := s.acquire(other, shipping, 0)
	s.allFenced(s.port, h)
	s.same("the new owner reads on", run(orders, 1, 3), places(s.fetch(other, mine, 10, at(orders, 0)).Entries))
}

func newOwnerReads(s *suite) {
	s.needsLeases()
	s.Append(s.T, orders, 5)
	h := s.acquire(s.port, shipping, 0)
	s.fetch(s.port, h, 2, at(orders, 0), at(backfill(orders), 0))
	s.advance(s.port, h, 2, at(orders, 1), at(backfill(orders), 0)) // 2 and 3 are with the old owner
	other := s.Other(s.T)
	s.Pass(s.T, s.traits.TTL+time.Millisecond)
	mine := s.acquire(other, shipping, 0)
	s.same("from the checkpoint", run(orders, 2, 5), places(s.fetch(other, mine, 10, at(orders, 1), at(backfill(orders), 0)).Entries))
}

func forgot(s *suite) {
	s.needsLeases()
	s.Append(s.T, orders, 2)
	h := s.acquire(s.port, shipping, 0)
	other := s.Other(s.T)
	s.Forget(s.T)
	s.fenced("fetch", func() error {
		_, err := s.port.Fetch(s.Context(), h, []event.Position{at(orders, 0)}, 1)
		return err
	}())
	if got := s.refused(other, shipping, h.Generation); !got.Forgot || got.Holder != "" || got.HeldAt != 0 {
		s.Errorf("got %+v, want Forgot, and nobody named", got)
	}
	s.Pass(s.T, s.traits.TTL/2)
	s.refused(other, shipping, h.Generation)
	s.Pass(s.T, s.traits.TTL/2+time.Millisecond)
	mine := s.acquire(other, shipping, h.Generation)
	if mine.Generation <= h.Generation {
		s.Errorf("granted %d after %d", mine.Generation, h.Generation)
	}
	s.same("read", run(orders, 1, 2), places(s.fetch(other, mine, 10, at(orders, 0)).Entries))
}

func forgotPart(s *suite) {
	h := s.acquire(s.port, s.unit, 0)
	other := s.Other(s.T)
	s.Forget(s.T)
	s.leaseFenced(s.port, h)
	if got := s.refused(other, s.unit, h.Generation); !got.Forgot || got.Holder != "" || got.HeldAt != 0 {
		s.Errorf("got %+v, want Forgot, and nobody named", got)
	}
	s.Pass(s.T, s.traits.TTL+time.Millisecond)
	if mine := s.acquire(other, s.unit, h.Generation); mine.Generation <= h.Generation {
		s.Errorf("granted %d after %d", mine.Generation, h.Generation)
	}
}
