package actors_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
)

// Nodes that lose leases, hang and come back, by seed: what is committed is in order, each once.
func TestWhateverHappensToLeasesEventsAreAppliedInOrderAndOnce(t *testing.T) {
	t.Parallel()
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { leaseChaos(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func leaseChaos(t *testing.T, rng *rand.Rand) {
	const clients, each = 4, 40
	w := newNodes()
	var all []*node
	for _, name := range []string{"A", "B", "C"} {
		h := auditing(name, func(c actors.Context, _ Deposited) error {
			pass2(time.Duration(rand.N(3000)) * time.Millisecond)
			return nil
		})
		h.Timeout = 2 * time.Second
		h.Retry = actors.RetryPolicy{Attempts: 1000, Min: time.Millisecond, Max: time.Second}
		all = append(all, w.join(t, []actors.Definition{h}, func(c *actors.Config) { c.IdleAfter = 5 * time.Second }))
	}
	next := map[int]int{}
	for range clients * each {
		client := rng.IntN(clients)
		next[client]++
		all[rng.IntN(3)].publish(t, Deposited{Client: fmt.Sprint("c", client), Amount: next[client]})
		switch rng.IntN(8) {
		case 0:
			thaw := all[rng.IntN(3)].port.freeze()
			time.AfterFunc(time.Duration(rng.IntN(40))*time.Second, thaw)
		case 1:
			all[rng.IntN(3)].HandOver(ledgerOf(fmt.Sprint("c", rng.IntN(clients))))
		case 2:
			if rng.IntN(4) == 0 {
				w.clock()
				w.broker.Forget()
			}
		}
		pass(time.Duration(rng.IntN(2000)) * time.Millisecond)
	}
	for client, n := range next {
		name := fmt.Sprint("c", client)
		for range 200 {
			if len(w.audits(t, all[0], name)) >= n {
				break
			}
			for _, a := range all {
				a.Wake(ledgerOf(name)) // as a scan for what has work does
			}
			pass(heartbeat)
		}
		got := w.audits(t, all[0], name)
		for i, audit := range got {
			if !strings.HasPrefix(audit, fmt.Sprint(i+1, " by ")) {
				t.Fatalf("%s: %v", name, got)
			}
		}
		same(t, "applied of "+name, n, len(got))
	}
}
