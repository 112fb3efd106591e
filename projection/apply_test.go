package projection

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/lifecycle/lifecycletest"
)

func TestEveryEventIsAppliedOnceInCommitOrder(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(150)...)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	for range 20 {
		b.publish(r, some(7)...)
	}
	r.caughtUp("sales", 1)
	b.exact()
	b.same("applied", b.build("sales", 1).Applied, uint64(290))
	b.must(r.Stop(t.Context()))
	b.publish(nil, some(3)...)
	r = b.start(sales(nil))
	r.caughtUp("sales", 1)
	b.exact()
}

// listener keeps what it is given in memory that the test has.
type listener struct {
	mu   sync.Mutex
	seen []Meta
}

func (l *listener) sold(ctx Context, _ sold) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, ctx.Meta())
	return nil
}

func (l *listener) projection() Projection[*listener] {
	return Projection[*listener]{Name: "ears", New: func() *listener { return l }, On: Cases[*listener]{On((*listener).sold)}}
}

func TestWithoutSQLPositionsMoveAndTypesNotHandledArePassedOver(t *testing.T) {
	t.Parallel()
	b := onMemory(t)
	for range 3 {
		b.publish(nil, sold{Item: "a"}, noise{}, sold{Item: "b"})
	}
	l := new(listener)
	r := b.start(l.projection())
	r.caughtUp("ears", 1)
	got := b.build("ears", 1)
	b.same("counts", []uint64{got.Applied, got.Passed}, []uint64{6, 3})
	events, position, err := b.store.ReadAll(t.Context(), "", nil, 100)
	b.must(err)
	b.same("position", got.Position, position)
	placed, err := b.store.ReadPlaced(t.Context(), nil, "", nil, 100)
	b.must(err)
	at := 0
	for i, e := range events {
		if e.Type != "sold" {
			continue
		}
		want := Meta{
			ID: e.ID, Type: "sold", Category: "order", Key: e.Key, Sequence: e.Sequence, Time: e.Time, Position: placed[i].Position, Build: 1, Attempt: 1,
		}
		b.same("what is told of the event", l.seen[at], want)
		at++
	}
	b.same("events seen", len(l.seen), 6)
}

func TestStoreWithoutSQLSaysSo(t *testing.T) {
	t.Parallel()
	b := onMemory(t)
	r := b.start(sales(nil))
	h := <-r.halted
	b.same("reason", h.Reason, "the store has no SQL")
	b.same("event", h.Event.String(), "Setup")
}

func TestNothingIsSkippedBesideWritersThatRollBack(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := b.start(sales(nil), sales(nil, func(p *Projection[*seller]) {
		p.Name, p.Setup = "noted", nil
		p.On = Cases[*seller]{On(func(*seller, Context, sold) error { return nil })}
	}))
	const writers, each = 4, 40
	var group sync.WaitGroup
	for w := range writers {
		chance := rand.New(rand.NewPCG(seed, uint64(w)))
		group.Go(func() {
			for range each {
				tx := b.store.Begin("writer")
				if chance.IntN(2) == 0 { // with SQL of its own, so that it is in the middle of others' transactions
					if _, err := tx.SQL(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
				if chance.IntN(3) == 0 {
					if err := tx.Rollback(); err != nil {
						t.Error(err)
					}
					continue
				}
				e := b.envelope(sold{Item: string(rune('a' + chance.IntN(3))), N: 1})
				c := eventstore.Changes{Publish: []event.Envelope{e}}
				if chance.IntN(4) == 0 { // refused after its events were drawn, or before
					c.Append = []eventstore.Append{{Stream: event.Stream{Kind: "order", ID: "x"}, Expected: 99, Events: []event.Envelope{b.envelope(sold{Item: "x"})}}}
				}
				done, err := tx.Commit(t.Context(), c)
				if err == nil {
					r.Wake(done.Tails)
				} else if !errors.Is(err, eventstore.ErrVersionConflict) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	r.caughtUp("sales", 1)
	r.caughtUp("noted", 1)
	b.exact()
	b.same("applied by both", b.build("noted", 1).Applied, b.build("sales", 1).Applied)
}

func TestIdleProjectionCostsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.Open()}
		if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		l := new(listener)
		r, err := NewRuntime(Config{Definitions: []Definition{l.projection()}, Store: store, Codec: types})
		if err == nil {
			err = r.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := store.calls()
		time.Sleep(time.Hour)
		synctest.Wait()
		if after := store.calls(); after != before || before == 0 {
			t.Errorf("%d calls of the store, then %d", before, after)
		}
		if err := errors.Join(r.Stop(t.Context()), store.Stop(t.Context())); err != nil {
			t.Fatal(err)
		}
	})
}

// counting counts reads.
type counting struct {
	*memory.Store
	mu sync.Mutex
	n  int
}

func (c *counting) calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func (c *counting) count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *counting) ReadPlaced(ctx context.Context, db eventstore.SQL, after eventstore.Position, categories []string, limit int) ([]eventstore.Placed, error) {
	c.count()
	return c.Store.ReadPlaced(ctx, db, after, categories, limit)
}

func (c *counting) ReadProjection(ctx context.Context, name string) (eventstore.Projection, error) {
	c.count()
	return c.Store.ReadProjection(ctx, name)
}

func TestBatchEndsWhenItHasHadTheWriterForLong(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(20)...)
	r := b.prepare(b.store, sales(nil))
	r.hold = 0
	b.must(r.Start(t.Context()))
	r.caughtUp("sales", 1)
	b.exact()
	for range 20 {
		if p := <-r.moves; p.Applied != 1 {
			t.Fatalf("a transaction of %d events", p.Applied)
		}
	}
}

func TestBatchHoldsAtMostSoManyEvents(t *testing.T) {
	t.Parallel()
	b := onMemory(t)
	b.publish(nil, some(25)...)
	l := new(listener)
	p := l.projection()
	p.Batch = 10
	r := b.start(p)
	r.caughtUp("ears", 1)
	var sizes []int
	for range 3 {
		sizes = append(sizes, (<-r.moves).Applied)
	}
	b.same("sizes", sizes, []int{10, 10, 5})
}

func TestStopLetsABatchFinishAndNamesOneThatIgnoresIt(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(1)...)
	inside, leave := make(chan struct{}), make(chan struct{})
	r := b.start(sales(func(Context, sold) error {
		close(inside)
		<-leave
		return nil
	}))
	<-inside
	over, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.Stop(over)
	if err == nil || err.Error() != "projections: [sales (build 1)] have a behavior that ignores the end of its context: stop: still running: context canceled" {
		t.Errorf("stop: %v", err)
	}
	close(leave)
	b.must(r.Stop(t.Context()))
	if got := b.build("sales", 1).Applied; got != 0 {
		t.Errorf("%d events were committed after Stop had lost patience", got)
	}
	again := b.start(sales(nil))
	again.caughtUp("sales", 1)
	b.exact()
}

func TestStartAndStopFromAnywhere(t *testing.T) {
	t.Parallel()
	b := onMemory(t)
	b.publish(nil, some(10)...)
	r, err := NewRuntime(Config{Definitions: []Definition{new(listener).projection()}, Store: b.store, Codec: types})
	b.must(err)
	lifecycletest.Stress(t, r)
}

func TestDeclarationSaysAllThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	bad := Projection[*seller]{
		Name: "a:b", Categories: []string{"order", "order"}, Version: -1, Batch: -1, Retry: actors.RetryPolicy{Attempts: -1},
		On: Cases[*seller]{On((*seller).sold), On((*seller).sold), On[*seller, sold](nil), {}, On(func(*seller, Context, *sold) error { return nil })},
	}
	faults := bad.Faults()
	if len(faults) != 10 {
		t.Errorf("%d faults: %v", len(faults), errors.Join(faults...))
	}
	if good := sales(nil).Faults(); len(good) > 0 {
		t.Errorf("faults of a good one: %v", good)
	}
	if _, err := NewRuntime(Config{Definitions: []Definition{sales(nil), sales(nil), bad}, Store: memory.Open(), Codec: types}); err == nil {
		t.Error("no error")
	}
	undeclared := Projection[int]{Name: "n", New: func() int { return 0 }, On: Cases[int]{On(func(int, Context, struct{ X int }) error { return nil })}}
	if _, err := NewRuntime(Config{Definitions: []Definition{undeclared}, Store: memory.Open(), Codec: types}); err == nil {
		t.Error("type without a name: no error")
	}
}

func TestTableNamesAreChecked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "1a", "a b", "a;b", `a"b`, "keyhold_x", "SQLITE_x", "a__2", "ä"} {
		if checkTable(name) == nil {
			t.Errorf("%q: no error", name)
		}
	}
	for _, name := range []string{"a", "_a", "orders_by_day", "a__b", "A1"} {
		if err := checkTable(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestFiguresAreExact(t *testing.T) {
	t.Parallel()
	b := onMemory(t)
	gate := make(chan struct{})
	l := new(listener)
	p := l.projection()
	p.Batch = 1
	p.On = Cases[*listener]{On(func(l *listener, ctx Context, e sold) error {
		<-gate
		return l.sold(ctx, e)
	})}
	b.publish(nil, some(3)...)
	b.publish(nil, noise{})
	r := b.start(p)
	figures := func() Figures {
		f, ok, err := r.Figures(t.Context(), "ears", 1)
		b.must(err)
		b.same("runs", ok, true)
		return f
	}
	all, err := b.store.ReadPlaced(t.Context(), nil, "", nil, 100)
	b.must(err)
	applied := func(n uint64) func() bool { return func() bool { return b.build("ears", 1).Applied == n } }
	r.until(func() bool { return b.build("ears", 1).SetUp })
	f := figures()
	b.same("behind", []any{f.Behind, f.First}, []any{uint64(4), all[0].Time})
	gate <- struct{}{}
	r.until(applied(1))
	gate <- struct{}{} // the second is inside: nothing moves
	r.until(applied(2))
	f = figures()
	b.same("behind", []any{f.Behind, f.First}, []any{uint64(2), all[2].Time})
	b.publish(r, noise{}, noise{})
	b.same("behind", figures().Behind, uint64(4))
	b.must(b.store.Abandon(t.Context(), event.LaneRef{Category: "order", Key: "-"}, 1, "bad"))
	close(gate)
	r.caughtUp("ears", 1)
	f = figures()
	b.same("behind", []any{f.Behind, f.First, f.Delay(time.Now())}, []any{uint64(0), time.Time{}, time.Duration(0)})
	if f.Rate <= 0 {
		t.Errorf("rate is %v", f.Rate)
	}
	if _, ok, _ := r.Figures(t.Context(), "none", 1); ok {
		t.Error("figures of a build that does not run")
	}
}
