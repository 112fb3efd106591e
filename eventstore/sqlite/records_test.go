package sqlite

import (
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/eventstoretest"
)

// What got into the store past Keyhold, or before it was refused, is abandoned like all else that cannot be sent.
func TestARecordWhoseKeyNothingCanBeCalledIsFoundAndAbandoned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mustCommit(publish("e-1"))
	was := "a"
	for _, key := range []string{"a\nb", "a\x00b", "a\xffb", strings.Repeat("k", event.MaxID+1)} {
		b.must(b.store.change(t.Context(), "rename", func(c *connection) error {
			_, err := c.exec(`UPDATE keyhold_lanes SET key = ? WHERE key = ?`, key, was)
			return err
		}))
		was = key
		eventstoretest.AbandonsUnfit(t, b.store, event.LaneRef{Category: "order", Key: key})
	}
}
