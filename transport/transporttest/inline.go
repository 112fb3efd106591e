package transporttest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/transport"
)

// None of these waits for anything but the return of Committed, where it need not.
var inline = []check{
	{name: "Events are applied when the commit returns, one by one, by each subscriber in turn", with: transport.Inline, run: func(f *fixture) {
		f.start()
		a1, a2, b, p := f.event(orders, "a"), f.event(orders, "a"), f.event(orders, "b"), f.event(payments, "a")
		f.publish(b)
		f.publish(p, a1, a2) // one commit: in lane order
		f.same("applied", f.applied(), []string{
			"shipping " + b.ID, "billing " + b.ID,
			"shipping " + a1.ID, "billing " + a1.ID, "shipping " + a2.ID, "billing " + a2.ID,
			"billing " + p.ID,
		})
	}},
	{name: "What behaviors commit is queued behind and delivered before the outer commit returns", with: transport.Inline, run: func(f *fixture) {
		a, b := f.event(orders, "a"), f.event(orders, "a")
		answer, echo := f.event(payments, "x"), f.event(orders, "y")
		f.node.behave = func(_ context.Context, u event.Unit, e *event.Envelope) ([]event.Envelope, error) {
			switch {
			case u.Name == shipping && e.ID == a.ID:
				return []event.Envelope{answer}, nil
			case e.ID == answer.ID:
				return []event.Envelope{echo}, nil
			}
			return nil, nil
		}
		f.start()
		f.publish(a, b)
		f.same("applied", f.applied(), []string{
			"shipping " + a.ID, "billing " + a.ID, "shipping " + b.ID, "billing " + b.ID,
			"billing " + answer.ID, "shipping " + echo.ID, "billing " + echo.ID,
		})
	}},
	{name: "A start delivers what is unpassed and what that leads to before it returns", with: transport.Inline, run: func(f *fixture) {
		f.node.behave = countdown(f)
		f.commit(f.event(orders, "5"))
		f.start()
		f.same("applied", len(f.applied()), 12)
	}},
	{name: "Callers take turns and each gets its own delivered", with: transport.Inline, run: func(f *fixture) {
		const committers, each = 4, 20
		f.node.behave = countdown(f)
		f.start()
		var wg sync.WaitGroup
		for range committers {
			wg.Go(func() {
				for range each {
					e := f.event(orders, "2")
					f.publish(e)
					if all := f.applied(); !slices.Contains(all, "shipping "+e.ID) || !slices.Contains(all, "billing "+e.ID) {
						f.Errorf("%s was not applied when its commit returned", e.ID)
					}
				}
			})
		}
		wg.Wait()
		f.same("applied", len(f.applied()), committers*each*6)
		f.node.mu.Lock()
		defer f.node.mu.Unlock()
		f.same("behaviors at once", f.node.mu.together, 1)
	}},
	{name: "The error of a unit is told and keeps nobody from theirs", with: transport.Inline, run: func(f *fixture) {
		e := f.event(orders, "a")
		f.node.behave = only(shipping, e.ID, fail(errFail))
		f.start()
		if err := f.transport.Committed(f.Context(), f.commit(e)); !errors.Is(err, errFail) {
			f.Errorf("committed: got %v, want %v", err, errFail)
		}
		f.same("applied", f.applied(), []string{"billing " + e.ID})
	}},
	{name: "A caller that gives up waiting leaves its events to others", with: transport.Inline, run: func(f *fixture) {
		slow, mine := f.event(payments, "a"), f.event(payments, "b")
		gate := newGate()
		f.node.behave = only(billing, slow.ID, gate.pass)
		f.start()
		var wg sync.WaitGroup
		wg.Go(func() { f.publish(slow) })
		gate.entered(f)
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		if err := f.transport.Committed(ctx, f.commit(mine)); !errors.Is(err, context.Canceled) {
			f.Errorf("committed: got %v, want %v", err, context.Canceled)
		}
		f.same("applied meanwhile", f.applied(), []string(nil))
		gate.open()
		wg.Wait()
		f.awaitApplied(2)
		f.same("applied", f.applied(), []string{"billing " + slow.ID, "billing " + mine.ID})
	}},
	{name: "A caller delivers no more than its own and what was before it", with: transport.Inline, run: func(f *fixture) {
		mine, others := f.event(payments, "a"), f.event(payments, "b")
		first, second := newGate(), newGate()
		f.node.behave = func(ctx context.Context, u event.Unit, e *event.Envelope) ([]event.Envelope, error) {
			if e.ID == mine.ID {
				return first.pass(ctx, u, e)
			}
			return second.pass(ctx, u, e)
		}
		f.start()
		var wg sync.WaitGroup
		wg.Go(func() { f.publish(mine) })
		first.entered(f)
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		_ = f.transport.Committed(ctx, f.commit(others)) // queued, and nobody waits
		first.open()
		wg.Wait() // though the other is not through
		second.entered(f)
		second.open()
		f.awaitApplied(2)
	}},
	{name: "A caller that gives up inside its delivery leaves the rest to others", with: transport.Inline, run: func(f *fixture) {
		e, behind := f.event(orders, "a"), f.event(orders, "a")
		gate := newGate()
		f.node.behave = only(shipping, e.ID, gate.pass)
		f.start()
		ctx, cancel := context.WithCancel(f.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := f.transport.Committed(ctx, f.commit(e, behind)); !errors.Is(err, context.Canceled) {
				f.Errorf("committed: got %v, want %v", err, context.Canceled)
			}
		})
		gate.entered(f)
		cancel()
		wg.Wait()
		gate.entered(f) // again, though nobody commits
		gate.open()
		f.awaitApplied(4)
		f.same("applied", f.applied(), []string{
			"shipping " + e.ID, "billing " + e.ID, "shipping " + behind.ID, "billing " + behind.ID,
		})
	}},
	{name: "A unit at work by itself does not wait for what it commits", with: transport.Inline, run: func(f *fixture) {
		e, answer := f.event(orders, "a"), f.event(orders, "a")
		f.node.behave = only(shipping, e.ID, func(context.Context, event.Unit, *event.Envelope) ([]event.Envelope, error) {
			return []event.Envelope{answer}, nil // into the very lane that the unit reads
		})
		f.start()
		f.commit(e)
		f.node.wake(event.Unit{Name: shipping, Key: "a"}) // as when its halt was lifted
		f.awaitApplied(4)
		for _, name := range []string{shipping, billing} {
			f.same(name, f.appliedBy(event.Unit{Name: name, Key: "a"}), ids(e, answer))
		}
	}},
	{name: "A stop waits for the delivery in hand and sends away those who wait", with: transport.Inline, run: func(f *fixture) {
		slow, next := f.event(payments, "a"), f.event(payments, "b")
		gate := newGate()
		f.node.behave = only(billing, slow.ID, gate.pass)
		f.start()
		var caller sync.WaitGroup
		caller.Go(func() { f.publish(slow) }) // is not sent away: it is inside
		gate.entered(f)
		short, cancel := context.WithCancel(f.Context())
		cancel()
		if err := f.transport.Stop(short); !errors.Is(err, context.Canceled) {
			f.Errorf("stop while a behavior is inside: got %v, want %v", err, context.Canceled)
		}
		if err := f.transport.Start(f.Context(), f.node.reach()); !errors.Is(err, lifecycle.ErrStarted) {
			f.Errorf("start while a behavior is inside: got %v, want %v", err, lifecycle.ErrStarted)
		}
		if err := f.transport.Committed(f.Context(), f.commit(next)); !errors.Is(err, lifecycle.ErrStopped) {
			f.Errorf("committed while it stops: got %v, want %v", err, lifecycle.ErrStopped)
		}
		gate.open()
		caller.Wait()
		f.stop()
		f.same("applied", f.applied(), []string{"billing " + slow.ID})
		f.start()
		f.same("applied", f.applied(), []string{"billing " + slow.ID, "billing " + next.ID})
	}},
}
