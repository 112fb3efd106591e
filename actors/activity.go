package actors

import (
	"slices"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// Activity is what a live unit is doing: one that has an actor at this moment.
type Activity struct {
	Unit   event.Unit
	Phase  partitions.Phase
	Since  time.Time // when that began
	InHand *InHand   // nil when nothing of it is in its behavior, or waits for its turn there
	Asks   int       // that wait
}

// InHand is what is in the behavior of a unit.
type InHand struct {
	EventID  string // "" for an ask without an id, OnTimer, OnActivate and OnPassivate, for which the next three are empty as well
	Type     string
	Lane     event.LaneRef
	Sequence event.Sequence
	Attempt  int
	Began    time.Time
	Suspect  bool // it was in the behavior when the process ended
	Alone    bool // and no other suspect may be beside it
	Waiting  bool // for the others to be through: it is not in the behavior yet
}

// Load is how much the live units of one handler, or entity kind, have to do.
type Load struct {
	Name     string
	Live     int
	Applying int       // of these, units with an event in the behavior, or waiting for its turn there
	Oldest   time.Time // when the oldest event was emitted that is known to be next for a unit and is not applied; zero = none is
}

// Inspect tells what a unit is doing; false when it is not live. It holds up nobody.
func (r *Runtime) Inspect(id event.Unit) (Activity, bool) {
	run := r.running.Load()
	if run == nil {
		return Activity{}, false
	}
	u := run.units.find(id)
	if u == nil {
		return Activity{}, false
	}
	phase, since := u.shown.get()
	return Activity{Unit: id, Phase: phase, Since: run.at(since), InHand: u.inHand(), Asks: u.inbox.asks()}, true
}

// Leases tells how many units are leased at this moment; 0 where the port leases none.
func (r *Runtime) Leases() int {
	if run := r.running.Load(); run != nil && run.keeper != nil {
		return run.keeper.Len()
	}
	return 0
}

// Loads tells how much there is to do, in order of name, for all that is registered. It looks at each live unit once and holds up
// nobody; what it sees of different units is not of one moment.
func (r *Runtime) Loads() []Load {
	var all []Load
	for name := range sorted(r.programs) {
		all = append(all, Load{Name: name})
	}
	run := r.running.Load()
	if run == nil {
		return all
	}
	for units := range run.units.shardwise() {
		for _, u := range units {
			i, _ := slices.BinarySearchFunc(all, u.id.Name, func(l Load, name string) int { return strings.Compare(l.Name, name) })
			all[i].count(u)
		}
	}
	return all
}

func (l *Load) count(u *unit) {
	l.Live++
	if phase, _ := u.shown.get(); phase == partitions.PhaseApplying {
		l.Applying++
	}
	if ms := u.head.Load(); ms != 0 {
		if at := time.UnixMilli(ms).UTC(); l.Oldest.IsZero() || at.Before(l.Oldest) {
			l.Oldest = at
		}
	}
}

// inHand is called by anybody: it reads what the actor's goroutine shows.
func (u *unit) inHand() *InHand {
	s, a := u.suspect.Load(), u.watch.current.Load()
	if a == nil || s != nil && s.Waiting && a.meta.Sequence == 0 {
		return s // an ask that is served during the wait is over soon
	}
	h := &InHand{EventID: a.meta.ID, Type: a.meta.Type, Sequence: a.meta.Sequence, Attempt: a.meta.Attempt, Began: u.run.at(a.began)}
	if h.Sequence != 0 {
		h.Lane = event.LaneRef{Category: a.meta.Category, Key: u.id.Key, Lane: a.meta.Lane}
	}
	if s != nil {
		h.Suspect, h.Alone = s.Suspect, s.Alone
	}
	return h
}

// show lets others see what the unit is doing. It costs something only when that has changed.
func (u *unit) show(now partitions.Tick) {
	phase := u.machine.Phase()
	if phase == u.phase {
		return
	}
	u.phase = phase
	u.shown.set(phase, now)
	if phase == partitions.PhaseReady || phase == partitions.PhaseIdle {
		u.due = false
		u.showHead(nil)
	}
}

// showHead lets others see when the entry was emitted that is next; nil for none.
func (u *unit) showHead(e *event.Envelope) {
	var ms int64
	if e != nil {
		ms = e.Time.UnixMilli()
	}
	if u.head.Load() != ms {
		u.head.Store(ms)
	}
}

// showSuspect lets others see the suspect in hand.
func (u *unit) showSuspect(h InHand) {
	h.Began = u.run.at(u.run.tick())
	u.suspect.Store(&h)
}
