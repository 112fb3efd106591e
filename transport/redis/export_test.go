package redis

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/event"
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

// Missing gives what a unit misses, and asks for it where there is no answer.
func (t *Transport) Missing(ctx context.Context, u event.Unit, lane event.LaneRef, after event.Sequence, most int) ([]event.Envelope, bool, error) {
	c := t.conn.Load()
	got, err := c.answer(ctx, u, lane, after, nil, most)
	if err == nil && got.unanswered {
		err = c.request(ctx, u, lane, after, nil)
	}
	return got.entries, got.gone, err
}

// After has f run once, after the first call whose first word is that and before whatever follows it.
func (t *Transport) After(word string, f func()) {
	var once sync.Once
	for _, s := range t.conn.Load().servers.all() {
		s.work.AddHook(hook{word: word, run: func() { once.Do(f) }})
	}
}

type hook struct {
	word string
	run  func()
}

func (h hook) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h hook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		h.saw(cmd)
		return err
	}
}

func (h hook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			h.saw(cmd)
		}
		return err
	}
}

func (h hook) saw(cmd goredis.Cmder) {
	if strings.EqualFold(cmd.Name(), h.word) {
		h.run()
	}
}
