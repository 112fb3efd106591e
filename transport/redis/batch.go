package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/keyhold/keyhold/partitions"
)

// lines are where units of this node meet that ask one server for the same kind of thing.
type lines struct {
	acquire, read, release line
}

// line is where requests wait while others of their kind are under way. The first to come goes at once.
type line struct {
	mu struct {
		sync.Mutex
		waiting []*request
		flying  int
	}
	// packing is held from when a request is said to be sent until all is read that it refers to: tenures and positions are those of whoever asked, who changes them.
	packing sync.Mutex
}

// kind is what a line is for.
type kind struct {
	name   string
	flying int // calls under way at once
	most   int // requests in one call
	script *script
	pack   func(p *port, c *call, requests []*request)
	// unpack gives each request its answer.
	unpack func(p *port, ctx context.Context, c *call, requests []*request)
}

// states of a request.
const (
	requestWaiting = iota
	requestSent
	requestAbandoned
)

// request is what one unit asks, and the answer. The answer belongs to the line until done is closed.
type request struct {
	tenure *tenure
	asked  any // acquiring, reading or releasing

	state  atomic.Int32
	done   chan struct{}
	answer []any // of the unit: its kind, then what the script says
	err    error
}

// ask has a request carried out together with those of other units. When ctx ends first, the request may still be carried out: the error is of kind [partitions.ErrUnknown]
// then, unless it was not sent yet, and never will be.
func (p *port) ask(ctx context.Context, l *line, k *kind, t *tenure, asked any) ([]any, error) {
	if ctx.Err() != nil {
		return nil, notSent(ctx)
	}
	r := &request{tenure: t, asked: asked, done: make(chan struct{})}
	l.mu.Lock()
	l.mu.waiting = append(l.mu.waiting, r)
	start := l.mu.flying < k.flying
	if start {
		l.mu.flying++
	}
	l.mu.Unlock()
	if start && !p.t.calls.Go(func(ctx context.Context) { p.fly(ctx, l, k) }) {
		p.ground(l, k)
	}
	select {
	case <-r.done:
		return r.answer, r.err
	case <-ctx.Done():
		if r.state.CompareAndSwap(requestWaiting, requestAbandoned) {
			return nil, notSent(ctx)
		}
		l.packed()
		return nil, fmt.Errorf("%w: %w", partitions.ErrUnknown, context.Cause(ctx))
	}
}

// fly makes calls until nobody waits.
func (p *port) fly(ctx context.Context, l *line, k *kind) {
	for {
		l.packing.Lock()
		requests := l.board(k.most)
		if len(requests) == 0 {
			l.packing.Unlock()
			return
		}
		packed := p.pack(k, requests)
		l.packing.Unlock()
		p.call(ctx, k, packed)
	}
}

// packed returns when nothing is read any more of a request that was sent.
func (l *line) packed() {
	l.packing.Lock()
	defer l.packing.Unlock()
}

// ground fails whoever waits: the transport is stopped.
func (p *port) ground(l *line, k *kind) {
	for {
		requests := l.board(k.most)
		if len(requests) == 0 {
			return
		}
		for _, r := range requests {
			r.fail(fmt.Errorf("%w: %w", errNotSent, errNotConnected))
		}
	}
}

// board takes up to most requests that wait. When there is none, whoever asked has landed.
func (l *line) board(most int) []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	var on []*request
	taken := 0
	for _, r := range l.mu.waiting {
		if len(on) == most {
			break
		}
		taken++
		if r.state.CompareAndSwap(requestWaiting, requestSent) {
			on = append(on, r)
		}
	}
	rest := copy(l.mu.waiting, l.mu.waiting[taken:])
	clear(l.mu.waiting[rest:])
	l.mu.waiting = l.mu.waiting[:rest]
	if len(on) == 0 {
		l.mu.flying--
	}
	return on
}

// packed are requests that go to one server, and the call that asks for them.
type packed struct {
	requests []*request
	call     *call
}

// pack makes calls of requests: one, or, in a Cluster, one for each slot.
func (p *port) pack(k *kind, requests []*request) []packed {
	groups := [][]*request{requests}
	if p.c.servers.cluster {
		groups = bySlot(requests)
	}
	all := make([]packed, len(groups))
	for i, group := range groups {
		all[i] = packed{group, &call{script: k.script}}
		k.pack(p, all[i].call, group)
	}
	return all
}

// call carries them out.
func (p *port) call(ctx context.Context, k *kind, all []packed) {
	ctx, cancel := context.WithTimeout(ctx, p.t.cfg.Timeout)
	defer cancel()
	calls := make([]*call, len(all))
	for i := range all {
		calls[i] = all[i].call
	}
	p.c.servers.runAll(ctx, onWork, calls)
	for _, one := range all {
		if err := one.call.err; err != nil {
			for _, r := range one.requests {
				r.fail(outcome(err))
			}
			continue
		}
		k.unpack(p, ctx, one.call, one.requests)
	}
}

func bySlot(requests []*request) [][]*request {
	places := make(map[uint16]int)
	var groups [][]*request
	for _, r := range requests {
		slot := slotOf(r.tenure.lease)
		at, ok := places[slot]
		if !ok {
			at = len(groups)
			places[slot] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], r)
	}
	return groups
}

func (r *request) fail(err error) {
	r.err = err
	close(r.done)
}

func (r *request) succeed(answer []any) {
	r.answer = answer
	close(r.done)
}

// unpackEach gives each request its element of the answer. What the script reports of a unit alone is that unit's error: the unit may have been dealt with in part.
func unpackEach(p *port, _ context.Context, c *call, requests []*request) {
	answers, ok := list(c.reply, len(requests))
	for i, r := range requests {
		if !ok {
			r.fail(oddReply(c.script, c.reply))
			continue
		}
		r.take(c.script, answers[i])
	}
}

// take takes the answer of one unit.
func (r *request) take(s *script, reply any) {
	answer, ok := list(reply, 1)
	status, is := "", false
	if ok {
		status, is = answer[0].(string)
	}
	switch {
	case !is:
		r.fail(oddReply(s, reply))
	case status == "error" && len(answer) > 1:
		r.fail(fmt.Errorf("script %s: unit %s: %v", s.name, r.tenure.unit, answer[1]))
	default:
		r.succeed(answer)
	}
}
