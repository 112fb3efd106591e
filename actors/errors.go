package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

var (
	// ErrRejected is what a [*RejectError] is.
	ErrRejected = errors.New("rejected")
	// ErrPoison is what an error made by [Poison] is.
	ErrPoison = errors.New("poison")

	// ErrMailboxFull: as many asks wait for this entity as its mailbox holds. Nothing was done; back off and ask again.
	ErrMailboxFull = errors.New("mailbox is full")
	// ErrStopping: the runtime is not started, or stopping. With AskError.Unknown false nothing was done.
	ErrStopping = errors.New("not running, or stopping")
	// ErrAskInTx: an ask with one's own transaction open. Ask before the first statement on Tx: on a store with a single
	// writer the entity would wait for the transaction that waits for its answer.
	ErrAskInTx = errors.New("ask inside one's own open transaction: ask before the first statement on Tx, or Send")
	// ErrAskCycle: an ask of a unit that is itself waiting, at some remove, for the answer.
	ErrAskCycle = errors.New("the asked entity is waiting for this very call: use Send, or ask from outside")
	// ErrReadOnly: a command was sent in a query, or in an entity's OnActivate or OnPassivate, which commit nothing.
	ErrReadOnly = errors.New("a query only reads, as OnActivate and OnPassivate of an entity do: send from a command, a handler, or outside")
	// ErrUnknownEntity: no entity of this kind is registered here, nor at any node that could be asked.
	ErrUnknownEntity = errors.New("no such kind of entity")
	// ErrUnknownCommand: the entity has no case for this type, in its present mode.
	ErrUnknownCommand = errors.New("no case for this type")
	// ErrUnavailable: the entity cannot be had now: its store does not answer, or another owner holds it.
	ErrUnavailable = errors.New("entity is unavailable")
	// ErrPanic is what a [*PanicError] is.
	ErrPanic = errors.New("behavior panicked")
	// ErrTimeout: a behavior took longer than its Timeout. It is the cause of its context's end.
	ErrTimeout = errors.New("behavior took longer than its Timeout")
	// ErrOver: a context was used after the call it was given to.
	ErrOver = errors.New("context used after its behavior returned: it is valid only during the call")
	// ErrCommandReused: the command id was used before, for a command of another type.
	ErrCommandReused = errors.New("command id was used for another command")
)

// RejectError says no for a reason of the business. It undoes the unit of work and is not tried again. From an event
// handler, which has nobody to say no to, it counts as poison.
type RejectError struct{ Reason string }

func (e *RejectError) Error() string        { return "rejected: " + e.Reason }
func (e *RejectError) Is(target error) bool { return target == ErrRejected }
func (e *RejectError) class() class         { return rejected }

// Reject makes a [*RejectError].
func Reject(format string, args ...any) error {
	return &RejectError{Reason: fmt.Sprintf(format, args...)}
}

// Poison marks an error as one that no further attempt can mend. Poison(nil) is nil.
func Poison(err error) error {
	if err == nil {
		return nil
	}
	return &classified{err: err, as: poison}
}

// Retry marks an error as worth another attempt, whatever it wraps and RetryPolicy.If says: a rejection of a nested ask, for
// instance. Retry(nil) is nil.
func Retry(err error) error {
	if err == nil {
		return nil
	}
	return &classified{err: err, as: retry}
}

// PanicError is a panic of a behavior.
type PanicError struct {
	Value any
	Stack string
}

func newPanicError(v any) *PanicError {
	return &PanicError{Value: v, Stack: string(debug.Stack())}
}

func (e *PanicError) Error() string        { return fmt.Sprintf("behavior panicked: %v", e.Value) }
func (e *PanicError) Is(target error) bool { return target == ErrPanic }

// AskError is an ask that got no answer of the behavior's own.
type AskError struct {
	To      Ref
	Command string // Go type
	// Unknown: the command may have been decided and committed. Ask again with the same CommandID to learn which.
	Unknown bool
	Err     error
}

func (e *AskError) Error() string {
	s := fmt.Sprintf("ask %s %s: %v", e.To, e.Command, e.Err)
	if e.Unknown {
		s += " (it may have been done)"
	}
	return s
}
func (e *AskError) Unwrap() error { return e.Err }

// Retryable reports whether asking again, as it is, may succeed and is safe: nothing was done, and the reason passes. For an
// error that leaves open whether the command was done it is false; ask again with a CommandID then.
func Retryable(err error) bool {
	var ask *AskError
	if errors.As(err, &ask) && ask.Unknown {
		return false
	}
	for _, passing := range []error{
		ErrMailboxFull, ErrStopping, ErrUnavailable, eventstore.ErrStale, eventstore.ErrClosed, eventstore.ErrTrouble, eventstore.ErrVersionConflict,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	var remote *RemoteError
	return errors.As(err, &remote) && remote.Code == transport.PeerAgain
}

// HeldError: another node has the entity. It is of kind [ErrUnavailable]: ask again in a while, or ask that node.
type HeldError struct {
	Unit event.Unit
	Most time.Duration // that its lease lasts, unless it is renewed
	// Holder is that node, as members are known by their ids, and Generation that of its lease; "" and 0 = not known.
	Holder     string
	Generation event.Generation
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("another node has %s: ask there, or here once it has been quiet there for IdleAfter, or that node is gone and its lease has lapsed (%s)",
		e.Unit, e.Most.Round(time.Millisecond))
}
func (e *HeldError) Is(target error) bool { return target == ErrUnavailable }

// StopError is what [Runtime.Stop] gives when it did not get through in time. What was not finished is done after the
// next start.
type StopError struct {
	Interrupted []event.Unit // had not finished when time was up, in order
	Stuck       []event.Unit // of these, those whose behavior ignores the end of its context: they are still inside
	Err         error        // why Stop waited no longer
}

func (e *StopError) Error() string {
	s := fmt.Sprintf("stop: %d units were interrupted: %v", len(e.Interrupted), e.Interrupted)
	if len(e.Stuck) > 0 {
		s += fmt.Sprintf("; %d of them are in a behavior that ignores its context: %v", len(e.Stuck), e.Stuck)
	}
	return s + ": " + e.Err.Error()
}
func (e *StopError) Unwrap() error { return e.Err }

// class is what a behavior's error means.
type class uint8

const (
	retry class = iota
	rejected
	poison
)

type classified struct {
	err error
	as  class
}

func (e *classified) Error() string        { return e.err.Error() }
func (e *classified) Unwrap() error        { return e.err }
func (e *classified) Is(target error) bool { return e.as == poison && target == ErrPoison }
func (e *classified) class() class         { return e.as }

// classify gives the class of the outermost mark on err, and whether there is one.
func classify(err error) (class, bool) {
	if err == nil {
		return retry, false
	}
	var c interface {
		error
		class() class
	}
	if errors.As(err, &c) {
		return c.class(), true
	}
	return retry, false
}

func isRejected(err error) bool {
	c, _ := classify(err)
	return c == rejected
}

// errStopped is the cause of a behavior's context once Stop has run out of patience.
var errStopped = fmt.Errorf("%w: %w", ErrStopping, context.Canceled)
