package signal

import (
	"context"
	"time"
)

const (
	capacity = 4096             // values that a test may leave unread
	patience = 20 * time.Second // of Wait, on a busy machine
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
	tb     TB
	values chan T
}

// Init makes the signal keep what it is sent. To be called before anything may send; the signal must not be copied then.
func (s *Signal[T]) Init(tb TB) {
	s.tb, s.values = tb, make(chan T, capacity)
}

// Send tells that v happened. It never blocks and may be called concurrently. Without Init it does nothing.
func (s *Signal[T]) Send(v T) {
	if s.values == nil {
		return
	}
	select {
	case s.values <- v:
	default:
		s.tb.Errorf("%T: more than %d values were left unread", s, capacity)
	}
}

// Wait returns the oldest value not yet waited for. The test ends when none comes within 20 seconds.
func (s *Signal[T]) Wait(tb TB) T {
	tb.Helper()
	return s.WaitFor(tb, func(T) bool { return true })
}

// WaitFor is Wait for the oldest value that matches; those before it are passed over for good.
func (s *Signal[T]) WaitFor(tb TB, match func(T) bool) T {
	tb.Helper()
	if s.values == nil {
		tb.Fatalf("%T: Init was not called", s)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for passed := 0; ; passed++ {
		select {
		case v := <-s.values:
			if match(v) {
				return v
			}
		case <-ctx.Done():
			tb.Fatalf("%T: not sent within %s (%d others were)", s, patience, passed)
		}
	}
}
