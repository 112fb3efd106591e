package partitions

import "github.com/keyhold/keyhold/event"

// Input is something that happened. Inputs are values; what they point to belongs to the machine once stepped.
type Input interface{ input() }

// What happens by itself. Each may come at any time.
type (
	// Wake: there may be something to read.
	Wake struct{}
	// Demand: an ask waits. The unit is acquired for it even when its stream is empty or halted.
	Demand struct{}
	// Acted: a person changed the unit's halt or pause in the store, or what it has set aside, or made that due, after which this was
	// sent. The unit recovers anew.
	Acted struct{}
	// TimerFired: the tick of the last [SetTimer] has come. One that comes early, late or twice does no harm.
	TimerFired struct{}
	// Renewed: a renewal of the lease that was sent at Sent has succeeded. It never revives a lease whose deadline has passed.
	Renewed struct {
		Generation event.Generation
		Sent       Tick
	}
	// Fenced: a renewal was refused.
	Fenced struct{ Generation event.Generation }
	// Lost: the unit must not be trusted any more, whatever its lease says. An ask whose commit came back stale says it
	// with its [ServeDone] instead.
	Lost struct{ Why string }
	// Hung: user code has not returned although its context ended. A lease is not renewed from here on, so that another
	// node can take over; this one starts nothing of the unit until the code has returned.
	Hung struct{}
	// Drain: finish what is in hand and give the unit up, to stop or to hand over. Cancel: do not wait for user code to finish by
	// itself any longer; it may follow a Drain without.
	Drain struct{ Cancel bool }
)

// The answers. Err is there to be told of in a [Note]; what it is, Outcome says.
type (
	// AcquireDone answers [Acquire]: OK, Failed or Unknown.
	AcquireDone struct {
		Outcome Outcome
		Acquired
		Err error
	}
	// RecoverDone answers [Recover]: OK, Failed or Unknown.
	RecoverDone struct {
		Outcome     Outcome
		Raised      bool             // false where a raise was asked for: the row was not below
		Generation  event.Generation // of the unit's row
		Checkpoints []event.Position // one for each lane of the unit, in the order given to [New]
		Halt        *Failure         // where the unit is halted, nil where it is not
		Paused      bool
		Parked      []Parked // categories of which entries are parked
		Due         bool     // entries set aside are to be applied now
		Tried       *Tried   // what the store knows of attempts at the next entry of a lane; nil = nothing
		Err         error
	}
	// FetchDone answers [Fetch]: OK, Stale (fenced), Failed or Unknown. The entries belong to the machine.
	FetchDone struct {
		Outcome Outcome
		Fetched
		Err error
	}
	// ApplyDone answers [Apply], once the behavior has returned and its commit has an outcome: OK, Stale, Moved, Unknown,
	// or Failed where nothing was committed and it was the attempt's own fault. An Apply that never began, because a [Cancel]
	// came first, has Failed as well.
	ApplyDone struct {
		Outcome Outcome
		Class   Class  // of a failure
		Reason  string // of a poisonous one, such as "undecodable"; default "poison"
		Keep    bool   // the instance has timers: do not give the unit up for being idle
		Err     error
	}
	// ServeDone answers [Serve], once the behavior has returned and its commit, if any, has an outcome: OK where the instance is as good
	// as before (a business rejection that changed nothing is), Failed where it is not, Stale, Moved or Unknown.
	ServeDone struct {
		Outcome Outcome
		More    bool // another ask waits
		Keep    bool // as in [ApplyDone]
		Err     error
	}
	// WriteHaltDone answers [WriteHalt]: OK, Stale, Moved, Unknown or Failed.
	WriteHaltDone struct {
		Outcome Outcome
		Err     error
	}
	// WriteDeadDone answers [WriteDead]: OK, Stale, Moved, Unknown or Failed.
	WriteDeadDone struct {
		Outcome Outcome
		Err     error
	}
	// WriteParkedDone answers [WriteParked]: OK, Stale, Moved, Unknown or Failed.
	WriteParkedDone struct {
		Outcome Outcome
		Err     error
	}
	// WriteTriedDone answers [WriteTried]: OK, Stale, Moved, Unknown or Failed.
	WriteTriedDone struct {
		Outcome Outcome
		Err     error
	}
	// FetchAsideDone answers [FetchAside]: OK, Failed or Unknown. The entries belong to the machine.
	FetchAsideDone struct {
		Outcome Outcome
		Entries []Aside
		Err     error
	}
	// SettleAsideDone answers [SettleAside]: OK, Stale, Moved (the row is gone, or not due any more), Unknown or Failed.
	SettleAsideDone struct {
		Outcome Outcome
		Err     error
	}
	// SuspectAsideDone answers [SuspectAside]: OK, Stale, Moved (the row is gone, or not due any more), Unknown or Failed.
	SuspectAsideDone struct {
		Outcome Outcome
		Err     error
	}
	// CommitPassedDone answers [CommitPassed]: OK, Stale, Moved, Unknown or Failed.
	CommitPassedDone struct {
		Outcome Outcome
		Err     error
	}
	// PassivateDone answers [Passivate], once the hook has returned, whatever it returned.
	PassivateDone struct{}
	// ReleaseDone answers [Release]: OK, Stale (it was not held), Busy, Failed or Unknown.
	ReleaseDone struct {
		Outcome Outcome
		Err     error
	}
)

func (Wake) input()             {}
func (Demand) input()           {}
func (Acted) input()            {}
func (TimerFired) input()       {}
func (Renewed) input()          {}
func (Fenced) input()           {}
func (Lost) input()             {}
func (Hung) input()             {}
func (Drain) input()            {}
func (AcquireDone) input()      {}
func (RecoverDone) input()      {}
func (FetchDone) input()        {}
func (ApplyDone) input()        {}
func (ServeDone) input()        {}
func (WriteHaltDone) input()    {}
func (WriteDeadDone) input()    {}
func (WriteParkedDone) input()  {}
func (WriteTriedDone) input()   {}
func (FetchAsideDone) input()   {}
func (SettleAsideDone) input()  {}
func (SuspectAsideDone) input() {}
func (CommitPassedDone) input() {}
func (PassivateDone) input()    {}
func (ReleaseDone) input()      {}

// Outcome is how a call of the port, or a commit, ended.
type Outcome uint8

const (
	OK      Outcome = iota
	Failed          // nothing happened; it is worth trying again
	Unknown         // it may have happened
	Stale           // refused: the unit is not held at this generation ([ErrFenced], a stale commit)
	Moved           // refused: a checkpoint is not where the machine believes it
	Busy            // refused: something is unread ([ErrBusy])
)

var outcomes = [...]string{"ok", "failed", "unknown", "stale", "moved", "busy"}

func (o Outcome) String() string { return outcomes[o] }

// Class is what kind of failure an attempt met with.
type Class uint8

const (
	Retry  Class = iota // another attempt may do better
	Poison              // none will
)

func (c Class) String() string {
	if c == Poison {
		return "poison"
	}
	return "retry"
}

// Failure is an entry that cannot be applied, as it is recorded when the unit halts before it or sets it aside.
type Failure struct {
	Lane      event.LaneRef
	Sequence  event.Sequence
	EventID   string // "" where the entry is missing; "diverged": of the entry before, as the stream has it
	EventType string // "" where the entry is missing
	Attempts  int
	Reason    string // "retries exhausted", "poison", "undecodable", "missing", "diverged", "crashed the process", "too many parked"; "" = it is parked behind another
	Error     string // of the last attempt
}

// Parked is how many entries of one category a unit has parked.
type Parked struct {
	Category string
	Count    int
}

// Tried is what is known of attempts at the next entry of a lane.
type Tried struct {
	Lane       event.LaneRef
	Sequence   event.Sequence
	EventID    string
	EventType  string
	Attempts   int    // that failed
	Error      string // of the last one
	Again      Tick   // when it is tried again, 0 = at once; not recovered
	Suspicions int    // times it was begun after the unit had been left unclean
	Alone      int    // of these, times no other suspect ran beside it
}

// AsideRef names an entry that was set aside.
type AsideRef struct {
	Dead     bool // it is a dead letter, handed out by a replay; else it is parked
	Lane     event.LaneRef
	Sequence event.Sequence
}

// Aside is an entry that was set aside and is to be applied now.
type Aside struct {
	AsideRef
	Attempts   int // so far
	Suspicions int // times it was begun, alone, after the unit had been left unclean
	Entry      event.Envelope
}
