package actors

import "github.com/keyhold/keyhold/event"

// Live reports whether a unit is at work here, or about to be.
func (r *Runtime) Live(u event.Unit) bool {
	run := r.running.Load()
	return run != nil && run.units.find(u) != nil
}

// HandOver has a unit finish what is in hand, and give up its lease although there may be more to do. It does not wait for that:
// [Others].LetGo is told. Asks that wait get [ErrUnavailable], and so do those that come before it is gone. It does nothing for a unit that is not
// live. Whoever wakes the unit again has it compete for its lease again.
func (r *Runtime) HandOver(u event.Unit) {
	r.live(u, func(b *inbox) { b.mu.drain, b.mu.over = true, true })
}

// ResumeLive is Resume for a unit that is live, and nothing for another: the node that has it, if any, is told likewise.
func (r *Runtime) ResumeLive(u event.Unit) {
	r.live(u, func(b *inbox) { b.mu.acted, b.mu.wake = true, true })
}

// live changes the inbox of a unit that is there.
func (r *Runtime) live(id event.Unit, change func(*inbox)) {
	run := r.running.Load()
	if run == nil {
		return
	}
	if u := run.units.find(id); u != nil {
		u.post(change)
	}
}
