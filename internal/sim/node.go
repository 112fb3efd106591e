package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// node is one process: the shell of its machines. It is as good a shell as the contract asks for, unless a rule is taken out.
type node struct {
	w        *world
	number   int
	name     string
	owner    int // a new one at every start
	up       bool
	starting bool
	draining bool
	frozen   bool
	deaf     partitions.Tick   // no renewal succeeds before
	deferred []func()          // what arrived while it was frozen
	last     []partitions.Tick // by number of the unit: it leaves the unit to others before
	actors   []*actor          // by number of the unit, nil where there is none
	suspects []*run            // that are inside
	alone    *actor            // whose suspect is, or is going to be, inside alone
}

// actor runs one unit on one node.
type actor struct {
	node     *node
	unit     *unit
	m        *Monitor
	timer    int // of how many timers set
	asks     int // that wait
	instance *instance
	cancel   func()  // tells the user code inside to hurry
	next     *record // that its suspicion is about
	doubt    bool    // what the store has counted
}

// instance is a behavior's memory: how many units of work the unit has behind it.
type instance struct{ counted int }

var errTransient = errors.New("transient")

func (n *node) start() {
	n.w.owners++
	n.owner, n.up, n.starting, n.draining, n.frozen, n.deferred = n.w.owners, true, false, false, false, nil
	n.w.tell("%s: starts as %d", n.name, n.owner)
	if n.w.scene.Leased {
		n.beat()
		return
	}
	n.w.storeGen++
	for _, u := range n.w.units {
		if u.reads() && (u.unpassed() || u.isDue()) {
			n.wake(u)
		}
	}
}

func (u *unit) unpassed() bool {
	return slices.ContainsFunc(u.lanes, func(l *lane) bool { return l.checkpoint < event.Sequence(len(l.records)) })
}

// deliver does something on the node: now, when it thaws, or not at all when this process has ended.
func (n *node) deliver(do func()) {
	switch {
	case !n.up:
	case n.frozen:
		n.deferred = append(n.deferred, do)
	default:
		do()
	}
}

// later does something on the node after a while.
func (n *node) later(d time.Duration, do func()) {
	owner := n.owner
	n.w.after(d, func() {
		if n.owner == owner {
			n.deliver(do)
		}
	})
}

func (n *node) freeze(d time.Duration) {
	if !n.up || n.frozen {
		return
	}
	n.w.tell("%s: frozen for %s", n.name, d)
	n.frozen = true
	owner := n.owner
	n.w.after(d, func() {
		if n.owner == owner {
			n.thaw()
		}
	})
}

func (n *node) thaw() {
	if !n.frozen {
		return
	}
	n.w.tell("%s: thaws", n.name)
	n.frozen = false
	deferred := n.deferred
	n.deferred = nil
	for _, do := range deferred {
		n.deliver(do)
	}
}

// crash ends the process with everything in it, and has it started again after a while.
func (n *node) crash(d time.Duration) {
	if !n.up {
		return
	}
	n.w.tell("%s: ends", n.name)
	n.w.stopped = !slices.ContainsFunc(n.actors, func(a *actor) bool { return a != nil })
	n.blame()
	n.up, n.starting, n.frozen, n.deferred = false, true, false, nil
	clear(n.actors)
	for _, u := range n.w.units {
		u.visits = slices.DeleteFunc(u.visits, func(v *visit) bool { return v.owner == n.owner })
	}
	n.w.after(d, n.start)
}

// drain stops the process in the orderly way.
func (n *node) drain(d time.Duration) {
	if !n.up {
		return
	}
	n.later(0, func() {
		n.w.tell("%s: drains", n.name)
		n.draining = true
		n.each(func(a *actor) { n.step(a, partitions.Drain{}) })
	})
	n.later(3*time.Second, func() { n.each(func(a *actor) { n.step(a, partitions.Drain{Cancel: true}) }) })
	n.later(4*time.Second, func() { n.crash(d) })
}

func (n *node) each(do func(*actor)) {
	for _, a := range n.actors {
		if a != nil {
			do(a)
		}
	}
}

// beat renews what is held, and looks for work whose wake was lost.
func (n *node) beat() {
	n.later(heartbeat, n.beat)
	n.each(n.renew)
	for _, u := range n.w.units {
		if u.busy && u.reads() {
			n.wake(u)
		}
	}
}

func (n *node) renew(a *actor) {
	held, ok := a.m.Machine.Held()
	if w := n.w; !ok || w.now < n.deaf || w.chance(10) {
		return
	}
	w, sent, owner := n.w, n.w.now, n.owner
	w.after(w.latency(), func() {
		ok, back := w.renew(a.unit, owner, held.Generation), w.latency()
		if w.chance(4) {
			back = w.between(time.Second, ttl) // too late as likely as not
		}
		n.later(back, func() {
			switch {
			case !ok:
				n.step(a, partitions.Fenced{Generation: held.Generation})
			case w.scene.Without == Sent:
				n.step(a, partitions.Renewed{Generation: held.Generation, Sent: w.now})
			default:
				n.step(a, partitions.Renewed{Generation: held.Generation, Sent: sent})
			}
		})
	})
}

// latency is how long a message is on its way.
func (w *world) latency() time.Duration {
	if w.chance(30) {
		return w.between(time.Second, 8*time.Second)
	}
	return w.between(time.Millisecond, 30*time.Millisecond)
}

// actor gives the actor of a unit, a new one if there is none; nil when the node takes no more.
func (n *node) actor(u *unit) *actor {
	if n.actors[u.number] == nil && !n.draining {
		cfg := &n.w.cfg[n.number][index(u.entity)]
		n.actors[u.number] = &actor{node: n, unit: u, m: NewMonitor(cfg, u.id, u.refs)}
	}
	return n.actors[u.number]
}

func (n *node) wake(u *unit) {
	if n.w.now < n.last[u.number] {
		return
	}
	a := n.actor(u)
	if a == nil || n.w.scene.Without == KeptWake && a.m.Machine.Phase() == partitions.PhaseDraining {
		return
	}
	n.step(a, partitions.Wake{})
}

func (n *node) demand(u *unit) {
	n.deliver(func() {
		if a := n.actor(u); a != nil {
			a.asks++
			n.step(a, partitions.Demand{})
		}
	})
}

func (n *node) acted(u *unit) {
	if n.actors[u.number] == nil {
		n.wake(u)
		return
	}
	n.step(n.actors[u.number], partitions.Acted{})
}

// lose tells a unit that it is not this node's any more, although its lease may say so.
func (n *node) lose(u *unit) {
	n.deliver(func() {
		if a := n.actors[u.number]; a != nil {
			n.step(a, partitions.Lost{Why: "host was suspended"})
		}
	})
}

// step steps a machine and carries out what it says.
func (n *node) step(a *actor, in partitions.Input) {
	if n.actors[a.unit.number] != a {
		return
	}
	switch in := in.(type) { // what arrives in the store when nobody waits for it any more leaves the doubt
	case partitions.WriteTriedDone:
		a.doubt = in.Outcome != partitions.OK
	case partitions.SuspectAsideDone:
		a.doubt = in.Outcome != partitions.OK
	}
	told := n.w.trace != nil // or much would be made to be told to nobody
	if told {
		n.w.tell("%s: %s: %T%+v", n.name, a.unit.id, in, in)
	}
	for _, e := range a.m.Step(n.w.now, in) {
		if told {
			n.w.tell("%s: %s:   %s", n.name, a.unit.id, e)
		}
		n.carryOut(a, e)
	}
	if err := a.m.Err(); err != nil {
		n.w.fail("node %s: %v", n.name, err)
	}
	n.w.watchServing(a.unit)
}

func (n *node) carryOut(a *actor, e partitions.Effect) {
	w, u, owner := n.w, a.unit, n.owner
	n.companion(a, e)
	switch e := e.(type) {
	case *partitions.Acquire:
		floor := e.Floor
		n.call(a, func() partitions.Input { return partitions.AcquireDone{Acquired: w.acquire(u, owner, floor)} },
			func(o partitions.Outcome) partitions.Input { return partitions.AcquireDone{Outcome: o} })
	case *partitions.Recover:
		asked := *e
		n.call(a, func() partitions.Input { return w.recover(u, &asked) },
			func(o partitions.Outcome) partitions.Input { return partitions.RecoverDone{Outcome: o} })
	case *partitions.Fetch:
		asked := *e
		asked.Positions = slices.Clone(e.Positions)
		n.call(a, func() partitions.Input { return n.fetched(w.fetch(u, owner, &asked), asked.Positions) },
			func(o partitions.Outcome) partitions.Input { return partitions.FetchDone{Outcome: o} })
	case *partitions.Apply:
		n.apply(a, e)
	case *partitions.Serve:
		n.serve(a, e)
	case *partitions.WriteHalt:
		n.commit(a, work{gen: e.Generation, moves: e.Moves, halt: e.Halt, untry: e.Untry},
			func(o partitions.Outcome) partitions.Input { return partitions.WriteHaltDone{Outcome: o} })
	case *partitions.WriteDead:
		n.commit(a, work{gen: e.Generation, moves: e.Moves, dead: e.Dead, untry: e.Untry},
			func(o partitions.Outcome) partitions.Input { return partitions.WriteDeadDone{Outcome: o} })
	case *partitions.WriteParked:
		n.commit(a, work{gen: e.Generation, moves: e.Moves, parked: slices.Clone(e.Parked), untry: e.Untry},
			func(o partitions.Outcome) partitions.Input { return partitions.WriteParkedDone{Outcome: o} })
	case *partitions.WriteTried:
		n.writeTried(a, e)
	case *partitions.FetchAside:
		asked := *e
		n.call(a, func() partitions.Input { return w.fetchAside(u, &asked) },
			func(o partitions.Outcome) partitions.Input { return partitions.FetchAsideDone{Outcome: o} })
	case *partitions.SettleAside:
		of := e.Aside
		n.commit(a, work{gen: e.Generation, aside: &of, stays: e.Failure},
			func(o partitions.Outcome) partitions.Input { return partitions.SettleAsideDone{Outcome: o} })
	case *partitions.SuspectAside:
		n.suspectAside(a, e)
	case *partitions.CommitPassed:
		n.commit(a, work{gen: e.Generation, moves: e.Moves},
			func(o partitions.Outcome) partitions.Input { return partitions.CommitPassedDone{Outcome: o} })
	case *partitions.Passivate:
		v := w.enter(a, nil, 0)
		n.later(w.between(time.Millisecond, 50*time.Millisecond), func() {
			w.leave(u, v)
			a.instance = nil
			n.step(a, partitions.PassivateDone{})
		})
	case *partitions.Release:
		asked := *e
		n.call(a, func() partitions.Input {
			return partitions.ReleaseDone{Outcome: w.release(u, owner, asked.Generation, asked.IfIdle)}
		}, func(o partitions.Outcome) partitions.Input { return partitions.ReleaseDone{Outcome: o} })
	case *partitions.Discard:
		if w.scene.Without != Discard {
			a.instance = nil
		}
	case *partitions.Cancel:
		a.cancel()
	case *partitions.SetTimer:
		n.setTimer(a, e.At)
	case *partitions.Idle:
		n.actors[u.number] = nil
		if a.doubt && a.next != nil {
			a.next.alone++ // a process that owns its store leaves no word that the unit was given up in good order
		}
		if e.Because == partitions.PhaseWaiting {
			n.last[u.number] = w.now.Add(2 * ttl)
		}
		if e.Unfit {
			n.last[u.number] = w.now.Add(ttl) // a node that could not recover it ranks itself last
		}
		if e.Unread && w.scene.Leased && e.Held == 0 && !e.Unfit { // else the next scan finds it
			w.after(time.Millisecond, func() { w.wake(u) })
		}
	case *partitions.Note:
		w.seen[e.Kind.String()]++
		if e.Kind == partitions.NoteLost && n.alone == a && a.next != nil {
			a.next.alone++ // nobody knows what comes of it
		}
	}
}

func (n *node) setTimer(a *actor, at partitions.Tick) {
	a.timer++
	if at == 0 {
		return
	}
	set := a.timer
	n.later(duration(at-n.w.now), func() {
		if a.timer == set {
			n.step(a, partitions.TimerFired{})
		}
	})
}

// call makes a call that may be lost on its way there, on its way back, or arrive when nobody waits for it any more. The
// last happens to nobody who owns the store: its calls end before it goes on.
func (n *node) call(a *actor, do func() partitions.Input, failed func(partitions.Outcome) partitions.Input) {
	w := n.w
	there, back := w.latency(), w.latency()
	answer := func(in partitions.Input) { n.later(back, func() { n.step(a, in) }) }
	switch {
	case w.chance(15):
		answer(failed(partitions.Failed))
	case w.chance(15):
		w.after(there, func() { do(); answer(failed(partitions.Unknown)) })
	case w.scene.Leased && w.chance(30):
		answer(failed(partitions.Unknown))
		w.after(w.between(time.Millisecond, ttl), func() {
			if in, ok := do().(partitions.AcquireDone); ok && in.Acquired.Unclean {
				a.unit.missed++ // unless nobody asked since
			}
		})
	default:
		w.after(there, func() { answer(do()) })
	}
}

// commit sends a unit of work to the store.
func (n *node) commit(a *actor, j work, done func(partitions.Outcome) partitions.Input) {
	j.moves = slices.Clone(j.moves)
	n.call(a, func() partitions.Input { return done(n.w.commit(a.unit, j)) }, done)
}

// fetched is what the shell passes on of what it read.
func (n *node) fetched(in partitions.FetchDone, above []event.Position) partitions.FetchDone {
	if n.w.scene.Without != Gap {
		return in
	}
	// Without the rule a hole is taken for something that was removed.
	var filled []event.Envelope
	for _, pos := range above {
		next := pos.Sequence + 1
		for _, e := range in.Entries {
			if e.Ref() != pos.Lane {
				continue
			}
			for ; next < e.Sequence; next++ {
				filled = append(filled, event.Envelope{Category: e.Category, Key: e.Key, Lane: e.Lane, Sequence: next})
			}
			filled = append(filled, e)
			next++
		}
	}
	in.Entries = filled
	return in
}
