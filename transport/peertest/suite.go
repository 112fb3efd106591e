package peertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// patience is how long a test waits for what must happen, on a busy machine.
const patience = 20 * time.Second

// Limits of a node service under test; 0 = its default.
type Limits struct {
	MaxMessage int
	MaxInside  int
}

// Open gives a node service, not started, that reaches the others that it gave in the same test. The suite stops it.
type Open func(t *testing.T, l Limits) transport.Peers

// Run runs the suite. open is called once for each check.
func Run(t *testing.T, open func(t *testing.T) Open) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(&suite{T: t, open: open(t)})
		})
	}
}

// RunVirtual is Run with virtual time.
func RunVirtual(t *testing.T, open func(t *testing.T) Open) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { c.run(&suite{T: t, open: open(t)}) })
		})
	}
}

type check struct {
	name string
	run  func(s *suite)
}

func checks() []check {
	var all []check
	for _, some := range [][]check{calls, failures, limits, ends} {
		all = append(all, some...)
	}
	return all
}

type suite struct {
	*testing.T
	open Open
}

// service answers as a test says; what it does not say is refused.
type service struct {
	ask    func(ctx context.Context, q transport.PeerAsk) (transport.PeerReply, error)
	tell   func(ctx context.Context, q transport.PeerAsk) error
	wake   func(units []event.Unit)
	probe  func(probes []transport.PeerProbe)
	status func(ctx context.Context) (transport.PeerStatus, error)
}

var errUnasked = &transport.PeerError{Code: transport.PeerFailed, Text: "nobody expected this call"}

func (s *service) Ask(ctx context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	if s.ask == nil {
		return transport.PeerReply{}, errUnasked
	}
	return s.ask(ctx, q)
}

func (s *service) Tell(ctx context.Context, q transport.PeerAsk) error {
	if s.tell == nil {
		return errUnasked
	}
	return s.tell(ctx, q)
}

func (s *service) Wake(units []event.Unit) { s.wake(units) }

func (s *service) Probe(probes []transport.PeerProbe) { s.probe(probes) }

func (s *service) Status(ctx context.Context) (transport.PeerStatus, error) {
	if s.status == nil {
		return transport.PeerStatus{}, errUnasked
	}
	return s.status(ctx)
}

var shop = transport.PeerIdentity{Application: "shop", StoreID: "store-1"}

// start gives a node of the shop that runs until the test ends; svc nil: it only calls.
func (s *suite) start(l Limits, svc *service) transport.Peers {
	s.Helper()
	return s.startAs(shop, l, svc)
}

func (s *suite) startAs(self transport.PeerIdentity, l Limits, svc *service) transport.Peers {
	s.Helper()
	p := s.open(s.T, l)
	s.begin(p, self, svc)
	return p
}

func (s *suite) begin(p transport.Peers, self transport.PeerIdentity, svc *service) {
	s.Helper()
	ctx := s.context()
	var as transport.PeerService
	if svc != nil {
		as = svc
	}
	if err := p.Start(ctx, self, as); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			s.Errorf("stop: %v", err)
		}
	})
}

// context ends with the test, or after patience: nothing in the suite takes so long.
func (s *suite) context() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

func (s *suite) same(what string, want, got any) {
	s.Helper()
	if d := cmp.Diff(want, got); d != "" {
		s.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// fails checks that err is a peer's error of that code, and whether anything may have been done. It gives it back.
func (s *suite) fails(err error, code transport.PeerCode, unknown bool) *transport.PeerError {
	s.Helper()
	var e *transport.PeerError
	if !errors.As(err, &e) || !errors.Is(err, transport.ErrPeer) {
		s.Fatalf("got %v, want the error %q", err, code)
	}
	if e.Code != code || e.Unknown != unknown {
		s.Errorf("got the error %q (unknown: %v, text: %s), want %q (unknown: %v)", e.Code, e.Unknown, e.Text, code, unknown)
	}
	if e.Text == "" {
		s.Errorf("the error %q says nothing", e.Code)
	}
	return e
}

// question asks for an entity of that id.
func question(id string) transport.PeerAsk {
	return transport.PeerAsk{To: event.Unit{Name: "order", Key: id}, Type: "order.place", Version: 1, Encoding: event.JSON, Data: []byte(`{"id":"` + id + `"}`)}
}

// holding is a service whose asks wait until they are let go; each says so when it is inside.
type holding struct {
	service
	inside chan string
	let    chan struct{}
	once   sync.Once
}

func (s *suite) holding() *holding {
	h := &holding{inside: make(chan string, 1000), let: make(chan struct{})}
	h.ask = func(ctx context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
		h.inside <- q.To.Key
		select {
		case <-h.let:
			return transport.PeerReply{Type: "done", Version: 1, Encoding: event.JSON, Data: []byte(q.To.Key)}, nil
		case <-ctx.Done():
			h.inside <- "over"
			return transport.PeerReply{}, ctx.Err()
		}
	}
	s.Cleanup(h.letGo)
	return h
}

func (h *holding) letGo() { h.once.Do(func() { close(h.let) }) }

func (s *suite) next(from <-chan string) string {
	s.Helper()
	select {
	case v := <-from:
		return v
	case <-s.context().Done():
		s.Fatal("nothing came")
		return ""
	}
}

// answer is what came of an ask made in a goroutine.
type answer struct {
	reply transport.PeerReply
	err   error
}

func (s *suite) asking(ctx context.Context, p transport.Peers, address string, q transport.PeerAsk) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		reply, err := p.Ask(ctx, address, q)
		out <- answer{reply, err}
	}()
	return out
}

func (s *suite) answered(from <-chan answer) answer {
	s.Helper()
	select {
	case a := <-from:
		return a
	case <-s.context().Done():
		s.Fatal("no answer came")
		return answer{}
	}
}
