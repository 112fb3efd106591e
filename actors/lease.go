package actors

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/leases"
	"github.com/keyhold/keyhold/partitions"
)

// lease is what a unit and the keeper of the leases have to do with one another. While a behavior is inside, nobody can tell the machine
// anything: so what cannot wait is done by whoever is told of it, and the machine hears of it before it hears what came of the behavior.
type lease struct {
	kept atomic.Uint64   // generation of the lease that the keeper has, 0 = it has none
	lost atomic.Uint64   // generation of one that must not be relied on, whether or not the machine knows
	hung atomic.Bool     // a behavior of the unit ignores the end of its context, and nothing is expected of the unit before it returns
	sent partitions.Tick // when the lease was last asked for with success; the actor's
}

// leaseNews is what the keeper, or the watch, has to say to a unit. It is kept in the inbox.
type leaseNews struct {
	renewed partitions.Renewed // Generation 0 = nothing
	first   partitions.Tick    // when the first of the renewals came that it stands for: the keeper knows of no gap between them
	lost    event.Generation   // 0 = nothing
	why     leases.Loss
	hung    bool
}

var (
	// ErrLeaseLost is the cause of the end of a behavior's context when its unit is not, or may not be, this node's any more. Nothing that the behavior
	// did is committed, and it does not count as an attempt.
	ErrLeaseLost = errors.New("the unit's lease is lost: another node may have it")
	// ErrNewerType: the next event is of a type that this program does not know.
	ErrNewerType = errors.New("the next event is of a type that a newer program knows")

	errHung       = errors.New("a behavior of it does not return; it is left to other nodes")
	errHandedOver = errors.New("it is being handed over to another node")
	errForgot     = errors.New("the broker lost its memory and grants nothing yet")
)

// Renewed implements [leases.Holder]. It wakes nobody: the unit takes note of it when it has something to do, at its deadline at the latest.
func (u *unit) Renewed(h partitions.Held, sent time.Time) {
	now := u.run.tick()
	u.inbox.renewed(partitions.Renewed{Generation: h.Generation, Sent: u.run.tickOf(sent)}, now)
}

// Lost implements [leases.Holder].
func (u *unit) Lost(h partitions.Held, why leases.Loss) {
	u.lease.lost.Store(uint64(h.Generation)) // before looking who is inside: see begin
	u.post(func(b *inbox) { b.mu.lease.lost, b.mu.lease.why = h.Generation, why })
	observe2(u.run.rt.cfg.Observer.LeaseLost, u.id, why.String())
	if a := u.watch.current.Load(); a != nil && (a.generation == h.Generation || a.generation == 0) {
		u.interrupt(a)
	}
}

// interrupt ends the context of a behavior whose lease is lost.
func (u *unit) interrupt(a *attempt) {
	if a.interrupt(ErrLeaseLost) {
		u.look(u.run.tick().Add(patience))
	}
}

// letLapse gives a unit up whose behavior does not return: its lease is not renewed any more, and nobody is kept waiting for it.
func (u *unit) letLapse(inside *attempt) {
	if !u.prog.config.Leased || u.lease.hung.Swap(true) {
		return
	}
	if u.watch.current.Load() != inside { // it has returned after all: see end
		u.lease.hung.Store(false)
		return
	}
	u.dropLease()
	u.post(func(b *inbox) { b.mu.lease.hung = true })
	u.refuse(errors.Join(ErrUnavailable, errHung), true)
}

// news gives what the machine is to be told of the lease, and the tick at which it was so.
func (u *unit) news() (partitions.Input, partitions.Tick) {
	n := u.inbox.leaseNews()
	held, is := u.machine.Held()
	switch {
	case n.renewed.Generation != 0:
		u.asked(n.renewed)
		return n.renewed, n.first
	case n.lost != 0 && is && n.lost == held.Generation && n.why == leases.Fenced:
		return partitions.Fenced{Generation: n.lost}, u.run.tick()
	case n.lost != 0 && is && n.lost == held.Generation:
		return partitions.Lost{Why: n.why.String()}, u.run.tick()
	case n.hung:
		return partitions.Hung{}, u.run.tick()
	}
	return nil, 0
}

// asked notes when the lease was last asked for with success.
func (u *unit) asked(r partitions.Renewed) {
	if held, is := u.machine.Held(); is && held.Generation == r.Generation {
		u.lease.sent = max(u.lease.sent, r.Sent)
	}
}

// keepLease has the keeper keep what the machine holds, and nothing else.
func (u *unit) keepLease() {
	if !u.prog.config.Leased {
		return
	}
	held, is := u.machine.Held()
	kept := event.Generation(u.lease.kept.Load())
	if is && held.Generation == kept || !is && kept == 0 {
		return
	}
	u.dropLease()
	if is {
		u.lease.kept.Store(uint64(held.Generation))
		u.run.keeper.Add(held, u.run.at(u.lease.sent), u)
	}
}

// dropLease has the keeper forget the unit. Anybody may call it; what the machine still holds after its next step is kept again.
func (u *unit) dropLease() {
	if g := u.lease.kept.Swap(0); g != 0 {
		u.run.keeper.Remove(partitions.Held{Unit: u.id, Generation: event.Generation(g)})
	}
}

// stillServing is serving for somebody in the middle of what the machine asked for: it tells the machine of renewals, and takes note of a
// loss of which the machine is not told yet.
func (u *unit) stillServing() bool {
	if !u.prog.config.Leased {
		return u.serving()
	}
	u.run.keeper.Look()
	if r, first := u.inbox.takeRenewed(); r.Generation != 0 {
		u.asked(r)
		for _, e := range u.machine.Step(first, r) {
			u.do(e)
		}
	}
	held, is := u.machine.Held()
	return is && u.lease.lost.Load() != uint64(held.Generation) && u.serving()
}

// bounded gives a call of the port as long as another try would not do as well. The error of one that took longer leaves open what it did.
func (u *unit) bounded(call func(context.Context) error) error {
	if !u.prog.config.Leased {
		return call(u.run.ctx)
	}
	ctx, done := context.WithTimeout(u.run.ctx, u.prog.config.Heartbeat)
	defer done()
	err := call(ctx)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, partitions.ErrUnknown) {
		err = errors.Join(partitions.ErrUnknown, err)
	}
	return err
}

// renewalFailed is told of renewals that are made again.
func (r *running) renewalFailed(err error) {
	if tell := r.rt.cfg.Observer.Trouble; tell != nil {
		tell(event.Unit{}, "renew leases", err)
		return
	}
	r.rt.cfg.Logger.Warn("leases were not renewed: trying again", "error", err)
}

// noteRest does what a node is to do when a unit rests.
func (u *unit) noteRest(e *partitions.Idle) {
	others := &u.run.rt.cfg.Others
	switch {
	case e.Held > 0:
		u.refuse(u.heldError(e), false)
		observe2(u.run.rt.cfg.Observer.LeaseRefused, u.id, e.Held)
		if !u.drained && others.Held != nil {
			others.Held(u.id, e.Held)
		} else if !u.drained {
			u.run.tryAgain(u.id, e.Held)
		}
	case e.Unfit:
		u.refuse(errors.Join(ErrUnavailable, u.trouble), false)
		if others.Unfit != nil {
			others.Unfit(u.id, u.trouble)
		} else {
			u.run.tryAgain(u.id, u.prog.config.IO.Max)
		}
	case e.Because == partitions.PhaseWaiting && u.prog.config.Leased:
		observe2(others.Unfit, u.id, ErrNewerType)
	case e.Because == partitions.PhaseHalted, e.Because == partitions.PhasePaused:
		observe2(others.Rested, u.id, e.Because)
	}
	if u.drained {
		observe2(others.LetGo, u.id, e.Unread)
	}
}

// tryAgain wakes a unit after a while, once however often it is asked for meanwhile.
func (r *running) tryAgain(id event.Unit, after time.Duration) {
	if _, set := r.again.LoadOrStore(id, true); !set {
		r.later(after, func() {
			r.again.Delete(id)
			r.wake(id)
		})
	}
}

// heldError tells of a unit that is not to be had for a while.
func (u *unit) heldError(e *partitions.Idle) error {
	if u.forgot {
		return errors.Join(ErrUnavailable, errForgot)
	}
	return &HeldError{Unit: u.id, Most: e.Held, Holder: e.Holder, Generation: e.HeldAt}
}
