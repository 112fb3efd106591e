package eventstore

import (
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Standing is what is in the way of a unit, as far as a store knows: what [Partition] tells of it.
type Standing struct {
	Halt         *Halt
	Pause        *Pause
	HandlerPause *Pause
	Parking      *Parking
	Tried        *Tried
}

// Standing gives what is in the way of the unit.
func (s *UnitState) Standing() Standing {
	return Standing{Halt: s.Halt, Pause: s.Pause, HandlerPause: s.HandlerPause, Parking: s.Parking, Tried: s.Tried}
}

// Status gives the gravest status, since when, and a summary of why. It speaks of one lane of the unit: whether there is something
// to apply is a matter of the lane, all that is graver one of the unit.
func (s *Standing) Status(l event.LaneRef, tail, checkpoint event.Sequence) (Status, time.Time, string) {
	switch {
	case s.Halt != nil:
		h := s.Halt
		return StatusHalted, h.Since, withError(reasonOr(h.Reason, "halted")+" at "+placeIn(l, h.Lane, h.Sequence), h.Error)
	case s.Pause != nil:
		return StatusPaused, s.Pause.Since, withError("paused by "+s.Pause.Actor, s.Pause.Reason)
	case s.HandlerPause != nil:
		return StatusPaused, s.HandlerPause.Since, withError("handler paused by "+s.HandlerPause.Actor, s.HandlerPause.Reason)
	case s.Parking != nil:
		p := &s.Parking.First
		return StatusParking, p.Time, withError(fmt.Sprintf("%d parked from %s on, %s",
			s.Parking.Count, placeIn(l, p.Lane, p.Sequence), reasonOr(p.Reason, "not tried yet")), p.Error)
	case s.Tried != nil:
		t := s.Tried
		what := counted(t.Attempts, "attempt") + " failed at "
		if t.Attempts == 0 {
			what = "suspected of ending the process at "
		}
		return StatusTrying, t.Time, withError(what+placeIn(l, t.Lane, t.Sequence), t.Error)
	case tail > checkpoint:
		return StatusBehind, time.Time{}, ""
	}
	return StatusDone, time.Time{}, ""
}

func reasonOr(reason, other string) string {
	if reason == "" {
		return other
	}
	return oneLine(reason)
}

// placeIn names a place to one who looks at a lane.
func placeIn(seen, l event.LaneRef, at event.Sequence) string {
	if seen == l {
		return fmt.Sprintf("#%d", at)
	}
	return fmt.Sprintf("%s #%d", l, at)
}
