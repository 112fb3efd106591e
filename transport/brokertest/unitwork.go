package brokertest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

var unitWork = []check{
	{"A unit that was marked has work until it finds none", func(s *suite) {
		s.must("mark", s.Broker.Mark(s.Context(), []event.Unit{shipping, billing, {Name: "shipping", Key: "k-2"}}))
		s.same("shipping", []string{"k-1", "k-2"}, s.busy("shipping"))
		s.same("billing", []string{"k-1"}, s.busy("billing"))
		h := s.acquire(s.Broker, shipping)
		_, err := s.Broker.Port().Fetch(s.Context(), h, []event.Position{{Lane: orders}, {Lane: backfill(orders)}}, 1)
		s.must("fetch", err)
		_, err = s.Broker.Port().Advance(s.Context(), h, []event.Position{{Lane: orders}, {Lane: backfill(orders)}}, 1)
		s.must("advance", err)
		s.must("release", s.Broker.Port().Release(s.Context(), h, true))
		s.same("shipping", []string{"k-2"}, s.busy("shipping"))
	}},
	{"A unit with something unread keeps its work, whoever has it", func(s *suite) {
		s.start(orders, 1, 2, "shipping")
		s.pass(shipping, orders, 1)
		s.same("busy", []string{"k-1"}, s.busy("shipping"))
		s.pass(shipping, orders, 2)
		s.same("busy", []string{}, s.busy("shipping"))
	}},
	{"Many keys are given in pages, each at least once", func(s *suite) {
		var units []event.Unit
		var want []string
		for i := range 1500 {
			u := event.Unit{Name: "shipping", Key: fmt.Sprintf("m-%d", i)}
			units, want = append(units, u), append(want, u.Key)
		}
		s.must("mark", s.Broker.Mark(s.Context(), units))
		slices.Sort(want)
		s.same("busy", want, s.busy("shipping"))
	}},
	{"Units that wait for a person are left out until they do not", func(s *suite) {
		s.must("mark", s.Broker.Mark(s.Context(), []event.Unit{shipping, {Name: "shipping", Key: "k-2"}, billing}))
		for range 2 {
			s.must("halted", s.Broker.Halted(s.Context(), shipping, true))
			s.same("one is halted", []string{"k-2"}, s.busy("shipping"))
			s.same("another's unit of that key", []string{"k-1"}, s.busy("billing"))
		}
		for range 2 {
			s.must("resumed", s.Broker.Halted(s.Context(), shipping, false))
			s.same("none is", []string{"k-1", "k-2"}, s.busy("shipping"))
		}
	}},
	{"Units that wait for a person are told, each at least once", func(s *suite) {
		s.same("none", []string{}, s.resting("shipping"))
		var want []string
		for i := range 1500 {
			u := event.Unit{Name: "shipping", Key: fmt.Sprintf("h-%d", i)}
			s.must("halted", s.Broker.Halted(s.Context(), u, true))
			want = append(want, u.Key)
		}
		s.must("another's", s.Broker.Halted(s.Context(), billing, true))
		s.must("halted", s.Broker.Halted(s.Context(), shipping, true))
		s.must("and not any more", s.Broker.Halted(s.Context(), shipping, false))
		slices.Sort(want)
		s.same("all", want, s.resting("shipping"))
	}},
	{"Leases are told in the order asked", func(s *suite) {
		ttl := s.Broker.Port().Traits().TTL
		part := func(n string) event.Unit { return event.Unit{Name: event.PartName, Key: s.id.StoreID + "-" + n} }
		s.acquire(s.Broker, billing)
		s.acquire(s.Broker, part("7"))
		released := s.acquire(s.Broker, part("9"))
		s.must("release", s.Broker.Port().Release(s.Context(), released, false))
		h := s.acquire(s.other(), shipping)
		units := []event.Unit{shipping, part("8"), part("9"), {Name: "shipping", Key: "k-2"}, part("7"), billing}
		got, err := s.Broker.Leases(s.Context(), units)
		s.must("leases", err)
		held := make([]bool, len(got))
		for i, left := range got {
			if held[i] = left > 0; left < 0 || left > ttl {
				s.Errorf("%s is held for %v, want up to %v", units[i], left, ttl)
			}
		}
		s.same("held", []bool{true, false, false, false, true, true}, held)
		s.Pass(s.T, ttl+time.Millisecond)
		got, err = s.Broker.Leases(s.Context(), []event.Unit{h.Unit})
		if err != nil || len(got) != 1 || got[0] != 0 {
			s.Errorf("lapsed: %v, %v", got, err)
		}
		got, err = s.Broker.Leases(s.Context(), nil)
		if err != nil || len(got) != 0 {
			s.Errorf("of nobody: %v, %v", got, err)
		}
	}},
	{"Nobody holds what was released", func(s *suite) {
		h := s.acquire(s.Broker, shipping)
		s.must("release", s.Broker.Port().Release(s.Context(), h, false))
		got, err := s.Broker.Leases(s.Context(), []event.Unit{shipping})
		if err != nil || len(got) != 1 || got[0] != 0 {
			s.Errorf("got %v, %v", got, err)
		}
	}},
	{"A generation is kept until RetireAfter from when its lease lapsed, or was given back, and not for ever", func(s *suite) {
		traits, kept := s.Broker.Port().Traits(), s.Broker.Limits().RetireAfter
		other := s.other()
		for _, u := range []event.Unit{shipping, {Name: event.PartName, Key: s.id.StoreID + "-7"}} {
			for _, given := range []bool{false, true} {
				h := s.acquire(s.Broker, u)
				if given {
					s.must("release", s.Broker.Port().Release(s.Context(), h, false))
				} else {
					s.Pass(s.T, traits.TTL)
				}
				s.Pass(s.T, kept-time.Minute)
				got, err := other.Port().Acquire(s.Context(), u, 0)
				if err != nil || got.Generation != h.Generation+1 || got.Unclean == given {
					s.Errorf("%s, given back %v, acquired before: %+v, %v; it had %d", u, given, got, err, h.Generation)
				}
				s.Pass(s.T, traits.TTL+2*kept)
				if got, err = s.Broker.Port().Acquire(s.Context(), u, 0); err != nil || got.Generation != 1 || got.Unclean {
					s.Errorf("%s, acquired long after: %+v, %v; want it as new", u, got, err)
				}
				s.Pass(s.T, traits.TTL+2*kept)
			}
		}
	}},
	{"What gets work is woken on every node that listens", func(s *suite) {
		elsewhere := s.other()
		here, there := s.listen(s.Broker, "shipping"), s.listen(elsewhere, "billing", "shipping")
		s.start(orders, 1, 1, "shipping", "billing")
		here.awaitWake(s, shipping)
		there.awaitWake(s, shipping)
		there.awaitWake(s, billing)
		s.must("mark", s.Broker.Mark(s.Context(), []event.Unit{{Name: "shipping", Key: "k-9"}}))
		here.awaitWake(s, event.Unit{Name: "shipping", Key: "k-9"})
		there.awaitWake(s, event.Unit{Name: "shipping", Key: "k-9"})
		here.mu.Lock()
		defer here.mu.Unlock()
		if slices.Contains(here.all, billing) {
			s.Error("a node was woken for a name that it does not listen for")
		}
	}},
	{"A mark wakes also what has work already", func(s *suite) {
		s.must("mark", s.Broker.Mark(s.Context(), []event.Unit{shipping}))
		here := s.listen(s.Broker, "shipping")
		s.must("mark", s.Broker.Mark(s.Context(), []event.Unit{shipping}))
		here.awaitWake(s, shipping)
	}},
	{"What gets work after it was at rest is woken again", func(s *suite) {
		here := s.listen(s.Broker, "shipping")
		for seq := event.Sequence(1); seq <= 3; seq++ {
			s.start(orders, seq, seq, "shipping")
			here.awaitWake(s, shipping)
			s.pass(shipping, orders, seq)
		}
	}},
	{"Parts are units like others", func(s *suite) {
		u := event.Part(7).Unit()
		h := s.acquire(s.Broker, u)
		got, err := s.other().Port().Acquire(s.Context(), u, 0)
		if err != nil || got.Granted || got.HeldFor <= 0 || got.Holder != s.Broker.OwnerID() || got.HeldAt != h.Generation {
			s.Errorf("got %+v, %v; want it held", got, err)
		}
		s.each("renew", s.Broker.Port().Renew(s.Context(), []partitions.Held{h}), nil)
		here := s.listen(s.Broker, event.PartName)
		s.must("mark", s.Broker.Mark(s.Context(), []event.Unit{u}))
		here.awaitWake(s, u)
	}},
}

var memberships = []check{
	{"A beat gives all members of the store, in order of id", func(s *suite) {
		a, b, c := s.Broker, s.other(), s.other()
		since := time.UnixMilli(1_700_000_000_000).UTC()
		var want []transport.Member
		for i, node := range []Leasing{a, b} {
			m := transport.Member{ID: node.OwnerID(), Node: fmt.Sprint("node ", i), PID: 4711 + i, StoreID: s.id.StoreID, Start: event.Generation(1 + i), Names: []string{"billing", "shipping"}, Weight: i + 1,
				Draining: i == 1, Since: since, Wants: []event.Unit{shipping}}
			want = append(want, m)
			s.beat(node, m, time.Minute)
		}
		s.beat(c, transport.Member{ID: c.OwnerID(), StoreID: "another"}, time.Minute)
		slices.SortFunc(want, func(x, y transport.Member) int {
			if x.ID < y.ID {
				return -1
			}
			return 1
		})
		s.same("members", want, s.beat(a, want[slices.IndexFunc(want, func(m transport.Member) bool { return m.ID == a.OwnerID() })], time.Minute))
	}},
	{"All that is said of a member is carried", func(s *suite) {
		m := transport.Member{
			ID: s.Broker.OwnerID(), Node: "shop", PID: 7, StoreID: s.id.StoreID, Start: 3, Names: []string{"billing", "shipping"}, Draining: true, Weight: 2,
			Since: time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC), Address: "10.0.0.1:9000", Gossip: "10.0.0.1:7946", Version: "v1.2.3", Apart: true, Beats: 9, Wants: []event.Unit{shipping},
		}
		for fields, i := reflect.ValueOf(m), 0; i < fields.NumField(); i++ { // a field that comes later is asked for here too
			if fields.Field(i).IsZero() {
				s.Errorf("this check says nothing of %s", fields.Type().Field(i).Name)
			}
		}
		s.same("members", []transport.Member{m}, s.beat(s.Broker, m, time.Minute))
	}},
	{"A beat replaces what was written", func(s *suite) {
		m := transport.Member{ID: s.Broker.OwnerID(), StoreID: s.id.StoreID, Names: []string{"shipping"}}
		s.beat(s.Broker, m, time.Minute)
		m.Draining = true
		s.same("members", []transport.Member{m}, s.beat(s.Broker, m, time.Minute))
	}},
	{"A member that does not beat lapses", func(s *suite) {
		other := s.other()
		s.beat(other, transport.Member{ID: other.OwnerID(), StoreID: s.id.StoreID}, 2*time.Second)
		m := transport.Member{ID: s.Broker.OwnerID(), StoreID: s.id.StoreID}
		s.same("both", 2, len(s.beat(s.Broker, m, time.Minute)))
		s.Pass(s.T, 2*time.Second+time.Millisecond)
		s.same("one", []transport.Member{m}, s.beat(s.Broker, m, time.Minute))
	}},
	{"A member that leaves is gone", func(s *suite) {
		other := s.other()
		theirs := transport.Member{ID: other.OwnerID(), StoreID: s.id.StoreID}
		s.beat(other, theirs, time.Minute)
		for range 2 {
			s.must("leave", other.Leave(s.Context(), theirs))
		}
		m := transport.Member{ID: s.Broker.OwnerID(), StoreID: s.id.StoreID}
		s.same("members", []transport.Member{m}, s.beat(s.Broker, m, time.Minute))
	}},
	{"Each incarnation has an id of its own", func(s *suite) {
		other := s.other()
		ids := []string{s.Broker.OwnerID(), other.OwnerID()}
		s.must("connect again", s.Broker.Connect(s.Context()))
		s.same("the same incarnation", ids[0], s.Broker.OwnerID())
		s.stopped("the broker", s.Broker.Stop)
		s.must("connect", s.Broker.Connect(s.Context()))
		ids = append(ids, s.Broker.OwnerID())
		slices.Sort(ids)
		if slices.Contains(ids, "") || len(slices.Compact(slices.Clone(ids))) != 3 {
			s.Errorf("ids %q, want three", ids)
		}
		for _, id := range ids {
			s.must("id "+id, event.CheckName(id))
		}
	}},
	{"A lease is of one incarnation", func(s *suite) {
		h := s.acquire(s.Broker, shipping)
		s.stopped("the broker", s.Broker.Stop)
		s.must("connect", s.Broker.Connect(s.Context()))
		s.each("renew", s.Broker.Port().Renew(s.Context(), []partitions.Held{h}), partitions.ErrFenced)
	}},
}

func (s *suite) beat(b transport.Broker, m transport.Member, ttl time.Duration) []transport.Member {
	s.Helper()
	got, err := b.Beat(s.Context(), m, ttl)
	s.must("beat", err)
	return got
}
