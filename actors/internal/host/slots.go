package host

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/keyhold/keyhold/actors/internal/ring"
)

// slots is an actor.Dispatcher that runs a limited number of functions at once. The others wait in a queue, without a goroutine.
// A few goroutines are kept when there is nothing to run: a new one would have to grow its stack first.
type slots struct {
	limit int
	keep  int // idle goroutines
	mu    struct {
		sync.Mutex
		running int // not counting those that are blocked; above limit for a while after unblock
		busy    int // goroutines at work, the blocked ones included
		ready   ring.Queue[func()]
		spare   []chan func() // of idle goroutines; the one used last comes first
		stopped bool          // no goroutine becomes idle any more
		quiet   []chan struct{}
	}
}

func newSlots(limit int) *slots {
	return &slots{limit: limit, keep: min(limit, 2*runtime.GOMAXPROCS(0))}
}

// Schedule runs f as soon as there is a slot.
func (s *slots) Schedule(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.running >= s.limit {
		s.mu.ready.Push(f)
		return
	}
	s.startLocked(f)
}

// Throughput is of no use: the mailbox knows when to give way.
func (s *slots) Throughput() int { return 1 }

// wanted reports whether others wait for a slot.
func (s *slots) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ready.Len() > 0
}

func (s *slots) startLocked(f func()) {
	s.mu.running++
	s.mu.busy++
	if last := len(s.mu.spare) - 1; last >= 0 {
		idle := s.mu.spare[last]
		s.mu.spare = s.mu.spare[:last]
		idle <- f
		return
	}
	go s.work(f)
}

// work runs f, and whatever there is to run after it.
func (s *slots) work(f func()) {
	idle := make(chan func(), 1) // room for one, so that nobody waits for this goroutine
	returned := false
	defer func() {
		if !returned && f != nil { // f ended its goroutine (runtime.Goexit): another takes over its slot
			if next := s.next(nil); next != nil {
				go s.work(next)
			}
		}
	}()
	for f != nil {
		f()
		f = s.next(idle)
		if f == nil {
			f = <-idle
		}
	}
	returned = true
}

// next gives what is to be run now, in the slot of what has just been run. When there is nothing, the slot is free; what comes
// then comes through idle, nil at the end.
func (s *slots) next(idle chan func()) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.running <= s.limit && s.mu.ready.Len() > 0 {
		return s.mu.ready.Pop()
	}
	s.mu.running--
	s.mu.busy--
	switch {
	case idle == nil:
	case s.mu.stopped || len(s.mu.spare) >= s.keep:
		idle <- nil
	default:
		s.mu.spare = append(s.mu.spare, idle)
	}
	if s.mu.busy == 0 {
		for _, c := range s.mu.quiet {
			close(c)
		}
		s.mu.quiet = nil
	}
	return nil
}

func (s *slots) block() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.running--
	if s.mu.running < s.limit && s.mu.ready.Len() > 0 {
		s.startLocked(s.mu.ready.Pop())
	}
}

func (s *slots) unblock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.running++
}

// stop returns when nothing runs, or ctx is done. Idle goroutines end.
func (s *slots) stop(ctx context.Context) error {
	quiet := s.dismiss()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for actors: %w", context.Cause(ctx))
	}
}

// dismiss ends the idle goroutines and gives a channel that is closed when nothing runs.
func (s *slots) dismiss() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	for _, idle := range s.mu.spare {
		idle <- nil
	}
	s.mu.spare = nil
	quiet := make(chan struct{})
	if s.mu.busy == 0 {
		close(quiet)
	} else {
		s.mu.quiet = append(s.mu.quiet, quiet)
	}
	return quiet
}
