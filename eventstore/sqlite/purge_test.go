package sqlite

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// number asks the database for one.
func (b *bundle) number(query string) (n int) {
	b.Helper()
	b.must(b.store.Reader().QueryRowContext(b.Context(), query).Scan(&n))
	return n
}

func TestPurgeLeavesNothingOnDiskOfWhatItEmptiedOrDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []eventstore.Changes{publish("e-1"), publish("e-2"), emit("7", 0), publish("e-3"), publish("e-4")} {
		for i := range c.Publish {
			c.Publish[i].Tenant, c.Publish[i].CorrelationID, c.Publish[i].CausationID = "tenant", "correlation", "causation"
			c.Publish[i].Trace = event.Trace{Parent: "parent", State: "state"}
		}
		b.must(<-b.commit(c))
	}
	for _, seq := range []event.Sequence{1, 4} {
		b.must(b.store.Abandon(t.Context(), event.LaneRef{Category: "order", Key: "a"}, seq, "bad"))
	}
	if n, err := b.store.Purge(t.Context(), time.Now(), 10); err != nil || n != 4 {
		t.Fatalf("purge: %d, %v", n, err)
	}
	for what, query := range map[string]string{
		"records besides the stream's and two voids": `SELECT count(*) - 3 FROM keyhold_log`,
		"voids that keep something": `SELECT count(*) FROM keyhold_log WHERE stream_version IS NULL AND (type <> '' OR
			coalesce(data, tenant, correlation, causation, trace_parent, trace_state) IS NOT NULL)`,
		"abandoned records": `SELECT count(*) FROM keyhold_abandoned`,
		"records for the next purge to look at": `SELECT count(*) FROM keyhold_log INDEXED BY keyhold_log_loose
			WHERE stream_version IS NULL AND held = 0 AND time < 9e15`,
	} {
		if n := b.number(query); n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
}
