package eventstore

import (
	"context"
	"time"
)

// Presence is what processes that have a store open tell of themselves: each other, and people who look at the store from outside.
type Presence interface {
	// Present gives the processes that have the store open, in order of start, this one included.
	Present(ctx context.Context) ([]Owner, error)
	// Say notes what keeps this process from its share of the work, and since when; "" = nothing does. It is in [Owner].Trouble until something else is said, or the process
	// has stopped.
	Say(ctx context.Context, trouble string, since time.Time) error
}
