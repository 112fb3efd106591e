package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// Broker is one node's way to a [Server]. Make it with [Server.Node].
type Broker struct {
	*Server
	name  string
	claim transport.Claim

	own struct {
		sync.Mutex
		owner   string // "" unless connected
		records eventstore.Records
		storeID string
		trusted string                     // memory
		begins  map[subscription]time.Time // as declared
	}
}

var (
	_ transport.Broker = (*Broker)(nil)

	// ErrClosed: the broker is not connected.
	ErrClosed = errors.New("broker in memory: not connected")
)

// Node makes a node's way to the server. The name is that of [Call].Node.
func (s *Server) Node(name string) *Broker { return &Broker{Server: s, name: name} }

// Bind gives it the store that is read for what a stream lost.
func (b *Broker) Bind(records eventstore.Records, id eventstore.Identity) {
	b.own.Lock()
	defer b.own.Unlock()
	b.own.records, b.own.storeID = records, id.StoreID
}

// Port is the port of this node.
func (b *Broker) Port() partitions.Port { return &port{Broker: b} }

// Name is "memory".
func (b *Broker) Name() string { return "memory" }

// Claim implements [transport.Transport].
func (b *Broker) Claim() (release func(), err error) { return b.claim.Take() }

// Capabilities are all but Inline.
func (b *Broker) Capabilities() transport.Capabilities {
	return transport.Publish | transport.ConsumerGroups | transport.Ack | transport.Ordering |
		transport.DeadLetter | transport.Replay | transport.Partitioning
}

// Limits are those of the server.
func (b *Broker) Limits() transport.Limits { return b.limits }

// Memory is a number.
func (b *Broker) Memory() string {
	if b.OwnerID() == "" {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprint("memory ", b.mu.losses)
}

// Trust has leases granted at once while the memory is this one.
func (b *Broker) Trust(memory string) {
	b.own.Lock()
	defer b.own.Unlock()
	b.own.trusted = memory
}

// trusts reports whether it is; the server's lock is held.
func (b *Broker) trusts() bool {
	b.own.Lock()
	defer b.own.Unlock()
	return b.own.trusted == fmt.Sprint("memory ", b.mu.losses)
}

// Connect reaches the server.
func (b *Broker) Connect(ctx context.Context) error {
	if err := b.before(ctx, Call{Op: "connect"}); err != nil {
		return err
	}
	b.own.Lock()
	defer b.own.Unlock()
	if b.own.owner == "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mu.owners++
		b.own.owner = fmt.Sprintf("%s-%d", b.name, b.mu.owners)
	}
	return nil
}

// before answers what goes wrong before anything is done; for calls that have nothing to lose.
func (b *Broker) before(ctx context.Context, c Call) error {
	c.Node = b.name
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.fault(c) != None {
		return fmt.Errorf("%s: %w", c.Op, ErrRefused)
	}
	return nil
}

// do makes one call of a connected node.
func (b *Broker) do(ctx context.Context, c Call, f func() error) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	c.Node = b.name
	return b.call(c, f)
}

func (b *Broker) ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if b.OwnerID() == "" {
		return ErrClosed
	}
	return nil
}

// OwnerID names this incarnation; "" unless it is connected.
func (b *Broker) OwnerID() string {
	b.own.Lock()
	defer b.own.Unlock()
	return b.own.owner
}

// Start listens.
func (b *Broker) Start(ctx context.Context, node transport.Node) error {
	return b.do(ctx, Call{Op: "start"}, func() error {
		if _, twice := b.mu.started[b]; twice {
			return fmt.Errorf("start broker in memory: %w", lifecycle.ErrStarted)
		}
		b.mu.started[b] = node
		return nil
	})
}

// Stop ends the connection.
func (b *Broker) Stop(context.Context) error {
	b.mu.Lock()
	delete(b.mu.started, b)
	b.mu.Unlock()
	b.own.Lock()
	defer b.own.Unlock()
	b.own.owner = ""
	return nil
}

// Committed does nothing.
func (b *Broker) Committed(context.Context, []event.Tail) error { return nil }

// bound gives what Bind set.
func (b *Broker) bound() (eventstore.Records, string) {
	b.own.Lock()
	defer b.own.Unlock()
	return b.own.records, b.own.storeID
}
