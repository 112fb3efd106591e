package redis

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// TestSlotsAreLearnedOfWhoeverAnswers: after failovers most of the servers that a process has known may be gone, without a word.
func TestSlotsAreLearnedOfWhoeverAnswers(t *testing.T) {
	t.Parallel()
	live := redisserver.Run(t, redisserver.Options{Cluster: true})
	cfg, err := Config{URL: live.URL(), Timeout: 2 * time.Second}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	var group lifecycle.Group
	if err := group.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &servers{cluster: true, open: cfg.server, aside: group.Go}
	s.mu.byAddr, s.mu.bySlot = make(map[string]*server), make([]*server, slots)
	t.Cleanup(func() {
		if err := group.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		_ = s.close()
	})
	for range 8 {
		mute, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes a connection, and nobody answers
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = mute.Close() })
		if _, err := s.at(mute.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.at(live.Addr()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), cfg.Timeout)
	defer cancel()
	if err := s.relearn(ctx); err != nil || s.of("order:{k-1}") == nil {
		t.Errorf("got %v, and the slot is that of %v", err, s.of("order:{k-1}"))
	}
}
