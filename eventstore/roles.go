package eventstore

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Streams reads entities.
type Streams interface {
	// ReadStream gives up to limit (1 to 10,000) events of a stream with StreamVersion > after, in order.
	ReadStream(ctx context.Context, s event.Stream, after uint64, limit int) ([]event.Envelope, error)
	// ReadSnapshot gives the newest snapshot of a stream, nil when there is none.
	ReadSnapshot(ctx context.Context, s event.Stream) (*Snapshot, error)
	// ReadReply gives what a command was answered, nil when its id is not known.
	ReadReply(ctx context.Context, s event.Stream, commandID string) (*Reply, error)
	// ReadAll gives up to limit events after a position, over all categories but those registered as categories of
	// commands (or over those named, whatever they are), in an order in which no event ever appears below one already read.
	// Voids are left out. A zero Position is the beginning. The position returned is that of the last event read,
	// or after itself.
	ReadAll(ctx context.Context, after Position, categories []string, limit int) ([]event.Envelope, Position, error)
}

// Position is a place in the order of all events of a store. It is opaque: compare it with nothing, store it as it is.
type Position string

// Records reads broker lanes.
type Records interface {
	// ReadLane gives up to limit (1 to 10,000) records of a lane with Sequence > after, in order and without a gap, voids
	// included. [Lanes.Purge] deletes from the beginning of a lane only, so a run that does not begin at after+1 begins with the
	// first record kept. A record that is missing further up was lost in some other way: the run ends before it.
	ReadLane(ctx context.Context, lane event.LaneRef, after event.Sequence, limit int) ([]event.Envelope, error)
	// LaneTail gives the last sequence drawn in a lane, 0 when it has none.
	LaneTail(ctx context.Context, lane event.LaneRef) (event.Sequence, error)
	// Abandon turns a record that can never be delivered into a void (of the envelope stay id, time, lane, sequence,
	// stream, its version, and store id), keeping what it was and the reason. What an entity emitted stays in its stream.
	// It is idempotent: the first reason stays. The error is of kind [ErrNotFound] when there is no such record.
	Abandon(ctx context.Context, lane event.LaneRef, seq event.Sequence, reason string) error
	// Abandoned lists what Abandon set aside and Purge has not deleted or emptied since, in order of (lane, sequence) after the given
	// place, up to limit.
	Abandoned(ctx context.Context, after event.Position, limit int) ([]Abandoned, error)
}

// Abandoned is a record that was replaced by a void.
type Abandoned struct {
	Record event.Envelope
	Reason string
	Time   time.Time
}

// Units reads and raises unit rows.
type Units interface {
	// Recover gives what the store knows of units: in the order asked, one for each, zero values where it knows nothing.
	// Lanes are the lanes whose checkpoints are wanted.
	Recover(ctx context.Context, asked []Ask) ([]Recovered, error)
	// Raise does the same, and in the same transaction raises each unit's row to the generation asked where that is
	// higher than the row's. A unit whose row was not below it has Raised false and must not be served; Recovered.Generation
	// tells the row's, after the raise. From a raise on, no commit, halt or skip at a lower generation succeeds.
	Raise(ctx context.Context, asked []Ask) ([]Recovered, error)
}

// Ask is what is wanted of one unit.
type Ask struct {
	Unit       event.Unit
	Generation event.Generation // for Raise
	Lanes      []event.LaneRef
}

// Recovered is what a store knows of one unit.
type Recovered struct {
	Unit        event.Unit
	Raised      bool
	Generation  event.Generation
	Checkpoints []event.Position // one per lane asked, in that order; Sequence 0 where there is none, EventID "" where it is not known
	Halt        *Halt            // nil when it is not halted; a halt at or below the checkpoint is void and not given
	Pause       *Pause           // of the unit or of its whole handler; nil when it is to read on
	Parked      []ParkedIn       // in order of category; those with a count above 0
	Due         bool             // rows set aside are to be applied now: see [Asides.DueAsides]
	Tried       *Tried           // of the next event of a lane, nil when nothing is known; one at or below the checkpoint is not given
}

// Lanes tells what there is to do, without anybody polling for it. (Sink lanes will be a role of their own.)
type Lanes interface {
	// Unpassed pages through the lanes of a category whose last sequence is above the checkpoint that the named handler or
	// entity kind has for it, in lane order after the lane given (a zero lane for the first page), up to limit. Lanes of units that are halted
	// or paused, for themselves or with their handler, are left out. It is for a start or a takeover, not for a hot path: its cost grows with the number of lanes.
	Unpassed(ctx context.Context, name, category string, after event.LaneRef, limit int) ([]event.LaneRef, error)
	// Purge deletes, in batches of at most limit, replies and ids of events taken in ([Intake]) that are older than before, and records older than before that every handler
	// registered for their category has passed, that belong to no entity's stream and that no dead letter or parked event refers to: what a
	// handler set aside stays. Handlers that keep their checkpoints in another store have a record once it is noted as published; until then it stays for them.
	//
	// It never makes a hole inside a lane: a record that has something below it that stays (an event of a stream, a dead letter's
	// record, or one that is younger or not passed) is emptied instead. It is then a void such as Abandon leaves, but nothing is kept of what
	// it was, and it is not among the Abandoned. Later purges do not look at it until everything below it is gone; then it is
	// deleted as soon as every handler has passed it.
	//
	// It returns how many records, replies and ids it deleted or emptied; 0 = done.
	Purge(ctx context.Context, before time.Time, limit int) (int, error)
}

// Halts lists units that wait for a person.
type Halts interface {
	// ListHalts gives halts that are not void in order of unit (name, key), after the unit given, up to limit; name "" means all names.
	ListHalts(ctx context.Context, name string, after event.Unit, limit int) ([]Halt, error)
	// ListDead gives dead letters of a handler in order of (key, category, lane, sequence) after the place given, up to limit.
	ListDead(ctx context.Context, name string, after event.Position, limit int) ([]Dead, error)
}
