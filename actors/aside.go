package actors

import (
	"errors"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

func (u *unit) writeHalt(e *partitions.WriteHalt) partitions.Input {
	f := e.Halt
	halt := &eventstore.Halt{
		Unit: u.id, Lane: f.Lane, Sequence: f.Sequence, EventID: f.EventID, EventType: f.EventType, Attempts: f.Attempts,
		Reason: f.Reason, Error: errorText(f.Error), Since: u.run.rt.stamp(), Generation: e.Generation,
	}
	_, err := u.write(eventstore.Changes{Fence: u.fence(e.Generation), Advance: advances(e.Moves), Halt: halt, Untry: e.Untry})
	if err == nil {
		u.stop = stopHalted
		observe(u.run.rt.cfg.Observer.Halted, *halt)
	}
	return partitions.WriteHaltDone{Outcome: outcomeOf(err), Err: err}
}

func (u *unit) writeDead(e *partitions.WriteDead) partitions.Input {
	f := e.Dead
	dead := eventstore.Dead{
		Unit: u.id, Lane: f.Lane, Sequence: f.Sequence, EventID: f.EventID, Type: f.EventType, Attempts: f.Attempts,
		Reason: f.Reason, Error: errorText(f.Error), Time: u.run.rt.stamp(),
	}
	_, err := u.write(eventstore.Changes{
		Fence: u.fence(e.Generation), Advance: advances(e.Moves), Dead: []eventstore.Dead{dead}, Untry: e.Untry,
	})
	if err == nil {
		observe(u.run.rt.cfg.Observer.DeadLettered, dead)
	}
	return partitions.WriteDeadDone{Outcome: outcomeOf(err), Err: err}
}

// writeParked parks a run of events. Only of one that could not be applied observers are told: the others wait for it.
func (u *unit) writeParked(e *partitions.WriteParked) partitions.Input {
	now := u.run.rt.stamp()
	parked := make([]eventstore.Parked, len(e.Parked))
	for i := range e.Parked {
		f := &e.Parked[i]
		parked[i] = eventstore.Parked{
			Unit: u.id, Lane: f.Lane, Sequence: f.Sequence, EventID: f.EventID, Type: f.EventType, Attempts: f.Attempts,
			Reason: f.Reason, Error: errorText(f.Error), Time: now,
		}
	}
	_, err := u.write(eventstore.Changes{Fence: u.fence(e.Generation), Advance: advances(e.Moves), Park: parked, Untry: e.Untry})
	for i := range parked {
		if err == nil && parked[i].Reason != "" {
			observe(u.run.rt.cfg.Observer.Parked, parked[i])
		}
	}
	return partitions.WriteParkedDone{Outcome: outcomeOf(err), Err: err}
}

// writeTried keeps what is known of attempts at the next event. To be alone is counted by one who is.
func (u *unit) writeTried(e *partitions.WriteTried) partitions.Input {
	t := e.Tried
	if e.Begins {
		u.showSuspect(InHand{
			EventID: t.EventID, Type: t.EventType, Lane: t.Lane, Sequence: t.Sequence, Attempt: t.Attempts + 1,
			Suspect: true, Alone: e.Alone, Waiting: true,
		})
		o, err := u.enterGate(e.Alone, e.Generation)
		u.suspect.Store(nil)
		if o != partitions.OK {
			u.leaveGate()
			return partitions.WriteTriedDone{Outcome: o, Err: err}
		}
	}
	now := u.run.rt.stamp()
	tried := &eventstore.Tried{
		Unit: u.id, Lane: t.Lane, Sequence: t.Sequence, EventID: t.EventID, EventType: t.EventType, Attempts: t.Attempts,
		Error: errorText(t.Error), Time: now, Suspicions: t.Suspicions, Alone: t.Alone,
	}
	if t.Again != 0 {
		tried.Again = now.Add(max(time.Duration(t.Again-u.run.tick()), 0)).Truncate(time.Millisecond)
	}
	_, err := u.write(eventstore.Changes{Fence: u.fence(e.Generation), Tried: tried})
	if err == nil {
		u.suspicions = t.Suspicions
	} else {
		u.leaveGate()
	}
	return partitions.WriteTriedDone{Outcome: outcomeOf(err), Err: err}
}

func (u *unit) fetchAside(e *partitions.FetchAside) partitions.Input {
	rows, err := u.run.rt.cfg.Store.DueAsides(u.run.ctx, u.id, e.Max)
	if err != nil {
		return partitions.FetchAsideDone{Outcome: partitions.Failed, Err: err}
	}
	u.due = len(rows) > 0
	entries := make([]partitions.Aside, len(rows))
	for i := range rows {
		r := &rows[i]
		entries[i] = partitions.Aside{
			AsideRef: partitions.AsideRef{Dead: r.Kind == eventstore.AsideDead, Lane: r.Lane, Sequence: r.Sequence},
			Attempts: r.Attempts, Suspicions: r.Suspicions, Entry: r.Record,
		}
	}
	return partitions.FetchAsideDone{Entries: entries}
}

// settleAside ends an attempt at a row set aside that no behavior commits: it failed, or there is nothing to apply.
func (u *unit) settleAside(e *partitions.SettleAside) partitions.Input {
	s := settled(&e.Aside)
	if f := e.Failure; f != nil {
		s.Failed = &eventstore.AsideFailure{Attempts: f.Attempts, Reason: f.Reason, Error: errorText(f.Error), Time: u.run.rt.stamp()}
	}
	_, err := u.write(eventstore.Changes{Fence: u.fence(e.Generation), Settle: s})
	return partitions.SettleAsideDone{Outcome: outcomeOf(err), Err: err}
}

// suspectAside counts an attempt at a row set aside that may end the process, alone from here on; or takes back what was counted.
func (u *unit) suspectAside(e *partitions.SuspectAside) partitions.Input {
	if e.Alone {
		if o, err := u.enterGate(true, e.Generation); o != partitions.OK {
			u.leaveGate()
			return partitions.SuspectAsideDone{Outcome: o, Err: err}
		}
	}
	s := &eventstore.Suspect{AsideRef: settled(&e.Aside).AsideRef, Suspicions: e.Suspicions}
	_, err := u.write(eventstore.Changes{Fence: u.fence(e.Generation), Suspect: s})
	if err != nil {
		u.leaveGate()
	} else {
		u.suspicions = e.Suspicions
	}
	return partitions.SuspectAsideDone{Outcome: outcomeOf(err), Err: err}
}

// settled is what ends a row set aside, which is through.
func settled(a *partitions.AsideRef) *eventstore.Settle {
	s := &eventstore.Settle{AsideRef: eventstore.AsideRef{Kind: eventstore.AsideParked, Lane: a.Lane, Sequence: a.Sequence}}
	if a.Dead {
		s.Kind = eventstore.AsideDead
	}
	return s
}

// noteAside tells observers what became of an entry that was set aside.
func (u *unit) noteAside(n *partitions.Note) {
	o := &u.run.rt.cfg.Observer
	switch n.Kind {
	case partitions.NoteUnparked:
		observe2(o.Unparked, u.id, n.Lane.Category)
	case partitions.NoteReplayed:
		observe2(o.Replayed, u.id, u.entryAt(n.Lane, n.Sequence))
	case partitions.NoteAsideFailed:
		why := n.Err
		if why == nil {
			why = errors.New(n.Why)
		}
		o.asideFailed(u.id, u.entryAt(n.Lane, n.Sequence), why)
	}
}

// entryAt gives the entry at a place: all of it, if it is the one that was applied last.
func (u *unit) entryAt(lane event.LaneRef, seq event.Sequence) *event.Envelope {
	if e := u.entry; e != nil && e.Ref() == lane && e.Sequence == seq {
		return e
	}
	return &event.Envelope{Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Sequence: seq}
}

// maxErrorText is how many bytes are kept of the text of the error that halted a unit, or for which an event was set aside.
const maxErrorText = 4 << 10

// errorText makes the text of an error fit to be kept.
func errorText(s string) string { return event.Text(s, maxErrorText) }
