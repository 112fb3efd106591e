package brokertest

import (
	"context"
	"errors"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

var lifetime = []check{
	{"It is what it says", func(s *suite) {
		has := s.Broker.Capabilities()
		want := transport.Publish | transport.ConsumerGroups | transport.Ack | transport.Ordering | transport.Partitioning
		if s.Broker.Name() == "" || !has.Has(want) || has.Has(transport.Inline) {
			s.Errorf("%q can %s, want %s", s.Broker.Name(), has, want)
		}
		limits := s.Broker.Limits()
		if limits.MaxAhead <= 0 || limits.RetireAfter <= 0 || s.MaxAhead > 0 && limits.MaxAhead != s.MaxAhead {
			s.Errorf("limits are %+v", limits)
		}
		if !s.Broker.Port().Traits().Leased {
			s.Error("its port does not lease")
		}
	}},
	{"Connect is idempotent", func(s *suite) {
		s.must("connect", s.Broker.Connect(s.Context()))
		s.start(orders, 1, 1)
	}},
	{"A second Start is refused", func(s *suite) {
		s.listen(s.Broker, "shipping")
		if err := s.Broker.Start(s.Context(), transport.Node{}); err == nil {
			s.Error("started twice")
		}
	}},
	{"It is one user's at a time, and goes on for that one when another is refused", func(s *suite) {
		release, err := s.Broker.Claim()
		s.must("claim", err)
		here := s.listen(s.Broker, "shipping")
		owner := s.Broker.OwnerID()
		if _, err := s.Broker.Claim(); !errors.Is(err, transport.ErrClaimed) {
			s.Errorf("claimed twice: %v", err)
		}
		elsewhere, err := s.other().Claim() // it is the value that is claimed, not what is behind it
		s.must("claim another", err)
		elsewhere()
		s.start(orders, 1, 1, "shipping")
		here.awaitWake(s, shipping)
		s.same("owner", owner, s.Broker.OwnerID())
		s.must("stop", s.Broker.Stop(s.Context()))
		release()
		next, err := s.Broker.Claim()
		s.must("claim what was released", err)
		release() // again: it is not theirs any more
		if _, err := s.Broker.Claim(); !errors.Is(err, transport.ErrClaimed) {
			s.Errorf("claimed from the next: %v", err)
		}
		s.must("connect", s.Broker.Connect(s.Context()))
		s.same("append", told(transport.AppendOK, orders, 2), s.run(orders, 2, 2))
		s.must("stop", s.Broker.Stop(s.Context()))
		next()
	}},
	{"Stop is idempotent, and another start follows it", func(s *suite) {
		s.listen(s.Broker, "shipping")
		for range 2 {
			s.must("stop", s.Broker.Stop(s.Context()))
		}
		s.must("connect", s.Broker.Connect(s.Context()))
		here := s.listen(s.Broker, "shipping")
		s.start(orders, 1, 1, "shipping")
		here.awaitWake(s, shipping)
	}},
	{"Streams outlive the node that appended", func(s *suite) {
		s.start(orders, 1, 2, "shipping")
		s.must("stop", s.Broker.Stop(s.Context()))
		s.must("connect", s.Broker.Connect(s.Context()))
		s.same("append", told(transport.AppendOK, orders, 3), s.run(orders, 3, 3))
		s.same("busy", []string{"k-1"}, s.busy("shipping"))
	}},
	{"Committed does nothing", func(s *suite) {
		s.listen(s.Broker, "shipping")
		s.must("committed", s.Broker.Committed(s.Context(), []event.Tail{{Lane: orders, First: 1, Last: 3}}))
		s.same("asked", told(transport.AppendEmpty, orders, 0), s.ask(orders))
		s.same("busy", []string{}, s.busy("shipping"))
	}},
	{"Every node is told of a loss of memory", func(s *suite) {
		elsewhere := s.other()
		here, there := s.listen(s.Broker, "shipping"), s.listen(elsewhere, "shipping")
		s.start(orders, 1, 1, "shipping")
		s.Forget(s.T)
		here.await(s, "the loss", func() bool { return here.forgot > 0 })
		there.await(s, "the loss", func() bool { return there.forgot > 0 })
		s.same("busy", []string{}, s.busy("shipping"))
		s.live(0)
	}},
	{"The memory has another name after a loss, the same for all nodes", func(s *suite) {
		elsewhere := s.other()
		before := s.Broker.Memory()
		if before == "" || before != elsewhere.Memory() {
			s.Errorf("it is %q here and %q elsewhere", before, elsewhere.Memory())
		}
		here := s.listen(s.Broker, "shipping")
		s.Forget(s.T)
		here.await(s, "the loss", func() bool { return here.forgot > 0 })
		if now := s.Broker.Memory(); now == "" || now == before {
			s.Errorf("it was %q, and is %q after the loss", before, now)
		}
	}},
	{"Out of a memory that is trusted leases are granted at once, out of the next one they are not", func(s *suite) {
		here := s.listen(s.Broker, "shipping")
		loss := func() {
			s.Helper()
			var told int
			here.note(func() { told = here.forgot })
			s.Forget(s.T)
			here.await(s, "the loss", func() bool { return here.forgot > told })
		}
		acquire := func() partitions.Acquired {
			s.Helper()
			got, err := s.Broker.Port().Acquire(s.Context(), shipping, 0)
			s.must("acquire", err)
			return got
		}
		loss()
		if got := acquire(); !got.Forgot {
			s.Errorf("out of a new memory: %+v", got)
		}
		s.Broker.Trust(s.Broker.Memory())
		if got := acquire(); !got.Granted {
			s.Errorf("out of a memory that is trusted: %+v", got)
		}
		loss()
		if got := acquire(); !got.Forgot {
			s.Errorf("out of the next one: %+v", got)
		}
	}},
	{"Calls outside of Connect and Stop are errors", func(s *suite) {
		s.must("stop", s.Broker.Stop(s.Context()))
		if got := s.Broker.Append(s.Context(), []transport.Append{{Lane: orders, Entries: s.entries(orders, 1, 1), Start: true}}); len(got) != 1 || got[0].Err == nil {
			s.Errorf("append: %+v", got)
		}
		if err := s.Broker.Mark(s.Context(), []event.Unit{shipping}); err == nil {
			s.Error("marked")
		}
		if _, err := s.Broker.Port().Acquire(s.Context(), shipping, 0); err == nil {
			s.Error("acquired")
		}
	}},
	{"A cancelled context ends calls", func(s *suite) {
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		_, subscribers := s.Broker.Subscribers(ctx, []string{"order"})
		_, partitions := s.Broker.Partitions(ctx, "order")
		_, wanted := s.Broker.Wanted(ctx, "order")
		_, leases := s.Broker.Leases(ctx, []event.Unit{shipping})
		_, _, busy := s.Broker.Busy(ctx, "shipping", 0)
		_, _, resting := s.Broker.Resting(ctx, "shipping", 0)
		for what, err := range map[string]error{
			"declare": s.Broker.Declare(ctx, s.declared()), "unregister": s.Broker.Unregister(ctx, "x"), "mark": s.Broker.Mark(ctx, []event.Unit{shipping}),
			"halted": s.Broker.Halted(ctx, shipping, true), "subscribers": subscribers, "partitions": partitions, "wanted": wanted, "leases": leases, "busy": busy, "resting": resting,
		} {
			if !errors.Is(err, context.Canceled) {
				s.Errorf("%s: got %v", what, err)
			}
		}
	}},
}
