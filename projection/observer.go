package projection

import (
	"log/slog"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Observer is told what happens to projections, for logs and metrics. Each func may be nil. It is called in the goroutine of the build, for
// different builds at once, and must not block. A panic is logged, and costs nothing else. Envelopes are not to be changed or kept.
type Observer struct {
	Moved        func(Progress)                                   // a transaction committed
	CaughtUp     func(Build)                                      // nothing is left to apply, for now
	Retried      func(Build, *event.Envelope, int, error)         // this attempt failed, counted from 1; the envelope is nil for Setup and the switch
	Halted       func(Build, eventstore.ProjectionHalt)           // durably
	WaitsForType func(Build, *event.Envelope)                     // for a newer program
	Switched     func(now Build, before int)                      // the build has taken the place of another
	Panicked     func(Build, *actors.PanicError)                  //
	Overdue      func(b Build, event string, after time.Duration) // an event takes longer than Timeout; its id
	Trouble      func(b Build, what string, err error)            // the store does not answer as hoped; the build goes on trying
}

// Build names a build in what an observer is told.
type Build struct {
	Name   string // of the projection
	Number int
	Making bool // it is not what readers see
}

// Progress is what one transaction did.
type Progress struct {
	Build
	Applied   int           // events given to the behavior
	Passed    int           // events that it does not handle
	Took      time.Duration // from its first event to its commit
	Held      time.Duration // since its first statement
	EventTime time.Time     // of its last event
}

// guarded gives an observer whose panics are logged and end neither the build nor the process, and none of whose funcs is nil.
func (o Observer) guarded(log *slog.Logger) Observer {
	safely := func(call func()) {
		if err := actors.Guard(func() error { call(); return nil }); err != nil {
			log.Error("observer panicked", "error", err)
		}
	}
	return Observer{
		Moved: func(p Progress) {
			if o.Moved != nil {
				safely(func() { o.Moved(p) })
			}
		},
		CaughtUp: func(b Build) {
			if o.CaughtUp != nil {
				safely(func() { o.CaughtUp(b) })
			}
		},
		Retried: func(b Build, e *event.Envelope, attempt int, err error) {
			if o.Retried != nil {
				safely(func() { o.Retried(b, e, attempt, err) })
			}
		},
		Halted: func(b Build, h eventstore.ProjectionHalt) {
			if o.Halted != nil {
				safely(func() { o.Halted(b, h) })
			}
		},
		WaitsForType: func(b Build, e *event.Envelope) {
			if o.WaitsForType != nil {
				safely(func() { o.WaitsForType(b, e) })
			}
		},
		Switched: func(b Build, before int) {
			if o.Switched != nil {
				safely(func() { o.Switched(b, before) })
			}
		},
		Panicked: func(b Build, p *actors.PanicError) {
			if o.Panicked != nil {
				safely(func() { o.Panicked(b, p) })
			}
		},
		Overdue: func(b Build, id string, after time.Duration) {
			if o.Overdue != nil {
				safely(func() { o.Overdue(b, id, after) })
			}
		},
		Trouble: func(b Build, what string, err error) {
			if o.Trouble != nil {
				safely(func() { o.Trouble(b, what, err) })
			}
		},
	}
}
