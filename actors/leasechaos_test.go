package actors_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
)

// Nodes that lose leases, hang and come back, by seed: what is committed is in order, each once.
func TestWhateverHappensToLeasesEventsAreAppliedInOrderAndOnce(t *testing.T) {
	t.Parallel()
	seeds := []uint64{rand.Uint64(), rand.Uint64(), rand.Uint64(), rand.Uint64()}
	if s := os.Getenv("KEYHOLD_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{n}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { leaseChaos(t, seed) })
		})
	}
}

func leaseChaos(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	const clients, each = 4, 40
	w := newNodes()
	var all []*node
	for _, name := range []string{"A", "B", "C"} {
		h := auditing(name, func(c actors.Context, e Deposited) error {
			takes := rand.New(rand.NewPCG(seed, uint64(e.Amount))).IntN(3000) // the first time longer than it may, for some
			pass2(time.Duration(takes/c.Meta().Attempt) * time.Millisecond)
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
