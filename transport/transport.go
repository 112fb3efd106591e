// Package transport is the port to what carries committed events from the store to the handlers: in the same process
// (transport/inline, transport/local) or through a broker.
//
// A transport says what it can do in its [Capabilities]; an application that asks for more is refused when it starts, never
// at run time. Each transport passes the suite of transport/transporttest.
package transport

import (
	"context"
	"strings"

	"github.com/keyhold/keyhold/event"
)

// Capabilities are what a transport can do.
type Capabilities uint16

const (
	Publish        Capabilities = 1 << iota // takes events from the store to subscribers
	ConsumerGroups                          // each handler has its own place in a stream
	Ack                                     // an event not applied comes again
	Ordering                                // per partition, in commit order
	DeadLetter                              // an event can be set aside for one handler
	Replay                                  // a handler can begin in the past
	Partitioning                            // one stream and one owner per key: what SequentialBy needs
	Inline                                  // delivers before the caller goes on, one event at a time: SequentialBy holds by itself
)

var names = []string{"publish", "consumer groups", "ack", "ordering", "dead letter", "replay", "partitioning", "inline"}

// Has reports whether all of want are there.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

func (c Capabilities) String() string {
	var on []string
	for i, n := range names {
		if c&(1<<i) != 0 {
			on = append(on, n)
		}
	}
	return strings.Join(on, ", ")
}

// Subscription is one handler's interest in one category. Entity kinds subscribe to their category of commands.
type Subscription struct {
	Name     string // handler, entity kind or process manager: the consumer group
	Category string
}

// Node is what a transport reaches of the node that runs it. Both functions may be called concurrently.
type Node struct {
	Subscriptions []Subscription // in order of registration
	// Wake says that there may be work for a unit. It never blocks; wakes of a unit already awake are merged, none is lost.
	Wake func(event.Unit)
	// Drive wakes a unit and returns when it has applied, or halted before, everything in lane up to seq, or ctx is done.
	// Events that the unit's behaviors emit meanwhile are handed to Committed by the goroutine that drives.
	Drive func(ctx context.Context, u event.Unit, lane event.LaneRef, seq event.Sequence) error
}

// Transport carries what was committed. Constructors do no I/O and start no goroutine; Start may do both, Stop ends them and
// is idempotent. Committed may be called concurrently between Start and Stop.
type Transport interface {
	Name() string
	Capabilities() Capabilities
	Start(ctx context.Context, node Node) error
	Stop(ctx context.Context) error
	// Committed tells what a commit added to the lanes, after the commit, in the goroutine that committed. A transport may
	// deliver here (inline) or only take note; an error is never a reason to undo anything: what was committed is delivered
	// in the end, if need be after a restart.
	Committed(ctx context.Context, tails []event.Tail) error
}
