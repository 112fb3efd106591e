package transport

import (
	"context"

	"github.com/keyhold/keyhold/event"
)

// Transport carries what was committed. Constructors do no I/O and start no goroutine; Start may do both, Stop ends them and
// is idempotent. Committed may be called concurrently between Start and Stop; before and after, it does nothing: the next
// Start finds what was committed meanwhile.
type Transport interface {
	Name() string
	Capabilities() Capabilities
	// Claim makes the transport its caller's until release, before anything else is done with it: an application does so before it opens its store. What is
	// another's gives [ErrClaimed], at once and without a trace: it goes on with its work, and whoever was refused neither starts, binds nor stops it. It does no I/O.
	//
	// release comes after a Stop that returned nil. From then on anybody may claim the transport, be it an application with another store, and start it again.
	Claim() (release func(), err error)
	// Start offers what the node's subscribers have not passed yet, and from now on what is committed. ctx bounds Start
	// alone. A transport that was started and not stopped since refuses.
	Start(ctx context.Context, node Node) error
	// Stop waits for what it has in hand, or until ctx is done: then it may be called again to wait on.
	Stop(ctx context.Context) error
	// Committed tells what a commit added to the lanes, after the commit, in the goroutine that committed. A transport may
	// deliver here (inline) or only take note; an error is never a reason to undo anything: what was committed is delivered
	// in the end, if need be after a restart.
	//
	// A goroutine that units wait for, such as that of an entity's actor, passes a [Nested] context, or leaves the call
	// to the goroutine that waits for its answer. The latter keeps the promise of [Inline] towards whoever asked.
	Committed(ctx context.Context, tails []event.Tail) error
}
