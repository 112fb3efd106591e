package redis

import (
	"testing"

	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/internal/signal"
)

// SharedServer is a server, or a Cluster of one, that tests share.
func SharedServer(tb testing.TB, cluster bool) *redisserver.Server {
	tb.Helper()
	return sharedRedis(tb, cluster)
}

// Signals has the transport tell when it listens for wakes, and when it has looked at the server. To be called before Start.
func (t *Transport) Signals(tb signal.TB) (listening *signal.Signal[struct{}], looked *signal.Signal[error]) {
	t.signals.listening.Init(tb)
	t.signals.looked.Init(tb)
	return &t.signals.listening, &t.signals.looked
}

// SetManyPartitions sets from how many partitions on the node is warned.
func (t *Transport) SetManyPartitions(n int) { t.manyPartitions = n }
