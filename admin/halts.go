package admin

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Operator is an application as operators see it. All methods may be called concurrently and honour ctx; an application that
// is not started gives an error.
type Operator interface {
	// Halts gives up to limit (1 to 10,000) halted units in order of name and key, after the unit given (the zero unit for the first
	// page); name "" means all handlers and entity kinds.
	Halts(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Halt, error)
	// Halt gives the halt of one unit, nil when it is not halted. A name that the application does not know is an error.
	Halt(ctx context.Context, u event.Unit) (*eventstore.Halt, error)
	// LiftHalt ends exactly this halt and has its unit go on: the event that halted it is tried again. A halt that is not there
	// (any more) is an [*eventstore.HaltMovedError].
	LiftHalt(ctx context.Context, halt eventstore.HaltRef) error
}

// Resume lifts the halt of a unit, whatever event it is at, and tells which it was. The event is tried again with all its attempts; it
// halts again if they fail. The error is [ErrNotHalted] where there is nothing to lift; for a name that is misspelt it lists those known.
func Resume(ctx context.Context, app Operator, u event.Unit) (eventstore.Halt, error) {
	h, err := app.Halt(ctx, u)
	if err != nil {
		return eventstore.Halt{}, fmt.Errorf("resume %s: %w", u, err)
	}
	if h == nil {
		return eventstore.Halt{}, fmt.Errorf("resume %s: %w", u, ErrNotHalted)
	}
	if err := app.LiftHalt(ctx, h.Ref()); err != nil {
		return *h, fmt.Errorf("resume %s: %w", u, err)
	}
	return *h, nil
}
