package actors

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// What is here is for behaviors that are no units, such as projections, so that all of an application's behave alike.

// EventType gives the struct type behind a type of events: a struct as it is, a protobuf message by its pointer. The error says why
// it can be none.
func EventType(t reflect.Type) (reflect.Type, error) { return eventOf(t) }

// EventValue gives a case for E what it takes, of what a codec gave.
func EventValue[E any](v any) E { return valueOf[E](v) }

// Guard makes a call of the application's code. A panic of it, or an error that panics when it is read, is an error of kind [ErrPanic].
func Guard(call func() error) error {
	_, err := guard(call)
	if mute := unspeakable(err); mute != nil {
		return mute
	}
	return err
}

// FailedSQL gives SQL every statement of which gives err.
func FailedSQL(err error) eventstore.SQL { return failedSQL{err} }

// Filled gives the policy with its defaults.
func (r RetryPolicy) Filled() RetryPolicy { return r.withDefaults() }

// Fault says what is wrong with the policy.
func (r RetryPolicy) Fault() error { return r.fault() }

// GiveUp says why an error is not worth another attempt, "" where it is.
func (r RetryPolicy) GiveUp(err error) string {
	c, marked := classify(err)
	switch {
	case c == poison:
		return "poison"
	case c == rejected:
		return "rejected"
	case marked, r.If == nil, errors.Is(err, ErrPanic), errors.Is(err, ErrTimeout):
		return ""
	}
	again := true // also where If panics
	if Guard(func() error { again = r.If(err); return nil }) == nil && !again {
		return "not worth a retry"
	}
	return ""
}

// Delay gives how long to wait after so many attempts, from 1: with full jitter, as units do.
func (r RetryPolicy) Delay(attempts int) time.Duration {
	d := r.Min
	for range attempts - 1 {
		if d >= r.Max/2 {
			d = r.Max
			break
		}
		d *= 2
	}
	return rand.N(min(d, r.Max) + 1)
}
