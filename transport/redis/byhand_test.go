package redis_test

import (
	"testing"

	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport"
)

// Somebody removes the newest entry of a stream: what is beside it must not say that the entry is there, or nobody ever gets it.
func TestANewestEntryThatWasRemovedByHandIsMissed(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	published(t, tr, orders, 1, 3)
	w.do(t, "XDEL", w.stream(t, orders), "3-0")
	again := tr.Append(t.Context(), []transport.Append{{Lane: orders, Entries: entries(orders, 3, 3)}})[0]
	answered(t, again, transport.AppendEmpty, 0)
	published(t, tr, orders, 2, 3)
	w.holds(t, orders, 2, 3)
}

// Somebody removes an entry that was written by hand, as an error has told him to. Its id is higher than any that the lane will ever have, and the stream goes on
// refusing lower ones.
func TestAStreamGoesOnWhenAnEntryThatWasWrittenByHandIsRemoved(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	published(t, tr, orders, 1, 3)
	w.do(t, "XADD", w.stream(t, orders), "1750000000000-7", "a", "b")
	if got := publish(t, tr, orders, 4, 4); got.Err == nil {
		t.Errorf("got %v, newest %d, want an error", got.Outcome, got.Newest)
	}
	w.do(t, "XDEL", w.stream(t, orders), "1750000000000-7")
	more := tr.Append(t.Context(), []transport.Append{{Lane: orders, Entries: entries(orders, 4, 4)}})[0]
	answered(t, more, transport.AppendEmpty, 0)
	if n := w.do(t, "EXISTS", w.stream(t, orders)+":__newest__"); n != int64(0) {
		t.Errorf("what was beside the stream is still there: EXISTS says %v", n)
	}
	published(t, tr, orders, 3, 4)
	published(t, tr, orders, 5, 5)
	w.holds(t, orders, 3, 5)
}
