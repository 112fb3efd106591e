package admin

import (
	"context"
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Application is what has a desk: keyhold.App, for one.
type Application interface {
	Admin() *Desk
}

// Resume lifts the halt of a unit, whatever event it is at, and tells which it was. The event is tried again with all its attempts; it
// halts again if they fail. The error is [ErrNotHalted] where there is nothing to lift; for a name that is misspelt it lists those known.
func Resume(ctx context.Context, app Application, u event.Unit) (eventstore.Halt, error) {
	d := app.Admin()
	if err := d.ready(); err != nil {
		return eventstore.Halt{}, fmt.Errorf("resume %s: %w", u, err)
	}
	s, err := d.unitState(ctx, u)
	switch {
	case err != nil:
		return eventstore.Halt{}, fmt.Errorf("resume %s: %w", u, err)
	case s.Halt == nil:
		return eventstore.Halt{}, fmt.Errorf("resume %s: %w", u, ErrNotHalted)
	}
	_, err = d.Act(ctx, ActRequest{Kind: eventstore.ActRetry, Handler: u.Name, Key: u.Key, Expect: expectOf(s)})
	if err != nil {
		return *s.Halt, fmt.Errorf("resume %s: %w", u, err)
	}
	return *s.Halt, nil
}
