package event_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/keyhold/keyhold/event"
)

func TestNewIDsAreSortedVersionSevenUUIDs(t *testing.T) {
	t.Parallel()
	last := ""
	for range 10_000 {
		id := event.NewID()
		if id <= last {
			t.Fatalf("%s was made after %s", id, last)
		}
		last = id
	}
	if u, err := uuid.Parse(last); err != nil || u.Version() != 7 || u.String() != last {
		t.Errorf("%q is no UUID of version 7 in its usual form (%v)", last, err)
	}
}

func TestNewIDsMadeConcurrentlyDiffer(t *testing.T) {
	t.Parallel()
	const makers, each = 8, 1000
	made := make([][]string, makers)
	var wg sync.WaitGroup
	for m := range made {
		wg.Go(func() {
			for range each {
				made[m] = append(made[m], event.NewID())
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, ids := range made {
		for _, id := range ids {
			seen[id] = true
		}
	}
	if len(seen) != makers*each {
		t.Errorf("%d different ids of %d", len(seen), makers*each)
	}
}

// Ids derived by an older program must come out the same: a sink drops what it has seen by them.
func TestDerivedIDNeverChanges(t *testing.T) {
	t.Parallel()
	const parent = "0197a2b4-1c00-7000-8000-000000000001"
	for _, c := range []struct {
		parent string
		n      int
		by     string
		want   string
	}{
		{parent, 0, "shipping/client-123", "55bdd7da-abd2-5531-b6e6-bd84c30667ce"},
		{parent, 1, "shipping/client-123", "d1e3e238-a556-56a3-9b24-15d53ec835d6"},
		{parent, 0, "billing/client-123", "7baa3c81-804e-545a-af97-61e0fd7cb6b0"},
		{"", 0, "", "30912856-4640-57d7-9b15-a344845b9551"},
	} {
		if got := event.DerivedID(c.parent, c.n, c.by); got != c.want {
			t.Errorf("DerivedID(%q, %d, %q) = %q, want %q", c.parent, c.n, c.by, got, c.want)
		}
	}
}

func TestDerivedIDTellsItsPartsApart(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, parent := range []string{"", "a", "a:0", "a:0:b", "1:a", "0", "b"} {
		for _, n := range []int{0, 1, 10} {
			for _, by := range []string{"", "b", "0:b", "a:0:b", "shipping/client-1"} {
				id := event.DerivedID(parent, n, by)
				if u, err := uuid.Parse(id); err != nil || u.Version() != 5 {
					t.Fatalf("%q is no UUID of version 5 (%v)", id, err)
				}
				what := fmt.Sprintf("(%q, %d, %q)", parent, n, by)
				if other, ok := seen[id]; ok {
					t.Errorf("%s and %s have the same id", what, other)
				}
				seen[id] = what
			}
		}
	}
}
