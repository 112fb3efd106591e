package keyhold

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A node that comes and goes with what it cannot do without is back later each time, and at once where that was long ago.
func TestWhoComesAndGoesStandsBack(t *testing.T) {
	t.Parallel()
	const beat = time.Second
	at := func(n int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(n) * beat) }
	for name, c := range map[string]struct {
		gone func(n int) bool
		want []string // from when until when it is away, in heartbeats
	}{
		"never":             {func(int) bool { return false }, nil},
		"once":              {func(n int) bool { return n >= 10 && n < 20 }, []string{"10-20"}},
		"twice, far apart":  {func(n int) bool { return n == 10 || n == 18+1 }, []string{"10-11", "19-20"}},
		"twice, soon":       {func(n int) bool { return n == 10 || n == 12 }, []string{"10-11", "12-14"}},
		"while it is back":  {func(n int) bool { return n == 10 || n == 12 || n == 13 }, []string{"10-11", "12-15"}},
		"again and again":   {func(n int) bool { return n < 200 && n%4 == 0 }, []string{"0-1", "4-6", "8-11", "12-201"}},
		"for ever and ever": {func(n int) bool { return n%50 == 0 && n < 500 }, []string{"0-1", "50-51", "100-101", "150-151", "200-201", "250-251", "300-301", "350-351", "400-401", "450-451"}},
		"up to the most": {
			// each time it is back for one heartbeat
			func(n int) bool { return slices.Contains([]int{0, 2, 5, 9, 15, 25, 43, 65, 87}, n) },
			[]string{"0-1", "2-4", "5-8", "9-14", "15-24", "25-42", "43-64", "65-86", "87-108"},
		},
	} {
		f, from, got := footing{unit: beat}, -1, []string(nil)
		for n := range 600 {
			switch away := f.apart(at(n), c.gone(n)); {
			case away && from < 0:
				from = n
			case !away && from >= 0:
				got, from = append(got, fmt.Sprint(from, "-", n)), -1
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: it was away %v, want %v", name, got, c.want)
		}
	}
}
