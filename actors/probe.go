package actors

import (
	"context"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// Of asks that units of several nodes make at the same moment each node sees a part, and none the circle that they close. It is found by edge chasing, after Chandy, Misra and Haas: an ask that has
// waited for a while in the mailbox of a unit, which waits for an answer itself, sends a probe along each ask to another node that the unit waits for, directly or through others of its node.
// Who gets a probe sends it on in the same way, as long as the ask that it came along is there. Where it comes back to the ask that it began at, that one waits for itself, and is refused: it has
// not begun, so nothing was done of it.
//
// In each circle there is an ask that has not begun: of those that have, each was made after the one before it, and the one that closes the circle knows all of them ([transport.PeerAsk].Waiting).
// A probe does not pass an ask that has not begun and whose id is greater than that of its own, so of each circle one ask is refused, the one with the greatest id.

const (
	// probeEvery is the time between two looks for asks that are to send probes. None sends any before it has waited for so long.
	probeEvery = 100 * time.Millisecond
	// mostRest is how many looks an ask lets pass at most between its probes: a circle may close at any time, and probes may be lost.
	mostRest = 8
	// mostProbeHops bounds the way of a probe that does not come back, round a circle that its own ask is no part of. A circle through more nodes is not found.
	mostProbeHops = 64
)

// passage is a probe of an ask that went on along another one.
type passage struct{ origin, along transport.PeerAskID }

// dispatch is a probe on its way.
type dispatch struct {
	to    string // address; "" = this process
	probe transport.PeerProbe
}

// trace is one look at what a unit waits for, on behalf of an ask that waits for that unit.
type trace struct {
	origin transport.PeerAskID
	seen   map[event.Unit]bool
	far    []*wait // that were come upon
	closed *wait   // the ask itself, where it was come upon
}

func (w *waits) idLocked() transport.PeerAskID {
	w.mu.numbers++
	return transport.PeerAskID{Node: w.node, Number: w.mu.numbers}
}

// lookLocked has sweep called, if it is any use: without an ask of another node there is no circle that is not seen at once.
func (w *waits) lookLocked() {
	if w.mu.far > 0 && !w.mu.looking && w.mu.look != nil {
		w.mu.looking = true
		w.mu.look()
	}
}

// restart has look called from now on; calls of the one before are lost.
func (w *waits) restart(look func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.look, w.mu.looking = look, false
	w.lookLocked()
}

// sweep gives the probes that are to be sent now, and the asks that turn out to be part of a circle: they are the caller's to refuse.
func (w *waits) sweep() (out []dispatch, refused []*ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.sweeps++
	w.mu.passed, w.mu.looking = nil, false
	w.lookLocked()
	for _, all := range w.mu.by {
		for _, origin := range all {
			if !origin.isUnbegun() || w.mu.sweeps < origin.due {
				continue
			}
			origin.due, origin.rest = w.mu.sweeps+origin.rest, min(2*origin.rest, mostRest)
			if !w.waitsLocked(origin.on) {
				continue
			}
			t := w.traceLocked(origin.on, w.nameLocked(origin))
			refused = append(refused, t.refuses()...)
			out = w.sendLocked(out, &t, 1)
		}
	}
	return out, refused
}

// probed takes a probe that came in, and gives where it goes on to, and the ask that it found to be part of a circle.
func (w *waits) probed(p transport.PeerProbe) (out []dispatch, refused []*ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	along := w.mu.served[p.Along]
	if along == nil || p.Origin == (transport.PeerAskID{}) || p.Hops < 1 { // answered meanwhile, or no probe
		return nil, nil
	}
	if along.isUnbegun() {
		switch {
		case p.Origin == p.Along && !w.waitsLocked(along.on):
			return nil, nil
		case p.Origin == p.Along:
			return nil, (&trace{closed: along}).refuses()
		case p.Along.Compare(p.Origin) > 0:
			return nil, nil
		}
	}
	t := w.traceLocked(along.on, p.Origin)
	if p.Hops < mostProbeHops {
		out = w.sendLocked(nil, &t, p.Hops+1)
	}
	return out, t.refuses()
}

// isUnbegun reports whether it waits for an ask of which nothing was done.
func (w *wait) isUnbegun() bool {
	return w.ask != nil && !w.through && w.ask.state.Load() == askWaiting && !w.over()
}

// waitsLocked reports whether a unit of this node waits for an answer.
func (w *waits) waitsLocked(u event.Unit) bool {
	for _, next := range w.mu.by[u] {
		if next.isEdge() {
			return true
		}
	}
	return false
}

// isEdge reports whether it is a unit's own wait. Along one through others a probe would get past the ask of those, which may not have begun.
func (w *wait) isEdge() bool { return !w.through && !w.over() }

// nameLocked gives an ask an id.
func (w *waits) nameLocked(of *wait) transport.PeerAskID {
	if of.id == (transport.PeerAskID{}) {
		of.id = w.idLocked()
	}
	return of.id
}

func (w *waits) traceLocked(from event.Unit, origin transport.PeerAskID) trace {
	t := trace{origin: origin, seen: map[event.Unit]bool{}}
	w.onLocked(&t, from)
	return t
}

func (w *waits) onLocked(t *trace, from event.Unit) {
	if t.seen[from] {
		return
	}
	t.seen[from] = true
	for _, next := range w.mu.by[from] {
		switch {
		case !next.isEdge():
		case next.far:
			t.far = append(t.far, next)
		case next.id == t.origin:
			t.closed = next
		case next.isUnbegun() && w.nameLocked(next).Compare(t.origin) > 0:
		default:
			w.onLocked(t, next.on)
		}
	}
}

// sendLocked has the probe of a trace go on along each ask that it came upon, once between two sweeps: by how many ways it came does not matter.
func (w *waits) sendLocked(out []dispatch, t *trace, hops int) []dispatch {
	for _, far := range t.far {
		step := passage{t.origin, far.id}
		if w.mu.passed[step] {
			continue
		}
		if w.mu.passed == nil {
			w.mu.passed = map[passage]bool{}
		}
		w.mu.passed[step] = true
		out = append(out, dispatch{far.at, transport.PeerProbe{Origin: t.origin, Along: far.id, Hops: hops}})
	}
	return out
}

// refuses claims the ask that the trace came back to, so that nobody else answers it.
func (t *trace) refuses() []*ask {
	if t.closed == nil || !t.closed.ask.state.CompareAndSwap(askWaiting, askAnswered) {
		return nil
	}
	return []*ask{t.closed.ask}
}

// probing sends probes.
type probing struct {
	group lifecycle.Group // one goroutine for each address at which there is something to be sent
	mu    struct {
		sync.Mutex
		unsent map[string][]transport.PeerProbe // by address; the entry is there as long as its goroutine
	}
}

const (
	mostUnsent   = 8192            // probes to one node; what is more is left out, and comes again
	probesAtOnce = 1024            // in one call
	probeTimeout = 2 * time.Second // of one call
)

// probeSoon has the next look made.
func (r *running) probeSoon() { r.later(probeEvery, r.probe) }

// probe looks for asks that are to send probes. It does not block.
func (r *running) probe() { r.chase(r.rt.waits.sweep()) }

// ServeProbe takes probes of other nodes. It never blocks.
func (r *Runtime) ServeProbe(probes []transport.PeerProbe) {
	run := r.chaser.Load()
	if run == nil {
		return
	}
	for _, p := range probes {
		run.chase(r.waits.probed(p))
	}
}

// chase sends probes on, and refuses what is part of a circle.
func (r *running) chase(out []dispatch, refused []*ask) {
	for len(out) > 0 || len(refused) > 0 {
		for _, k := range refused {
			k.forgetWait()
			k.answer <- answer{err: &AskError{Err: ErrAskCycle}, inside: true} // it is still in the mailbox
		}
		var here []dispatch
		for _, d := range out {
			if d.to == "" {
				here = append(here, d)
			} else {
				r.send(d)
			}
		}
		out, refused = nil, nil
		for _, d := range here {
			o, k := r.rt.waits.probed(d.probe)
			out, refused = append(out, o...), append(refused, k...)
		}
	}
}

func (r *running) send(d dispatch) {
	p := &r.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	unsent, busy := p.mu.unsent[d.to]
	if len(unsent) >= mostUnsent {
		return
	}
	if p.mu.unsent == nil {
		p.mu.unsent = map[string][]transport.PeerProbe{}
	}
	if busy || p.group.Go(func(ctx context.Context) { r.sendAll(ctx, d.to) }) {
		p.mu.unsent[d.to] = append(unsent, d.probe)
	}
}

// sendAll sends what there is to be sent to one node, until there is no more.
func (r *running) sendAll(ctx context.Context, address string) {
	for {
		some := r.probes.take(address)
		if len(some) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		err := r.rt.cfg.Elsewhere.Probe(ctx, address, some)
		cancel()
		if err != nil {
			r.rt.cfg.Logger.Debug("look for asks that wait for one another: will try again", "address", address, "error", err)
		}
	}
}

// take gives the next probes to one node; none = whoever sends them is through.
func (p *probing) take(address string) []transport.PeerProbe {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.mu.unsent[address]
	if len(all) == 0 {
		delete(p.mu.unsent, address)
		return nil
	}
	some := all[:min(len(all), probesAtOnce)]
	p.mu.unsent[address] = all[len(some):]
	return some
}
