package actors

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// Of asks that units of several nodes make at the same moment each node sees a part, and none the circle that they close. It is found by edge chasing, after Chandy, Misra and Haas: an ask that has
// waited for a while in the mailbox of a unit, which waits for an answer itself, sends a probe along each ask to another node that the unit waits for, directly or through others of its node.
// Who gets a probe sends it on in the same way, as long as the ask that it came along is there. Where it comes back to the ask that it began at, that one may wait for itself.
//
// It may not: an ask can be given up, and what it led to goes on. Then its node knows, and the one where it was asked does not yet; or the probe was past it. So the probe goes the same way once more,
// and each node has to confirm what it asks, and what it is asked. An id is given once, and what is over does not come back: what is there both times was there when the first time ended,
// all of it at one moment, and that was a circle. Only then the ask is refused: it has not begun, so nothing was done of it.
//
// In each circle there is an ask that has not begun: of those that have, each was made after the one before it. A probe does not pass an ask that has not begun and whose id is greater than that of
// its own, so of each circle one ask is refused, the one with the greatest id.

const (
	// probeEvery is the time between two looks for asks that are to send probes. None sends any before it has waited for so long, unless a circle is suspected when it is made.
	probeEvery = 100 * time.Millisecond
	// mostRest is how many looks an ask lets pass at most between its probes: a circle may close at any time, and probes may be lost.
	mostRest = 8
	// mostProbeHops is how many nodes a probe comes to at most, one counted each time. A circle through more is not found.
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

// sweep gives the probes that are to be sent now.
func (w *waits) sweep() (out []dispatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.sweeps++
	w.mu.passed, w.mu.looking = nil, false
	w.lookLocked()
	for _, all := range w.mu.by {
		for _, origin := range all {
			if origin.isUnbegun() && w.mu.sweeps >= origin.due {
				origin.due, origin.rest = w.mu.sweeps+origin.rest, min(2*origin.rest, mostRest)
				out = append(out, w.beginLocked(origin)...)
			}
		}
	}
	return out
}

// beginLocked gives the first probes of an ask.
func (w *waits) beginLocked(origin *wait) []dispatch {
	if !origin.isUnbegun() || !slices.ContainsFunc(w.mu.by[origin.on], (*wait).isEdge) { // most are in the mailbox of a unit that is slow itself
		return nil
	}
	t := w.traceLocked(origin.on, origin.id)
	return w.sendLocked(&t, nil)
}

// probed takes a probe that came in, and gives where it goes on to, and the ask that it found to be part of a circle: it is the caller's to refuse.
func (w *waits) probed(p transport.PeerProbe) (out []dispatch, refused *ask) {
	if p.At < 0 || p.At >= len(p.Way) || len(p.Way) > mostProbeHops+1 || !p.Again && p.At < len(p.Way)-1 { // no probe
		return nil, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	along := w.mu.served[p.Way[p.At].Ask]
	switch {
	case along == nil: // answered or given up meanwhile
		return nil, nil
	case p.Again:
		return w.againLocked(p, along, p.At+1)
	case along.id == p.Origin:
		p.Again = true
		return w.againLocked(p, along, 0)
	case along.isUnbegun() && along.id.Compare(p.Origin) > 0:
		return nil, nil
	}
	t := w.traceLocked(along.on, p.Origin)
	if t.closed != nil {
		p.Way, p.Again = w.stepLocked(p.Way, p.Origin), true
		return w.againLocked(p, t.closed, 0)
	}
	return w.sendLocked(&t, p.Way), nil
}

// isUnbegun reports whether it waits for an ask of which nothing was done, and that a probe can come back to.
func (w *wait) isUnbegun() bool {
	return w.ask != nil && !w.through && w.id != (transport.PeerAskID{}) && w.ask.state.Load() == askWaiting && !w.over()
}

// isEdge reports whether a unit of this node waits. What one of another node waits for, that one says, to which a probe comes along it.
func (w *wait) isEdge() bool { return !w.foreign && !w.over() }

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
		case next.isUnbegun() && next.id.Compare(t.origin) > 0:
		default:
			w.onLocked(t, next.on)
		}
	}
}

// sendLocked has the probe of a trace go on along each ask that it came upon, once between two sweeps: by how many ways it came does not matter. One that has gone round another circle ends.
func (w *waits) sendLocked(t *trace, way []transport.PeerStep) (out []dispatch) {
	if len(way) >= mostProbeHops {
		return nil
	}
	for _, far := range t.far {
		step := passage{t.origin, far.id}
		if w.mu.passed[step] || slices.ContainsFunc(way, func(was transport.PeerStep) bool { return was.Ask == far.id }) {
			continue
		}
		if w.mu.passed == nil {
			w.mu.passed = map[passage]bool{}
		}
		w.mu.passed[step] = true
		out = append(out, dispatch{far.at, transport.PeerProbe{Origin: t.origin, Way: w.stepLocked(way, far.id), At: len(way)}})
	}
	return out
}

func (w *waits) stepLocked(way []transport.PeerStep, along transport.PeerAskID) []transport.PeerStep {
	return append(slices.Clip(way), transport.PeerStep{Ask: along, Made: w.mu.numbers})
}

// againLocked has a probe that came along an ask take a step of its way for the second time. After the last, the ask is refused that it comes back to.
func (w *waits) againLocked(p transport.PeerProbe, along *wait, to int) (out []dispatch, refused *ask) {
	for ; to < len(p.Way); to++ {
		next := w.stillLocked(along.on, p.Way[to], map[event.Unit]bool{})
		switch {
		case next == nil:
			return nil, nil
		case next.far:
			p.At = to
			return []dispatch{{next.at, p}}, nil
		}
		along = next
	}
	// Claimed, so that nobody else answers it.
	if along.id != p.Origin || !along.isUnbegun() || !along.ask.state.CompareAndSwap(askWaiting, askAnswered) {
		return nil, nil
	}
	return nil, along.ask
}

// stillLocked gives the ask of a step, if a unit still waits for it, directly or through others that it waited for when the step was taken; else nil.
func (w *waits) stillLocked(from event.Unit, step transport.PeerStep, seen map[event.Unit]bool) *wait {
	if seen[from] {
		return nil
	}
	seen[from] = true
	for _, next := range w.mu.by[from] {
		switch {
		case !next.isEdge() || next.id.Number > step.Made:
		case next.id == step.Ask:
			return next
		case next.far:
		default:
			if found := w.stillLocked(next.on, step, seen); found != nil {
				return found
			}
		}
	}
	return nil
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
	stepsAtOnce  = 8192            // of all probes in one call
	probeTimeout = 2 * time.Second // of one call
)

// probeSoon has the next look made.
func (r *running) probeSoon() { r.later(probeEvery, r.probe) }

// probe looks for asks that are to send probes. It does not block.
func (r *running) probe() { r.chase(r.rt.waits.sweep()) }

// suspect sends the probes of an ask that may close a circle. It does not block.
func (r *Runtime) suspect(out []dispatch) {
	if run := r.chaser.Load(); run != nil {
		run.chase(out)
	}
}

// ServeProbe takes probes of other nodes. It never blocks.
func (r *Runtime) ServeProbe(probes []transport.PeerProbe) {
	run := r.chaser.Load()
	if run == nil {
		return
	}
	for _, p := range probes {
		run.chase([]dispatch{{probe: p}})
	}
}

// chase sends probes on, and refuses what is part of a circle.
func (r *running) chase(out []dispatch) {
	for len(out) > 0 {
		next := out[0]
		out = out[1:]
		if next.to != "" {
			r.send(next)
			continue
		}
		more, k := r.rt.waits.probed(next.probe)
		if k != nil {
			k.forgetWait()
			k.answer <- answer{err: &AskError{Err: ErrAskCycle}, inside: true} // it is still in the mailbox
		}
		out = append(out, more...)
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
	n, steps := 0, 0
	for n < len(all) && (n == 0 || steps+len(all[n].Way) <= stepsAtOnce) {
		steps += len(all[n].Way)
		n++
	}
	p.mu.unsent[address] = all[n:]
	return all[:n]
}
