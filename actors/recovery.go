package actors

import (
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

func (u *unit) recover(e *partitions.Recover) partitions.Input {
	u.relist()
	known, err := u.known(e)
	if err != nil {
		return partitions.RecoverDone{Outcome: outcomeOf(err), Err: err}
	}
	u.due = known.Due
	u.standing(known)
	done := partitions.RecoverDone{
		Raised: known.Raised, Generation: known.Generation, Checkpoints: known.Checkpoints, Paused: known.Pause != nil, Due: known.Due,
	}
	if h := known.Halt; h != nil {
		done.Halt = &partitions.Failure{
			Lane: h.Lane, Sequence: h.Sequence, EventID: h.EventID, EventType: h.EventType, Attempts: h.Attempts, Reason: h.Reason, Error: h.Error,
		}
	}
	for _, p := range known.Parked {
		done.Parked = append(done.Parked, partitions.Parked(p))
	}
	if t := known.Tried; t != nil {
		done.Tried = &partitions.Tried{
			Lane: t.Lane, Sequence: t.Sequence, EventID: t.EventID, EventType: t.EventType, Attempts: t.Attempts, Error: t.Error,
			Suspicions: t.Suspicions, Alone: t.Alone,
		}
	}
	return done
}

// known gives what the store knows of the unit.
func (u *unit) known(e *partitions.Recover) (*eventstore.Recovered, error) {
	ask := eventstore.Ask{Unit: u.id, Generation: e.Generation, Lanes: u.prog.lanes(u.id.Key)}
	if e.Raise {
		got, err := u.run.raises.do(u.run.ctx, ask)
		return &got, err
	}
	got, err := u.run.rt.cfg.Store.Recover(u.run.ctx, []eventstore.Ask{ask})
	if err != nil {
		return nil, err
	}
	return &got[0], nil
}

// stop is what is known to keep a unit from its streams.
type stop uint8

const (
	stopUnknown stop = iota // nothing was recovered yet
	stopNone
	stopHalted
	stopPaused
)

// standing tells observers what people have changed since the unit last looked. A unit that has come to life since then does not know
// how it was before; that somebody acted says enough.
func (u *unit) standing(known *eventstore.Recovered) {
	was, acted := u.stop, u.acted
	u.stop, u.acted = stopNone, false
	switch {
	case known.Pause != nil:
		u.stop = stopPaused
	case known.Halt != nil:
		u.stop = stopHalted
	}
	if u.stop == stopNone && (was == stopHalted || was == stopPaused || was == stopUnknown && acted) {
		observe2(u.run.rt.cfg.Others.Rested, u.id, partitions.PhaseIdle)
	}
	o := &u.run.rt.cfg.Observer
	switch {
	case u.stop == stopPaused && was != stopPaused && (was != stopUnknown || acted):
		observe(o.Paused, u.id)
	case u.stop == stopNone && (was == stopHalted || was == stopPaused || was == stopUnknown && acted && !known.Due):
		observe(o.Resumed, u.id)
	}
}
