package eventstore

import (
	"errors"
	"fmt"

	"github.com/keyhold/keyhold/event"
)

var (
	// ErrClosed: the store is not started, or stopped.
	ErrClosed = errors.New("store is not open")
	// ErrNoSQL: the store has no SQL. Use the sqlite store where a unit of work writes tables of its own.
	ErrNoSQL = errors.New("this store has no SQL: a transaction needs one that has, such as sqlite.Open")
	// ErrOtherTx: a transaction is none of this store's database, or of no kind that the store can write into.
	ErrOtherTx = errors.New("the transaction is not of this store")
	// ErrStale: the fence refused; somebody else owns the unit or the store now. Drop everything held of it.
	ErrStale = errors.New("stale owner")
	// ErrVersionConflict is what a [*VersionError] is.
	ErrVersionConflict = errors.New("version conflict")
	// ErrCheckpointMoved is what a [*CheckpointError] is.
	ErrCheckpointMoved = errors.New("checkpoint moved")
	// ErrUnknownCommit: a commit was sent and its outcome is not known. It may have happened.
	ErrUnknownCommit = errors.New("outcome of commit is unknown")
	// ErrEnded: the unit of work was committed or rolled back already.
	ErrEnded = errors.New("unit of work is over")
	// ErrTrouble: the database is in trouble that is not the doing of this unit of work: a full disk, another program's lock, a
	// neighbour in the same transaction. Nothing was committed; the same work may succeed later.
	ErrTrouble = errors.New("the database is in trouble")
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrAsideMoved: the row that was set aside is not there, or not due, any more.
	ErrAsideMoved = errors.New("row set aside moved")
	// ErrStateMoved is what a [*StateMovedError] and a [*JobMovedError] are.
	ErrStateMoved = errors.New("state moved")
	// ErrInUse: a running program has it in use.
	ErrInUse = errors.New("in use by a running program")
	// ErrNotRelayed: the store was not started with StartOptions.Relayed.
	ErrNotRelayed = errors.New("store was not started for a relay")
	// ErrListMoved is what a [*ListMovedError] is.
	ErrListMoved = errors.New("list of handled types moved")
	// ErrOwned is what an [*OwnedError] is.
	ErrOwned = errors.New("store is owned by another process")
)

// VersionError: a stream was not at the version expected.
type VersionError struct {
	Stream   event.Stream
	Expected uint64
	Actual   uint64
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("append stream %q: version is %d, expected %d", e.Stream, e.Actual, e.Expected)
}
func (e *VersionError) Is(target error) bool { return target == ErrVersionConflict }

// CheckpointError: a checkpoint was not where the activation believed it.
type CheckpointError struct {
	Name   string
	Lane   event.LaneRef
	From   event.Sequence // expected
	Actual event.Sequence
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("advance %q on %s: checkpoint is %d, expected %d", e.Name, e.Lane, e.Actual, e.From)
}
func (e *CheckpointError) Is(target error) bool { return target == ErrCheckpointMoved }

// HaltMovedError: the halt to lift is not there (any more). Now is the unit's halt, nil when it has none.
type HaltMovedError struct {
	Wanted HaltRef
	Now    *Halt
}

func (e *HaltMovedError) Error() string {
	if e.Now == nil {
		return fmt.Sprintf("unit %q is not halted", e.Wanted.Unit)
	}
	return fmt.Sprintf("unit %q is halted at %s #%d, not at %s #%d", e.Wanted.Unit, e.Now.Lane, e.Now.Sequence, e.Wanted.Lane, e.Wanted.Sequence)
}

// RegistryError: the registry was saved by somebody else since it was loaded.
type RegistryError struct{ Expected, Actual uint64 }

func (e *RegistryError) Error() string {
	return fmt.Sprintf("registry is at revision %d, expected %d: another process registered at the same time, start again", e.Actual, e.Expected)
}

// ListMovedError: the registry was saved since the list of types was read by which events were passed over. Read it again, then decide anew.
type ListMovedError struct{ Read, Actual uint64 }

func (e *ListMovedError) Error() string {
	return fmt.Sprintf("events were passed over by the registry of revision %d, it is at %d: another program registered meanwhile", e.Read, e.Actual)
}
func (e *ListMovedError) Is(target error) bool { return target == ErrListMoved }

// OwnedError: another process owns the store, or some share it.
type OwnedError struct {
	Path string // what is owned
	PID  int    // of the owner, 0 when not known
	Node string // of the owner, "" when not known
	Here bool   // it is this very value that is started, or about to be, by somebody else in this process
}

func (e *OwnedError) Error() string {
	if e.Here {
		return fmt.Sprintf("store %s is that of another App of this process, which goes on with it: give each App a store of its own, or Stop the other first", e.Path)
	}
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	if e.Node != "" {
		who += " (" + e.Node + ")"
	}
	return fmt.Sprintf("store %s is in use by %s; stop it, or set Wait to start when it ends", e.Path, who)
}
func (e *OwnedError) Is(target error) bool { return target == ErrOwned }

// ApplicationError: the store is that of another application.
type ApplicationError struct {
	Path  string
	Has   string // name of the application that the store is of
	Given string // of the one that was to be started
}

func (e *ApplicationError) Error() string {
	return fmt.Sprintf("store %s is of the application %q, and this program is %q (Config.Name): two applications on one store would pass each other's events over, "+
		"so give each a database of its own, or on PostgreSQL a schema of its own (postgres.Config.Schema); if it is the same application under a new name, set Config.FormerName to %q",
		e.Path, e.Has, e.Given, e.Has)
}

// FormatError: the database has a format that this program cannot use.
type FormatError struct {
	Path  string
	Found int // format of the database
	Known int // newest format this program knows
}

func (e *FormatError) Error() string {
	if e.Found > e.Known {
		return fmt.Sprintf("store %s has format %d, this program knows up to %d: run the newer program, or restore a backup made before it first ran", e.Path, e.Found, e.Known)
	}
	if e.Found == 0 {
		return fmt.Sprintf("store %s is not made yet, and NoMigrate forbids to make it: start once without NoMigrate", e.Path)
	}
	return fmt.Sprintf("store %s has format %d, this program needs %d: start once without NoMigrate, or run `keyhold migrate up`", e.Path, e.Found, e.Known)
}
