package redis

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/partitions/partitionstest"
)

// TestPort: the lease-and-stream port on one server, and on a Cluster, where no script reaches a unit and the set of busy keys at once.
func TestPort(t *testing.T) {
	t.Parallel()
	for name, cluster := range map[string]bool{"standalone": false, "cluster": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := sharedRedis(t, cluster)
			partitionstest.Run(t, func(t *testing.T) partitionstest.Harness {
				w, node := newWorld(t, server, Config{})
				return partitionstest.Harness{
					Port:  node.Port(),
					Owner: node.OwnerID(),
					Append: func(t *testing.T, lane event.LaneRef, n int) {
						t.Helper()
						w.publish(lane, n, "shipping", "billing")
					},
					Purge: func(t *testing.T, lane event.LaneRef, seq event.Sequence) {
						t.Helper()
						w.do("xtrim", w.stream(lane), "minid", entryID(seq+1))
					},
					Other: func(*testing.T) partitions.Port { return w.node().Port() },
					Pass:  func(_ *testing.T, d time.Duration) { w.pass(d) },
					Forget: func(*testing.T) {
						w.forget()
						w.republish()
					},
				}
			})
		})
	}
}
