package actors

import (
	"context"
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

// applySuspect applies an entry when it is its turn at the gate. One that is alone has come in before that was counted, and stays until
// it is taken back, or others would come in whose crash is counted against it. See step for when it leaves.
func (u *unit) applySuspect(e *partitions.Apply) partitions.Input {
	entry := e.Entry
	hand := InHand{
		EventID: entry.ID, Type: entry.Type, Lane: entry.Ref(), Sequence: entry.Sequence, Attempt: e.Attempt, Suspect: true, Alone: e.Alone, Waiting: true,
	}
	u.showSuspect(hand)
	defer u.suspect.Store(nil)
	if o, err := u.enterGate(e.Alone, e.Generation); o != partitions.OK {
		return partitions.ApplyDone{Outcome: o, Err: err}
	}
	hand.Waiting = false
	u.showSuspect(hand)
	u.run.rt.cfg.Observer.suspected(u.id, e.Entry, u.suspicions, e.Alone)
	return u.applyInside(e)
}

// enterGate waits for the unit's turn; with another outcome than OK it will not come.
func (u *unit) enterGate(alone bool, g event.Generation) (partitions.Outcome, error) {
	if u.turn != nil && u.turn.alone != alone {
		u.leaveGate()
	}
	if u.turn == nil {
		u.turn = u.run.gate.enter(alone)
	}
	return u.awaitTurn(u.turn, g)
}

// Alone waits until no suspect of a unit is in its behavior, and keeps them waiting until release is called: for what is suspected of
// having ended the process and is no unit. The error is that of ctx, or [ErrStopping].
func (r *Runtime) Alone(ctx context.Context) (release func(), err error) {
	run := r.running.Load()
	if run == nil {
		return nil, ErrStopping
	}
	t := run.gate.enter(true)
	select {
	case <-t.in:
		return func() { run.gate.leave(t) }, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-run.ending:
		err = ErrStopping
	}
	run.gate.leave(t)
	return nil, err
}

func (u *unit) leaveGate() {
	if u.turn != nil {
		u.run.gate.leave(u.turn)
		u.turn = nil
	}
}

// awaitTurn waits for a turn. Meanwhile others have the slot, and asks are served: whoever is inside the gate may be waiting for one of
// them. Of the instance that serves them the machine does not know.
func (u *unit) awaitTurn(t *turn, g event.Generation) (partitions.Outcome, error) {
	if isClosed(t.in) {
		return partitions.OK, nil
	}
	bell := u.inbox.listen()
	defer u.inbox.ignore()
	for {
		switch {
		case isClosed(t.in):
			return partitions.OK, nil
		case isClosed(u.run.ending):
			// Before the answer the machine is told not to wait for anything: then it does not count the attempt, which was none.
			u.post(func(b *inbox) { b.mu.drain, b.mu.cancel = true, true })
			u.passivate()
			return partitions.Failed, ErrStopping
		case u.prog.config.Leased && !u.stillServing():
			return partitions.Failed, ErrLeaseLost // the machine is told before it hears this
		case u.inbox.more():
			if done := u.serve(&partitions.Serve{Generation: g}); done.Outcome != partitions.OK {
				u.discard()
				if done.Outcome != partitions.Failed {
					return done.Outcome, done.Err
				}
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
