package actors

import (
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// gate is where suspects go through: events that were in a behavior when the process ended without a word. Those that need not
// be alone are inside together, one that must has the gate to itself. They come in in the order in which they came, so that
// neither kind keeps the other out.
type gate struct {
	mu struct {
		sync.Mutex
		inside int
		alone  bool // the one inside is to be alone
		line   []*turn
	}
}

// turn is one suspect at the gate.
type turn struct {
	alone bool
	in    chan struct{} // closed when it is let in
	gone  bool          // it does not wait any more; guarded by gate.mu
}

// enter gets into line. Whatever comes of it, leave is to be called.
func (g *gate) enter(alone bool) *turn {
	t := &turn{alone: alone, in: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.line = append(g.mu.line, t)
	g.admitLocked()
	return t
}

func (g *gate) leave(t *turn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-t.in:
		g.mu.inside--
		g.mu.alone = false // either it was alone itself, or nobody inside was
	default:
		t.gone = true
	}
	g.admitLocked()
}

func (g *gate) admitLocked() {
	for len(g.mu.line) > 0 {
		t := g.mu.line[0]
		switch {
		case t.gone:
		case g.mu.alone, t.alone && g.mu.inside > 0:
			return
		default:
			g.mu.inside++
			g.mu.alone = t.alone
			close(t.in)
		}
		g.mu.line[0] = nil
		g.mu.line = g.mu.line[1:]
	}
	g.mu.line = nil
}

// applySuspect applies an entry when it is its turn at the gate.
func (u *unit) applySuspect(e *partitions.Apply) partitions.Input {
	t := u.run.gate.enter(e.Alone)
	defer u.run.gate.leave(t) // also when the behavior ends the goroutine
	u.showSuspect(e, true)
	defer u.suspect.Store(nil)
	if done, in := u.awaitTurn(t, e.Generation); !in {
		return done
	}
	u.showSuspect(e, false)
	u.run.rt.cfg.Observer.suspected(u.id, e.Entry, u.suspicions, e.Alone)
	return u.applyInside(e)
}

// awaitTurn waits for a turn; false, with the answer to the Apply, when it will not come. Meanwhile others have the slot, and asks are
// served: whoever is inside the gate may be waiting for one of them.
func (u *unit) awaitTurn(t *turn, g event.Generation) (partitions.ApplyDone, bool) {
	bell := u.inbox.listen()
	defer u.inbox.ignore()
	for {
		switch {
		case isClosed(t.in):
			return partitions.ApplyDone{}, true
		case isClosed(u.run.ending):
			// Before this answer the machine is told not to wait for anything: then it does not count the attempt, which was none.
			u.post(func(b *inbox) { b.mu.drain, b.mu.cancel = true, true })
			return partitions.ApplyDone{Outcome: partitions.Failed, Err: ErrStopping}, false
		case u.inbox.more():
			done := u.serve(&partitions.Serve{Generation: g})
			switch done.Outcome {
			case partitions.OK:
			case partitions.Failed:
				u.discard()
			default:
				return partitions.ApplyDone{Outcome: done.Outcome, Err: done.Err}, false
			}
			continue
		}
		u.ref.Block()
		select {
		case <-t.in:
		case <-bell:
		case <-u.run.ending:
		}
		u.ref.Unblock()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
