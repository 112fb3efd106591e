package transport

import (
	"context"

	"github.com/keyhold/keyhold/event"
)

// Subscription is one handler's interest in one category. Entity kinds subscribe to their category of commands.
type Subscription struct {
	Name     string // handler, entity kind or process manager: the consumer group
	Category string
}

// Node is what a transport reaches of the node that runs it. The functions may be called concurrently.
type Node struct {
	Subscriptions []Subscription // in order of registration
	// Wake says that there may be work for a unit. It never blocks; wakes of a unit already awake are merged, none is lost.
	// It may still be called by a Committed that began before Stop.
	Wake func(event.Unit)
	// Drive wakes a unit and returns when it has applied, or halted before, everything in lane up to seq, or ctx is done. With seq 0 it
	// returns when the unit has nothing to do: nothing unread, and nothing due of what it set aside. A halt is no error, and neither is a unit
	// that waits for a newer program.
	//
	// ctx is [Nested]. What the unit's behaviors commit meanwhile is told to Committed under ctx, or under a context
	// derived from it, before Drive returns.
	Drive func(ctx context.Context, u event.Unit, lane event.LaneRef, seq event.Sequence) error
	// Rescan says that wakes may have been lost, as after a connection was: whatever has work is to be looked for. It never blocks. May be nil; called by a
	// [Broker] only.
	Rescan func()
	// Forgot says that the broker lost its memory: what was published may be gone, and so may every registration. It never blocks; it may come several
	// times for one loss. May be nil; called by a [Broker] only.
	Forgot func()
	// Report tells of a fault in the background that nobody waits for; the transport goes on, or tries again. It never
	// blocks. May be nil.
	Report func(error)
}

// Subscribers gives the names that subscribe to each category, in order of registration.
func (n *Node) Subscribers() map[string][]string {
	byCategory := make(map[string][]string)
	for _, s := range n.Subscriptions {
		byCategory[s.Category] = append(byCategory[s.Category], s.Name)
	}
	return byCategory
}

type nestedKey struct{}

// Nested marks ctx as belonging to a unit at work. A transport that delivers inside Committed only queues what is committed
// under such a context, and returns: the delivery may have to wait for that very unit. Whoever runs a unit outside Drive
// marks its context, too.
func Nested(ctx context.Context) context.Context { return context.WithValue(ctx, nestedKey{}, true) }

// IsNested reports whether ctx was made by [Nested], or derives from such a context.
func IsNested(ctx context.Context) bool { return ctx.Value(nestedKey{}) != nil }
