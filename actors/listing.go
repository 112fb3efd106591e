package actors

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
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

// overtakes reports whether something that was read would be run after something that is passed over, in this read or since the last commit. If a newer program has
// registered for what is passed over, it must not be.
func (u *unit) overtakes(read []event.Envelope) bool {
	if !u.prog.config.Leased || u.run.rt.cfg.Revision == 0 {
		return false
	}
	passed := u.machine.Passed() > 0
	for i := range read {
		switch e := &read[i]; {
		case e.Void():
		case u.prog.config.Handling(e) == partitions.PassOver:
			passed = true
		case passed:
			return true
		}
	}
	return false
}

// listsAreNewer finds out whether the registry has moved since the lists were read by which events are passed over, and reads them again. An event of a type
// that somebody registered for was emitted after the registration, so who looks after having read the event sees it. moved: what was passed over since the
// last commit was decided by older lists.
func (u *unit) listsAreNewer() (moved bool, err error) {
	r := u.run.rt
	var now uint64
	err = u.bounded(func(ctx context.Context) (err error) {
		now, err = r.cfg.Store.Revision(ctx)
		return err
	})
	if err != nil {
		return false, err
	}
	if now > r.listing.Load().revision {
		if err := u.run.relist.since(u.run.ctx, r, now-1); err != nil {
			return false, err
		}
	}
	if u.machine.Passed() == 0 {
		u.revision = r.listing.Load().revision
		return false, nil
	}
	return now > u.revision, nil
}

// readAgain answers a read that is not to be gone on from: by the machine, when the lists could not be compared, or, when they moved, by an activation that begins
// at the checkpoint.
func (u *unit) readAgain(err error) partitions.Input {
	if err != nil {
		return partitions.FetchDone{Outcome: partitions.Failed, Err: err}
	}
	return partitions.FetchDone{Outcome: partitions.Stale, Err: &eventstore.ListMovedError{Read: u.revision, Actual: u.run.rt.listing.Load().revision}}
}

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
