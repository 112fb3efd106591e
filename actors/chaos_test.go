package actors_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
)

// Every call of the store may fail, or happen and lose its answer; behaviors fail and panic; the process is stopped and started
// again. In the end each event has had its effect once and in order, and each command was decided once.
func TestEffectsHappenOnceAndInOrderWhateverFails(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if s := os.Getenv("KEYHOLD_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed+i), func(t *testing.T) {
			t.Parallel()
			chaos(t, seed+i)
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	const keys, each, processes = 4, 40, 3
	store := memory.Open()
	rates := faulty.Rates{Before: 0.08, After: 0.08, Error: errors.New("chaos")}
	audit := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		l.seen++
		c.Emit(Audited{Client: l.client, By: strconv.Itoa(e.Amount), Of: c.Meta().ID})
		switch dice := (seed ^ uint64(e.Amount)*7919 + uint64(c.Meta().Attempt)*104729) % 10; {
		case dice == 0:
			return errors.New("chaos")
		case dice == 1:
			panic("chaos")
		}
		return nil
	})
	audit.Retry = actors.RetryPolicy{Attempts: 1000, Max: time.Second}
	for p := range processes {
		t.Run("process", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setupOn(t, store, faulty.Seeded(seed+uint64(p), rates, faulty.Commit, faulty.Recover, faulty.ReadLane, faulty.LaneTail,
					faulty.ReadStream, faulty.ReadSnapshot, faulty.ReadReply), []actors.Definition{accounts(), audit}, silent)
				var asks sync.WaitGroup
				for k := range keys {
					asks.Go(func() {
						for i := range each {
							askUntilAnswered(t, b, fmt.Sprint("c", k), fmt.Sprint("cmd-", p, "-", i), p*each+i)
						}
					})
				}
				asks.Wait()
				if p < processes-1 {
					return // in the middle of what the ledger has to do
				}
				for k := range keys {
					key := fmt.Sprint("c", k)
					if err := b.Drive(t.Context(), event.Unit{Name: "ledger", Key: key}, lane(key), processes*each); err != nil {
						t.Error(err)
					}
					checkEffects(t, store, key, processes*each)
				}
			})
		})
	}
}

func askUntilAnswered(t *testing.T, b *bundle, id, command string, amount int) {
	for range 1000 {
		_, err := b.Ask(t.Context(), ref(id), &Deposit{Client: id, Amount: amount}, actors.CommandID(command))
		if err == nil {
			return
		}
		var ask *actors.AskError
		if !errors.As(err, &ask) {
			t.Errorf("ask: %v", err)
			return
		}
		pause, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		<-pause.Done()
		cancel()
	}
	t.Errorf("%s: %s is never answered", id, command)
}

func checkEffects(t *testing.T, store eventstore.Store, key string, n int) {
	t.Helper()
	deposits, err := store.ReadLane(t.Context(), lane(key), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	audits, err := store.ReadLane(t.Context(), event.LaneRef{Category: "audit", Key: key}, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for i, e := range deposits {
		want = append(want, fmt.Sprintf(`{"Client":%q,"By":"%d","Of":%q}`, key, i, e.ID))
	}
	for _, e := range audits {
		got = append(got, string(e.Data))
	}
	if len(deposits) != n {
		t.Errorf("%s: %d deposits, want %d: a command was decided twice, or not at all", key, len(deposits), n)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: effects (-want +got)\n%s", key, diff)
	}
}
