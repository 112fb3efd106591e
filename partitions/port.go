package partitions

import (
	"context"
	"errors"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Port is the lease-and-stream port: who may run a unit, and what is next for it. Adapters: transport/local (the store's
// records, owned by the process as a whole), later transport/redis.
//
// All methods may block on I/O, honour ctx and may be called concurrently, but, Renew aside, never twice at once for one unit. All are idempotent
// at one generation except Acquire: after an error whose outcome is not known, ask again at the same generation until the
// deadline. Errors: [ErrFenced] (the lease is not held at that generation any more), [ErrUnknown] (the outcome is not
// known), anything else is transient: back off and ask again. In a batch one unit's error fails no other.
type Port interface {
	// Traits never change between Start and Stop.
	Traits() Traits
	// Acquire asks for the lease of a unit at max(what the port knows, floor)+1. An owner may supersede its own lease.
	Acquire(ctx context.Context, u event.Unit, floor event.Generation) (Acquired, error)
	// Renew extends leases; the result has one error (or nil) for each.
	Renew(ctx context.Context, held []Held) []error
	// Release gives a lease back. A released unit is clean: nothing of it was in a behavior. With ifIdle the port answers [ErrBusy],
	// and the lease is still held, when something is unread; without (a hand-over, a stop, a halted unit) what is unread is for
	// the next owner.
	Release(ctx context.Context, h Held, ifIdle bool) error
	// Fetch is the fenced read: up to max entries above the given positions (one position for each lane of the unit), in
	// the order in which they are to be applied: the primary lane is drained first. The same call gives the same
	// entries. It never skips: what a stream lost, it reads from the store, else it answers Gap.
	Fetch(ctx context.Context, h Held, above []event.Position, max int) (Fetched, error)
	// Advance acknowledges everything up to the given positions, which must be durable checkpoints, and fetches above them.
	Advance(ctx context.Context, h Held, done []event.Position, max int) (Fetched, error)
}

// Traits say how a port owns units.
type Traits struct {
	// Leased: each unit is leased, renewed and raised for itself. Else the process owns all units while it owns the store:
	// Acquire always grants the start generation, nothing is renewed, nothing is raised, nothing lapses.
	Leased    bool
	TTL       time.Duration // of a lease
	Heartbeat time.Duration // between renewals
	Margin    time.Duration // the deadline is this much before the lease ends
}

// Held names a lease that the caller believes to hold.
type Held struct {
	Unit       event.Unit
	Generation event.Generation
}

// Acquired is the answer of Acquire.
type Acquired struct {
	Granted    bool
	Generation event.Generation // when granted
	Unclean    bool             // the last owner did not release it: its first event is a suspect
	// When not granted: what is left of the other owner's lease, who that is (as a transport.Membership names it), and the generation of the lease. A Holder of ""
	// is not known, and neither is its generation then.
	HeldFor time.Duration
	Holder  string
	HeldAt  event.Generation
	// Forgot, when not granted: the port lost its memory, ask again after one TTL. This goes for units that were never raised
	// as well: an earlier grant may still be on its way to its owner. It names nobody.
	Forgot bool
}

// Fetched is what is next for a unit.
type Fetched struct {
	Entries []event.Envelope
	// Gap: the entry after the position of Lane is neither in the stream nor in the store. With Gap there are no entries.
	Gap  bool
	Lane event.LaneRef
	// Diverged: where the caller is in a lane, the stream has another event than the caller's position names. Found is that one. The store that the lane comes from went back in time,
	// and what the caller has applied up to there is not what the stream has. With it there are no entries.
	Diverged bool
	Found    event.Position
	// Drained: besides these entries nothing was unread in any lane, so the caller need not ask again before the next wake. A
	// port that does not know says false; no entries and no Gap mean the same whatever it says.
	Drained bool
}

var (
	// ErrFenced: the unit is not held at this generation.
	ErrFenced = errors.New("fenced: the unit is not held at this generation any more")
	// ErrUnknown: the outcome is not known.
	ErrUnknown = errors.New("outcome is not known")
	// ErrBusy: the unit has unread work.
	ErrBusy = errors.New("unit has unread work")
)
