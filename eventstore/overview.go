package eventstore

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Overviews are for people: what is where, page by page, and what is wrong, without looking at every key.
type Overviews interface {
	// Overview tells how the store stands. Its cost grows with what is stopped or set aside, not with the number of lanes or events.
	Overview(ctx context.Context) (Overview, error)
	// ListPartitions gives partitions of handlers in order of (name, category, key, lane).
	ListPartitions(ctx context.Context, q PartitionQuery) ([]Partition, error)
	// ListPauses gives pauses in order of (name, key), after the unit given, up to limit; name "" means all names.
	ListPauses(ctx context.Context, name string, after event.Unit, limit int) ([]Pause, error)
}

// MaxCount is where counts of an overview end: one that has this value is at least that.
const MaxCount = 10_000

// MaxRecent is how many events [Overview.Recent] has after it at most.
const MaxRecent = 100

// Overview is how a store stands.
type Overview struct {
	StoreID         string
	StartGeneration event.Generation
	Owner           *Owner            // the process that has the store open now, of several the one that started last; nil when there is none, or it is not known
	Owners          []Owner           // all processes that have it open, in order of start; nil where it is not known
	Unclean         bool              // nobody has it open, and the last who had did not close it
	Handlers        []HandlerOverview // in order of name
	Categories      []CategoryOverview
	Jobs            int // that are not over
	// Recent is a position that at most [MaxRecent] events come after: ReadAll from there gives the newest, and then those that come.
	Recent Position
}

// Owner is a process that has a store open.
type Owner struct {
	PID        int
	Node       string
	Generation event.Generation // of its start
	Trouble    string           // what keeps it from its share of the work, as it says; "" = nothing
	Since      time.Time        // of the trouble
	About      string           // what it is, as it says by Describe
}

// HandlerOverview is how a handler or entity kind stands.
type HandlerOverview struct {
	Handler
	// Running: the program that started last handles it; where processes share the store, one that lives does.
	Running bool
	Lag     uint64    // records of its categories that it has not passed
	Moved   time.Time // when it last passed one; zero = never, or not known
	Halted  int       // units; this and the next counts end at MaxCount
	Parking int       // units
	Paused  int       // units, not counting those paused with the whole handler
	Dead    int       // dead letters
	Trying  int       // units whose next event failed and will be tried again
	Oldest  time.Time // when the unit that is stopped longest, by a halt or a parked event, stopped; zero = none is
	Pause   *Pause    // of the whole handler
}

// CategoryOverview is how a category stands.
type CategoryOverview struct {
	Category
	Partitions uint64    // lanes
	Records    uint64    // ever drawn
	Lost       uint64    // entries of streams that are taken in which were gone before that
	LostAt     time.Time // when some were last found to be; zero = never
}

// PartitionQuery selects partitions.
type PartitionQuery struct {
	Name     string // of the handler; "" = all
	Category string // "" = all
	Status   Status // "" = all; one of the others costs no more than what is in that state, but for StatusBehind, which looks at every lane
	After    PartitionPlace
	Limit    int // 1 to 10,000
}

// PartitionPlace is where a page of partitions ends.
type PartitionPlace struct {
	Name string
	Lane event.LaneRef
}

// Status is what a unit is doing, as far as the store knows.
type Status string

const (
	StatusDone    Status = "done"   // everything is applied
	StatusBehind  Status = "behind" // there is something to apply, and nothing is known to be in the way
	StatusTrying  Status = "trying" // its next event failed and will be tried again
	StatusHalted  Status = "halted"
	StatusParking Status = "parking" // it has parked events
	StatusPaused  Status = "paused"
)

// Partition is one lane of a category of a registered handler; one in which no sequence was ever drawn is none.
type Partition struct {
	Unit       event.Unit
	Lane       event.LaneRef
	Tail       event.Sequence
	Checkpoint event.Sequence
	Status     Status    // the gravest: halted, paused, parking and trying are of the unit, behind and done of this lane
	Since      time.Time // it is stopped or trying; zero for done and behind
	Summary    string    // of why, one line: "retries exhausted at #5: card declined"
}
