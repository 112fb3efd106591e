package event_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/keyhold/keyhold/event"
)

// These are on disk for ever: a change that makes this test fail loses the order of every bucketed category.
func TestBucketOfAnIDNeverChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id   string
		n    int
		want string
	}{
		{"", 64, "37"},
		{"", 50, "37"},
		{"order-1", 64, "45"},
		{"order-1", 50, "25"},
		{"order-2", 64, "20"},
		{"order-2", 50, "42"},
		{"client-123", 64, "39"},
		{"client-123", 50, "1"},
		{"2f1c5a0e-9f0b-7c1e-8a55-0d7c2f1b9e11", 64, "29"},
		{"2f1c5a0e-9f0b-7c1e-8a55-0d7c2f1b9e11", 50, "39"},
		{"Zoë", 64, "60"},
		{"Zoë", 50, "30"},
		{"\xff", 64, "46"},
	} {
		if got := event.Bucket(c.id, c.n); got != c.want {
			t.Errorf("Bucket(%q, %d) = %q, want %q", c.id, c.n, got, c.want)
		}
	}
}

func TestBucketsAreValidKeysWithinTheirNumber(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 0, 1, 2, 64, 1000} {
		for i := range 500 {
			bucket := event.Bucket(fmt.Sprintf("order-%d", i), n)
			number, err := strconv.Atoi(bucket)
			if err != nil || number < 0 || number >= max(n, 1) {
				t.Fatalf("Bucket of %d = %q", n, bucket)
			}
			if err := (event.KeyRules{}).Check(bucket); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestBucketsShareTheLoad(t *testing.T) {
	t.Parallel()
	const n, each = 64, 200
	for label, id := range map[string]func(int) string{
		"numbers":       strconv.Itoa,
		"with a prefix": func(i int) string { return fmt.Sprintf("order-%d", i) },
		"padded":        func(i int) string { return fmt.Sprintf("%08d", i) },
		"steps":         func(i int) string { return fmt.Sprintf("%x", i*64) },
		"derived ids":   func(i int) string { return event.DerivedID("parent", i, "order") },
	} {
		count := map[string]int{}
		for i := range n * each {
			count[event.Bucket(id(i), n)]++
		}
		for bucket, got := range count {
			if len(count) != n || got < each*6/10 || got > each*14/10 {
				t.Errorf("%s: bucket %s of %d has %d ids, want about %d", label, bucket, len(count), got, each)
			}
		}
	}
}
