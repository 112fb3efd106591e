package keyhold_test

import (
	"testing"
	"time"
)

// soon waits for what servers, and loops in the background, come to. For what a handler is given there are signals.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); !is(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("not so: ", what)
		}
	}
}
