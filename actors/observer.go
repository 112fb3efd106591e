package actors

import (
	"context"
	"log/slog"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Observer is told what happens to units, for logs and metrics. Each func may be nil. It is called in the goroutine of the unit,
// for different units at once, and must not block. A panic is logged, and costs nothing else. Envelopes are not to be changed or kept.
type Observer struct {
	Activated    func(event.Unit) // a behavior instance was made, or an entity's state read
	Passivated   func(event.Unit) // it was put away
	Applied      func(event.Unit, *event.Envelope)
	Rejected     func(event.Unit, *event.Envelope, error)      // a command that came by stream was rejected, and passed
	Retried      func(event.Unit, *event.Envelope, int, error) // this attempt failed, counted from 1; there will be another
	Halted       func(eventstore.Halt)                         // durably
	Paused       func(event.Unit)                              // by a person: it reads no further
	Resumed      func(event.Unit)                              // after a person lifted its halt, or ended its pause
	DeadLettered func(eventstore.Dead)                         // durably
	// Parked: durably, an event that could not be applied. Of those that are parked behind it nothing is told.
	Parked func(eventstore.Parked)
	// Unparked: the last parked event of a category is through, what comes now is applied as ever.
	Unparked func(u event.Unit, category string)
	Replayed func(event.Unit, *event.Envelope) // a dead letter was applied after all
	// AsideFailed: an event that was set aside was tried again, failed, and stays where it is. Of one that cannot be decoded, or was not tried,
	// only category, key, lane and sequence may be set.
	AsideFailed func(event.Unit, *event.Envelope, error)
	// Suspected: an event is about to be applied that may have been in the behavior when the process ended, for the number of times given;
	// alone: no other such event runs beside it.
	Suspected    func(u event.Unit, e *event.Envelope, suspicions int, alone bool)
	WaitsForType func(event.Unit, *event.Envelope) // for a newer program; only lane, sequence and type are set
	CommitFailed func(event.Unit, error)           // or may have: what is in memory is dropped, the unit recovers
	TimerFailed  func(event.Unit, string, error)   // OnTimer returned an error; it is not called again
	Panicked     func(event.Unit, *PanicError)
	Overdue      func(event.Unit, time.Duration) // a behavior ignores the end of its context
	// Trouble: port or store does not answer as hoped; the unit goes on trying. The zero Unit = all that are leased.
	Trouble func(event.Unit, string, error)
	// LeaseLost: the lease of a unit must not be relied on any more. Nothing that its behavior does meanwhile is committed. It is called by whoever finds out;
	// why is one of few: "renewal was fenced", "deadline passed", "host was suspended".
	LeaseLost func(u event.Unit, why string)
	// LeaseRefused: another node has a unit that was wanted here, for so long at most; or nobody is granted it before, because the broker lost its memory.
	LeaseRefused func(u event.Unit, most time.Duration)
	// Begin is called before each call of a behavior that is a unit of work, or a query. The context that it gives is the one whose
	// values the behavior sees (nil = as it was), the trace what travels with what the behavior emits (zero = as it was). End is called when
	// its outcome is known, in the same goroutine.
	Begin func(context.Context, *Work) (context.Context, event.Trace)
	End   func(*Work)
	// Trace gives the trace that a context from outside is part of, for what is emitted in a [Runtime.Do].
	Trace func(context.Context) event.Trace
	// Misused: a context was used after the call it was given to. What was asked of it is lost.
	Misused func(event.Unit, error)
}

// guarded gives an observer whose panics are logged and end neither the unit nor the process.
func (o Observer) guarded(log *slog.Logger) Observer {
	o.Activated = guarded1(log, o.Activated)
	o.Passivated = guarded1(log, o.Passivated)
	o.Applied = guarded2(log, o.Applied)
	o.Rejected = guarded3(log, o.Rejected)
	if retried := o.Retried; retried != nil {
		o.Retried = func(u event.Unit, e *event.Envelope, attempt int, err error) {
			defer recovered(log)
			retried(u, e, attempt, err)
		}
	}
	o.Halted = guarded1(log, o.Halted)
	o.Paused = guarded1(log, o.Paused)
	o.Resumed = guarded1(log, o.Resumed)
	o.Parked = guarded1(log, o.Parked)
	o.Unparked = guarded2(log, o.Unparked)
	o.Replayed = guarded2(log, o.Replayed)
	o.AsideFailed = guarded3(log, o.AsideFailed)
	if suspected := o.Suspected; suspected != nil {
		o.Suspected = func(u event.Unit, e *event.Envelope, suspicions int, alone bool) {
			defer recovered(log)
			suspected(u, e, suspicions, alone)
		}
	}
	o.DeadLettered = guarded1(log, o.DeadLettered)
	o.WaitsForType = guarded2(log, o.WaitsForType)
	o.CommitFailed = guarded2(log, o.CommitFailed)
	o.TimerFailed = guarded3(log, o.TimerFailed)
	o.Panicked = guarded2(log, o.Panicked)
	o.Overdue = guarded2(log, o.Overdue)
	o.Trouble = guarded3(log, o.Trouble)
	o.Misused = guarded2(log, o.Misused)
	o.LeaseLost = guarded2(log, o.LeaseLost)
	o.LeaseRefused = guarded2(log, o.LeaseRefused)
	o.End = guarded1(log, o.End)
	if begin := o.Begin; begin != nil {
		o.Begin = func(ctx context.Context, w *Work) (_ context.Context, t event.Trace) {
			defer recovered(log)
			return begin(ctx, w)
		}
	}
	if trace := o.Trace; trace != nil {
		o.Trace = func(ctx context.Context) (t event.Trace) {
			defer recovered(log)
			return trace(ctx)
		}
	}
	return o
}

func guarded1[A any](log *slog.Logger, f func(A)) func(A) {
	if f == nil {
		return nil
	}
	return func(a A) { defer recovered(log); f(a) }
}

func guarded2[A, B any](log *slog.Logger, f func(A, B)) func(A, B) {
	if f == nil {
		return nil
	}
	return func(a A, b B) { defer recovered(log); f(a, b) }
}

func guarded3[A, B, C any](log *slog.Logger, f func(A, B, C)) func(A, B, C) {
	if f == nil {
		return nil
	}
	return func(a A, b B, c C) { defer recovered(log); f(a, b, c) }
}

// recovered is deferred around a call of an observer.
func recovered(log *slog.Logger) {
	if v := recover(); v != nil {
		log.Error("observer panicked", "error", newPanicError(v))
	}
}

func observe[T any](f func(T), v T) {
	if f != nil {
		f(v)
	}
}

func observe2[T, V any](f func(T, V), t T, v V) {
	if f != nil {
		f(t, v)
	}
}

func (o *Observer) retried(u event.Unit, e *event.Envelope, attempt int, err error) {
	if o.Retried != nil {
		o.Retried(u, e, attempt, err)
	}
}

func (o *Observer) asideFailed(u event.Unit, e *event.Envelope, err error) {
	if o.AsideFailed != nil {
		o.AsideFailed(u, e, err)
	}
}

func (o *Observer) suspected(u event.Unit, e *event.Envelope, suspicions int, alone bool) {
	if o.Suspected != nil {
		o.Suspected(u, e, suspicions, alone)
	}
}

func (o *Observer) rejected(u event.Unit, e *event.Envelope, err error) {
	if o.Rejected != nil {
		o.Rejected(u, e, err)
	}
}

func (o *Observer) waitsForType(u event.Unit, lane event.LaneRef, seq event.Sequence, name string) {
	if o.WaitsForType != nil {
		o.WaitsForType(u, &event.Envelope{Category: lane.Category, Key: lane.Key, Lane: lane.Lane, Sequence: seq, Type: name})
	}
}

func (o *Observer) timerFailed(u event.Unit, name string, err error) {
	if o.TimerFailed != nil {
		o.TimerFailed(u, name, err)
	}
}

func (o *Observer) trouble(u event.Unit, what string, err error) {
	if o.Trouble != nil {
		o.Trouble(u, what, err)
	}
}
