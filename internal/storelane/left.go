package storelane

import (
	"context"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// left are the units that had something to do when a process ended without stopping its store: it may have ended in a behavior
// of one of them.
type left struct {
	mu struct {
		sync.Mutex
		taken bool                    // over: units says it all
		units map[event.Unit]struct{} // once taken, those not acquired yet; before, those acquired already
	}
}

// TakeOver finds out which units an unclean end of the process before may have left in a behavior: those that have something to do
// now. So it comes before anything is committed, and blocks while it reads. After a clean end, and when it was called before, there
// is nothing to find out.
func (p *Port) TakeOver(ctx context.Context, store Backlog, subscriptions []transport.Subscription) error {
	l := p.left.Load()
	if l == nil || l.isTaken() {
		return nil
	}
	found := map[event.Unit]struct{}{}
	for unit, err := range Units(ctx, store, subscriptions) {
		if err != nil {
			return err
		}
		found[unit] = struct{}{}
	}
	l.take(found)
	p.forget(l)
	return nil
}

// Unsettled reports whether there are units of which nobody was told yet that an unclean end of the process before may have left them in a behavior. The
// next start is to find out anew then.
func (p *Port) Unsettled() bool { return p.left.Load() != nil }

// unclean reports whether a unit that is acquired was left so, once. Where nobody has looked yet it may have been.
func (p *Port) unclean(u event.Unit) bool {
	l := p.left.Load()
	if l == nil {
		return false
	}
	defer p.forget(l)
	return l.acquire(u)
}

// forget lets go of l when it says nothing any more.
func (p *Port) forget(l *left) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.taken && len(l.mu.units) == 0 {
		p.left.Store(nil)
	}
}

func (l *left) isTaken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.taken
}

func (l *left) take(found map[event.Unit]struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.taken {
		return
	}
	for u := range l.mu.units {
		delete(found, u)
	}
	l.mu.taken, l.mu.units = true, found
}

func (l *left) acquire(u event.Unit) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.mu.units[u]
	if l.mu.taken {
		delete(l.mu.units, u)
		return known
	}
	if l.mu.units == nil {
		l.mu.units = map[event.Unit]struct{}{}
	}
	l.mu.units[u] = struct{}{}
	return !known
}
