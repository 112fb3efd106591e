package postgres

import (
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/eventstoretest"
)

// What got into the store past Keyhold, or before it was refused, is abandoned like all else that cannot be sent.
func TestARecordWhoseKeyNothingCanBeCalledIsFoundAndAbandoned(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.commit(events("a", 1))
	was := "a"
	for _, key := range []string{"a\nb", strings.Repeat("k", event.MaxID+1)} {
		_, err := d.raw.Exec(t.Context(), `UPDATE keyhold_lanes SET key = $1 WHERE key = $2`, key, was)
		d.must(err)
		was = key
		eventstoretest.AbandonsUnfit(t, d.store, event.LaneRef{Category: "order", Key: key})
	}
}
