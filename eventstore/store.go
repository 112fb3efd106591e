package eventstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Store is the database of one application. A value made by an adapter's Open does no I/O until Start.
//
// Every method may be called concurrently between Start and Stop; after Stop (or before Start) all return [ErrClosed].
// Every method may block on I/O and honours its context. Slices and Data that a store returns belong to the caller;
// those handed to a store must not be changed afterwards, and the store does not change them either. Everywhere a
// limit that is not 1 to [MaxLimit] is an error.
type Store interface {
	// Start opens the database, takes its ownership, brings its format up to date and draws a new start generation.
	// A store that another process owns gives [*OwnedError] at once, or waits for it with StartOptions.Wait. A value that is started already, and not stopped since, gives one whose
	// Here is set, at once whatever opts say, and leaves no trace: whoever was first goes on with it, and who was refused does not Stop it.
	Start(ctx context.Context, opts StartOptions) (Identity, error)
	// Stop waits for the commits in hand, closes the database and gives up its ownership. It is idempotent.
	Stop(ctx context.Context) error

	Beginner
	Streams
	Records
	Units
	Lanes
	Registry
	Presence
	Operations
	ProjectionBuilds
	Relays
	Divergences
	Intake
}

// Operations is a store as an operator needs it: read it, and act on what is stopped. It works beside the process that owns the store.
type Operations interface {
	Streams
	Records
	Halts
	Asides
	Acts
	Jobs
	Overviews
	Projections
	// ListDiverged and Adopt are those of [Divergences].
	ListDiverged(ctx context.Context, after event.LaneRef, limit int) ([]Divergence, error)
	Adopt(ctx context.Context, seen event.Position, actor, reason string) (ActRecord, error)
	// LoadRegistry is that of [Registry].
	LoadRegistry(ctx context.Context) (Registered, error)
}

// Untried marks the context of a [Store].Stop: nothing, or not all, of what the process before may have ended of has run since the start. If that ended
// without a Stop, this is as true as it was, and the next start is to be told of it.
func Untried(ctx context.Context) context.Context { return context.WithValue(ctx, untriedKey{}, true) }

// IsUntried reports whether a context, or one that it was derived from, was marked by [Untried].
func IsUntried(ctx context.Context) bool { return ctx.Value(untriedKey{}) != nil }

type untriedKey struct{}

// StartOptions says how a store is opened.
type StartOptions struct {
	Node string // name of the process in messages to operators, such as "orders@host"
	// Application is the name of the application. The first start that has one gives it to the store; a start with another name is refused ([*ApplicationError]). "" = no
	// question of that, for tools.
	Application string
	Formerly    string       // another name that the store may have instead: it is given the new one
	Wait        bool         // wait while another process owns the store, instead of refusing
	NoMigrate   bool         // refuse an older format ([*FormatError]) instead of migrating it
	Observe     func(Notice) // may be nil; called concurrently, must not block
	// Relayed: records go out through a relay, and units are leased one by one. The store then notes which lanes grew ([Relays]), those included that grew
	// while it was started without; and commits are fenced by the rows of their units, so that one start with Relayed does not fence another. Where
	// [Capabilities].Shared says so, several have the store at once. A start without Relayed has it alone: those with find it owned ([*OwnedError]), and it them.
	Relayed bool
	// Lease is how long a lease of a unit lasts; 0 where they are not leased one by one. A store whose transactions hold locks ends one in which nothing happens in
	// half of that, so that a frozen owner is not in the way of the next one, and refuses to start where it was told to wait longer.
	Lease time.Duration
}

// Notice is something an operator may want to know of a store: a long hold of the writer, for instance.
type Notice struct {
	What    string        // "long hold", "database created", "waiting for owner", "write-ahead log grows", "session that stood still was ended", "session that stands still cannot be ended", "waiting to have the store alone"
	Who     string        // the unit, handler or caller concerned, where known
	Took    time.Duration // where it applies
	Error   error         // where it applies
	Routine bool          // nothing is wrong
}

// Identity is who the store is, and who owns it since Start.
type Identity struct {
	StoreID         string           // random, made by the first migration
	StartGeneration event.Generation // grows at every Start; the fence of a process that owns its store
	// Unclean: the process that had it open before did not Stop it. What was in a behavior then may be what ended it.
	Unclean      bool
	Capabilities Capabilities
}

// Capabilities are what an adapter can do beyond the port.
type Capabilities struct {
	SQL     bool // Tx.SQL works; false on memory
	Durable bool // survives the process
	Shared  bool // several may have it started at once, as this start was: with Relayed
}

// Migration is one step of the layout of a store that keeps its data.
type Migration struct {
	Number int    // the format that it leads to
	Name   string // of its file
	SQL    string
}

// Beginner begins units of work.
type Beginner interface {
	// Begin makes a unit of work. It is cheap and does no I/O: a transaction of the database begins at the first
	// [Tx.SQL], or inside [Tx.Commit]. who names the caller in messages. A unit of work belongs to the start in which it
	// was begun: after a Stop it commits nothing, also when the store was started again.
	Begin(who string) Tx
	// PublishIn writes events into a transaction that the application began on the same database with a driver of its own, and that an adapter
	// wrapped for this: postgres.Tx. It is the application that commits it, or rolls it back; the events are there then, or not. It can
	// be done once in a transaction ([ErrStaged]), as its last statement: from here to its end others wait who write to the same lanes.
	//
	// Any other transaction gives [ErrOtherTx]: one of another database, or of a kind that the store cannot write into. An error leaves the transaction as it was,
	// unless it was over ([ErrEnded]), or ctx ended, or the database has taken it back: then only a rollback can follow. Otherwise the errors are those of [Tx.Commit].
	//
	// What it gives tells when the transaction is over, which nobody else says; nil where there were no events.
	PublishIn(ctx context.Context, tx SQL, events []event.Envelope) (*Pending, error)
}

// Pending is what was written into a transaction of the application's own.
type Pending struct {
	Lanes []event.LaneRef // that grow when it commits
	// Over reports whether the transaction has ended, and whether it may have been committed then.
	Over func(ctx context.Context) (over, committed bool, err error)
}

// Tx is one unit of work. It is used by one goroutine at a time and ends with Commit or Rollback.
type Tx interface {
	// SQL is the application's door into the transaction; the first call begins it, and waits for its turn where the
	// database has a single writer. It gives [ErrNoSQL] on a store without SQL. The result is valid until the
	// unit of work ends; after that SQL gives [ErrEnded]. ctx bounds the wait and the whole transaction: when it is done,
	// nothing more can commit, and SQL gives its error.
	SQL(ctx context.Context) (SQL, error)
	// Begun reports whether a database transaction is open; false once the unit of work is over.
	Begun() bool
	// Commit makes c and everything done through SQL durable, or nothing of it. Once it returned nil, the unit of
	// work survives a crash of the process. The unit of work is over whatever it returns.
	//
	// Errors: what [Changes.Validate] says, [ErrStale] (a fence), [*CheckpointError], [*VersionError], [*HaltMovedError],
	// [ErrUnknownCommit] (the outcome is not known: drop what you hold and read again), [ErrClosed], [ErrEnded],
	// [ErrTrouble] (not this unit of work's own doing: the disk is full or fails, another program has the database locked, a
	// neighbour lost the transaction for both), or the database's own error, such as a constraint that the unit of work
	// broke; but for ErrUnknownCommit nothing was committed. What the application's own SQL gives is of kind ErrTrouble
	// in the same cases.
	Commit(ctx context.Context, c Changes) (Committed, error)
	// Rollback ends the unit of work without a trace. Calling it after Commit, or twice, is a no-op.
	Rollback() error
}

// SQL is the application's own SQL inside a unit of work. Placeholders are $1, $2, … on every store.
// It is satisfied by *sql.Tx and *sql.DB. It has no PrepareContext, which the DBTX interface that sqlc generates asks for on
// database/sql: a query package made by sqlc takes it wrapped in a type that adds one. Not for concurrent use.
type SQL interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
