package redisserver

import (
	"context"
	"errors"
	"os"
)

// TB is what is needed of [testing.TB].
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Skip(args ...any)
	Fatal(args ...any)
}

// Run starts a server that is stopped when the test ends. Where there is no Redis the test is skipped, and fails when CI is set.
func Run(tb TB, o Options) *Server {
	tb.Helper()
	s, err := Start(tb.Context(), o)
	if errors.Is(err, ErrMissing) && os.Getenv("CI") == "" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Stop() })
	return s
}
