package guarantees

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestIdleKeysCostNothing has 200 and then 2,000 keys on one node, whose streams, groups and places in the index all live, with nothing to do: what the node
// still asks of Redis is little, and does not depend on how many keys there are. All commands are counted, those within scripts included.
func TestIdleKeysCostNothing(t *testing.T) {
	t.Parallel()
	const few, keys, limit, during = 200, 2000, 14, 45 * time.Second     // of which seven renewals of what the node holds
	f := newFleet(t, settings{ttl: 15 * time.Second, idle: time.Second}) // leases as they are by default, since what is renewed is counted
	f.add("node-1")
	rates := map[int]float64{}
	for _, n := range [...]struct{ first, last int }{{0, few}, {few, keys}} {
		rates[n.last] = f.idleRate(n.first, n.last, during)
		if rates[n.last] >= limit {
			t.Errorf("%d live idle keys: %.1f commands a second, want less than %d", n.last, rates[n.last], limit)
		}
	}
	if more := rates[keys] - rates[few]; more >= 1 || more <= -1 {
		t.Errorf("%d live idle keys: %.1f commands a second; %d: %.1f, want the same", few, rates[few], keys, rates[keys])
	}
	a := f.nodes["node-1"]
	began := time.Now()
	f.publish(a, 0, task{Client: "client-0000", Number: 2}) // they are asleep, not dead
	eventually(t, time.Minute, "a key wakes up", func() (bool, error) {
		got, err := f.numbers(runnerName, "client-0000")
		return len(got) == 2, err
	})
	t.Logf("woken within %v", time.Since(began))
}

// idleRate publishes for keys, waits until they are at rest, and counts the commands a second of a node for which there is nothing to do.
func (f *fleet) idleRate(first, last int, during time.Duration) float64 {
	f.t.Helper()
	var all []task
	for n := first; n < last; n++ {
		all = append(all, task{Client: fmt.Sprintf("client-%04d", n), Number: 1})
	}
	f.publish(f.nodes["node-1"], 100, all...)
	eventually(f.t, 3*time.Minute, "all is applied", func() (bool, error) {
		rows, err := f.effects()
		return len(rows) == last, fmt.Errorf("%d of %d (%w)", len(rows), last, err)
	})
	eventually(f.t, time.Minute, "all are in the index", func() (bool, error) {
		members, err := f.redis.Do(f.t.Context(), "SMEMBERS", taskCategory+":__partitions__")
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
	var calls map[string]int64
	perSecond := func(d time.Duration) float64 {
		f.t.Helper()
		if err := f.redis.ResetCalls(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
		began := time.Now()
		<-time.After(d)
		var err error
		if calls, err = f.redis.Calls(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
		var sum int64
		for _, n := range calls {
			sum += n
		}
		return float64(sum) / time.Since(began).Seconds()
	}
	quiet := 0 // windows, one after the other: there are calm moments in between
	eventually(f.t, 3*time.Minute, "nothing is left to be put away", func() (bool, error) {
		rate := perSecond(5 * time.Second)
		if quiet++; calls["set"]+calls["xack"]+calls["xreadgroup"]+calls["xtrim"] > 0 {
			quiet = 0
		}
		return quiet == 3, fmt.Errorf("%.1f commands a second: %v", rate, calls)
	})
	rate := perSecond(during)
	f.t.Logf("%d live idle keys, one node: %.1f commands a second by INFO commandstats, those within scripts included: %v", last, rate, calls)
	if live, err := f.redis.Do(f.t.Context(), "SCARD", taskCategory+":__partitions__"); err != nil || live != int64(last) {
		f.t.Errorf("meanwhile %v keys are live, %v: what was measured is not %d idle keys", live, err, last)
	}
	return rate
}
