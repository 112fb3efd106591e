package postgresserver

import (
	"context"
	"sync"

	"github.com/keyhold/keyhold/internal/child"
)

// TB is what is needed of [testing.TB].
type TB = child.TB

// shared serves all tests of a binary, and ends with it.
var shared = sync.OnceValues(func() (*Server, error) { return Start(context.Background(), Options{}) })

// Run starts a server that is stopped when the test ends. Where there is no PostgreSQL the test is skipped, and fails when CI is set.
func Run(tb TB, o Options) *Server {
	tb.Helper()
	s := must(tb)(Start(tb.Context(), o))
	tb.Cleanup(func() { s.Stop() })
	return s
}

// Database gives the URL of an empty database on the server that the tests of a binary share. It is dropped when the test ends,
// whoever still uses it. Who wants to break the server runs one of its own.
func Database(tb TB) string {
	tb.Helper()
	return Shared(tb).Database(tb)
}

// Shared gives the server that the tests of a binary share.
func Shared(tb TB) *Server {
	tb.Helper()
	return must(tb)(shared())
}

// Database gives the URL of an empty database, which is dropped when the test ends.
func (s *Server) Database(tb TB) string {
	tb.Helper()
	name, err := s.Create(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Drop(context.WithoutCancel(tb.Context()), name) }) // a server that was killed has none
	return s.URL(name)
}

func must(tb TB) func(*Server, error) *Server {
	return func(s *Server, err error) *Server {
		tb.Helper()
		child.Check(tb, err, ErrMissing)
		return s
	}
}
