package guarantees

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestIdleKeysCostNothing has 2,000 keys on two nodes, whose streams, groups and places in the index all live, with nothing to do: what the nodes
// still ask of Redis must not depend on how many keys there are. What they send is counted; what a script does is its own matter, and shown.
func TestIdleKeysCostNothing(t *testing.T) {
	t.Parallel()
	const keys, limit, during = 2000, 20, 10 * time.Second
	f := newFleet(t, settings{ttl: 15 * time.Second, idle: time.Second}) // leases as they are by default, since what is renewed is counted
	a, b := f.two()
	var all []task
	for n := range keys {
		all = append(all, task{Client: fmt.Sprintf("client-%04d", n), Number: 1})
	}
	f.publish(a, 100, all[:keys/2]...)
	f.publish(b, 100, all[keys/2:]...)
	eventually(t, 3*time.Minute, "all is applied", func() (bool, error) {
		rows, err := f.effects()
		return len(rows) == keys, fmt.Errorf("%d of %d (%w)", len(rows), keys, err)
	})
	eventually(t, time.Minute, "all are in the index", func() (bool, error) {
		members, err := f.redis.Do(t.Context(), "SMEMBERS", taskCategory+":__partitions__")
		live, _ := members.([]any)
		var missing []string
		for _, k := range all {
			if !slices.Contains(live, any(k.Client)) {
				missing = append(missing, k.Client)
			}
		}
		return len(missing) == 0, fmt.Errorf("%d are not: %s ... (%w)", len(missing), strings.Join(missing[:min(200, len(missing))], " "), err)
	})
	// They are put away one by one, and what is left over is trimmed.
	var calls map[string]int
	var set []string
	perSecond := func(d time.Duration) float64 {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		sum := 0
		calls, set = map[string]int{}, nil
		if err := f.redis.Monitor(ctx, func(line string, inScript bool) {
			name, _, _ := strings.Cut(strings.ToLower(line), " ")
			if inScript {
				calls["in scripts: "+name]++
				if name == `"set"` && len(set) < 5 { // what is acquired, and by that not idle
					set = append(set, line)
				}
				return
			}
			calls[name]++
			sum++
		}); err != nil {
			t.Fatal(err)
		}
		return float64(sum) / d.Seconds()
	}
	quiet := 0 // windows, one after the other: there are calm moments in between
	eventually(t, 3*time.Minute, "nothing is left to be put away", func() (bool, error) {
		rate := perSecond(5 * time.Second)
		if quiet++; rate >= limit {
			quiet = 0
		}
		return quiet == 3, fmt.Errorf("%.1f commands a second: %v %v", rate, calls, set)
	})
	rate := perSecond(during)
	t.Logf("%d live idle keys, 2 nodes: %.1f commands a second: %v", keys, rate, calls)
	if rate >= limit {
		t.Errorf("%.1f commands a second, want less than %d: %v", rate, limit, calls)
	}
	if live, err := f.redis.Do(t.Context(), "SCARD", taskCategory+":__partitions__"); err != nil || live != int64(keys) {
		t.Errorf("meanwhile %v keys are live, %v: what was measured is not %d idle keys", live, err, keys)
	}
	began := time.Now()
	f.publish(a, 0, task{Client: "client-0000", Number: 2}) // they are asleep, not dead
	eventually(t, time.Minute, "a key wakes up", func() (bool, error) {
		got, err := f.numbers(runnerName, "client-0000")
		return len(got) == 2, err
	})
	t.Logf("woken within %v", time.Since(began))
}
