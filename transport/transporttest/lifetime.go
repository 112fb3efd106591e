package transporttest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/lifecycle/lifecycletest"
	"github.com/keyhold/keyhold/transport"
)

var lifetime = []check{
	{name: "Stop is idempotent and a second start is refused", run: func(f *fixture) {
		f.stop() // before any start
		f.start()
		if err := f.transport.Start(f.Context(), f.node.reach()); err == nil {
			f.Error("started twice")
		}
		f.publish(f.event(payments, "c-1")) // the refused start broke nothing
		f.awaitApplied(1)
		f.stop()
		f.stop()
	}},
	{name: "It is one user's at a time, and goes on for that one when another is refused", run: func(f *fixture) {
		release, err := f.transport.Claim()
		f.must(err)
		f.start()
		if _, err := f.transport.Claim(); !errors.Is(err, transport.ErrClaimed) {
			f.Errorf("claimed twice: %v", err)
		}
		f.publish(f.event(payments, "c-1"))
		f.awaitApplied(1)
		f.stop()
		if _, err := f.transport.Claim(); !errors.Is(err, transport.ErrClaimed) {
			f.Errorf("claimed when stopped, and not released: %v", err)
		}
		release()
		next, err := f.transport.Claim()
		f.must(err)
		release() // again: it is not theirs any more
		if _, err := f.transport.Claim(); !errors.Is(err, transport.ErrClaimed) {
			f.Errorf("claimed from the next: %v", err)
		}
		f.start()
		f.publish(f.event(payments, "c-1"))
		f.awaitApplied(2)
		f.stop()
		next()
	}},
	{name: "A start whose context is done starts nothing", run: func(f *fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		if err := f.transport.Start(ctx, f.node.reach()); err == nil {
			f.Error("started")
		}
		f.start() // so it is not started
	}},
	{name: "Anybody may start and stop it at any time", run: func(f *fixture) {
		f.commit(f.event(orders, "c-1"))
		f.must(f.node.group.Start(f.Context()))
		lifecycletest.Stress(f.T, service{f}, lifecycle.ErrStopped)
	}},
	{name: "No event is lost when commits race with starts and stops", run: func(f *fixture) {
		const committers, each = 4, 25
		var wg sync.WaitGroup
		for c := range committers {
			wg.Go(func() {
				for range each {
					// What a stop puts off, the next start delivers.
					_ = f.transport.Committed(f.Context(), f.commit(f.event(orders, fmt.Sprint(c))))
				}
			})
		}
		committed := make(chan struct{})
		var last sync.WaitGroup
		defer last.Wait()
		last.Go(func() {
			wg.Wait()
			close(committed)
		})
		for {
			f.start()
			select {
			case <-committed:
				f.awaitApplied(2 * committers * each)
				f.same("applied", len(f.applied()), 2*committers*each)
				return
			default:
				f.stop()
			}
		}
	}},
}

// service is the transport as a background thing.
type service struct{ f *fixture }

func (s service) Start(ctx context.Context) error {
	return s.f.transport.Start(ctx, s.f.node.reach())
}
func (s service) Stop(ctx context.Context) error { return s.f.transport.Stop(ctx) }
