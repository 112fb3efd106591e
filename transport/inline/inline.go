package inline

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/storelane"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// Transport is a [transport.Transport] that delivers before the committing caller goes on, of one application at a time. Make it
// with [New], give it its store with Bind.
type Transport struct {
	store eventstore.Store
	port  *storelane.Port
	claim transport.Claim
	mu    struct {
		sync.Mutex
		run *run // nil before Start and after a Stop that was waited for
	}
}

var _ transport.Transport = (*Transport)(nil)

// New makes a transport. It must be bound to a store before it starts.
func New() *Transport { return new(Transport) }

// Bind gives the transport its store, for one start of it: call it after each start of the store and before that of the
// transport. keys are the rules of the application.
func (t *Transport) Bind(store eventstore.Store, id eventstore.Identity, keys event.KeyRules) {
	t.store = store
	t.port = storelane.New(store, id, keys)
}

// Port is how units read what this transport delivers; nil before Bind.
func (t *Transport) Port() partitions.Port {
	if t.port == nil {
		return nil
	}
	return t.port
}

// Name is "inline".
func (t *Transport) Name() string { return "inline" }

// Capabilities are all but Partitioning: nothing runs in parallel, so there is nothing to keep apart.
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Publish | transport.ConsumerGroups | transport.Ack | transport.Ordering |
		transport.DeadLetter | transport.Replay | transport.Inline
}

// Claim implements [transport.Transport].
func (t *Transport) Claim() (release func(), err error) { return t.claim.Take() }

// Start delivers what is unpassed before it returns. A unit that cannot be driven is reported and does not fail the start;
// a store that cannot be read does, and so does the end of ctx.
func (t *Transport) Start(ctx context.Context, node transport.Node) error {
	if t.store == nil {
		return errors.New("start inline transport: it is not bound to a store: call Bind first")
	}
	r := newRun(node)
	err := t.port.TakeOver(ctx, t.store, node.Subscriptions)
	if err == nil {
		err = t.install(ctx, r)
	}
	if err == nil {
		if err = r.deliverUnpassed(ctx, t.store); err != nil {
			err = errors.Join(err, t.Stop(context.WithoutCancel(ctx)))
		}
	}
	if err != nil {
		return fmt.Errorf("start inline transport: %w", err)
	}
	return nil
}

func (t *Transport) install(ctx context.Context, r *run) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.run != nil {
		return lifecycle.ErrStarted
	}
	if err := r.lone.Start(ctx); err != nil {
		return err
	}
	t.mu.run = r
	return nil
}

// Stop lets no further delivery begin and waits for the one in hand. Callers that wait for theirs are sent away with
// [lifecycle.ErrStopped]; the next start delivers it. A behavior that calls Stop would wait for itself.
func (t *Transport) Stop(ctx context.Context) error {
	r := t.current()
	if r == nil {
		return nil
	}
	if err := r.stop(ctx); err != nil {
		return fmt.Errorf("stop inline transport: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.run == r { // else another Stop was first, and a Start may have followed it
		t.mu.run = nil
	}
	return nil
}

func (t *Transport) current() *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.run
}

// Committed delivers: see the package comment. Under a [transport.Nested] context it only queues.
//
// The error joins what went wrong in this goroutine, whosever events those were, and why it did not wait to the end.
func (t *Transport) Committed(ctx context.Context, tails []event.Tail) error {
	r := t.current()
	if r == nil {
		return nil
	}
	if transport.IsNested(ctx) {
		r.handOn(r.queue.addNested(tails))
		return nil
	}
	if c := r.queue.add(tails); c != nil {
		return r.await(ctx, c)
	}
	return nil
}
