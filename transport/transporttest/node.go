package transporttest

import (
	"context"
	"errors"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// node stands in for the runtime: it runs the units that the transport wakes, each in a goroutine of its own, and those that it
// drives in the goroutine that drives.
type node struct {
	store     eventstore.Store
	transport Transport
	behave    behavior
	released  func(event.Unit) // called between the last read of a unit and its release
	group     lifecycle.Group

	mu struct {
		sync.Mutex
		units    map[event.Unit]*unit
		applied  []applied
		reached  map[event.Unit]bool // units that were woken or driven
		faults   []error
		unclean  []string      // units that were granted so: "shipping c-1"
		changed  chan struct{} // closed and replaced at each change of the above
		inside   int           // behaviors at this moment
		together int           // most of them at once
	}
}

// behavior is what a unit does with an event: what it emits, or why it cannot.
type behavior func(ctx context.Context, u event.Unit, e *event.Envelope) ([]event.Envelope, error)

var (
	errHalt = errors.New("halt before this event")             // durable
	errDead = errors.New("set this event aside, go on")        // durable
	errFail = errors.New("give up, as a broken database does") // nothing is durable
)

// applied is an event that a unit has passed for good.
type applied struct {
	unit event.Unit
	id   string
	void bool
}

func (a applied) String() string {
	if a.void {
		return a.unit.Name + " passed " + a.id
	}
	return a.unit.Name + " " + a.id
}

var subscriptions = []transport.Subscription{
	{Name: shipping, Category: orders},
	{Name: billing, Category: orders},
	{Name: billing, Category: payments},
}

const (
	shipping = "shipping"
	billing  = "billing"
	orders   = "order"
	payments = "payment"
	audits   = "audit" // nobody subscribes to it
)

func newNode(store eventstore.Store, tr Transport) *node {
	n := &node{
		store:     store,
		transport: tr,
		behave:    func(context.Context, event.Unit, *event.Envelope) ([]event.Envelope, error) { return nil, nil },
		released:  func(event.Unit) {},
	}
	n.mu.units = make(map[event.Unit]*unit)
	n.mu.reached = make(map[event.Unit]bool)
	n.mu.changed = make(chan struct{})
	return n
}

// reach is the node as the transport sees it.
func (n *node) reach() transport.Node {
	return transport.Node{Subscriptions: subscriptions, Wake: n.wake, Drive: n.drive, Report: n.fault}
}

func (n *node) wake(u event.Unit) {
	un, asleep := n.touch(u)
	if asleep && !n.group.Go(func(ctx context.Context) { n.runWoken(ctx, un) }) {
		n.change(func() { un.awake = false }) // stopped: the next start finds it
	}
}

// touch notes that a unit was reached; a unit that was asleep is the caller's to run.
func (n *node) touch(u event.Unit) (un *unit, asleep bool) {
	n.change(func() {
		n.mu.reached[u] = true
		un = n.unit(u)
		un.woken = true
		asleep = !un.awake
		un.awake = true
	})
	return un, asleep
}

// unit finds or makes a unit. n.mu is held.
func (n *node) unit(u event.Unit) *unit {
	un := n.mu.units[u]
	if un == nil {
		un = &unit{Unit: u, turn: make(chan struct{}, 1)}
		n.mu.units[u] = un
	}
	return un
}

func (n *node) runWoken(ctx context.Context, un *unit) {
	for {
		again := false
		n.change(func() {
			again = un.woken && ctx.Err() == nil
			un.woken = false
			un.awake = again
		})
		if !again {
			return
		}
		if err := n.work(ctx, un, event.LaneRef{}, 0); err != nil && ctx.Err() == nil {
			n.fault(err)
		}
	}
}

func (n *node) drive(ctx context.Context, u event.Unit, lane event.LaneRef, seq event.Sequence) error {
	var un *unit
	n.change(func() {
		n.mu.reached[u] = true
		un = n.unit(u)
	})
	return n.work(ctx, un, lane, seq)
}

func (n *node) fault(err error) {
	n.change(func() { n.mu.faults = append(n.mu.faults, err) })
}

func (n *node) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	close(n.mu.changed)
	n.mu.changed = make(chan struct{})
}

// await returns nil once holds does, which may read what n.mu guards.
func (n *node) await(ctx context.Context, holds func() bool) error {
	for {
		n.mu.Lock()
		yes, changed := holds(), n.mu.changed
		n.mu.Unlock()
		if yes {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
