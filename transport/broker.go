package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Broker is a transport whose streams and leases several nodes share. Records reach it through a relay, which appends them lane by lane,
// and units are leased through its partitions.Port. Its roles are below; every method may block on I/O, honours its context, and may be called
// concurrently between [Broker.Connect] and Stop. Batches answer for each element: one that goes wrong fails no other.
//
// Order of calls: Claim, Connect, Trust, [Registrations].Declare, Start, Stop. Start has it listen for wakes, which it gives to Node.Wake, and watch for a
// loss of memory, which it gives to Node.Forgot. Committed does nothing: the relay is told of commits.
//
// An error that is none of those named is transient: back off and ask again.
type Broker interface {
	Transport
	// Connect reaches the broker and refuses, saying what to do, one that cannot keep what it promises: an eviction policy that drops keys, a version
	// that is too old, an account that may not run what is needed. It is idempotent.
	Connect(ctx context.Context) error
	// Memory names what the broker remembers now: it has another name after a loss. "" unless connected.
	Memory() string
	// Trust says that no lease of this application was ever granted out of another memory than this one. While the broker has it, a lease need not wait for earlier ones that may have
	// been forgotten: there are none. Called after Connect.
	Trust(memory string)
	// Limits are as configured; they never change.
	Limits() Limits
	BrokerStreams
	Registrations
	Work
	Membership
	Polling
}

// Limits are what a broker keeps at most.
type Limits struct {
	MaxAhead    int           // entries of a stream, read or not
	RetireAfter time.Duration // how long what nobody uses any more is kept
}

// BrokerStreams are the streams of lanes.
type BrokerStreams interface {
	// Append appends to lanes by compare-and-append, and marks their keys busy for the subscribers named, also where there was nothing to append. A lane
	// stands in one call once. The result has one element for each, in that order.
	Append(ctx context.Context, runs []Append) []Appended
	// Trim takes entries off the beginning of streams, up to a sequence that every subscriber has passed. The newest entry always stays.
	Trim(ctx context.Context, lanes []Trim) []error
	// Retire takes lanes off the broker altogether that all subscribers have passed and nobody has published to since. It answers [ErrBusy] where that is not so.
	// Entries that are published meanwhile survive, in a stream that the index names.
	Retire(ctx context.Context, lanes []Retire) []error
	// Partitions tells how many keys of a category are live.
	Partitions(ctx context.Context, category string) (int, error)
	// Beginnings gives, of the lanes of a category that are live, the places behind which a new reader begins: that of the newest entry, or with from that before the
	// first entry at or after that time. Lanes of which the stream does not tell, for what it has first is late enough itself, are left out.
	Beginnings(ctx context.Context, category string, from *time.Time) ([]event.Position, error)
	// Wanted gives what subscribers with another store want of the producer of a category, each until it was served or withdrawn. Serve writes a run for the one
	// who asked; no entries = they are nowhere any more, and the subscriber halts before them. With Begin the run may begin anywhere above w.After, and no entries = the
	// subscriber begins behind w.After, which the producer sets. What is Over is settled by serving it without entries.
	Wanted(ctx context.Context, category string) ([]Wanted, error)
	Serve(ctx context.Context, w Wanted, entries []event.Envelope) error
}

// Append is a run of records of one lane, in order and without a gap.
type Append struct {
	Lane event.LaneRef
	// Entries have consecutive sequences. None: the lane's keys are marked busy, and the answer tells the newest entry.
	Entries []event.Envelope
	// Start: where the broker has nothing of the lane, it begins with these. Else the answer is Empty.
	Start       bool
	Subscribers []string // whose units of the key get work; see [Registrations]
}

// AppendOutcome is how an append ended.
type AppendOutcome uint8

const (
	// AppendOK: the newest entry is the last of the run, or, for a run without entries, is told.
	AppendOK AppendOutcome = iota
	// AppendDup: the newest entry is at or above the first of the run, and nothing was appended. Where the entry at that sequence is the very one of the run, what
	// follows is appended, and the outcome is AppendOK.
	AppendDup
	// AppendGap: the newest entry is more than one below the first of the run. Nothing was appended.
	AppendGap
	// AppendEmpty: there is no entry, and Start was not asked for.
	AppendEmpty
)

var appendOutcomes = [...]string{"ok", "dup", "gap", "empty"}

func (o AppendOutcome) String() string { return appendOutcomes[o] }

// Appended answers one [Append].
type Appended struct {
	Outcome  AppendOutcome
	Newest   event.Sequence // now; 0 with AppendEmpty
	NewestID string         // event id of the newest entry
	// Err, if any: [ErrFull], or a transient one, after which it is not known whether something was appended. Ask again: an append is idempotent.
	Err error
}

// Trim names the entries of a lane that go: those at or below Through.
type Trim struct {
	Lane    event.LaneRef
	Through event.Sequence
	// Subscribers of other stores that are known to the caller: the lane keeps what their groups have not acknowledged. Those that are registered are added to them.
	Subscribers []string
}

// Retire names a lane that all subscribers have passed.
type Retire struct {
	Lane        event.LaneRef
	Through     event.Sequence // the newest entry, which all have passed
	Subscribers []string
}

// Wanted is a run that a subscriber with a store of its own misses.
type Wanted struct {
	Unit  event.Unit
	Lane  event.LaneRef
	After event.Sequence
	ID    string // of the request
	// Begin: it has no place in the lane yet, and begins with the first record at or after From that is kept. After is 0.
	Begin bool
	From  time.Time
	// Over: the subscriber was removed, and reads nothing any more. Of Unit and Lane only name and category are set; StoreID is of the store that it had.
	Over    bool
	StoreID string
}

// Registrations say who produces a category and who reads it, for all applications that share the broker.
type Registrations interface {
	// Declare compares what an application declares with what the broker holds, and adds it, by compare-and-set. Everything that does not agree is an error
	// ([*DeclaredError], several joined), and nothing is changed then. It is called at each start, again whenever the broker lost its memory, and once a minute or so: where two stores
	// produce one category, for what the broker has lost somebody else may have claimed, both are to learn of it.
	Declare(ctx context.Context, d Declared) error
	// Subscribers gives the registered subscribers of categories, by category, in order of name.
	Subscribers(ctx context.Context, categories []string) (map[string][]Subscriber, error)
	// Unregister removes a subscriber: nothing waits for it any more. Producers of other stores are told, by their Wanted.
	Unregister(ctx context.Context, name string) error
}

// Declared is what one application declares.
type Declared struct {
	StoreID     string // of the store that it works on, which is not to be the producer of a category that is declared without one
	Categories  []Produced
	Subscribers []Subscriber
	// Running: it goes on producing its categories, whatever the broker says. Where that has another store for one of them, its Declare is refused as well, for as long as this one is
	// declared again and again and for a minute after, whichever of the two came first.
	Running bool
}

// Produced describes a category.
type Produced struct {
	Category string
	KeyField string // "" = none
	Buckets  int
	StoreID  string // of the store that produces it; "" for a category of somebody else's that was not declared by its producer yet
}

// Subscriber is a registered reader of a category.
type Subscriber struct {
	Name     string
	Category string
	StoreID  string // of the store that keeps its checkpoints
	Kind     string // "handler", "entity", ...
	// Begins, in what is declared for a category that another store produces, is from when on it reads lanes in which it has no place and whose first entries are
	// gone; zero = with the first that is kept. Nobody else is told, and Subscribers leaves it out.
	Begins time.Time
}

// DeclaredError: a declaration does not agree with one that the broker holds.
type DeclaredError struct {
	What   string // "category order", "handler shipping"
	Ours   string // "the key client_id", "store 1f…"
	Theirs string
	Remedy string
}

func (e *DeclaredError) Error() string {
	return fmt.Sprintf("%s: this program declares %s, the broker has it with %s: %s", e.What, e.Ours, e.Theirs, e.Remedy)
}
func (e *DeclaredError) Is(target error) bool { return target == ErrDeclared }

// Work tells who has something to do.
type Work interface {
	// Mark adds units to those that have work and wakes whoever listens.
	Mark(ctx context.Context, units []event.Unit) error
	// Busy pages through the keys of a subscriber that have work and are not known to be at rest for a person, from cursor 0 until the next cursor is 0 again. Keys
	// may come twice.
	Busy(ctx context.Context, name string, cursor uint64) (keys []string, next uint64, err error)
	// Leases tells for units, in the order asked, for how long somebody holds them at most; 0 = nobody does.
	Leases(ctx context.Context, units []event.Unit) ([]time.Duration, error)
	// Halted notes that a unit waits for a person, or does not any more: those that wait are left out of Busy. It is a hint.
	Halted(ctx context.Context, u event.Unit, halted bool) error
	// Resting pages through the keys of a subscriber that are noted to wait for a person, as Busy does. A note may outlive what it says, for whoever was to take it
	// back may not have been there: somebody compares them with the store now and then.
	Resting(ctx context.Context, name string, cursor uint64) (keys []string, next uint64, err error)
}

// Membership is who takes part. It is what nodes know of each other; what they may run is a matter of leases alone.
type Membership interface {
	// Beat writes this node's entry, which lasts for ttl, and gives all that have not lapsed, in order of id, this one included.
	Beat(ctx context.Context, m Member, ttl time.Duration) ([]Member, error)
	// Leave removes it.
	Leave(ctx context.Context, m Member) error
	// OwnerID names this incarnation of the process, as leases do. It is new at every Connect after a Stop.
	OwnerID() string
}

// Member is a node that takes part. Nodes of one store are members of one application.
type Member struct {
	ID       string // of this incarnation: [Membership].OwnerID
	Node     string // for people
	PID      int    // of its process, for people: several may have one name
	StoreID  string
	Start    event.Generation // of its store, by which the store knows it
	Names    []string         // of handlers and entity kinds that it runs, sorted
	Draining bool             // it takes no more units
	Weight   int              // of its share; 0 counts as 1
	Since    time.Time
	// Address is that of its node service, Gossip that of its gossip, host:port; "" = it has none.
	Address string
	Gossip  string
	Version string // of its program, for people
	// Apart: its store or its broker does not answer it, so that it can run nothing: it ranks nowhere, as one that drains, and comes back by itself.
	Apart bool
	// Beats counts how often it has made itself known: where it does not grow, the member may be gone although its entry has not lapsed.
	Beats int64
	// Wants are units that this node ranks first for and another one holds: the holder may hand them over. 1,000 at most.
	Wants []event.Unit
}

var (
	// ErrFull: the broker is out of memory and takes no more entries.
	ErrFull = errors.New("broker is out of memory: give it more, or find out in `keyhold status` who does not keep up")
	// ErrBusy: somebody has not passed what was to be retired.
	ErrBusy = errors.New("lane is in use")
	// ErrDeclared is what a [*DeclaredError] is.
	ErrDeclared = errors.New("declarations do not agree")
)
