package partitionstest

import (
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

func grants(s *suite) {
	if h := s.acquire(s.port, s.unit, 0); h.Generation == 0 {
		s.Error("granted generation 0, which means that nobody ever held the unit")
	}
}

func acquiresAgain(s *suite) {
	first := s.acquire(s.port, shipping, 0)
	second := s.acquire(s.port, shipping, first.Generation)
	switch {
	case s.traits.Leased && second.Generation <= first.Generation:
		s.Errorf("generation %d, then %d", first.Generation, second.Generation)
	case !s.traits.Leased && second != first:
		s.Errorf("generation %d, then %d, and the process is the same", first.Generation, second.Generation)
	}
	if _, err := s.port.Fetch(s.Context(), second, []event.Position{at(orders, 0)}, 1); err != nil {
		s.Errorf("fetch: %v", err)
	}
}

func otherGenerationFenced(s *suite) {
	s.Append(s.T, orders, 1)
	h := s.acquire(s.port, shipping, 0)
	for _, wrong := range []event.Generation{h.Generation - 1, h.Generation + 1} {
		s.allFenced(s.port, partitions.Held{Unit: shipping, Generation: wrong})
	}
	s.same("at the right one", run(orders, 1, 1), places(s.fetch(s.port, h, 10, at(orders, 0)).Entries))
}

// allFenced checks that everything is refused to whoever believes to hold h.
func (s *suite) allFenced(port partitions.Port, h partitions.Held) {
	s.Helper()
	_, err := port.Fetch(s.Context(), h, []event.Position{at(orders, 0)}, 1)
	s.fenced("fetch", err)
	_, err = port.Advance(s.Context(), h, []event.Position{at(orders, 1)}, 1)
	s.fenced("advance", err)
	s.leaseFenced(port, h)
	s.fenced("release if idle", port.Release(s.Context(), h, true))
}

// leaseFenced checks that nothing is renewed or released for whoever believes to hold h.
func (s *suite) leaseFenced(port partitions.Port, h partitions.Held) {
	s.Helper()
	s.fenced("renew", port.Renew(s.Context(), []partitions.Held{h})[0])
	s.fenced("release", port.Release(s.Context(), h, false))
}

// sibling is another unit beside the test's own: of the same key, or another part of the store.
func (s *suite) sibling() event.Unit {
	if s.unit == part {
		return event.Unit{Name: part.Name, Key: "5b1c-8"}
	}
	return event.Unit{Name: "billing", Key: s.unit.Key}
}

func renewalsEach(s *suite) {
	a := s.acquire(s.port, s.unit, 0)
	b := s.acquire(s.port, s.sibling(), 0)
	wrong := partitions.Held{Unit: s.unit, Generation: a.Generation + 1}
	errs := s.port.Renew(s.Context(), []partitions.Held{a, wrong, b})
	if len(errs) != 3 {
		s.Fatalf("%d answers for 3 leases", len(errs))
	}
	if errs[0] != nil || errs[2] != nil {
		s.Errorf("leases that are held: %v, %v", errs[0], errs[2])
	}
	s.fenced("the one that is not", errs[1])
	if errs := s.port.Renew(s.Context(), nil); len(errs) != 0 {
		s.Errorf("no leases: %v", errs)
	}
}

func releasedAgain(s *suite) {
	h := s.acquire(s.port, shipping, 0)
	if err := s.port.Release(s.Context(), h, true); err != nil {
		s.Errorf("release: %v", err)
	}
	s.Append(s.T, orders, 1)
	h = s.acquire(s.port, shipping, h.Generation)
	s.same("read", run(orders, 1, 1), places(s.fetch(s.port, h, 10, at(orders, 0)).Entries))
}

func crashed(s *suite) {
	if s.Crash == nil {
		s.Skip("this port's world does not tell how an owner ended")
	}
	s.Append(s.T, orders, 2)
	s.acquire(s.port, shipping, 0)
	next := s.Crash(s.T)
	s.Append(s.T, event.LaneRef{Category: "order", Key: "k-3"}, 1) // after the end, so nobody can have died of it
	for _, want := range []struct {
		unit    event.Unit
		unclean bool
	}{
		{shipping, true},
		{shipping, false},
		{event.Unit{Name: "billing", Key: "k-1"}, true}, // it may have been inside, whoever else was
		{event.Unit{Name: "shipping", Key: "k-2"}, false},
		{event.Unit{Name: "shipping", Key: "k-3"}, false},
		{shipping, false},
	} {
		got, err := next.Acquire(s.Context(), want.unit, 0)
		if err != nil || !got.Granted || got.Unclean != want.unclean {
			s.Errorf("acquire %s: %+v, %v; want it granted, unclean %v", want.unit, got, err, want.unclean)
		}
		if err := next.Release(s.Context(), partitions.Held{Unit: want.unit, Generation: got.Generation}, false); err != nil {
			s.Errorf("release %s: %v", want.unit, err)
		}
	}
}
