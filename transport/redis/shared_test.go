package redis

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/keyhold/keyhold/internal/redisserver"
)

// Tests share two servers, each in a namespace of its own; who breaks one has one of its own.
var shared = map[bool]*sharedServer{false: {}, true: {options: redisserver.Options{Cluster: true}}}

type sharedServer struct {
	options redisserver.Options
	once    sync.Once
	server  *redisserver.Server
	err     error
}

// sharedRedis is the server that tests share.
func sharedRedis(tb testing.TB, cluster bool) *redisserver.Server {
	tb.Helper()
	s := shared[cluster]
	s.once.Do(func() { s.server, s.err = redisserver.Start(context.Background(), s.options) })
	if errors.Is(s.err, redisserver.ErrMissing) && os.Getenv("CI") == "" {
		tb.Skip(s.err)
	}
	if s.err != nil {
		tb.Fatal(s.err)
	}
	return s.server
}

func stopShared() error {
	var faults []error
	for _, s := range shared {
		if s.server != nil {
			faults = append(faults, s.server.Stop())
		}
	}
	return errors.Join(faults...)
}
