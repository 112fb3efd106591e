package guarantees

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// TestPolled has a program produce that knows nothing of Keyhold: all that it does is XADD, with ids that Redis gives. It appends events again of which it is not sure, and all that it ever
// had after Redis was flushed. Meanwhile nodes are killed, among them the one that takes its events in.
func TestPolled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, settings{polled: true})
	f.two()
	clients, last := clientsOf(12), 150
	p := &appender{redis.NewClient(&redis.Options{Addr: f.redis.Addr(), MaxRetries: -1, DisableIdentity: true, Protocol: 2}), rand.New(rand.NewPCG(f.random.Uint64(), 1)), 0}
	defer p.client.Close()
	const blocks = 6
	for block := range blocks {
		var producing sync.WaitGroup
		var failed error
		producing.Go(func() {
			from, to := block*last/blocks+1, (block+1)*last/blocks
			for n := from; n <= to && failed == nil; n++ {
				failed = p.append(t.Context(), n, clients...)
			}
			if block == blocks/2 && failed == nil {
				failed = p.flushed(t.Context(), f.redis.FlushAll, to, clients...)
			}
		})
		killed := f.any() // which may be the one that takes in, while there is something
		killed.kill(t)
		producing.Wait()
		if failed != nil {
			t.Fatal(failed)
		}
		f.nodes[killed.spec.Name] = f.newNode(killed.spec.Name)
		f.nodes[killed.spec.Name].start(t)
		f.applied(runnerName, clients[0], block*last/blocks+1) // somebody takes in again
	}
	for _, client := range clients {
		f.appliedWithin(2*time.Minute, runnerName, client, last)
	}
	j := f.settle(time.Minute, clients, nil)
	lost, reordered, twice := 0, 0, 0
	for _, client := range clients {
		got, err := f.numbers(runnerName, client)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[int]bool{}
		for i, n := range got {
			if seen[n] {
				twice++
			}
			if seen[n] = true; i > 0 && n < got[i-1] {
				reordered++
			}
		}
		lost += last - len(seen)
		if diff := cmp.Diff(upTo(1, last), got); diff != "" {
			t.Errorf("%s (-appended +applied): %s", client, diff)
		}
	}
	t.Logf("lost=%d reordered=%d twice=%d; again=%d %v", lost, reordered, twice, p.again, j)
}

// appender is the program.
type appender struct {
	client *redis.Client
	random *rand.Rand
	again  int // entries of events that were appended before
}

// append appends the n-th task of each client, and now and then one that it appended before.
func (p *appender) append(ctx context.Context, n int, clients ...string) error {
	for _, client := range clients {
		if err := p.add(ctx, client, n); err != nil {
			return err
		}
		if p.random.IntN(10) > 0 {
			continue
		}
		p.again++
		if err := p.add(ctx, client, 1+p.random.IntN(n)); err != nil {
			return err
		}
	}
	return nil
}

func (p *appender) add(ctx context.Context, client string, n int) error {
	return p.client.XAdd(ctx, &redis.XAddArgs{Stream: polledFrom + ":" + client, Values: []any{
		"id", client + "-" + strconv.Itoa(n), "type", "task.added", "data", fmt.Sprintf(`{"client_id":%q,"number":%d}`, client, n),
	}}).Err()
}

// flushed appends everything again that Redis has lost.
func (p *appender) flushed(ctx context.Context, flush func(context.Context) error, through int, clients ...string) error {
	if err := flush(ctx); err != nil {
		return err
	}
	p.again += through * len(clients)
	for n := 1; n <= through; n++ {
		for _, client := range clients {
			if err := p.add(ctx, client, n); err != nil {
				return err
			}
		}
	}
	return nil
}
