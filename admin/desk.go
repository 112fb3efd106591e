package admin

import (
	"context"
	"errors"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Desk is where a person looks at a store and acts on it. All methods may be called concurrently, block on I/O, honour ctx, and change
// nothing but where they say so.
type Desk struct {
	store eventstore.Operations
	opts  Options
}

// Options are what a desk knows beside the store.
type Options struct {
	// Actor is who acts where a request does not say. Acts without either are refused.
	Actor string
	// Live is the application in this process that runs on the store; nil when there is none, and then what is done is taken up by
	// whatever program runs on it.
	Live *Live
	// Command is what the commands begin with that words name; default "keyhold".
	Command string
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Live is an application that runs on the desk's store, in this process.
type Live struct {
	// Ready gives the error of every method while the application is not started. May be nil.
	Ready func() error
	// Acted takes an act up at once. It must not block. Of the record, Kind and Unit or Job are set. May be nil.
	Acted func(eventstore.ActRecord)
	// Inspect tells what a unit is doing; nil for one that is at rest. May be nil.
	Inspect func(ctx context.Context, u event.Unit) (*Activity, error)
}

// New makes a desk. It does no I/O. The store must be started or attached before the desk is used.
func New(store eventstore.Operations, opts Options) *Desk {
	if opts.Command == "" {
		opts.Command = "keyhold"
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Desk{store: store, opts: opts}
}

var errUnbuilt = errors.New("not built yet")
