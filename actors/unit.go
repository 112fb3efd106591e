package actors

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/actors/internal/host"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// unit is the actor of one (handler, key) or one entity. It carries out what its machine asks for, blocking while it does: an actor
// holds a goroutine only while it has something to do.
type unit struct {
	run   *running
	prog  *program
	id    event.Unit
	text  string // of id
	ref   *host.Ref
	inbox inbox
	watch watch

	// Shown by the actor's goroutine to anybody.

	shown   shown                  // the phase of the machine
	open    atomic.Bool            // its behavior can be called: what it needs was read
	head    atomic.Int64           // when the entry was emitted that is next, in ms; 0 = none is known
	suspect atomic.Pointer[InHand] // nil unless a suspect is in hand

	// All below belongs to the actor's goroutine.

	machine  *partitions.Machine
	lease    lease
	alarm    alarm             // the machine's timer
	pending  partitions.Effect // asked for and not carried out
	answer   partitions.Input  // of what was carried out, not told yet
	told     bool              // the machine knows that something waits for the behavior
	resting  bool              // the machine holds nothing
	acted    bool              // a person acted, and the unit has not recovered since
	stop     stop              // as recovered, or written since
	due      bool              // rows set aside may be to be applied
	drained  bool
	leaving  error            // what asks are told when drained
	trouble  error            // that the machine told of last
	forgot   bool             // the broker lost its memory
	revision uint64           // of the lists by which events may have been passed over
	moved    bool             // these lists, since they were read
	phase    partitions.Phase // as shown
	entry    *event.Envelope  // applied last
	inside   bool             // an entry is being applied
	doubted  bool             // a doubt is left to the next unit, should this one go

	turn       *turn // at the gate; nil = none
	suspicions int   // of the entry that WriteTried was about

	behavior
}

// signal is the one message that actors get: look into your inbox.
var signal any = new(struct{ _ byte })

func newUnit(run *running, prog *program, id event.Unit) *unit {
	u := &unit{run: run, prog: prog, id: id, text: id.String(), resting: true}
	u.machine = partitions.New(&prog.config, id, prog.lanes(id.Key))
	u.alarm.ring = func() { u.post(func(b *inbox) { b.mu.timer = true }) }
	u.watch.alarm.ring = u.overdue
	u.shown.set(u.phase, run.tick())
	u.behavior.init(prog)
	doubt, doubted := run.doubts.LoadAndDelete(id)
	if before, ok := run.bequeathed.LoadAndDelete(id); ok {
		u.inherit(before.(*bequest))
	} else if doubted {
		u.machine.TakeOn(doubt.(*partitions.Doubt))
	}
	u.ref = run.host.Spawn(u)
	return u
}

// post changes the inbox and has the actor look into it; false when the unit is gone.
func (u *unit) post(change func(*inbox)) bool {
	first, ok := u.inbox.put(change)
	if first {
		u.ref.Send(signal)
	}
	return ok
}

// turns is how many steps a unit takes before it goes to the end of the line for a slot.
const turns = 16

// Receive implements [host.Actor].
func (u *unit) Receive(any) {
	u.inbox.received()
	for range turns {
		if !u.step() {
			if u.resting {
				u.leaveDoubt()
				if u.inbox.close() {
					u.leave()
				}
			}
			return
		}
	}
	if u.inbox.again() {
		u.ref.Send(signal)
	}
}

// Failed implements [host.Actor]: something beneath the behaviors panicked, or a behavior ended its goroutine. The unit is
// beyond use, its event is not passed, and another activation takes over in a while. What lies beneath is no event's fault; a
// behavior that ends its goroutine has failed at its event, so the machine that counts its attempts lives on.
func (u *unit) Failed(reason any) {
	err := newPanicError(reason)
	observe2(u.run.rt.cfg.Observer.Panicked, u.id, err)
	if a := u.watch.current.Load(); a != nil {
		u.end(a)
		a.rollback()
		a.finish()
	}
	u.leaveGate()
	again := time.Second
	if u.inside && reason == host.ErrGoexit {
		u.run.bequeathed.Store(u.id, &bequest{u.machine, partitions.ApplyDone{Outcome: partitions.Failed, Err: host.ErrGoexit}, u.lease.sent})
		again = 0 // the machine knows how long to wait
	}
	u.leaveDoubt()
	u.abandon(err) // after that another may take the place
	u.leave()
	u.run.later(again, func() { u.run.wake(u.id) })
}

// bequest is what a unit whose goroutine was ended leaves to the next of its id.
type bequest struct {
	machine *partitions.Machine
	answer  partitions.Input // what the machine waits for
	sent    partitions.Tick  // when its lease was last asked for
}

// inherit goes on where another unit was ended.
func (u *unit) inherit(b *bequest) {
	u.machine, u.answer, u.resting, u.lease.sent = b.machine, b.answer, false, b.sent
	u.inbox.mu.timer = true // nobody else has it yet; the timer that was set is gone
}

// leaveDoubt keeps for the next unit of the id what this one suspects, as long as there is something. It comes before the inbox is closed: then another may
// take the place.
func (u *unit) leaveDoubt() {
	switch d := u.machine.Doubt(); {
	case d != nil:
		u.doubted = true
		u.run.doubts.Store(u.id, d)
	case u.doubted:
		u.doubted = false
		u.run.doubts.Delete(u.id)
	}
}

// abandon closes the inbox and answers everybody who waits for the unit.
func (u *unit) abandon(err error) {
	u.inbox.closeHard()
	u.refuse(err, true)
	u.settle(func(*drive) bool { return true }, err)
}

// leave ends the unit; its inbox is closed.
func (u *unit) leave() {
	u.run.alarms.clear(&u.alarm)
	u.run.alarms.clear(&u.watch.alarm)
	u.dropTimers()
	u.dropLease()
	u.run.units.remove(u)
	u.ref.Stop()
}

// step tells the machine one thing and does what it says; false when there is nothing to tell.
func (u *unit) step() bool {
	owed := u.answer != nil
	in, now := u.input()
	if in == nil {
		return false
	}
	answered := owed && u.answer == nil
	for _, e := range u.machine.Step(now, in) {
		u.do(e)
	}
	u.keepLease()
	u.show(now)
	if u.prog.config.Leased && u.lives() {
		u.inbox.taken()
	}
	u.settleDrives()
	if e := u.pending; e != nil {
		u.pending = nil
		u.answer = u.carryOut(e)
	} else if answered {
		u.leaveGate()
	}
	return true
}

// input gives the next thing to tell the machine. What came from outside goes before the answer to what it asked for: an
// attempt that was cancelled is not to be counted, and asks are to have their turn before the next entry.
func (u *unit) input() (partitions.Input, partitions.Tick) {
	if u.prog.config.Leased {
		u.run.keeper.Look()
		if in, at := u.news(); in != nil {
			return in, at
		}
	}
	in := u.inputOf()
	return in, u.run.tick()
}

// inputOf is input for what has nothing to do with the lease.
func (u *unit) inputOf() partitions.Input {
	w, waiting := u.inbox.wants()
	for u.drained && (w == wantActed || w == wantWake) { // nothing may bring it back to life
		w, waiting = u.inbox.wants()
	}
	switch w {
	case wantDrain, wantCancel, wantOver:
		u.drained = true
		if u.leaving = ErrStopping; w == wantOver {
			u.leaving = errors.Join(ErrUnavailable, errHandedOver)
		}
		return partitions.Drain{Cancel: w == wantCancel}
	case wantActed:
		u.acted = true
		return partitions.Acted{}
	case wantTimer:
		return partitions.TimerFired{}
	case wantWake:
		return partitions.Wake{}
	}
	if u.drained && waiting {
		u.refuse(u.leaving, false)
		waiting = false
	}
	if waiting && !u.told {
		u.told = true
		return partitions.Demand{}
	}
	in := u.answer
	u.answer = nil
	return in
}

// do carries out an effect that has no answer, and keeps the one that has for when the others are done.
func (u *unit) do(e partitions.Effect) {
	switch e := e.(type) {
	case *partitions.Discard:
		u.discard()
	case *partitions.Cancel: // of a behavior that has returned: this goroutine is the one that runs it
	case *partitions.SetTimer:
		if e.At == 0 {
			u.run.alarms.clear(&u.alarm)
		} else {
			u.run.alarms.set(&u.alarm, u.run.at(e.At))
		}
	case *partitions.Note:
		u.note(e)
	case *partitions.Idle:
		u.resting, u.told = true, false
		u.noteRest(e)
		u.settle(func(d *drive) bool { return d.seq == 0 && !u.drained }, nil)
		u.settle(func(*drive) bool { return true }, u.restError(e))
	default:
		u.pending = e
	}
}

// restError is what those are told who wait for a unit that rests before it got as far as they wanted.
func (u *unit) restError(e *partitions.Idle) error {
	switch {
	case e.Because != partitions.PhaseIdle:
		return nil
	case u.drained:
		return u.leaving
	case e.Held > 0:
		return u.heldError(e)
	case e.Unfit:
		return errors.Join(ErrUnavailable, u.trouble)
	}
	return errors.New("the lane ends before that")
}

// refuse answers the asks that wait, and with current the one that is in its behavior. Nothing is left for the behavior.
func (u *unit) refuse(err error, current bool) {
	waiting, begun := u.inbox.takeAsks(current)
	for _, k := range waiting {
		k.deliver(answer{err: &AskError{Err: err}})
	}
	if begun != nil {
		begun.deliver(answer{err: &AskError{Err: err, Unknown: true}, inside: true})
	}
}

// settleDrives lets those go who waited for what is done now.
func (u *unit) settleDrives() {
	stopped := u.stopped()
	through := stopped || !u.due
	u.settle(func(d *drive) bool {
		return stopped || through && d.seq > 0 && u.machine.Applied(d.lane) >= d.seq || d.seq == 0 && u.phase == partitions.PhaseReady
	}, nil)
}

// stopped reports whether the unit reads no further until somebody acts.
func (u *unit) stopped() bool {
	switch u.machine.Phase() {
	case partitions.PhaseHalted, partitions.PhasePaused, partitions.PhaseWaiting:
		return true
	}
	return false
}

func (u *unit) settle(match func(*drive) bool, err error) {
	for _, d := range u.inbox.takeDrives(match) {
		d.done <- err
	}
}

// note tells observers what the machine has to say.
func (u *unit) note(n *partitions.Note) {
	o := &u.run.rt.cfg.Observer
	why := n.Err
	if why == nil && n.Why != "" {
		why = errors.New(n.Why)
	}
	switch n.Kind {
	case partitions.NoteHalted, partitions.NoteDead, partitions.NoteParked, partitions.NoteResumed: // told where it happened
	case partitions.NoteSuspect, partitions.NoteHeld: // told when it is applied, and when it rests
	case partitions.NoteUnparked, partitions.NoteReplayed, partitions.NoteAsideFailed:
		u.noteAside(n)
	case partitions.NoteRetry:
		o.retried(u.id, u.entry, n.Attempt, why)
	case partitions.NoteAnew:
		if n.Why != partitions.WhyActed {
			observe2(o.CommitFailed, u.id, why)
		}
	case partitions.NoteNewer:
		o.waitsForType(u.id, n.Lane, n.Sequence, n.Why)
	default:
		if n.Err != nil && n.Why != "" {
			why = fmt.Errorf("%s: %w", n.Why, n.Err)
		}
		o.trouble(u.id, n.Kind.String(), why)
	}
	if n.Kind == partitions.NoteTrouble {
		u.trouble = why
		u.unavailable(why)
	}
}

// serving reports whether what the behavior says may be given out. Only a lease makes it a question of time.
func (u *unit) serving() bool {
	var now partitions.Tick
	if u.prog.config.Leased {
		now = u.run.tick()
	}
	return u.machine.Serving(now)
}

// unavailable answers the asks that wait for a unit which cannot be had now: its store does not answer, or another has it. They
// are not kept waiting for what may take long.
func (u *unit) unavailable(why error) {
	if u.serving() {
		return
	}
	err := ErrUnavailable
	if why != nil {
		err = errors.Join(ErrUnavailable, why)
	}
	u.refuse(err, false)
}

// context gives what a behavior inherits the values of: those of whoever waits for the unit, if anybody does.
func (u *unit) context() context.Context {
	if ctx := u.inbox.driver(); ctx != nil {
		return ctx
	}
	return u.run.nested
}

// tell has the transport carry what a commit added to the lanes.
func (u *unit) tell(tails []event.Tail) { u.run.rt.tell(u.context(), tails) }
