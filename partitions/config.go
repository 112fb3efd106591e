package partitions

import (
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Config is what all units of one handler or entity kind have in common. Units share one value; it must not change.
type Config struct {
	Traits // of the port

	// Asks: the unit answers asks besides reading its stream. Halted, paused or waiting, it still serves them.
	Asks bool
	// Handling says by its type what is to be done with an entry that is not void; nil handles every one. It must be pure, and is
	// called concurrently for different units.
	Handling func(e *event.Envelope) Handling

	Policy     Policy  // for an entry that cannot be applied
	MaxParked  int     // entries that a unit parks, after which it halts; default 10,000
	MaxCrashes int     // of the process while an entry ran alone, after which the unit halts before it; default 3
	Attempts   int     // at one entry before Policy applies, from 1; default 5
	Backoff    Backoff // between attempts; default 100 ms to 30 s
	IO         Backoff // between calls of the port or the store that did not work out; default 50 ms to 5 s
	// Jitter turns a delay into the one to wait, from 0 to it; nil keeps it. Called concurrently for different units.
	Jitter func(time.Duration) time.Duration

	IdleAfter time.Duration // without work, before the unit is given up; default 30 s
	ReadAhead int           // entries asked for at once, 1 to 1,000; default 16
	PassedMax int           // entries passed over before their checkpoint is committed for itself; default 1,000
}

// Backoff is a delay that starts at Base and doubles up to Max.
type Backoff struct {
	Base time.Duration
	Max  time.Duration
}

// after gives the delay after the n-th failure in a row, from 1.
func (b Backoff) after(n int) time.Duration {
	d := b.Base
	for ; n > 1 && d < b.Max; n-- {
		d *= 2
	}
	return min(d, b.Max)
}

// Handling is what a unit does with entries of a type.
type Handling uint8

const (
	Handle     Handling = iota // run the behavior
	PassOver                   // the handler does not handle the type: the checkpoint moves on with the next commit
	AwaitNewer                 // the handler is registered for the type, but this binary does not know it
)

// Policy is what becomes of an entry that cannot be applied.
type Policy uint8

const (
	HaltUnit Policy = iota // the unit halts before it, durably; a person decides
	SetAside               // it becomes a dead letter of the handler, and the unit goes on
	ParkUnit               // it is parked, and behind it whatever comes of its category; the unit's other categories go on
)

// WithDefaults gives a copy with the zero fields filled in.
func (c Config) WithDefaults() Config {
	or := func(field *time.Duration, d time.Duration) {
		if *field == 0 {
			*field = d
		}
	}
	or(&c.Backoff.Base, 100*time.Millisecond)
	or(&c.Backoff.Max, 30*time.Second)
	or(&c.IO.Base, 50*time.Millisecond)
	or(&c.IO.Max, 5*time.Second)
	or(&c.IdleAfter, 30*time.Second)
	for field, d := range map[*int]int{&c.Attempts: 5, &c.ReadAhead: 16, &c.PassedMax: 1000, &c.MaxParked: 10_000, &c.MaxCrashes: 3} {
		if *field == 0 {
			*field = d
		}
	}
	return c
}

// Validate reports everything that is wrong with a config, defaults filled in.
func (c Config) Validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(c.Policy > ParkUnit, "policy %d does not exist", c.Policy)
	wrong(c.Attempts < 1, "attempts is %d, not at least 1", c.Attempts)
	wrong(c.MaxParked < 1, "max-parked is %d, not at least 1", c.MaxParked)
	wrong(c.MaxCrashes < 1, "max-crashes is %d, not at least 1", c.MaxCrashes)
	wrong(c.ReadAhead < 1 || c.ReadAhead > 1000, "read-ahead is %d, not 1 to 1,000", c.ReadAhead)
	wrong(c.PassedMax < 1, "passed-max is %d, not at least 1", c.PassedMax)
	wrong(c.IdleAfter <= 0, "idle-after is %v, not above 0", c.IdleAfter)
	for name, b := range map[string]Backoff{"backoff": c.Backoff, "I/O backoff": c.IO} {
		wrong(b.Base <= 0 || b.Max < b.Base, "%s goes from %v to %v: it must start above 0 and not end below its start", name, b.Base, b.Max)
	}
	if c.Leased {
		wrong(c.Heartbeat <= 0, "heartbeat is %v, not above 0", c.Heartbeat)
		wrong(c.Margin < 0, "margin is %v, below 0", c.Margin)
		wrong(c.Heartbeat+c.Margin >= c.TTL, "heartbeat %v and margin %v leave nothing of a lease of %v: one renewal must come in time", c.Heartbeat, c.Margin, c.TTL)
	}
	return errors.Join(errs...)
}
