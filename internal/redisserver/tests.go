package redisserver

import "github.com/keyhold/keyhold/internal/child"

// TB is what is needed of [testing.TB].
type TB = child.TB

// Run starts a server that is stopped when the test ends. Where there is no Redis the test is skipped, and fails when CI is set.
func Run(tb TB, o Options) *Server {
	tb.Helper()
	s, err := Start(tb.Context(), o)
	child.Check(tb, err, ErrMissing)
	tb.Cleanup(func() { s.Stop() })
	return s
}
