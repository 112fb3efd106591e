package partitions

import (
	"time"

	"github.com/keyhold/keyhold/event"
)

// Effect is something the shell is to do. Effects are pointers into the machine: see the package documentation for how long
// they are valid. String gives the line that scripts and logs show.
type Effect interface {
	effect()
	String() string
}

// Effects that are answered, by the input of the same name and Done.
type (
	// Acquire: [Port.Acquire] with this floor.
	Acquire struct{ Floor event.Generation }

	// Recover: read the unit's checkpoints and halt from the store. Raise: raise its row to Generation in the same transaction.
	Recover struct {
		Generation event.Generation
		Raise      bool
	}

	// Fetch: [Port.Fetch] above Positions, or [Port.Advance] with Ack.
	Fetch struct {
		Generation event.Generation
		Positions  []event.Position // one for each lane of the unit
		Max        int
		Ack        bool // positions are durable checkpoints: acknowledge them
	}

	// Apply: run the behavior with Entry and commit its effects together with Moves.
	Apply struct {
		Generation event.Generation
		Entry      *event.Envelope
		Attempt    int  // at this entry by this machine, from 1
		Fresh      bool // with a new instance
		Suspect    bool // the last owner may have died of it: no suspect that is to be alone may run beside it on this node
		Alone      bool // no other suspect may run beside it on this node; see WriteTried for when that begins
		// Aside is set when Entry was set aside: with its effects the row is deleted, and Moves is empty.
		Aside *AsideRef
		Untry bool // with its effects, what is known of attempts at it is forgotten
		Moves []Move
	}

	// Serve: let the behavior answer asks that wait, one or several, one after the other.
	Serve struct {
		Generation event.Generation
		Fresh      bool // with a new instance
	}

	// WriteHalt: make the halt durable, together with Moves. Untry: forget what is known of attempts.
	WriteHalt struct {
		Generation event.Generation
		Halt       *Failure
		Untry      bool
		Moves      []Move
	}

	// WriteDead: make the entry a dead letter of the handler, together with Moves, which move past it.
	WriteDead struct {
		Generation event.Generation
		Dead       *Failure
		Untry      bool
		Moves      []Move
	}

	// WriteParked: park entries in this order, together with Moves, which move past them. Those after the first, and the first as
	// well when it has no Reason, are parked for what stands before them: where nothing of their category does any more, it is refused with Moved.
	WriteParked struct {
		Generation event.Generation
		Parked     []Failure
		Untry      bool
		Moves      []Move
	}

	// WriteTried: make durable what is known of attempts at the next entry. It comes before an Apply that is suspect, and after
	// an attempt that failed and will be made again.
	WriteTried struct {
		Generation event.Generation
		Tried      *Tried
		// Alone: it counts an Apply that will be Alone. Being alone begins here, before this is committed, and lasts until the machine asks for
		// anything but that Apply or another WriteTried: a crash of a suspect beside it would be counted against the wrong one.
		// If others do not come back soon, the answer is Failed, and it is asked for again.
		Alone bool
		// Begins: it counts an Apply that is about to begin, Alone or not. One that has to wait for its turn behind somebody who is alone had
		// better wait before it is counted: a crash of that one would make it a suspect that must be alone itself.
		Begins bool
	}

	// FetchAside: read up to Max entries that were set aside and are to be applied now, in order.
	FetchAside struct {
		Generation event.Generation
		Max        int
	}

	// SettleAside: end an attempt at an entry that was set aside. With Failure it stays set aside, without it goes: there is
	// nothing to apply.
	SettleAside struct {
		Generation event.Generation
		Aside      AsideRef
		Failure    *Failure
	}

	// SuspectAside: make durable how often an entry that was set aside was begun in a unit that had been left unclean. Alone: it counts
	// a time that is about to begin, for which no other suspect may run on this node; so being alone begins before the call, and
	// lasts until something other than that Apply or another SuspectAside is asked for. Else it takes back what was counted: nobody died of it.
	SuspectAside struct {
		Generation event.Generation
		Aside      AsideRef
		Suspicions int
		Alone      bool
	}

	// CommitPassed: commit Moves, over entries that were passed over.
	CommitPassed struct {
		Generation event.Generation
		Moves      []Move
	}

	// Passivate: run OnPassivate of the instance and throw it away.
	Passivate struct{}

	// Release: [Port.Release].
	Release struct {
		Generation event.Generation
		IfIdle     bool // only if nothing is unread
	}
)

// Effects without an answer.
type (
	// Discard: throw the behavior instance away, without any hook; there may be none.
	Discard struct{}

	// Cancel: cancel the context of the user code that is inside. Its Apply, Serve or Passivate is still to be answered.
	Cancel struct{ Why CancelReason }

	// SetTimer: step [TimerFired] at At. It takes the place of the one before; At 0 means none.
	SetTimer struct{ At Tick }

	// Note tells observers. It asks for nothing.
	Note struct {
		Kind     NoteKind
		Lane     event.LaneRef  // where it concerns an entry
		Sequence event.Sequence // likewise
		Attempt  int            // that failed, with NoteRetry
		Again    Tick           // when it is tried again, or, with NoteHeld and NoteForgot, may be; 0 = at once or never
		Why      string
		Err      error
	}

	// Idle: the machine holds nothing and waits for nothing. See the package documentation for what to do with it.
	Idle struct {
		Because Phase // PhaseIdle, PhaseHalted, PhasePaused or PhaseWaiting
		// Unread: there may be something to read all the same, because the unit was drained, or cannot be had here. A hand-over wakes the next owner.
		Unread bool
		// Held: another owner has the unit, for so long at most, or the port forgot and grants nothing before; 0 = neither. What was wanted of
		// the unit is forgotten: whoever waits is to be told, and whoever knows the other nodes says when it is worth another try.
		Held time.Duration
		// Holder is the other owner, and HeldAt the generation of its lease, as [Acquired] names them; "" and 0 = not known, or nobody.
		Holder string
		HeldAt event.Generation
		// Unfit: the unit could not be recovered here and was given back. The same goes, and other nodes should have their turn first.
		Unfit bool
	}
)

// Move is a checkpoint to move by compare-and-set.
type Move struct {
	Lane    event.LaneRef
	From    event.Sequence // exactly what this activation last read or wrote
	To      event.Sequence
	EventID string // of the entry at To
}

// CancelReason says why user code is cancelled.
type CancelReason uint8

const (
	CancelLost  CancelReason = iota // the unit is not ours any more
	CancelDrain                     // a drain does not wait any longer
)

func (r CancelReason) String() string {
	if r == CancelDrain {
		return "drain"
	}
	return "lost"
}

// NoteKind says what a [Note] is about.
type NoteKind uint8

const (
	NoteHalted      NoteKind = iota // the unit halted before an entry
	NoteResumed                     // the unit runs again, or goes on to the next thing that stops it, after a person acted
	NoteDead                        // an entry was set aside
	NoteRetry                       // an attempt failed and will be made again
	NoteLost                        // the lease, or the right to the unit, is gone
	NoteAnew                        // the activation was dropped, the unit is acquired and recovered anew
	NoteRefused                     // a raise was refused: the store knows a later generation
	NoteHeld                        // another owner holds the unit
	NoteForgot                      // the port lost its memory
	NoteSuspect                     // the unit was left unclean: its first entry is a suspect
	NoteGap                         // the entry that comes next was not in what was read
	NoteNewer                       // an entry waits for a newer binary
	NoteHung                        // user code does not return
	NoteTrouble                     // a call did not work out and will be made again
	NoteParked                      // an entry was parked because it cannot be applied; those parked behind it are not told of
	NoteUnparked                    // the last parked entry of a category is applied: parking ends
	NoteReplayed                    // a dead letter was applied after all
	NoteAsideFailed                 // an entry set aside was tried again and stays where it is
)

// WhyActed is what a [NoteAnew] says when a person acted: nothing went wrong then.
const WhyActed = "a person acted"

var noteKinds = [...]string{"halted", "resumed", "dead", "retry", "lost", "anew", "refused", "held", "forgot", "suspect", "gap", "newer", "hung", "trouble", "parked", "unparked", "replayed", "aside failed"}

func (k NoteKind) String() string { return noteKinds[k] }

func (*Acquire) effect()      {}
func (*Recover) effect()      {}
func (*Fetch) effect()        {}
func (*Apply) effect()        {}
func (*Serve) effect()        {}
func (*WriteHalt) effect()    {}
func (*WriteDead) effect()    {}
func (*WriteParked) effect()  {}
func (*WriteTried) effect()   {}
func (*FetchAside) effect()   {}
func (*SettleAside) effect()  {}
func (*SuspectAside) effect() {}
func (*CommitPassed) effect() {}
func (*Passivate) effect()    {}
func (*Release) effect()      {}
func (*Discard) effect()      {}
func (*Cancel) effect()       {}
func (*SetTimer) effect()     {}
func (*Note) effect()         {}
func (*Idle) effect()         {}
