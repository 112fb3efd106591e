package local

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// Transport is a [transport.Transport] within the process, of one application at a time. Make it with [New], give it its store with Bind.
type Transport struct {
	backlog storelane.Backlog
	port    *storelane.Port
	wanted  chan struct{} // holds one token when a look is wanted
	looking lifecycle.Loop
	routes  atomic.Pointer[routes] // nil unless started
	claim   transport.Claim
}

var _ transport.Transport = (*Transport)(nil)

// routes are what Committed needs of the node.
type routes struct {
	subscribers map[string][]string // names by category
	wake        func(event.Unit)
}

// New makes a transport. It must be bound to a store before it starts.
func New() *Transport { return &Transport{wanted: make(chan struct{}, 1)} }

// Bind gives the transport its store, for one start of it: call it after each start of the store and before that of the
// transport. keys are the rules of the application.
func (t *Transport) Bind(store eventstore.Store, id eventstore.Identity, keys event.KeyRules) {
	t.backlog = store
	t.port = storelane.New(store, id, keys)
}

// Port is how units read what this transport carries; nil before Bind.
func (t *Transport) Port() partitions.Port {
	if t.port == nil {
		return nil
	}
	return t.port
}

// Name is "local".
func (t *Transport) Name() string { return "local" }

// Capabilities are all but Inline.
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Publish | transport.ConsumerGroups | transport.Ack | transport.Ordering |
		transport.DeadLetter | transport.Replay | transport.Partitioning
}

// Claim implements [transport.Transport].
func (t *Transport) Claim() (release func(), err error) { return t.claim.Take() }

// Start begins to carry, and to look in the background for what is unpassed. When the process before left the store unclean it finds
// out first which units it left so.
func (t *Transport) Start(ctx context.Context, node transport.Node) error {
	if t.backlog == nil {
		return errors.New("start local transport: it is not bound to a store: call Bind first")
	}
	if err := t.port.TakeOver(ctx, t.backlog, node.Subscriptions); err != nil {
		return fmt.Errorf("start local transport: %w", err)
	}
	if err := t.looking.Start(ctx, t.look(t.backlog, node)); err != nil {
		return fmt.Errorf("start local transport: %w", err)
	}
	return nil
}

// Stop ends the look that is under way, if any.
func (t *Transport) Stop(ctx context.Context) error {
	if err := t.looking.Stop(ctx); err != nil {
		return fmt.Errorf("stop local transport: %w", err)
	}
	return nil
}

// Committed wakes the subscribers of each lane that grew. It does not block and returns no error.
func (t *Transport) Committed(_ context.Context, tails []event.Tail) error {
	r := t.routes.Load()
	if r == nil {
		return nil
	}
	for i := range tails {
		lane := &tails[i].Lane
		for _, name := range r.subscribers[lane.Category] {
			r.wake(event.Unit{Name: name, Key: lane.Key})
		}
	}
	return nil
}

// Notify has the transport look for work that no commit announced. It does not block; calls made while a look is wanted already
// are merged into it. A transport that is not started looks when it starts.
func (t *Transport) Notify() {
	select {
	case t.wanted <- struct{}{}:
	default:
	}
}
