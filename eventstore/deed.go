package eventstore

import (
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// TooManyParked is the reason of a halt before an event for which a unit has no room among its parked events.
const TooManyParked = "too many parked"

// HistoryDiverged is the reason of a halt where the broker tells another history of a lane than the one that was applied: it has another event at the checkpoint, the one that the
// halt names, because the store that the lane comes from, which is another application's, went back in time. Nothing is wrong with the event at the halt.
const HistoryDiverged = "diverged"

// Deed is what an act on one unit, or on all units of a handler, changes; [Act.Decide] gives it. An adapter reads the state, decides, and
// carries the deed out with the row of the act, in one transaction.
type Deed struct {
	LiftHalt            bool     // the halt goes, and what is known of attempts at the unit's next event
	Advance             *Advance // past the event of the halt; or, to where it is, what its event is now
	Dead                *Dead    // to be kept
	DropFirst, DueFirst bool     // the first parked event goes; the one that is first then, if any, is to be applied
	Pause               *Pause   // to be set
	Resume              bool     // the pause of Act.Unit goes

	Event  event.Position // concerned, if one is
	Detail string         // for [ActRecord]
}

// Decide says what an act of the kinds retry, skip, dead-letter, pause and resume does in the state now, whose unit is the act's.
// checkpoint is that of the halt's lane, 0 when the unit is not halted. The time of the act must be set. The error is [ErrNotFound] or a [*StateMovedError].
func (a *Act) Decide(now UnitState, checkpoint event.Sequence) (Deed, error) {
	if err := a.known(&now); err != nil {
		return Deed{}, err
	}
	switch a.Kind {
	case ActPause:
		return a.pause(now)
	case ActResume:
		return a.resume(now)
	}
	switch {
	case now.Halt != nil && a.sees(now.Halt.position()) && a.since(now.Halt.Since):
		return a.actOnHalt(now, checkpoint)
	case now.Parking != nil && a.sees(now.Parking.First.position()) && a.since(now.Parking.First.Time):
		return a.actOnParked(now)
	}
	return Deed{}, a.Moved(now, stopped(&now))
}

// Moved refuses the act because of the state now, and says why.
func (a *Act) Moved(now UnitState, why string) error {
	return &StateMovedError{Act: *a, Now: now, Why: why}
}

// known gives ErrNotFound for what the store has never heard of.
func (a *Act) known(now *UnitState) error {
	switch {
	case a.Unit.Key == "" && now.Kind == "":
		return fmt.Errorf("%s: no handler or entity kind is called %q: %w", a.Kind, a.Unit.Name, ErrNotFound)
	case a.Unit.Key != "" && !now.Known():
		return fmt.Errorf("%s: nothing is known of unit %q: %w", a.Kind, a.Unit, ErrNotFound)
	}
	return nil
}

// Known reports whether the store has anything of the unit: events for it, or what became of them.
func (s UnitState) Known() bool {
	return s.Halt != nil || s.Parking != nil || s.Tried != nil || s.Pause != nil || s.Dead > 0 || len(s.Lanes) > 0
}

func (h *Halt) position() event.Position {
	return event.Position{Lane: h.Lane, Sequence: h.Sequence, EventID: h.EventID}
}

func (p *Parked) position() event.Position {
	return event.Position{Lane: p.Lane, Sequence: p.Sequence, EventID: p.EventID}
}

// since reports whether the person saw it stop then; a time of 0 is whichever.
func (a *Act) since(t time.Time) bool { return a.Since.IsZero() || a.Since.Equal(t) }

// sees reports whether the person saw the unit stopped there. An id that one of both does not know says nothing.
func (a *Act) sees(at event.Position) bool {
	return a.Seen.Lane == at.Lane && a.Seen.Sequence == at.Sequence &&
		(a.Seen.EventID == at.EventID || a.Seen.EventID == "" || at.EventID == "")
}

func (a *Act) actOnHalt(now UnitState, checkpoint event.Sequence) (Deed, error) {
	h := now.Halt
	d := Deed{LiftHalt: true, Event: h.position(), Detail: haltedAt(h) + ", now tries it again"}
	if a.Kind == ActRetry && h.Reason == TooManyParked && now.Parking != nil { // or there would be no room for it again
		d.DueFirst = true
		d.Detail = haltedAt(h) + ", now applies its parked events first"
	}
	if h.Reason == HistoryDiverged && a.Kind != ActRetry {
		return Deed{}, a.Moved(now, "it has applied another history than the broker has, and no event is to blame: a retry has it go on in the broker's")
	}
	if h.Reason == HistoryDiverged && checkpoint == h.Sequence-1 { // or it would halt there again
		d.Advance = &Advance{Lane: h.Lane, From: checkpoint, To: checkpoint, EventID: h.EventID}
		d.Detail = haltedAt(h) + ", now goes on behind the event that the broker has there"
	}
	if a.Kind == ActRetry {
		return d, nil
	}
	if checkpoint != h.Sequence-1 {
		return Deed{}, a.Moved(now, fmt.Sprintf("its checkpoint of %s is %d, and events before #%d are not applied yet", h.Lane, checkpoint, h.Sequence))
	}
	d.Advance = &Advance{Lane: h.Lane, From: checkpoint, To: h.Sequence, EventID: h.EventID}
	d.Detail = haltedAt(h) + ", now passes it"
	if a.Kind == ActDeadLetter {
		d.Detail += " and keeps it as a dead letter"
		d.Dead = &Dead{
			Unit: h.Unit, Lane: h.Lane, Sequence: h.Sequence, EventID: h.EventID, Type: h.EventType,
			Attempts: h.Attempts, Reason: h.Reason, Error: h.Error, Time: a.Time,
		}
	}
	return d, nil
}

func (a *Act) actOnParked(now UnitState) (Deed, error) {
	p := &now.Parking.First
	d := Deed{DueFirst: true, Event: p.position()}
	switch {
	case a.Kind == ActRetry && p.Due:
		return Deed{}, a.Moved(now, stopped(&now))
	case a.Kind == ActRetry:
		d.Detail = parkedFrom(now.Parking) + ", now applies them"
		return d, nil
	}
	d.DropFirst = true
	d.Detail = parkedFrom(now.Parking) + ", now passes the first"
	if a.Kind == ActDeadLetter {
		d.Detail += " and keeps it as a dead letter"
		d.Dead = &Dead{
			Unit: p.Unit, Lane: p.Lane, Sequence: p.Sequence, EventID: p.EventID, Type: p.Type,
			Attempts: p.Attempts, Reason: p.Reason, Error: p.Error, Time: a.Time,
		}
		if d.Dead.Reason == "" {
			d.Dead.Reason = "parked"
		}
	}
	return d, nil
}

// own gives the pause that the act is about.
func (a *Act) own(now *UnitState) *Pause {
	if a.Unit.Key == "" {
		return now.HandlerPause
	}
	return now.Pause
}

func (a *Act) pause(now UnitState) (Deed, error) {
	if p := a.own(&now); p != nil {
		return Deed{}, a.Moved(now, "it is paused already, "+pausedBy(p))
	}
	d := Deed{
		Pause:  &Pause{Unit: a.Unit, Actor: a.Actor, Reason: a.Reason, Since: a.Time},
		Detail: "reads no further until it is resumed",
	}
	if a.Unit.Key == "" {
		d.Detail = "all its units read no further until it is resumed"
	}
	return d, nil
}

func (a *Act) resume(now UnitState) (Deed, error) {
	p := a.own(&now)
	switch {
	case p == nil && a.Unit.Key != "" && now.HandlerPause != nil:
		return Deed{}, a.Moved(now, "it is not paused itself, its whole handler is, "+pausedBy(now.HandlerPause))
	case p == nil:
		return Deed{}, a.Moved(now, "it is not paused")
	}
	d := Deed{Resume: true, Detail: "paused " + pausedBy(p) + ", now reads on"}
	if a.Unit.Key != "" && now.HandlerPause != nil {
		d.Detail = "paused " + pausedBy(p) + ", now reads on as soon as its handler is resumed too"
	}
	return d, nil
}
