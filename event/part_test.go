package event_test

import (
	"strconv"
	"testing"

	"github.com/keyhold/keyhold/event"
)

// Stores keep parts, so what the rule gives can never change.
func TestPartsAreAsTheyAlwaysWere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		owner, key string
		want       event.Part
	}{{"order", "client-123", 17}, {"order", "client-124", 56}, {"shipping", "client-123", 20}, {"a", "bc", 33}, {"ab", "c", 36}} {
		if got := event.PartOf(c.owner, c.key); got != c.want {
			t.Errorf("part of %s %s is %d, want %d", c.owner, c.key, got, c.want)
		}
	}
}

func TestPartsShareTheKeysOut(t *testing.T) {
	t.Parallel()
	const keys = 64_000
	var counts [event.Parts]int
	for i := range keys {
		counts[event.PartOf("order", "client-"+strconv.Itoa(i))]++
	}
	for p, n := range counts {
		if n < keys/event.Parts*8/10 || n > keys/event.Parts*12/10 {
			t.Errorf("part %d has %d of %d keys", p, n, keys)
		}
	}
}

func TestBothLanesOfAPartitionAreInOnePart(t *testing.T) {
	t.Parallel()
	primary := event.LaneRef{Category: "order", Key: "client-123"}
	backfill := primary
	backfill.Lane = event.Backfill
	if primary.Part() != backfill.Part() {
		t.Errorf("the primary lane is in part %d, the backfill lane in %d", primary.Part(), backfill.Part())
	}
}
