package redis

import (
	"strconv"
	"testing"

	"github.com/keyhold/keyhold/event"
)

func TestSlotIsTheServersOwn(t *testing.T) {
	t.Parallel()
	w, node := newWorld(t, sharedRedis(t, true), Config{})
	for _, key := range []string{"a", "order:{client-123}", "order:{client-123}:__lease__", "x{}y{z}", "{", "}{a}", "{a}{b}", "123456789", ""} {
		if got, want := int64(slotOf(key)), w.do("cluster", "keyslot", key).(int64); got != want {
			t.Errorf("%q: slot %d, the server says %d", key, got, want)
		}
	}
	if birth := node.conn.Load().birthKey(node.conn.Load().servers.of("x")); w.do("exists", birth) != int64(1) {
		t.Errorf("there is no %s", birth)
	}
}

// TestEverythingOfAUnitHasOneSlot: so that one script reaches its lease and its streams.
func TestEverythingOfAUnitHasOneSlot(t *testing.T) {
	t.Parallel()
	names := event.Names{Namespace: "shop", Cluster: true}
	want := slotOf("client-123")
	for _, kind := range []event.NameKind{event.NameLease, event.NameGeneration, event.NamePartition, event.NameBackfill, event.NameNewest, event.NameMissingRun} {
		if got := slotOf(mustName(names, event.Name{Kind: kind, Owner: "shipping", Key: "client-123"})); got != want {
			t.Errorf("%s: slot %d, want %d", kind, got, want)
		}
	}
}

// TestEverySlotHasABirth: a master that has one slot only finds a name for its birth key in it.
func TestEverySlotHasABirth(t *testing.T) {
	t.Parallel()
	found := make(map[uint16]bool)
	for n := range slots * 16 {
		found[slotOf("keyhold:__birth__:{"+strconv.Itoa(n)+"}")] = true
	}
	if len(found) != slots {
		t.Errorf("%d of %d slots", len(found), slots)
	}
}
