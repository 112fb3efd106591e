// Package lifecycletest tests that a background thing may be started and stopped by anybody at any time.
//
// It promises to find starts that run twice, stops that hang and stops that leave work behind where the race detector and
// goleak can see them; so run it with both. It does not test what the thing does in between.
package lifecycletest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/internal/lifecycle"
)

// Service is a background thing with one owner.
type Service interface {
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

const (
	callers  = 8
	rounds   = 25
	patience = 20 * time.Second // for one Stop, on a busy machine
)

// Stress calls Start and Stop of s from several goroutines at once, then checks that s can still be started, refuses to
// be started twice, and can be stopped twice. s must be stopped when given; it is stopped afterwards.
//
// Start may refuse with [lifecycle.ErrStarted] or with one of tolerated while others stop and start s.
func Stress(tb testing.TB, s Service, tolerated ...error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	tolerated = append(tolerated, lifecycle.ErrStarted)

	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				if err := s.Start(ctx); err != nil && !isAny(err, tolerated) {
					tb.Errorf("start while others start and stop: %v", err)
				}
				if err := s.Stop(ctx); err != nil {
					tb.Errorf("stop while others start and stop: %v", err)
				}
			}
		})
	}
	wg.Wait()

	// Nobody else is about now, so the answers are certain.
	must(tb, "start after the stress", s.Start(ctx))
	if err := s.Start(ctx); !isAny(err, tolerated) {
		tb.Errorf("second start: got %v, want %v", err, lifecycle.ErrStarted)
	}
	must(tb, "stop", s.Stop(ctx))
	must(tb, "second stop", s.Stop(ctx))
}

func must(tb testing.TB, what string, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

func isAny(err error, targets []error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
