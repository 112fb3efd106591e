package actors

import (
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Observer is told what happens to units, for logs and metrics. Each func may be nil. It is called in the goroutine of the unit,
// for different units at once, and must not block. Envelopes are not to be changed or kept.
type Observer struct {
	Activated    func(event.Unit) // a behavior instance was made, or an entity's state read
	Passivated   func(event.Unit) // it was put away
	Applied      func(event.Unit, *event.Envelope)
	Rejected     func(event.Unit, *event.Envelope, error)      // a command that came by stream was rejected, and passed
	Retried      func(event.Unit, *event.Envelope, int, error) // this attempt failed, counted from 1; there will be another
	Halted       func(eventstore.Halt)                         // durably
	Resumed      func(event.Unit)                              // after a person lifted its halt
	DeadLettered func(eventstore.Dead)                         // durably
	WaitsForType func(event.Unit, *event.Envelope)             // for a newer program; only lane, sequence and type are set
	CommitFailed func(event.Unit, error)                       // or may have: what is in memory is dropped, the unit recovers
	TimerFailed  func(event.Unit, string, error)               // OnTimer returned an error; it is not called again
	Panicked     func(event.Unit, *PanicError)
	Overdue      func(event.Unit, time.Duration) // a behavior ignores the end of its context
	Trouble      func(event.Unit, string, error) // port or store does not answer as hoped; the unit goes on trying
	// Misused: a context was used after the call it was given to. What was asked of it is lost.
	Misused func(event.Unit, error)
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
