package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/partitions"
)

// watch looks after the one attempt that a unit makes at a time.
type watch struct {
	current atomic.Pointer[attempt]
	alarm   alarm
	mu      struct {
		sync.Mutex
		at partitions.Tick // what the alarm is set to; 0 = not set
	}
}

// begin notes that a behavior is about to be called.
func (u *unit) begin(a *attempt) {
	u.watch.current.Store(a)
	if a.deadline != 0 {
		u.look(a.deadline)
	}
	if u.prog.config.Leased && a.generation != 0 && !u.stillServing() { // after it is known to be inside: see Lost
		u.interrupt(a)
	}
}

// look has overdue called at a time, unless it will be called before.
func (u *unit) look(at partitions.Tick) {
	w := &u.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.at == 0 || at < w.mu.at {
		w.mu.at = at
		u.run.alarms.set(&w.alarm, u.run.at(at))
	}
}

// end notes that it has returned.
func (u *unit) end(a *attempt) {
	u.watch.current.Store(nil)
	a.unblockAll()
	u.lease.hung.Store(false)
}

// patience is how long a behavior may ignore the end of its context before that is reported, and its slot given to others.
const patience = time.Second

// overdue is called when an attempt may have taken too long. The alarm is set for one attempt and left for those after it,
// so that most attempts cost the watch nothing: it may find another one, or none.
func (u *unit) overdue() {
	u.watch.mu.Lock()
	u.watch.mu.at = 0
	u.watch.mu.Unlock()
	a := u.watch.current.Load()
	if a == nil {
		return
	}
	now, ended := u.run.tick(), a.endedAt()
	switch {
	case ended == 0 && a.deadline == 0:
	case ended == 0 && now < a.deadline:
		u.look(a.deadline)
	case ended == 0 && a.interrupt(ErrTimeout):
		u.look(now.Add(patience))
	case now < ended.Add(patience):
		u.look(ended.Add(patience))
	default:
		observe2(u.run.rt.cfg.Observer.Overdue, u.id, time.Duration(now-a.began))
		a.block() // never undone: until it returns
		u.letLapse(a)
		u.look(now.Add(max(patience, u.prog.desc.Timeout)))
	}
}
