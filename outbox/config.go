package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// Config is what a [Relay] is made of. Store, Broker and StoreID must be set.
type Config struct {
	Store   Store
	Broker  Broker
	StoreID string // of Store
	Keys    event.KeyRules
	// Tell has the holders of parts look for what is unpublished there. It must not block. nil: they find it at their next look.
	Tell func(parts []event.Part)
	// GiveBack has the lease of a part given back, which the store says is another's, or nobody's: the node may have the lease all the same, where the store has lost that it
	// was raised. Whoever leases it next raises it anew. It must not block. nil: it is held in vain until the lease ends.
	GiveBack func(p event.Part)

	Look        time.Duration // between two looks for what is unpublished in the parts held; default 250 ms
	HealAfter   time.Duration // the longest distance between two looks at a lane that was not passed; default 30 s
	RetireAfter time.Duration // a lane that was passed by all leaves the broker after this long; default 1 h
	MaxAhead    int           // entries of a stream, as the broker has it; default 10,000
	Lanes       int           // that are at work at once, and which one call names; up to twice as many when some are healed; default 256
	Timeout     time.Duration // of a call of store or broker; default 10 s

	Observer Observer
	Logger   *slog.Logger // of what no Observer is told; default: discards
	// Now is the clock by which looks are set and due; default time.Now. Where a part has moved, the looks that its last holder set come early or late by as much as the two clocks differ, so that what a broker
	// lost without being seen to is sent again, and a lane retired, that much sooner or later.
	Now func() time.Time
}

// Store is what a relay needs of a store.
type Store interface {
	eventstore.Relays
	eventstore.Divergences
	Abandon(ctx context.Context, lane event.LaneRef, seq event.Sequence, reason string) error
	LoadRegistry(ctx context.Context) (eventstore.Registered, error)
	SaveRegistry(ctx context.Context, r eventstore.Registered, starts []eventstore.Start) error
	Act(ctx context.Context, a eventstore.Act) (eventstore.ActRecord, error)
}

// Broker is what it needs of a [transport.Broker].
type Broker interface {
	transport.BrokerStreams
	Subscribers(ctx context.Context, categories []string) (map[string][]transport.Subscriber, error)
}

// Observer is told what a relay does. Its functions must not block; any may be nil: then it is logged.
type Observer struct {
	Relayed   func(category string, records int)                          // appended to a stream, for the first time or again
	Healed    func(lane event.LaneRef)                                    // the broker had lost something of it, and has it again
	Retired   func(category string, lanes int)                            // left the broker, passed by all
	Diverged  func(d eventstore.Divergence)                               // the lane has stopped; a person decides
	Abandoned func(lane event.LaneRef, seq event.Sequence, reason string) // a record that no broker can hold
	Served    func(w transport.Wanted, records int)                       // to a subscriber with a store of its own; 0 = they are nowhere any more
	Trouble   func(what string, err error)                                // store or broker does not answer; tried again
	Stale     func(p event.Part)                                          // the store says that another one holds the part
}

// audit puts defaults in and reports all that is wrong.
func (c *Config) audit() error {
	var errs []error
	if c.Store == nil || c.Broker == nil || c.StoreID == "" {
		errs = append(errs, errors.New("Store, Broker and StoreID must be set"))
	}
	errs = append(errs, c.Keys.Validate())
	for _, d := range []struct {
		what string
		v    *time.Duration
		def  time.Duration
	}{
		{"Look", &c.Look, 250 * time.Millisecond}, {"HealAfter", &c.HealAfter, 30 * time.Second}, {"RetireAfter", &c.RetireAfter, time.Hour}, {"Timeout", &c.Timeout, 10 * time.Second},
	} {
		if *d.v < 0 {
			errs = append(errs, fmt.Errorf("%s is %v: it cannot be negative", d.what, *d.v))
		}
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	for _, n := range []struct {
		what    string
		v       *int
		def     int
		highest int
	}{{"MaxAhead", &c.MaxAhead, 10_000, 1 << 40}, {"Lanes", &c.Lanes, 256, eventstore.MaxLimit}} {
		if *n.v < 0 || *n.v > n.highest {
			errs = append(errs, fmt.Errorf("%s is %d: it must be 1 to %d", n.what, *n.v, n.highest))
		}
		if *n.v == 0 {
			*n.v = n.def
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}
