package eventstore

import (
	"context"
	"time"
)

// MaxAbout is how many bytes of itself a process may say.
const MaxAbout = 4096

// Presence is what processes that have a store open tell of themselves: each other, and people who look at the store from outside.
type Presence interface {
	// Present gives the processes that have the store open, in order of start, this one included.
	Present(ctx context.Context) ([]Owner, error)
	// Say notes what keeps this process from its share of the work, and since when; "" = nothing does. It is in [Owner].Trouble until something else is said, or the process
	// has stopped.
	Say(ctx context.Context, trouble string, since time.Time) error
	// Describe notes what this process is, for people: valid UTF-8 of at most [MaxAbout] bytes, in a form that is the caller's. It is in [Owner].About until something else is said,
	// or the process has stopped.
	Describe(ctx context.Context, about string) error
}
