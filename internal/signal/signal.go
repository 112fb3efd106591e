package signal

import (
	"context"
	"sync"
	"time"
)

const (
	capacity = 1 << 18          // values that a test may leave unread
	patience = 60 * time.Second // of Wait, on a busy machine
)

// TB is what a signal needs of [testing.TB].
type TB interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Signal carries values of something that happened from where it happens to a test. The zero value is a no-op.
type Signal[T any] struct {
	tb   TB
	some chan struct{} // holds a token while there may be values

	mu     sync.Mutex
	values []T // not yet waited for, in order
}

// Init makes the signal keep what it is sent. To be called before anything may send; the signal must not be copied then.
func (s *Signal[T]) Init(tb TB) { s.tb, s.some = tb, make(chan struct{}, 1) }

// Send tells that v happened. It never blocks and may be called concurrently. Without Init it does nothing.
func (s *Signal[T]) Send(v T) {
	if s.some == nil {
		return
	}
	s.mu.Lock()
	full := len(s.values) >= capacity
	if !full {
		s.values = append(s.values, v)
	}
	s.mu.Unlock()
	if full {
		s.tb.Errorf("%T: more than %d values were left unread", s, capacity)
	}
	s.tell()
}

func (s *Signal[T]) tell() {
	select {
	case s.some <- struct{}{}:
	default:
	}
}

// take gives the oldest value. Others that wait are told of what is left.
func (s *Signal[T]) take() (v T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.values) == 0 {
		return v, false
	}
	v, s.values = s.values[0], s.values[1:]
	if len(s.values) > 0 {
		s.tell()
	}
	return v, true
}

// Wait returns the oldest value not yet waited for. The test ends when none comes within a minute.
func (s *Signal[T]) Wait(tb TB) T {
	tb.Helper()
	return s.WaitFor(tb, func(T) bool { return true })
}

// WaitFor is Wait for the oldest value that matches; those before it are passed over for good.
func (s *Signal[T]) WaitFor(tb TB, match func(T) bool) T {
	tb.Helper()
	if s.some == nil {
		tb.Fatalf("%T: Init was not called", s)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for passed := 0; ; {
		switch v, ok := s.take(); {
		case ok && match(v):
			return v
		case ok:
			passed++
			continue
		}
		select {
		case <-s.some:
		case <-ctx.Done():
			tb.Fatalf("%T: not sent within %s (%d others were)", s, patience, passed)
		}
	}
}
