package redis_test

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/internal/redisserver"
)

// TestALookIsNotMadeTwice: what a beat, or the connection for wakes, has just asked is not asked again by the look in the background.
func TestALookIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	w.cfg.TTL, w.cfg.Heartbeat, w.cfg.RetireAfter = 10*time.Hour, 2*time.Hour, 20*time.Hour // one look in this test
	tr := w.connected(t)
	_, looked := tr.Signals(t)
	if err := w.server.ResetCalls(t.Context()); err != nil {
		t.Fatal(err)
	}
	start(t, tr, "shipping") // it listens for wakes then, and has asked
	if err := looked.Wait(t); err != nil {
		t.Fatal(err)
	}
	calls, err := w.server.Calls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if calls["time"] != 1 { // of the script that asks
		t.Errorf("asked %d times: %v", calls["time"], calls)
	}
}
