package keyholdtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
)

// CommitFault is a way in which a commit can fail.
type CommitFault uint8

const (
	Before  CommitFault = iota + 1 // the database refuses: nothing was committed
	After                          // it was committed, and the answer is lost
	Unknown                        // it was not committed, and nobody can tell
)

func (f CommitFault) String() string {
	return [...]string{"none", "before", "after", "unknown"}[f]
}

// ErrCommit is what commits fail with, see FailCommit of [EntityTest] and [HandlerTest].
var ErrCommit = errors.New("commit made to fail by keyholdtest")

func (f CommitFault) fault() faulty.Fault {
	switch f {
	case Before:
		return faulty.Fault{Before: ErrCommit}
	case After:
		return faulty.Fault{After: ErrCommit}
	default:
		return faulty.Fault{Before: fmt.Errorf("%w: %w", eventstore.ErrUnknownCommit, ErrCommit)}
	}
}

// faults are the commits that are to fail.
type faults struct {
	mu struct {
		sync.Mutex
		list []planned
	}
}

type planned struct {
	who   string // for messages
	match func(event.Unit) bool
	fault CommitFault
	times int
}

func (f *faults) add(p planned) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.list = append(f.mu.list, p)
}

// plan is a [faulty.Plan]. It hits what behaviors commit, not the halts and dead letters that follow from them.
func (f *faults) plan(op faulty.Op) faulty.Fault {
	if op.Call != faulty.Commit || op.Who != op.Changes.Fence.Unit.String() {
		return faulty.Fault{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.mu.list {
		if p := &f.mu.list[i]; p.times > 0 && p.match(op.Changes.Fence.Unit) {
			p.times--
			return p.fault.fault()
		}
	}
	return faulty.Fault{}
}

// left says which commits were to fail and were not made.
func (f *faults) left() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []string
	for _, p := range f.mu.list {
		if p.times > 0 {
			left = append(left, fmt.Sprintf("%d of %s (%s)", p.times, p.who, p.fault))
		}
	}
	return strings.Join(left, ", ")
}

// failCommit plans commits of a unit, or of all units of a handler, to fail.
func (k *Kit) failCommit(who string, match func(event.Unit) bool, f CommitFault, times int) {
	k.T.Helper()
	if f < Before || f > Unknown || times < 1 {
		k.T.Fatalf("FailCommit(%d, %d): choose Before, After or Unknown, and 1 time or more", f, times)
	}
	k.faults.add(planned{who, match, f, times})
}
