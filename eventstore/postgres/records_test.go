package postgres

import (
	"strings"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
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
		ref := event.LaneRef{Category: "order", Key: key}
		if tail, err := d.store.LaneTail(t.Context(), ref); tail != 1 || err != nil {
			t.Errorf("tail of %.9q: %d, %v", key, tail, err)
		}
		if err := d.store.Abandon(t.Context(), ref, 1, "bad"); err != nil {
			t.Errorf("abandon %.9q: %v", key, err)
		}
		if run, err := d.store.ReadLane(t.Context(), ref, 0, 10); err != nil || len(run) != 1 || !run[0].Void() {
			t.Errorf("lane %.9q: %+v, %v", key, run, err)
		}
		if all, err := d.store.Abandoned(t.Context(), event.Position{}, 10); err != nil || len(all) != 1 || all[0].Record.Key != key {
			t.Errorf("abandoned %.9q: %+v, %v", key, all, err)
		}
		if all, err := d.store.Abandoned(t.Context(), event.Position{Lane: ref, Sequence: 1}, 10); err != nil || len(all) != 0 {
			t.Errorf("abandoned after %.9q: %+v, %v", key, all, err)
		}
		if all, err := d.store.Unpassed(t.Context(), "shipping", "order", ref, eventstore.MaxLimit); err != nil || len(all) != 0 {
			t.Errorf("not passed after %.9q: %+v, %v", key, all, err)
		}
	}
}
