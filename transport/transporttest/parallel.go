package transporttest

import (
	"context"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

var parallel = []check{
	{name: "A commit waits for no behavior and a slow unit holds up no other", with: transport.Partitioning, run: func(f *fixture) {
		slow, behind, other := f.event(orders, "c-1"), f.event(orders, "c-1"), f.event(orders, "c-2")
		gate := newGate()
		f.node.behave = only(shipping, slow.ID, gate.pass)
		f.start()
		f.publish(slow)
		gate.entered(f)
		f.publish(behind)
		f.publish(other)
		f.awaitApplied(4)
		f.same("applied meanwhile", sorted(f.applied()), sorted([]string{
			"billing " + slow.ID, "billing " + behind.ID, "billing " + other.ID, "shipping " + other.ID,
		}))
		gate.open()
		f.awaitApplied(6)
		f.same("the slow unit", f.appliedBy(event.Unit{Name: shipping, Key: "c-1"}), ids(slow, behind))
	}},
	{name: "A wake between the last read and the release is not lost", without: transport.Inline, run: func(f *fixture) {
		first, second := f.event(orders, "c-1"), f.event(orders, "c-1")
		var once sync.Once
		f.node.released = func(u event.Unit) {
			if u.Name == shipping {
				once.Do(func() { f.publish(second) })
			}
		}
		f.start()
		f.publish(first)
		f.awaitApplied(4)
		f.same("shipping", f.appliedBy(event.Unit{Name: shipping, Key: "c-1"}), ids(first, second))
	}},
}

// gate is a behavior that stays inside until it is opened, or its context is done.
type gate struct{ inside, opened chan struct{} }

func newGate() *gate { return &gate{inside: make(chan struct{}, 1), opened: make(chan struct{})} }

func (g *gate) pass(ctx context.Context, _ event.Unit, _ *event.Envelope) ([]event.Envelope, error) {
	select {
	case g.inside <- struct{}{}:
	default:
	}
	select {
	case <-g.opened:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// entered waits until somebody is inside.
func (g *gate) entered(f *fixture) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	select {
	case <-g.inside:
	case <-ctx.Done():
		f.Fatal("waited in vain for a behavior to be entered")
	}
}

func (g *gate) open() { close(g.opened) }
