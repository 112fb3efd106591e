package eventstore

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Asides reads what units set aside: parked events, which wait in order for a person, and dead letters, which do not stand in
// anybody's way. Both stay rows of the store until the unit has applied them, each under its own row: the unit of work deletes the row
// ([Changes.Settle]) instead of moving a checkpoint.
type Asides interface {
	// DueAsides gives up to limit rows of a unit that are to be applied now, in the order in which they are to be: its parked
	// events, from the first on, when its first one is due; then dead letters that a replay has handed out, in order of (category,
	// lane, sequence). Each comes with its record, which may be a void, and is one where there is no record. Whether the unit is
	// halted or paused makes no difference here.
	DueAsides(ctx context.Context, u event.Unit, limit int) ([]Aside, error)
	// DueUnits gives units that have rows to be applied now, in order of (name, key), after the unit given, up to limit. Units that are
	// halted or paused, for themselves or with their handler, are left out: they apply nothing. Its cost grows with what is due, not with what is set aside.
	DueUnits(ctx context.Context, after event.Unit, limit int) ([]event.Unit, error)
	// ListParked gives parked events of a unit in the order in which they will be applied, after the ordinal given (0 for the
	// first page), up to limit.
	ListParked(ctx context.Context, u event.Unit, after int64, limit int) ([]Parked, error)
	// ListParking gives units that have parked events in order of (name, key), after the unit given, up to limit; name "" means all names.
	ListParking(ctx context.Context, name string, after event.Unit, limit int) ([]Parking, error)
}

// Parked is an event that a unit set aside together with everything of its category that came after it.
type Parked struct {
	Unit     event.Unit
	Lane     event.LaneRef
	Sequence event.Sequence
	EventID  string
	Type     string
	Attempts int
	Reason   string // why it could not be applied; "" for one that was parked because it came after another
	Error    string // of the last attempt
	Time     time.Time
	Ordinal  int64 // place among the unit's parked events, set by the store; grows, with holes
	Due      bool  // only of the first: the unit is to apply its parked events now
}

// Parking is what a unit has parked.
type Parking struct {
	Unit  event.Unit
	First Parked
	Count int
}

// ParkedIn is how many events of one category a unit has parked.
type ParkedIn struct {
	Category string
	Count    int
}

// AsideKind tells parked events and dead letters apart.
type AsideKind uint8

const (
	AsideParked AsideKind = iota + 1
	AsideDead
)

// AsideRef names a row that was set aside.
type AsideRef struct {
	Kind     AsideKind
	Lane     event.LaneRef
	Sequence event.Sequence
}

// Aside is a row that is to be applied now.
type Aside struct {
	AsideRef
	Attempts   int            // so far
	Suspicions int            // see [Suspect]; 0 since it became due, but for what was counted
	Record     event.Envelope // of the event
}

// Suspect notes how often a row of the fence's unit that is due was begun after the unit had been left unclean: it may be what ended the
// process. It is counted before the attempt, as [Tried] counts it for the next event of a lane. The row stays due. It is
// compare-and-act like [Settle].
type Suspect struct {
	AsideRef
	Suspicions int
}

// Settle ends one attempt at a row of the fence's unit that was due. It is compare-and-act: no such row, or one that is not due
// any more (a parked event must be the unit's first), is [ErrAsideMoved].
type Settle struct {
	AsideRef
	// Failed is nil when the row is through: it is deleted, and the next parked event of the unit becomes due. Else the row stays,
	// with this, and nothing of its kind and unit is due for it any more: parked events wait for another act, a dead letter for another replay.
	Failed *AsideFailure
}

// AsideFailure is what became of an attempt at a row set aside.
type AsideFailure struct {
	Attempts int // in all
	Reason   string
	Error    string
	Time     time.Time
}

// Tried is what is known of attempts at the next event of a unit: those that failed, and those during which the process may have died.
// A unit has one such row at most, while its next event is in trouble; one at or below the checkpoint of its lane is void. An
// event that goes through at the first attempt never has one.
type Tried struct {
	Unit      event.Unit
	Lane      event.LaneRef
	Sequence  event.Sequence
	EventID   string
	EventType string
	Attempts  int       // that failed
	Error     string    // of the last one
	Time      time.Time // of the last change
	Again     time.Time // when the next attempt is due; zero = not known
	// Suspicions counts the times it was begun after its unit had been left unclean, Alone those of them for which no other
	// suspect ran beside it. Both are counted before it runs, and go back to 0 when it returns.
	Suspicions int
	Alone      int
}
