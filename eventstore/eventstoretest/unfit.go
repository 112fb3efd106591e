package eventstoretest

import (
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// AbandonsUnfit checks that the one record of a store, in a lane that nothing can be called, is found and abandoned like all else that cannot be sent. Such a lane got into the store past
// Keyhold, or before it was refused, so each adapter makes it by means of its own.
func AbandonsUnfit(t *testing.T, store eventstore.Store, ref event.LaneRef) {
	t.Helper()
	if tail, err := store.LaneTail(t.Context(), ref); tail != 1 || err != nil {
		t.Errorf("tail of %.9q: %d, %v", ref.Key, tail, err)
	}
	if err := store.Abandon(t.Context(), ref, 1, "bad"); err != nil {
		t.Errorf("abandon %.9q: %v", ref.Key, err)
	}
	if run, err := store.ReadLane(t.Context(), ref, 0, 10); err != nil || len(run) != 1 || !run[0].Void() {
		t.Errorf("lane %.9q: %+v, %v", ref.Key, run, err)
	}
	if all, err := store.Abandoned(t.Context(), event.Position{}, 10); err != nil || len(all) != 1 || all[0].Record.Key != ref.Key {
		t.Errorf("abandoned %.9q: %+v, %v", ref.Key, all, err)
	}
	if all, err := store.Abandoned(t.Context(), event.Position{Lane: ref, Sequence: 1}, 10); err != nil || len(all) != 0 {
		t.Errorf("abandoned after %.9q: %+v, %v", ref.Key, all, err)
	}
	if all, err := store.Unpassed(t.Context(), "shipping", ref.Category, ref, eventstore.MaxLimit); err != nil || len(all) != 0 {
		t.Errorf("not passed after %.9q: %+v, %v", ref.Key, all, err)
	}
}
