package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// Config is what a [Runtime] is made of. Fields without a default must be set.
type Config struct {
	Definitions []Definition // distinct names
	Store       eventstore.Store
	Port        partitions.Port
	Codec       *codec.Registry
	Keys        event.KeyRules // an entity's id is a key

	// Route makes an event ready for its lane: Type, Version, Encoding, Data, Category, Key and Lane are set, and the key is
	// checked. from is the entity that emits, zero for others. Called concurrently; must not block. An event may come wrapped:
	// in a value with a method Unwrapped() any, which gives the event itself.
	Route func(ctx context.Context, from event.Stream, v any) (event.Envelope, error)
	// Committed is called after each commit that added to a lane: in the goroutine of whoever waits for the answer, else in
	// that of the unit, under a context marked by transport.Nested. Its error is logged: what was committed is delivered
	// in the end. May be nil.
	Committed func(ctx context.Context, tails []event.Tail) error
	// Listed says which wire names the durable registration of a handler or entity kind lists. An event of a listed type
	// that this program does not handle waits for a newer program instead of being passed over. Default: none. See [Runtime.SetListed].
	Listed map[string][]string
	// Revision is that of the registry that Listed was read from. Where units are leased, commits that pass events over are refused by the store when
	// the registry has moved on; 0 = they are not.
	Revision uint64

	Others Others // where units are leased
	// Elsewhere reaches the entities that other nodes have: an ask goes there at once, or when it turns out here who has the entity. nil = what is not to be had here
	// cannot be asked.
	Elsewhere Elsewhere

	Observer    Observer
	Logger      *slog.Logger     // default: discards
	Now         func() time.Time // default time.Now; stamps what is emitted, and, where units are leased, tells whether the host stood still
	NewID       func() string    // default event.NewID
	Concurrency int              // units that run at once; default 256
	IdleAfter   time.Duration    // without work, until a unit is put away; default 30 s
	MailboxSize int              // asks that wait per entity; default 1,024
	// MaxCrashes is how often the process may end while an event runs that no other suspect ran beside, until its unit halts before it;
	// default 3.
	MaxCrashes int
}

const (
	defaultConcurrency = 256
	defaultMailbox     = 1024
	defaultMaxCrashes  = 3
)

// Others is where a runtime whose port leases each unit tells what nodes should know of one another's units. Each func may be nil. But for Relist they are
// called in the goroutine of the unit, and must not block. A panic is logged, and costs nothing else.
type Others struct {
	// Held: another node has the unit, which was wanted here, for so long at most; or nobody is granted it before, because the broker lost its memory.
	// It is woken again by whoever knows when that is worth it; nil = by the runtime, when that time has passed.
	Held func(u event.Unit, most time.Duration)
	// Unfit: another node should be tried for the unit first, for a time that grows. It could not be recovered here, or why is of kind [ErrNewerType]: the
	// next event is of a type that this program does not know. It was given back. nil = what could not be recovered is tried again after a while.
	Unfit func(u event.Unit, why error)
	// Rested: the unit waits for a person, [partitions.PhaseHalted] or [partitions.PhasePaused], and is not to be tried; or does not any more, [partitions.PhaseIdle].
	Rested func(u event.Unit, phase partitions.Phase)
	// LetGo: a unit that was drained, by [Runtime.HandOver] or Stop, is not held here any more. Unread: it may have something to do.
	LetGo func(u event.Unit, unread bool)
	// Relist has the lists of handled types read again, and given to [Runtime.SetListed] before it returns: the registry moved since. It may block; there
	// is one call at a time.
	Relist func(ctx context.Context) error
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Observer = c.Observer.guarded(c.Logger)
	c.Others.Held = guarded2(c.Logger, c.Others.Held)
	c.Others.Unfit = guarded2(c.Logger, c.Others.Unfit)
	c.Others.Rested = guarded2(c.Logger, c.Others.Rested)
	c.Others.LetGo = guarded2(c.Logger, c.Others.LetGo)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.NewID == nil {
		c.NewID = event.NewID
	}
	if c.Concurrency == 0 {
		c.Concurrency = defaultConcurrency
	}
	if c.MailboxSize == 0 {
		c.MailboxSize = defaultMailbox
	}
	if c.MaxCrashes == 0 {
		c.MaxCrashes = defaultMaxCrashes
	}
	return c
}

func (c *Config) fault() error {
	var errs []error
	for name, missing := range map[string]bool{
		"Store": c.Store == nil, "Port": c.Port == nil, "Codec": c.Codec == nil, "Route": c.Route == nil,
	} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
	}
	for name, n := range map[string]int{"Concurrency": c.Concurrency, "MailboxSize": c.MailboxSize, "MaxCrashes": c.MaxCrashes} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("%s is %d: set 1 or more, 0 for the default", name, n))
		}
	}
	if c.IdleAfter < 0 {
		errs = append(errs, fmt.Errorf("IdleAfter is %v: set 0 for the default, or more", c.IdleAfter))
	}
	return errors.Join(errs...)
}
