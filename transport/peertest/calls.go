package peertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

var full = transport.PeerAsk{To: event.Unit{Name: "order", Key: "k-1"}, Type: "order.place", Version: 3, Encoding: event.Proto, Data: []byte{0, 1, 255},
	CommandID: "command", CorrelationID: "correlation", CausationID: "cause", Tenant: "tenant", Trace: event.Trace{Parent: "parent", State: "state"},
	Waiting: []event.Unit{{Name: "cart", Key: "1"}, {Name: "cart", Key: "ö"}}, Decide: true, ID: transport.PeerAskID{Node: 1<<64 - 1, Number: 1 << 63}}

var calls = []check{
	{"An ask and its reply arrive with all that they say", func(s *suite) {
		reply := transport.PeerReply{Type: "order.placed", Version: 2, Encoding: event.JSON, Data: []byte("{}"), Generation: 1 << 63}
		var got transport.PeerAsk
		b := s.start(Limits{}, &service{ask: func(_ context.Context, q transport.PeerAsk) (transport.PeerReply, error) { got = q; return reply, nil }})
		r, err := s.start(Limits{}, nil).Ask(s.context(), b.Address(), full)
		s.same("error", nil, err)
		s.same("ask", full, got)
		s.same("reply", reply, r)
	}},
	{"A reply that says nothing but its generation is one", func(s *suite) {
		b := s.start(Limits{}, &service{ask: func(context.Context, transport.PeerAsk) (transport.PeerReply, error) {
			return transport.PeerReply{Generation: 4}, nil
		}})
		r, err := s.start(Limits{}, nil).Ask(s.context(), b.Address(), question("1"))
		s.same("error", nil, err)
		s.same("reply", transport.PeerReply{Generation: 4}, r)
	}},
	{"What is told and woken arrives", func(s *suite) {
		told := make(chan transport.PeerAsk, 1)
		woken := make(chan []event.Unit, 1)
		b := s.start(Limits{}, &service{tell: func(_ context.Context, q transport.PeerAsk) error { told <- q; return nil }, wake: func(u []event.Unit) { woken <- u }})
		a := s.start(Limits{}, nil)
		s.same("tell", nil, a.Tell(s.context(), b.Address(), full))
		s.same("told", full, <-told)
		units := []event.Unit{{Name: "shipping", Key: "1"}, {Name: "shipping", Key: "2"}}
		s.same("wake", nil, a.Wake(s.context(), b.Address(), units))
		s.same("woken", units, <-woken)
	}},
	{"Probes arrive with all that they say, also at a node that is full", func(s *suite) {
		came := make(chan []transport.PeerProbe, 1)
		h := s.holding()
		h.probe = func(p []transport.PeerProbe) { came <- p }
		b, a := s.start(Limits{MaxInside: 1}, &h.service), s.start(Limits{}, nil)
		waiting := s.asking(s.context(), a, b.Address(), question("1"))
		s.next(h.inside)
		probes := []transport.PeerProbe{{Origin: transport.PeerAskID{Node: 1<<64 - 1, Number: 2}, At: 1, Again: true, Way: []transport.PeerStep{
			{Ask: transport.PeerAskID{Node: 3, Number: 1 << 63}, Made: 1<<64 - 1}, {},
		}}, {}}
		s.same("probe", nil, a.Probe(s.context(), b.Address(), probes))
		s.same("came", probes, <-came)
		h.letGo()
		s.same("error", nil, s.answered(waiting).err)
	}},
	{"Probes arrive however many they are", func(s *suite) {
		const many = 300
		came := make(chan []transport.PeerProbe, many)
		b := s.start(Limits{MaxMessage: 1024}, &service{probe: func(p []transport.PeerProbe) { came <- p }})
		var probes, got []transport.PeerProbe
		for i := range many {
			step := transport.PeerStep{Ask: transport.PeerAskID{Node: 1 << 63, Number: 1 << 63}, Made: 1 << 63}
			probes = append(probes, transport.PeerProbe{Origin: transport.PeerAskID{Node: 1, Number: uint64(i)}, Way: slices.Repeat([]transport.PeerStep{step}, 1+i%20)})
		}
		ctx := s.context()
		s.same("probe", nil, s.start(Limits{MaxMessage: 1024}, nil).Probe(ctx, b.Address(), probes))
		for len(got) < many {
			select {
			case some := <-came:
				got = append(got, some...)
			case <-ctx.Done():
				s.Fatalf("%d came", len(got))
			}
		}
		s.same("came", probes, got)
	}},
	{"The status arrives with all members", func(s *suite) {
		m := transport.Member{ID: "1", Node: "n", PID: 2, StoreID: "s", Start: 3, Names: []string{"a", "b"}, Draining: true, Weight: 4, Since: time.Unix(5, 6).UTC(), Address: "h:1", Gossip: "h:2",
			Version: "v", Apart: true, Wants: []event.Unit{{Name: "w", Key: "k"}}, Beats: 8}
		status := transport.PeerStatus{Member: m, Members: []transport.Member{m, {ID: "2"}}, Ready: "no store"}
		b := s.start(Limits{}, &service{status: func(context.Context) (transport.PeerStatus, error) { return status, nil }})
		got, err := s.start(Limits{}, nil).Status(s.context(), b.Address())
		s.same("error", nil, err)
		s.same("status", status, got)
	}},
	{"A node asks itself, and another one back", func(s *suite) {
		name := func(of string) *service {
			return &service{ask: func(context.Context, transport.PeerAsk) (transport.PeerReply, error) {
				return transport.PeerReply{Type: of}, nil
			}}
		}
		a, b := s.start(Limits{}, name("a")), s.start(Limits{}, name("b"))
		for _, to := range []struct {
			from, to transport.Peers
			want     string
		}{{a, a, "a"}, {a, b, "b"}, {b, a, "a"}} {
			r, err := to.from.Ask(s.context(), to.to.Address(), question("1"))
			s.same("error", nil, err)
			s.same("answered by", to.want, r.Type)
		}
	}},
	{"One that only calls has no address", func(s *suite) {
		s.same("address", "", s.start(Limits{}, nil).Address())
	}},
	{"Many asks at once get each its own answer", func(s *suite) {
		b := s.start(Limits{}, &service{ask: func(_ context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
			return transport.PeerReply{Type: q.To.Key, Data: q.Data}, nil
		}})
		a := s.start(Limits{}, nil)
		ctx := s.context()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 20 {
					q := question(fmt.Sprintf("%d-%d", i, j))
					r, err := a.Ask(ctx, b.Address(), q)
					if err != nil || r.Type != q.To.Key || !bytes.Equal(r.Data, q.Data) {
						s.Errorf("ask %s: %+v, %v", q.To.Key, r, err)
					}
				}
			})
		}
		wg.Wait()
	}},
	{"What the service does with an ask does not touch the caller's", func(s *suite) {
		b := s.start(Limits{}, &service{ask: func(_ context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
			q.Data[0], q.Waiting[0].Key = 'x', "x"
			return transport.PeerReply{}, nil
		}})
		q := question("1")
		q.Waiting = []event.Unit{{Name: "cart", Key: "1"}}
		_, err := s.start(Limits{}, nil).Ask(s.context(), b.Address(), q)
		s.same("error", nil, err)
		s.same("data", question("1").Data, q.Data)
		s.same("waiting", []event.Unit{{Name: "cart", Key: "1"}}, q.Waiting)
	}},
	{"The time that is left goes with an ask", func(s *suite) {
		left := make(chan time.Duration, 1)
		b := s.start(Limits{}, &service{ask: func(ctx context.Context, _ transport.PeerAsk) (transport.PeerReply, error) {
			until, ok := ctx.Deadline()
			if !ok {
				until = time.Time{}
			}
			left <- time.Until(until)
			return transport.PeerReply{}, nil
		}})
		ctx, cancel := context.WithTimeout(s.Context(), patience)
		defer cancel()
		if _, err := s.start(Limits{}, nil).Ask(ctx, b.Address(), question("1")); err != nil {
			s.Fatal(err)
		}
		if d := <-left; d <= 0 || d > patience {
			s.Errorf("%v were left", d)
		}
	}},
}

var failures = []check{
	{"Each error arrives with all that it says", func(s *suite) {
		codes := []transport.PeerCode{transport.PeerRejected, transport.PeerFailed, transport.PeerPoison, transport.PeerRetry, transport.PeerNotOwner, transport.PeerUnavailable,
			transport.PeerMailboxFull, transport.PeerStopping, transport.PeerUnknownKind, transport.PeerUnknownType, transport.PeerUnknownCommand, transport.PeerTooLarge, transport.PeerBad,
			transport.PeerCycle, transport.PeerEnded, transport.PeerDenied, transport.PeerBusy}
		var fail transport.PeerError
		b := s.start(Limits{}, &service{ask: func(context.Context, transport.PeerAsk) (transport.PeerReply, error) {
			e := fail
			return transport.PeerReply{}, &e
		},
			tell:   func(context.Context, transport.PeerAsk) error { e := fail; return fmt.Errorf("wrapped: %w", &e) },
			status: func(context.Context) (transport.PeerStatus, error) { e := fail; return transport.PeerStatus{}, &e }})
		a := s.start(Limits{}, nil)
		for i, code := range codes {
			fail = transport.PeerError{Code: code, Text: "because of " + string(code), Unknown: i%2 == 0}
			if i%3 == 0 {
				fail.Owner, fail.Most = transport.PeerOwner{ID: "o", Address: "h:1", Generation: 7}, 3*time.Second
			}
			want := fail
			_, err := a.Ask(s.context(), b.Address(), question("1"))
			_, statusErr := a.Status(s.context(), b.Address())
			for _, err := range []error{err, statusErr, a.Tell(s.context(), b.Address(), question("1"))} {
				e := s.fails(err, code, want.Unknown)
				got := *e
				got.Err = nil
				s.same("error", want, got)
			}
		}
	}},
	{"Of an error that is none of a peer it is not known what was done", func(s *suite) {
		b := s.start(Limits{}, &service{ask: func(context.Context, transport.PeerAsk) (transport.PeerReply, error) {
			return transport.PeerReply{}, errors.New("out of ink")
		}})
		_, err := s.start(Limits{}, nil).Ask(s.context(), b.Address(), question("1"))
		if e := s.fails(err, transport.PeerFailed, true); !strings.Contains(e.Text, "out of ink") {
			s.Errorf("it says %q", e.Text)
		}
	}},
	{"A panic of the service is one failed call", func(s *suite) {
		first := true
		b := s.start(Limits{}, &service{ask: func(context.Context, transport.PeerAsk) (transport.PeerReply, error) {
			if first {
				first = false
				panic("of the service")
			}
			return transport.PeerReply{Type: "fine"}, nil
		}})
		a := s.start(Limits{MaxInside: 1}, nil)
		_, err := a.Ask(s.context(), b.Address(), question("1"))
		if e := s.fails(err, transport.PeerFailed, true); !strings.Contains(e.Text, "of the service") {
			s.Errorf("it says %q", e.Text)
		}
		r, err := a.Ask(s.context(), b.Address(), question("1"))
		s.same("error", nil, err)
		s.same("reply", "fine", r.Type)
	}},
	{"Another application is denied, and told both names", func(s *suite) {
		b := s.start(Limits{}, &service{wake: func([]event.Unit) { s.Error("woken by a stranger") }})
		for _, self := range []transport.PeerIdentity{{Application: "bakery", StoreID: "store-1"}, {Application: "shop", StoreID: "store-2"}} {
			a := s.startAs(self, Limits{}, nil)
			_, err := a.Ask(s.context(), b.Address(), question("1"))
			e := s.fails(err, transport.PeerDenied, false)
			for _, said := range []string{"shop", "store-1", self.Application, self.StoreID} {
				if !strings.Contains(e.Text, said) {
					s.Errorf("%q does not say %q", e.Text, said)
				}
			}
			s.fails(a.Wake(s.context(), b.Address(), nil), transport.PeerDenied, false)
			_, err = a.Status(s.context(), b.Address())
			s.fails(err, transport.PeerDenied, false)
		}
	}},
	{"What an identity leaves open is not compared", func(s *suite) {
		b := s.start(Limits{}, &service{status: func(context.Context) (transport.PeerStatus, error) { return transport.PeerStatus{Ready: "it is"}, nil }})
		for _, self := range []transport.PeerIdentity{{}, {Application: "shop"}, {StoreID: "store-1"}} {
			got, err := s.startAs(self, Limits{}, nil).Status(s.context(), b.Address())
			s.same("error", nil, err)
			s.same("ready", "it is", got.Ready)
		}
	}},
	{"Where nobody is, nothing was done", func(s *suite) {
		b := s.start(Limits{}, &service{})
		nowhere := b.Address()
		s.same("stop", nil, b.Stop(s.context()))
		a := s.start(Limits{}, nil)
		_, err := a.Ask(s.context(), nowhere, question("1"))
		s.fails(err, transport.PeerUnavailable, false)
		s.fails(a.Tell(s.context(), nowhere, question("1")), transport.PeerUnavailable, false)
	}},
	{"An address that is none is told so", func(s *suite) {
		_, err := s.start(Limits{}, nil).Ask(s.context(), "nonsense", question("1"))
		s.fails(err, transport.PeerBad, false)
	}},
	{"An ask for no entity is bad, and does not reach the service", func(s *suite) {
		b := s.start(Limits{}, &service{})
		_, err := s.start(Limits{}, nil).Ask(s.context(), b.Address(), transport.PeerAsk{Type: "order.place"})
		s.fails(err, transport.PeerBad, false)
	}},
}
