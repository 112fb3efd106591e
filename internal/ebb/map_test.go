package ebb_test

import (
	"maps"
	"runtime"
	"testing"

	"pgregory.net/rapid"

	"github.com/keyhold/keyhold/internal/ebb"
)

func TestAMapHasWhatItWasGiven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var m ebb.Map[int, string]
		want := map[int]string{}
		for _, run := range rapid.SliceOfN(rapid.IntRange(-300, 300), 0, 8).Draw(t, "runs") { // set so many, or delete them
			for key := range max(run, -run) {
				if run > 0 {
					m.Set(key, "v")
					want[key] = "v"
				} else {
					m.Delete(key)
					delete(want, key)
				}
			}
			if got := maps.Collect(m.All()); m.Len() != len(want) || !maps.Equal(got, want) {
				t.Fatalf("%d keys, %v: want %v", m.Len(), got, want)
			}
			for key := range 301 {
				v, found := m.Find(key)
				if _, is := want[key]; found != is || v != want[key] || m.Get(key) != v {
					t.Fatalf("key %d: %q, %v", key, v, found)
				}
			}
		}
	})
}

func TestWhatAllGivesMayBeDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	var m ebb.Map[int, int]
	for key := range 1000 {
		m.Set(key, key)
	}
	seen := map[int]bool{}
	for key := range m.All() {
		if seen[key] {
			t.Fatalf("%d came twice", key)
		}
		seen[key] = true
		m.Delete(key)
	}
	if len(seen) != 1000 || m.Len() != 0 {
		t.Errorf("%d came, %d are left", len(seen), m.Len())
	}
}

// It is not parallel: it looks at the heap.
func TestAMapGivesItsRoomBack(t *testing.T) {
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	const keys = 200_000
	var m ebb.Map[int, [4]int64]
	before := heap()
	for key := range keys {
		m.Set(key, [4]int64{})
	}
	full := heap() - before
	for key := range keys - 10 {
		m.Delete(key)
	}
	left := heap() - before
	t.Logf("%d keys: %d bytes; 10 of them: %d bytes", keys, full, left)
	if full < 40*keys || left > full/100 {
		t.Errorf("10 keys hold %d bytes of the %d that %d had", left, full, keys)
	}
	runtime.KeepAlive(&m)
}
