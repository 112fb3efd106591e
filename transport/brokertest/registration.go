package brokertest

import (
	"errors"
	"sync"
	"time"

	"github.com/keyhold/keyhold/transport"
)

// declared is what the application of this suite declares.
func (s *suite) declared() transport.Declared {
	return transport.Declared{
		StoreID:    s.id.StoreID,
		Categories: []transport.Produced{{Category: "order", KeyField: "client_id", StoreID: s.id.StoreID}, {Category: "note", Buckets: 64, StoreID: s.id.StoreID}},
		Subscribers: []transport.Subscriber{
			{Name: "shipping", Category: "order", StoreID: s.id.StoreID, Kind: "handler"},
			{Name: "billing", Category: "order", StoreID: s.id.StoreID, Kind: "handler"},
			{Name: "shipping", Category: "note", StoreID: s.id.StoreID, Kind: "handler"},
		},
	}
}

func (s *suite) subscribers(b transport.Broker, categories ...string) map[string][]transport.Subscriber {
	s.Helper()
	got, err := b.Subscribers(s.Context(), categories)
	s.must("subscribers", err)
	return got
}

// refused checks that a declaration gives n disagreements, each with both sides and a remedy, and changes nothing.
func (s *suite) refused(d transport.Declared, n int) {
	s.Helper()
	before := s.subscribers(s.Broker, "order", "note", "payment")
	err := s.Broker.Declare(s.Context(), d)
	if !errors.Is(err, transport.ErrDeclared) {
		s.Fatalf("got %v, want ErrDeclared", err)
	}
	faults := disagreements(err)
	if len(faults) != n {
		s.Errorf("%d disagreements, want %d: %v", len(faults), n, err)
	}
	for _, e := range faults {
		if e.What == "" || e.Ours == "" || e.Theirs == "" || e.Ours == e.Theirs || e.Remedy == "" {
			s.Errorf("says too little: %+v", e)
		}
	}
	s.same("subscribers", before, s.subscribers(s.Broker, "order", "note", "payment"))
}

// disagreements takes apart what was joined.
func disagreements(err error) []*transport.DeclaredError {
	if many, joined := err.(interface{ Unwrap() []error }); joined {
		var all []*transport.DeclaredError
		for _, e := range many.Unwrap() {
			all = append(all, disagreements(e)...)
		}
		return all
	}
	var one *transport.DeclaredError
	if errors.As(err, &one) {
		return []*transport.DeclaredError{one}
	}
	return nil
}

var registrations = []check{
	{"Subscribers are given by category, in order of name", func(s *suite) {
		d := s.declared()
		s.must("declare", s.Broker.Declare(s.Context(), d))
		want := map[string][]transport.Subscriber{"order": {d.Subscribers[1], d.Subscribers[0]}, "note": {d.Subscribers[2]}}
		s.same("of the two", want, s.subscribers(s.other(), "note", "order"))
		delete(want, "note")
		s.same("of one", want, s.subscribers(s.Broker, "order", "nobody"))
	}},
	{"The same declaration again agrees", func(s *suite) {
		for range 2 {
			s.must("declare", s.Broker.Declare(s.Context(), s.declared()))
		}
		s.must("declare elsewhere", s.other().Declare(s.Context(), s.declared()))
	}},
	{"Declarations add to each other", func(s *suite) {
		d := s.declared()
		s.must("declare", s.Broker.Declare(s.Context(), d))
		more := transport.Declared{StoreID: "b", Categories: []transport.Produced{{Category: "order", KeyField: "client_id"}},
			Subscribers: []transport.Subscriber{{Name: "audit", Category: "order", StoreID: "b", Kind: "handler"}}}
		s.must("declare", s.Broker.Declare(s.Context(), more))
		want := []transport.Subscriber{more.Subscribers[0], d.Subscribers[1], d.Subscribers[0]}
		s.same("subscribers", want, s.subscribers(s.Broker, "order")["order"])
	}},
	{"A category may be declared before its producer is", func(s *suite) {
		s.must("a reader", s.Broker.Declare(s.Context(), transport.Declared{StoreID: "b", Categories: []transport.Produced{{Category: "order", KeyField: "client_id"}}}))
		s.must("the producer", s.Broker.Declare(s.Context(), s.declared()))
		s.refused(transport.Declared{StoreID: "c", Categories: []transport.Produced{{Category: "order", KeyField: "client_id", StoreID: "c"}}}, 1)
		s.must("a reader again", s.Broker.Declare(s.Context(), transport.Declared{StoreID: "b", Categories: []transport.Produced{{Category: "order", KeyField: "client_id"}}}))
		s.refused(transport.Declared{StoreID: "c", Categories: []transport.Produced{{Category: "order", KeyField: "client_id", StoreID: "c"}}}, 1)
	}},
	{"Another key or number of buckets is refused", func(s *suite) {
		s.must("declare", s.Broker.Declare(s.Context(), s.declared()))
		s.refused(transport.Declared{StoreID: "b", Categories: []transport.Produced{{Category: "order", KeyField: "region"}}}, 1)
		s.refused(transport.Declared{StoreID: "b", Categories: []transport.Produced{{Category: "note", Buckets: 32}}}, 1)
	}},
	{"A second store for a category is refused", func(s *suite) {
		s.must("declare", s.Broker.Declare(s.Context(), s.declared()))
		s.refused(transport.Declared{StoreID: "b", Categories: []transport.Produced{{Category: "order", KeyField: "client_id", StoreID: "b"}}}, 1)
	}},
	{"A second store for a subscriber's name is refused, in whatever category", func(s *suite) {
		s.must("declare", s.Broker.Declare(s.Context(), s.declared()))
		s.refused(transport.Declared{StoreID: "b", Subscribers: []transport.Subscriber{{Name: "billing", Category: "order", StoreID: "b", Kind: "handler"}}}, 1)
		s.refused(transport.Declared{StoreID: "b", Subscribers: []transport.Subscriber{{Name: "billing", Category: "payment", StoreID: "b", Kind: "handler"}}}, 1)
	}},
	{"A name of another kind is refused", func(s *suite) {
		s.must("declare", s.Broker.Declare(s.Context(), s.declared()))
		s.refused(transport.Declared{StoreID: s.id.StoreID, Subscribers: []transport.Subscriber{{Name: "billing", Category: "order", StoreID: s.id.StoreID, Kind: "entity"}}}, 1)
	}},
	{"All disagreements are told at once, and nothing is changed", func(s *suite) {
		s.must("declare", s.Broker.Declare(s.Context(), s.declared()))
		s.refused(transport.Declared{
			StoreID:    "b",
			Categories: []transport.Produced{{Category: "order", KeyField: "region"}, {Category: "note", Buckets: 32, StoreID: s.id.StoreID}},
			Subscribers: []transport.Subscriber{
				{Name: "billing", Category: "order", StoreID: "b", Kind: "handler"},
				{Name: "audit", Category: "order", StoreID: "b", Kind: "handler"},
			},
		}, 3)
	}},
	{"Of two stores that produce a category, for the broker had forgotten the first, both are told", func(s *suite) {
		category := func(id string, running bool) transport.Declared {
			return transport.Declared{StoreID: id, Running: running, Categories: []transport.Produced{{Category: "order", KeyField: "id", StoreID: id}}}
		}
		s.must("the first", s.Broker.Declare(s.Context(), category("a", false)))
		s.refused(category("b", false), 1)
		s.must("the first again: one that was refused at its start does not go on", s.Broker.Declare(s.Context(), category("a", true)))
		s.Forget(s.T)
		s.must("the second", s.Broker.Declare(s.Context(), category("b", false)))
		s.must("a reader", s.Broker.Declare(s.Context(), transport.Declared{StoreID: "c", Categories: []transport.Produced{{Category: "order", KeyField: "id"}}}))
		s.refused(category("a", true), 1)
		s.refused(category("b", true), 1)
		s.refused(category("a", true), 1)
		s.must("the reader again", s.Broker.Declare(s.Context(), transport.Declared{StoreID: "c", Categories: []transport.Produced{{Category: "order", KeyField: "id"}}}))
		s.Pass(s.T, 2*time.Minute)
		s.must("the second, when the first has given up", s.Broker.Declare(s.Context(), category("b", true)))
	}},
	{"Of two that disagree and declare at once, one is refused", func(s *suite) {
		nodes := []Leasing{s.Broker, s.other()}
		errs := make([]error, len(nodes))
		var wg sync.WaitGroup
		for i, b := range nodes {
			wg.Go(func() {
				id := []string{"a", "b"}[i]
				errs[i] = b.Declare(s.Context(), transport.Declared{StoreID: id, Categories: []transport.Produced{{Category: "order", KeyField: "id", StoreID: id}}})
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			s.Errorf("got %v and %v, want one of them refused", errs[0], errs[1])
		}
	}},
	{"Nothing waits for a subscriber that was unregistered", func(s *suite) {
		d := s.declared()
		s.must("declare", s.Broker.Declare(s.Context(), d))
		s.must("unregister", s.Broker.Unregister(s.Context(), "shipping"))
		s.same("subscribers", map[string][]transport.Subscriber{"order": {d.Subscribers[1]}}, s.subscribers(s.Broker, "order", "note"))
		s.must("again", s.Broker.Unregister(s.Context(), "shipping"))
		s.must("declare anew", s.Broker.Declare(s.Context(), transport.Declared{StoreID: "b", Subscribers: []transport.Subscriber{{Name: "shipping", Category: "order", StoreID: "b", Kind: "handler"}}}))
	}},
	{"After a loss of memory nothing is registered, and it can be declared again", func(s *suite) {
		d := s.declared()
		s.must("declare", s.Broker.Declare(s.Context(), d))
		s.Forget(s.T)
		s.same("forgotten", map[string][]transport.Subscriber{}, s.subscribers(s.Broker, "order", "note"))
		s.must("declare again", s.Broker.Declare(s.Context(), d))
		s.same("known again", 2, len(s.subscribers(s.Broker, "order")["order"]))
	}},
}
