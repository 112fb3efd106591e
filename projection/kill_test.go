package projection

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/sqlite"
)

// childStore names the store that a process of this test binary works on until it is killed.
const childStore = "KEYHOLD_TEST_PROJECTION_STORE"

// runChild publishes and projects, and rebuilds all the time. It prints a line for each transaction.
func runChild(path string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, store := context.Background(), sqlite.Open(path)
	id, err := store.Start(ctx, eventstore.StartOptions{Node: "child"})
	if err != nil {
		return fail(err)
	}
	r, err := NewRuntime(Config{
		Definitions: []Definition{sales(nil)}, Store: store, Codec: types, SQL: true,
		Observer: Observer{Moved: func(p Progress) { fmt.Println("moved", p.Number, p.Applied) }},
	})
	if err == nil {
		err = r.Start(ctx)
	}
	if err != nil {
		return fail(err)
	}
	for n := int64(0); ; n++ {
		e := envelope(n, sold{Item: string(rune('a' + n%5)), N: 1})
		e.ID = fmt.Sprintf("%d-%d", id.StartGeneration, n)
		done, err := store.Begin("child").Commit(ctx, eventstore.Changes{Publish: []event.Envelope{e}})
		if err != nil {
			return fail(err)
		}
		r.Wake(done.Tails)
		if n%50 != 49 {
			continue
		}
		// It is refused while one is being made.
		_, _ = store.ActOnProjection(ctx, eventstore.ProjectionAct{Kind: eventstore.ActRebuild, Name: "sales", Actor: "child"})
		if err := r.Look(ctx); err != nil {
			return fail(err)
		}
	}
}

func TestKilledProcessHasAppliedEverythingItCommittedOnce(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.must(b.store.Stop(t.Context()))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	for range 3 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), childStore+"="+b.path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		b.must(err)
		b.must(child.Start())
		lines := bufio.NewScanner(out)
		for left := 10 + chance.IntN(60); left > 0; left-- {
			if !lines.Scan() {
				t.Fatal("the child ended by itself")
			}
		}
		b.must(child.Process.Kill())
		_ = child.Wait() // it says that it was killed
		b.startAgain()
		b.partial()
		b.must(b.store.Stop(t.Context()))
	}
	b.startAgain()
	r := b.start(sales(nil))
	r.until(func() bool {
		p := b.state("sales")
		return p.In(eventstore.BuildMaking) == nil
	})
	p := b.state("sales")
	r.caughtUp("sales", p.In(eventstore.BuildCurrent).Number)
	b.exact()
}
