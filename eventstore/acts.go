package eventstore

import (
	"context"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Acts is how people change what units, handlers and jobs are doing. An act is one commit: it compares the state that the person saw
// with the present one, changes it, and leaves a row that tells who did it and why. It is not fenced: who acts owns nothing. A
// running process finds the rows of acts by others with ActsAfter, in a look every 250 ms, and what it does not see it finds in the state that
// its units recover.
type Acts interface {
	// Act acts. Errors: what [Act.Validate] says, a [*StateMovedError] when the state is not what the act was decided on (it tells the
	// present one), [ErrNotFound] for a handler or unit that the store does not know, [ErrInUse] for what cannot be done to a
	// handler of a running program.
	Act(ctx context.Context, a Act) (ActRecord, error)
	// ActsAfter gives acts with a higher id, in order, up to limit.
	ActsAfter(ctx context.Context, id int64, limit int) ([]ActRecord, error)
	// LastAct gives the id of the last act, 0 before the first.
	LastAct(ctx context.Context) (int64, error)
	// ListActs gives acts, the newest first.
	ListActs(ctx context.Context, q ActQuery) ([]ActRecord, error)
	// UnitState tells all that the store knows of one unit.
	UnitState(ctx context.Context, u event.Unit) (UnitState, error)
}

// ActKind says what is done.
type ActKind string

const (
	// ActRetry has a halted unit try its event again, with all its attempts, or one with parked events apply them.
	ActRetry ActKind = "retry"
	// ActSkip passes the event at which a unit is halted without applying it, or drops the first of its parked events, and goes on.
	ActSkip ActKind = "skip"
	// ActDeadLetter does the same, and keeps the event as a dead letter of the handler.
	ActDeadLetter ActKind = "dead-letter"
	// ActPause has a unit read no further until it is resumed; with an empty key, all units of the handler.
	ActPause  ActKind = "pause"
	ActResume ActKind = "resume"

	// ActRename gives everything that the store keeps under the name of a handler, its place in all lanes included, to another name, which
	// must not be taken. Only what was done to it before stays under the old one. Entity kinds cannot be renamed: their streams carry the name.
	ActRename ActKind = "rename"
	// ActRemove forgets a handler: its registration, its place in all lanes, what it set aside, and its pauses. Its jobs are cancelled.
	ActRemove ActKind = "remove"
	// ActReset puts a handler's place in the lanes of its categories to where a new one would begin by Act.Start, and forgets its halts, its
	// parked events and its attempts. Dead letters stay.
	ActReset ActKind = "reset"

	// What is done to a job. Start of a job is an act as well; see [Jobs].
	ActStartJob  ActKind = "start job"
	ActPauseJob  ActKind = "pause job"
	ActResumeJob ActKind = "resume job"
	ActCancelJob ActKind = "cancel job"

	// ActAdopt ends the divergence of a lane; see [Divergences]. Its row names no unit, but the newest event that the broker had.
	ActAdopt ActKind = "adopt"
)

// Act is what a person does.
type Act struct {
	Kind ActKind
	Unit event.Unit // key "" = the whole handler: pause, resume, rename, remove, reset

	// Seen is the event that the person saw the unit stopped at, for retry, skip and dead-letter: that of its halt, or the first of
	// its parked events. Since is when it stopped, to tell one halt at an event from the next; zero = whichever.
	Seen  event.Position
	Since time.Time

	To    string // new name, for rename
	Start *Start // for reset: Now and From count, Handler and Category do not

	Actor  string    // who; required
	Reason string    // why; required for skip, dead-letter, rename, remove and reset
	Time   time.Time // zero = now
}

// ActRecord is an act that was done.
type ActRecord struct {
	ID   int64 // grows
	Kind ActKind
	Unit event.Unit
	// Event is the event concerned, if one is.
	Event  event.Position
	Job    int64 // concerned, if one is
	Actor  string
	Reason string
	Detail string // what changed, in words: "halted at order:c-17 #5 (retries exhausted), now tries it again"
	Time   time.Time
}

// ActQuery selects acts. Zero fields select all.
type ActQuery struct {
	Before int64 // only those with a lower id; 0 = from the newest
	Name   string
	Key    string
	Limit  int // 1 to 10,000
}

// Pause is why a unit, or a handler, reads no further.
type Pause struct {
	Unit   event.Unit // key "" = the whole handler
	Actor  string
	Reason string
	Since  time.Time
}

// UnitState is what a store knows of one unit.
type UnitState struct {
	Unit         event.Unit
	Kind         HandlerKind      // "" when no such handler is registered
	Generation   event.Generation // of the unit's row, or of the process that owns all units
	Halt         *Halt            // nil when it is not halted
	Pause        *Pause           // of the unit itself
	HandlerPause *Pause           // of all units of the handler
	Parking      *Parking         // nil when nothing is parked
	Tried        *Tried           // nil when its next event was not tried yet
	Dead         int              // dead letters, counted up to 1,000
	Lanes        []LaneState      // of the categories of its handler; those that have no record and no checkpoint are left out
}

// LaneState is how far a unit is with a lane.
type LaneState struct {
	Lane       event.LaneRef
	Tail       event.Sequence // last drawn
	Checkpoint event.Position
	// Next is the first record above the checkpoint, its Data left out; nil when all is applied.
	Next *event.Envelope
}

// Lag is how many records are above the checkpoint.
func (l LaneState) Lag() uint64 { return uint64(l.Tail - min(l.Tail, l.Checkpoint.Sequence)) }

// StateMovedError: the state is not the one that an act was decided on.
type StateMovedError struct {
	Act Act
	Now UnitState
	Why string // in words: "it is not halted", "it is halted at order:c-17 #6"
}

func (e *StateMovedError) Error() string {
	return fmt.Sprintf("%s %s: %s: look again, then decide", e.Act.Kind, e.Act.Unit, e.Why)
}
func (e *StateMovedError) Is(target error) bool { return target == ErrStateMoved }
