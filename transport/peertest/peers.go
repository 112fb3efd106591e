package peertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// Peers is a node service on a [Network].
type Peers struct {
	net    *Network
	name   string
	limits Limits
	mu     struct {
		sync.Mutex
		run *run
	}
}

// run is what there is between a Start and the end of its Stop.
type run struct {
	self    transport.PeerIdentity
	service transport.PeerService
	over    context.Context // ends when Stop gives up waiting
	end     context.CancelFunc
	mu      struct {
		sync.Mutex
		calls  int // inside, of both directions
		asks   int // inside, from others
		shut   bool
		closed bool
	}
	empty chan struct{} // closed when it is shut and no calls are inside
	work  sync.WaitGroup
}

func newPeers(n *Network, name string, l Limits) *Peers {
	if l.MaxMessage == 0 {
		l.MaxMessage = 4 << 20
	}
	if l.MaxInside == 0 {
		l.MaxInside = 1024
	}
	return &Peers{net: n, name: name, limits: l}
}

func (p *Peers) address() string { return p.name + ":7000" }

// Start, see [transport.Peers].
func (p *Peers) Start(ctx context.Context, self transport.PeerIdentity, s transport.PeerService) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.run != nil {
		return lifecycle.ErrStarted
	}
	r := &run{self: self, service: s, empty: make(chan struct{})}
	r.over, r.end = context.WithCancel(context.WithoutCancel(ctx))
	if s != nil {
		taken := false
		p.net.set(func() {
			if _, taken = p.net.mu.nodes[p.address()]; !taken {
				p.net.mu.nodes[p.address()] = p
			}
		})
		if taken {
			r.end()
			return fmt.Errorf("node service: another one listens on %s", p.address())
		}
	}
	p.mu.run = r
	return nil
}

// Address, see [transport.Peers].
func (p *Peers) Address() string {
	if r := p.running(); r != nil && r.service != nil {
		return p.address()
	}
	return ""
}

func (p *Peers) running() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.run
}

// Stop, see [transport.Peers].
func (p *Peers) Stop(ctx context.Context) error {
	r := p.running()
	if r == nil {
		return nil
	}
	r.shut()
	var err error
	select {
	case <-r.empty:
	default:
		select {
		case <-r.empty:
		case <-ctx.Done():
			err = fmt.Errorf("node service: calls were cut off: %w", context.Cause(ctx))
		}
	}
	r.end()
	r.work.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.run == r {
		p.mu.run = nil
		p.net.set(func() {
			if p.net.mu.nodes[p.address()] == p {
				delete(p.net.mu.nodes, p.address())
			}
		})
	}
	return err
}

func (r *run) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.shut = true
	r.mayClose()
}

// mayClose is called with the lock held.
func (r *run) mayClose() {
	if r.mu.shut && r.mu.calls == 0 && !r.mu.closed {
		r.mu.closed = true
		close(r.empty)
	}
}

func (r *run) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.shut {
		return false
	}
	r.mu.calls++
	r.work.Add(1)
	return true
}

func (r *run) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.calls--
	r.work.Done()
	r.mayClose()
}

// Ask, see [transport.Peers].
func (p *Peers) Ask(ctx context.Context, address string, q transport.PeerAsk) (transport.PeerReply, error) {
	return call(ctx, p, address, len(q.Data), true, func(ctx context.Context, s transport.PeerService) (transport.PeerReply, int, error) {
		if q.To.Name == "" || q.To.Key == "" {
			return transport.PeerReply{}, 0, &transport.PeerError{Code: transport.PeerBad, Text: "it does not say for which entity it is"}
		}
		reply, err := s.Ask(ctx, clone(q))
		reply.Data = bytes.Clone(reply.Data)
		return reply, len(reply.Data), err
	})
}

// Tell, see [transport.Peers].
func (p *Peers) Tell(ctx context.Context, address string, q transport.PeerAsk) error {
	_, err := call(ctx, p, address, len(q.Data), true, func(ctx context.Context, s transport.PeerService) (struct{}, int, error) {
		return struct{}{}, 0, s.Tell(ctx, clone(q))
	})
	return err
}

// Wake, see [transport.Peers].
func (p *Peers) Wake(ctx context.Context, address string, units []event.Unit) error {
	_, err := call(ctx, p, address, 0, false, func(_ context.Context, s transport.PeerService) (struct{}, int, error) {
		s.Wake(slices.Clone(units))
		return struct{}{}, 0, nil
	})
	return err
}

// Probe, see [transport.Peers].
func (p *Peers) Probe(ctx context.Context, address string, probes []transport.PeerProbe) error {
	_, err := call(ctx, p, address, 0, false, func(_ context.Context, s transport.PeerService) (struct{}, int, error) {
		s.Probe(slices.Clone(probes))
		return struct{}{}, 0, nil
	})
	return err
}

// Status, see [transport.Peers].
func (p *Peers) Status(ctx context.Context, address string) (transport.PeerStatus, error) {
	return call(ctx, p, address, 0, false, func(ctx context.Context, s transport.PeerService) (transport.PeerStatus, int, error) {
		status, err := s.Status(ctx)
		return status, 0, err
	})
}

func clone(q transport.PeerAsk) transport.PeerAsk {
	q.Data, q.Waiting, q.Where = bytes.Clone(q.Data), slices.Clone(q.Waiting), nil
	return q
}

// errWay is what is wrong where nobody is reached.
var errWay = errors.New("there is no way")

func failure(code transport.PeerCode, unknown bool, err error, format string, args ...any) *transport.PeerError {
	return &transport.PeerError{Code: code, Unknown: unknown, Err: err, Text: fmt.Sprintf(format, args...)}
}

// came is what comes back of a call.
type came[T any] struct {
	value T
	size  int
	err   error
}

func call[T any](ctx context.Context, p *Peers, address string, size int, counted bool, do func(ctx context.Context, s transport.PeerService) (T, int, error)) (none T, _ error) {
	if ctx.Err() != nil {
		return none, failure(transport.PeerEnded, false, context.Cause(ctx), "the time of the call was over before it was made")
	}
	r := p.running()
	if r == nil || !r.enter() {
		return none, failure(transport.PeerStopping, false, nil, "the node service of this side does not run")
	}
	defer r.leave()
	if size > p.limits.MaxMessage {
		return none, failure(transport.PeerTooLarge, false, nil, "the question has %d bytes", size)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return none, failure(transport.PeerBad, false, err, "the address %s is not host:port", address)
	}
	to := p.net.at(address)
	if to != nil && p.net.cut(p, to) && !rest(ctx, ConnectTime) {
		return none, failure(transport.PeerEnded, false, context.Cause(ctx), "node %s was not reached in the time of the call", address)
	}
	if to == nil || p.net.cut(p, to) {
		return none, failure(transport.PeerUnavailable, false, errWay, "node %s cannot be reached", address)
	}
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first, lost := make(chan came[T], 2), make(chan struct{}, 2)
	questions := 1
	if p.net.doubles() {
		questions = 2
	}
	for range questions {
		go func() {
			if !p.net.travel(own, p, to) {
				lost <- struct{}{}
				return
			}
			c := arrive(own, to, r, size, counted, do)
			if !p.net.travel(own, to, p) {
				lost <- struct{}{}
				return
			}
			first <- c
		}()
	}
	broken := make(chan struct{})
	for gone := 0; ; {
		select {
		case c := <-first:
			if c.err == nil && c.size > p.limits.MaxMessage {
				return none, failure(transport.PeerTooLarge, true, nil, "the answer has %d bytes", c.size)
			}
			return c.value, c.err
		case <-lost:
			if gone++; gone == questions {
				go func() {
					if rest(own, Silence) {
						close(broken)
					}
				}()
			}
		case <-broken:
			return none, failure(transport.PeerUnavailable, true, nil, "the link to node %s broke", address)
		case <-ctx.Done():
			return none, failure(transport.PeerEnded, true, context.Cause(ctx), "there is no answer in the time of the call")
		case <-r.over.Done():
			return none, failure(transport.PeerStopping, true, nil, "this side stops")
		}
	}
}

// arrive has the other node answer.
func arrive[T any](ctx context.Context, to *Peers, caller *run, size int, counted bool, do func(ctx context.Context, s transport.PeerService) (T, int, error)) (c came[T]) {
	r := to.running()
	if r == nil {
		return came[T]{err: failure(transport.PeerUnavailable, false, errWay, "node %s cannot be reached", to.address())}
	}
	if why := stranger(caller.self, r.self); why != "" {
		return came[T]{err: failure(transport.PeerDenied, false, nil, "node %s %s", to.address(), why)}
	}
	if size > to.limits.MaxMessage {
		return came[T]{err: failure(transport.PeerTooLarge, false, nil, "the question has %d bytes", size)}
	}
	if !r.enter() {
		return came[T]{err: failure(transport.PeerStopping, false, nil, "node %s stops", to.address())}
	}
	defer r.leave()
	if counted {
		if !r.room(to.limits.MaxInside) {
			return came[T]{err: failure(transport.PeerBusy, false, nil, "node %s has as many asks inside as it takes", to.address())}
		}
		defer r.left()
	}
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.over, cancel)()
	defer func() {
		if v := recover(); v != nil {
			c = came[T]{err: failure(transport.PeerFailed, true, nil, "it panicked: %v", v)}
		}
	}()
	value, n, err := do(own, r.service)
	if r.over.Err() != nil {
		return came[T]{err: failure(transport.PeerUnavailable, true, nil, "the link to node %s broke", to.address())}
	}
	if err != nil {
		return came[T]{err: carried(err)}
	}
	if n > to.limits.MaxMessage {
		return came[T]{err: failure(transport.PeerTooLarge, true, nil, "the answer has %d bytes", n)}
	}
	return came[T]{value: value, size: n}
}

func (r *run) room(most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.asks >= most {
		return false
	}
	r.mu.asks++
	return true
}

func (r *run) left() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.asks--
}

func stranger(caller, self transport.PeerIdentity) string {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	if !differ(caller.Application, self.Application) && !differ(caller.StoreID, self.StoreID) {
		return ""
	}
	return fmt.Sprintf("belongs to %q (store %s), the caller to %q (store %s)", self.Application, self.StoreID, caller.Application, caller.StoreID)
}

// carried is what of a service's error goes over a wire.
func carried(err error) *transport.PeerError {
	var e *transport.PeerError
	switch {
	case errors.As(err, &e):
		out := *e
		out.Err = nil
		return &out
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return failure(transport.PeerEnded, true, nil, "%v", err)
	}
	return failure(transport.PeerFailed, true, nil, "%v", err)
}
