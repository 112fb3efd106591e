package eventstore

import (
	"time"

	"github.com/keyhold/keyhold/event"
)

// Changes is everything that one unit of work changes, as data. The zero value changes nothing.
//
// A store applies it in this order, so that locks are held as briefly as possible: what the application did through
// SQL came first; then what is taken in, in order of (category, key, source); replies, snapshots, halts and what is set aside; last, in this order, the fences, the checkpoints in
// lane order, and the lanes' counters in lane order, from which the sequences of the events are drawn.
// Any refusal rolls the whole unit of work back.
//
// What identifies something, of events, their lanes and replies, is refused where [event.CheckID] refuses it, with its [*event.IDError], by every store. Texts for people, such as Reason and Error,
// may hold anything: a store that cannot keep a NUL, or what is not valid UTF-8, keeps U+FFFD in its place.
type Changes struct {
	// Fence is the unit in whose name this commits. Its zero value fences with the process alone (every commit of a
	// process that owns its store is fenced by its start generation anyway).
	Fence Fence

	Append  []Append         // events of entities, with the version expected; one for each stream
	Publish []event.Envelope // events and commands that no entity emitted, into the lane Ref() of each

	Advance []Advance // checkpoints moved, one for each lane
	// Listed, unless 0, is the revision of the registry by whose lists of types it was decided to pass events over. The commit is refused with a
	// [*ListMovedError] when the registry is not at it any more, so that a program of an older release passes over nothing that a newer one has registered for.
	Listed uint64

	Snapshot *Snapshot
	Reply    *Reply

	Halt     *Halt    // the fence's unit stops before this event
	LiftHalt *HaltRef // ends a halt; compare-and-act: no such halt, or a void one = [*HaltMovedError]. Needs no fence
	Dead     []Dead   // dead letters of the fence's unit; one that is there already is replaced, and not due any more
	// Park has events that the fence's unit sets aside in this order, after those it has parked already. One without a Reason waits for
	// another of its category: when none is parked (any more: a person may have dropped the last) the commit is refused, [ErrAsideMoved].
	Park    []Parked
	Settle  *Settle  // of the fence's unit: ends an attempt at a row that was set aside
	Suspect *Suspect // of the fence's unit: counts a row that was set aside among what may have ended the process
	Tried   *Tried   // of the fence's unit: takes the place of what was known of attempts at its next event
	Untry   bool     // forgets that

	Take []Take // streams of other programs that were taken in, one for each; what came of them is in Publish

	Projection *ProjectionStep // what a build of a projection did: its position moved, by compare-and-set
}

// Fence is the check "do I still hold this unit at this generation", made in the transaction it guards.
type Fence struct {
	Unit       event.Unit
	Generation event.Generation // the unit's row must be at exactly this; 0 where units are not leased: no check
}

// Append adds events to one stream, one at least. Stream, StreamVersion, Sequence and StoreID are set in what the store
// keeps; whatever the envelopes given say there is ignored.
type Append struct {
	Stream   event.Stream
	Expected uint64 // version of the stream's last event, 0 for a stream that does not exist yet
	Events   []event.Envelope
}

// Advance moves the checkpoint of (unit name, lane) by compare-and-set: from exactly From, which is what this
// activation last read or wrote (0 = there is none yet), to To. The name is that of Changes.Fence.Unit, which must be set.
type Advance struct {
	Lane    event.LaneRef
	From    event.Sequence
	To      event.Sequence // above From
	EventID string         // of the event at To
}

// Snapshot is the state of an entity at a version. A store keeps the newest one of a stream: an older version is
// ignored, an equal one replaces it.
type Snapshot struct {
	Stream       event.Stream
	Version      uint64 // of the stream
	StateVersion int    // of the Go type of the state: a reader with another one ignores the snapshot
	Data         []byte
	Encoding     event.Encoding
}

// Reply is what a command was answered, kept under the command's id so that a retried command gets it again. The
// first reply to a command stays.
type Reply struct {
	Stream    event.Stream
	CommandID string
	Command   string // wire name of the command
	Type      string // wire name of the reply; "" for a command without one
	Version   int    // of Type; 0 = not known
	Encoding  event.Encoding
	Data      []byte
	Rejected  string // reason, when the command was rejected
	Time      time.Time
}

// Halt is the durable state of a unit whose next event cannot be applied. A unit has one halt at most: a new one
// replaces it. A halt at or below the unit's checkpoint of its lane is void: as if it were not there.
type Halt struct {
	Unit       event.Unit
	Lane       event.LaneRef
	Sequence   event.Sequence
	EventID    string
	EventType  string
	Attempts   int
	Reason     string // "retries exhausted", "poison", "undecodable", ...
	Error      string // of the last attempt
	Since      time.Time
	Generation event.Generation
}

// Ref is what names this halt in a compare-and-act.
func (h *Halt) Ref() HaltRef { return HaltRef{Unit: h.Unit, Lane: h.Lane, Sequence: h.Sequence} }

// HaltRef names the halt of a unit at one event.
type HaltRef struct {
	Unit     event.Unit
	Lane     event.LaneRef
	Sequence event.Sequence
}

// Dead is an event that one handler set aside. It stays where it is in its lane; only this handler has passed it.
type Dead struct {
	Unit     event.Unit
	Lane     event.LaneRef
	Sequence event.Sequence
	EventID  string
	Type     string
	Attempts int
	Reason   string
	Error    string
	Time     time.Time
}

// Committed says what a commit drew.
type Committed struct {
	Versions []uint64     // of each Append, the version of its stream now
	Tails    []event.Tail // of each lane that grew, in lane order
}
