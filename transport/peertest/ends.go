package peertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

var limits = []check{
	{"A question that is too large fails alone", func(s *suite) {
		h := s.holding()
		b := s.start(Limits{MaxMessage: 2048}, &h.service)
		small, large := s.start(Limits{MaxMessage: 2048}, nil), s.start(Limits{}, nil)
		for _, a := range []transport.Peers{small, large} { // the caller's own limit, and that of the one who is asked
			other := s.asking(s.context(), a, b.Address(), question("1"))
			s.next(h.inside)
			q := question("2")
			q.Data = make([]byte, 4096)
			_, err := a.Ask(s.context(), b.Address(), q)
			s.fails(err, transport.PeerTooLarge, false)
			defer func() { s.same("the other ask of the link", nil, s.answered(other).err) }()
		}
		h.letGo()
	}},
	{"An answer that is too large fails alone, and may have been decided", func(s *suite) {
		b2 := func(l Limits) transport.Peers {
			return s.start(l, &service{ask: func(_ context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
				if q.To.Key == "large" {
					return transport.PeerReply{Data: make([]byte, 4096)}, nil
				}
				return transport.PeerReply{Type: "fine"}, nil
			}})
		}
		a := s.start(Limits{MaxMessage: 2048}, nil)
		for _, b := range []transport.Peers{b2(Limits{}), b2(Limits{MaxMessage: 2048})} {
			_, err := a.Ask(s.context(), b.Address(), question("large"))
			s.fails(err, transport.PeerTooLarge, true)
			r, err := a.Ask(s.context(), b.Address(), question("1"))
			s.same("error", nil, err)
			s.same("reply", "fine", r.Type)
		}
	}},
	{"What is more than a node takes is refused at once, and nothing else is", func(s *suite) {
		h := s.holding()
		h.status = func(context.Context) (transport.PeerStatus, error) { return transport.PeerStatus{Ready: "full"}, nil }
		b := s.start(Limits{MaxInside: 2}, &h.service)
		var inside []<-chan answer
		for i := range 2 { // callers of their own, so that it is the node which is full
			inside = append(inside, s.asking(s.context(), s.start(Limits{}, nil), b.Address(), question(fmt.Sprint(i))))
			s.next(h.inside)
		}
		a := s.start(Limits{}, nil)
		_, err := a.Ask(s.context(), b.Address(), question("more"))
		s.fails(err, transport.PeerBusy, false)
		s.fails(a.Tell(s.context(), b.Address(), question("more")), transport.PeerBusy, false)
		status, err := a.Status(s.context(), b.Address())
		s.same("error", nil, err)
		s.same("a full node can be looked at", "full", status.Ready)
		h.letGo()
		for _, one := range inside {
			s.same("error", nil, s.answered(one).err)
		}
		_, err = a.Ask(s.context(), b.Address(), question("again"))
		s.same("error", nil, err)
	}},
}

var ends = []check{
	{"An ask ends with its context, and the service's context too", func(s *suite) {
		h := s.holding()
		b := s.start(Limits{}, &h.service)
		a := s.start(Limits{}, nil)
		why := errors.New("changed my mind")
		ctx, cancel := context.WithCancelCause(s.context())
		defer cancel(nil)
		got := s.asking(ctx, a, b.Address(), question("1"))
		s.next(h.inside)
		cancel(why)
		e := s.fails(s.answered(got).err, transport.PeerEnded, true)
		if !errors.Is(e, why) {
			s.Errorf("the error does not tell why: %v", e.Err)
		}
		s.same("the service's context", "over", s.next(h.inside))
	}},
	{"An ask whose time is over is not made", func(s *suite) {
		b := s.start(Limits{}, &service{ask: func(context.Context, transport.PeerAsk) (transport.PeerReply, error) {
			s.Error("it was made")
			return transport.PeerReply{}, nil
		}})
		ctx, cancel := context.WithCancel(s.context())
		cancel()
		_, err := s.start(Limits{}, nil).Ask(ctx, b.Address(), question("1"))
		if e := s.fails(err, transport.PeerEnded, false); !errors.Is(e, context.Canceled) {
			s.Errorf("the error does not tell why: %v", e.Err)
		}
	}},
	{"Before Start and after Stop nothing is asked", func(s *suite) {
		b := s.start(Limits{}, &service{})
		a := s.open(s.T, Limits{})
		_, err := a.Ask(s.context(), b.Address(), question("1"))
		s.fails(err, transport.PeerStopping, false)
		s.same("address", "", a.Address())
		s.begin(a, shop, nil)
		s.same("stop", nil, a.Stop(s.context()))
		s.fails(a.Tell(s.context(), b.Address(), question("1")), transport.PeerStopping, false)
		s.same("a second stop", nil, a.Stop(s.context()))
	}},
	{"A second Start is refused, and one after a Stop is not", func(s *suite) {
		p := s.start(Limits{}, &service{})
		if err := p.Start(s.context(), shop, &service{}); !errors.Is(err, lifecycle.ErrStarted) {
			s.Errorf("got %v", err)
		}
		s.same("stop", nil, p.Stop(s.context()))
		s.begin(p, shop, &service{status: func(context.Context) (transport.PeerStatus, error) { return transport.PeerStatus{Ready: "anew"}, nil }})
		got, err := s.start(Limits{}, nil).Status(s.context(), p.Address())
		s.same("error", nil, err)
		s.same("ready", "anew", got.Ready)
	}},
	{"Stop waits for what is inside, and takes no more", func(s *suite) {
		h := s.holding()
		b := s.start(Limits{}, &h.service)
		address := b.Address()
		a := s.start(Limits{}, nil)
		got := s.asking(s.context(), a, address, question("1"))
		s.next(h.inside)
		stopped := make(chan error, 1)
		go func() { stopped <- b.Stop(s.context()) }()
		for { // until the stop has begun
			ctx, cancel := context.WithTimeout(s.context(), patience/100)
			_, err := a.Status(ctx, address)
			cancel()
			var e *transport.PeerError
			if errors.As(err, &e) && (e.Code == transport.PeerStopping || e.Code == transport.PeerUnavailable) {
				break
			}
			if s.context().Err() != nil {
				s.Fatal("it goes on taking calls: ", err)
			}
		}
		select {
		case err := <-stopped:
			s.Fatalf("stop did not wait: %v", err)
		default:
		}
		h.letGo()
		r := s.answered(got)
		s.same("error", nil, r.err)
		s.same("reply", "done", r.reply.Type)
		s.same("stop", nil, <-stopped)
	}},
	{"Stop waits for the answers to what this node has asked", func(s *suite) {
		h := s.holding()
		b := s.start(Limits{}, &h.service)
		a := s.start(Limits{}, nil)
		got := s.asking(s.context(), a, b.Address(), question("1"))
		s.next(h.inside)
		stopped := make(chan error, 1)
		go func() { stopped <- a.Stop(s.context()) }()
		for a.Wake(s.context(), "127.0.0.1:1", nil).(*transport.PeerError).Code != transport.PeerStopping {
			if s.context().Err() != nil {
				s.Fatal("it goes on")
			}
		}
		h.letGo()
		s.same("error", nil, s.answered(got).err)
		s.same("stop", nil, <-stopped)
	}},
	{"When the time of Stop is over, what is left ends, and may have been done", func(s *suite) {
		h := s.holding()
		b := s.start(Limits{}, &h.service)
		a := s.start(Limits{}, nil)
		got := s.asking(s.context(), a, b.Address(), question("1"))
		s.next(h.inside)
		ctx, cancel := context.WithCancel(s.context())
		cancel()
		if err := b.Stop(ctx); !errors.Is(err, context.Canceled) {
			s.Errorf("stop: %v", err)
		}
		s.fails(s.answered(got).err, transport.PeerUnavailable, true)
		s.same("the service's context", "over", s.next(h.inside))
	}},
	{"When the time of the caller's Stop is over, what it waits for ends", func(s *suite) {
		h := s.holding()
		b := s.start(Limits{}, &h.service)
		a := s.start(Limits{}, nil)
		got := s.asking(s.context(), a, b.Address(), question("1"))
		s.next(h.inside)
		ctx, cancel := context.WithCancel(s.context())
		cancel()
		if err := a.Stop(ctx); !errors.Is(err, context.Canceled) {
			s.Errorf("stop: %v", err)
		}
		s.fails(s.answered(got).err, transport.PeerStopping, true)
		s.same("the service's context", "over", s.next(h.inside))
	}},
}
