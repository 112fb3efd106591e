package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/eventstore"
)

// listing is what the registry says about which types are handled, at one revision.
type listing struct {
	revision uint64
	types    map[string]map[string]bool // by handler or entity kind, by wire name
}

func (l *listing) has(name, wire string) bool { return l.types[name][wire] }

// SetListed takes the place of [Config].Listed and Revision: what the registry lists now. Units that have passed over what is listed now, and have not
// committed that, read it again. Of two revisions the higher one stays, whichever is set last.
func (r *Runtime) SetListed(revision uint64, types map[string][]string) {
	l := &listing{revision: revision, types: make(map[string]map[string]bool, len(types))}
	for name, wires := range types {
		set := make(map[string]bool, len(wires))
		for _, w := range wires {
			set[w] = true
		}
		l.types[name] = set
	}
	for {
		old := r.listing.Load()
		if old != nil && old.revision > revision || r.listing.CompareAndSwap(old, l) {
			return
		}
	}
}

// listed says by which lists it was decided to pass events over, in a commit that does. Those that the unit reads are taken to be of the revision at which
// it had passed nothing that was not committed: at worst a commit is refused that need not be.
func (u *unit) listed(c *eventstore.Changes) {
	if u.prog.config.Leased && len(c.Advance) > 0 && u.machine.Passed() > 0 {
		c.Listed = u.revision
	}
}

// listsMoved takes note of a commit that was refused because they did.
func (u *unit) listsMoved(err error) { u.moved = u.moved || errors.Is(err, eventstore.ErrListMoved) }

// relist has the lists read again before the unit recovers, where a commit was refused for them.
func (u *unit) relist() {
	if !u.moved {
		return
	}
	if err := u.run.relist.since(u.run.ctx, u.run.rt, u.revision); err != nil {
		u.run.rt.cfg.Observer.trouble(u.id, "relist", err)
		return
	}
	u.moved = false
}

// relist has the lists read again, once for all units that want it.
type relist struct {
	mu struct {
		sync.Mutex
		call *relisting // under way; nil = none is
	}
}

type relisting struct {
	done chan struct{} // closed when it is
	err  error
}

// since returns when the lists are newer than a revision.
func (l *relist) since(ctx context.Context, r *Runtime, revision uint64) error {
	if r.listing.Load().revision > revision {
		return nil
	}
	if r.cfg.Others.Relist == nil {
		return errors.New("the lists of handled types moved, and nobody reads them again: set Others.Relist")
	}
	l.mu.Lock()
	call := l.mu.call
	mine := call == nil
	if mine {
		call = &relisting{done: make(chan struct{})}
		l.mu.call = call
	}
	l.mu.Unlock()
	if !mine {
		<-call.done
		return call.err
	}
	call.err = protect(func() error { return r.cfg.Others.Relist(ctx) })
	l.mu.Lock()
	l.mu.call = nil
	l.mu.Unlock()
	close(call.done)
	if call.err != nil {
		return fmt.Errorf("read the lists of handled types again: %w", call.err)
	}
	return nil
}
