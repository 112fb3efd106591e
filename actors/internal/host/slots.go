package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/keyhold/keyhold/actors/internal/ring"
)

// slots is an actor.Dispatcher that runs a limited number of functions at once. The others wait in a queue.
type slots struct {
	limit int
	mu    struct {
		sync.Mutex
		running int // not counting those that are blocked; above limit for a while after unblock
		alive   int // goroutines, the blocked ones included
		ready   ring.Queue[func()]
		idle    []chan struct{} // each closed when nothing is alive
	}
}

func newSlots(limit int) *slots { return &slots{limit: limit} }

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

// Throughput is of no use: the mailbox knows its slice.
func (s *slots) Throughput() int { return slice }

// wanted reports whether others wait for a slot.
func (s *slots) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ready.Len() > 0
}

func (s *slots) startLocked(f func()) {
	s.mu.running++
	s.mu.alive++
	go s.work(f)
}

// work runs f, and whatever is ready after it.
func (s *slots) work(f func()) {
	for f != nil {
		f()
		f = s.next()
	}
}

func (s *slots) next() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.running <= s.limit && s.mu.ready.Len() > 0 {
		return s.mu.ready.Pop()
	}
	s.mu.running--
	s.mu.alive--
	if s.mu.alive == 0 {
		for _, c := range s.mu.idle {
			close(c)
		}
		s.mu.idle = nil
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

// wait returns when no goroutine is alive, or ctx is done.
func (s *slots) wait(ctx context.Context) error {
	s.mu.Lock()
	if s.mu.alive == 0 {
		s.mu.Unlock()
		return nil
	}
	idle := make(chan struct{})
	s.mu.idle = append(s.mu.idle, idle)
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for actors: %w", context.Cause(ctx))
	}
}
