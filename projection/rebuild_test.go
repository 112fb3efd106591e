package projection

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// readers look at the tables while ticks come.
func (b *bundle) readers(count int, ticks <-chan struct{}) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var group sync.WaitGroup
	for range count {
		group.Go(func() {
			last := 0
			for ctx.Err() == nil {
				var rows, total int
				err := b.sqlite.Reader().QueryRowContext(b.Context(), `SELECT (SELECT count(*) FROM sales), (SELECT n FROM total)`).Scan(&rows, &total)
				switch {
				case err != nil:
					b.Errorf("read: %v", err)
					return
				case rows != total:
					b.Errorf("a reader saw %d sales and a total of %d", rows, total)
					return
				case rows < last:
					b.Errorf("a reader saw %d sales after %d", rows, last)
					return
				}
				last = rows
				select {
				case <-ticks:
				case <-ctx.Done():
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}

// writers publish until they are stopped.
func (b *bundle) writers(tell *running, count int, ticks chan<- struct{}) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var group sync.WaitGroup
	for range count {
		group.Go(func() {
			for ctx.Err() == nil {
				done, err := b.store.Begin("writer").Commit(b.Context(), eventstore.Changes{Publish: []event.Envelope{b.envelope(sold{"w", 1})}})
				if err != nil {
					b.Error(err)
					return
				}
				tell.Wake(done.Tails)
				select {
				case ticks <- struct{}{}:
				default:
				}
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}

func TestRebuildUnderLoadIsSeenByNoReader(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(40)...)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	ticks := make(chan struct{}, 1)
	stopReaders, stopWriters := b.readers(2, ticks), b.writers(r, 2, ticks)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	r.until(func() bool { return b.build("sales", 2).State == eventstore.BuildCurrent })
	stopWriters()
	r.caughtUp("sales", 2)
	stopReaders()
	b.exact()
}

func TestCurrentBuildGoesOnWhileAnotherIsMade(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	gate := make(chan struct{})
	r := b.start(sales(func(ctx Context, _ sold) error {
		if ctx.Meta().Build == 2 {
			<-gate
		}
		return nil
	}))
	b.publish(r, some(3)...)
	r.caughtUp("sales", 1)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	b.publish(r, some(3)...)
	r.caughtUp("sales", 1)
	rows, _ := b.tables()
	b.same("seen by readers", rows, 6)
	close(gate)
	r.caughtUp("sales", 2)
	b.exact()
	for p := b.state("sales"); len(p.Builds) > 1; p = b.state("sales") {
		r.signals.idle.Wait(t)
	}
	var n int
	b.must(b.sqlite.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_schema WHERE name IN ('sales__1', 'total__1')`).Scan(&n))
	b.same("tables of the old build", n, 0)
}

func TestInterruptedRebuildGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(40)...)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	var mu sync.Mutex
	given := map[string]int{} // events that build 2 was given
	count := func(ctx Context, _ sold) error {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Meta().Build == 2 {
			given[ctx.Meta().ID]++
		}
		return nil
	}
	b.must(r.Stop(t.Context()))
	few := func(p *Projection[*seller]) { p.Batch = 1 }
	b.act(nil, eventstore.ProjectionAct{Kind: eventstore.ActRebuild}) // while nobody runs
	r = b.start(sales(count, few))
	r.until(func() bool { return b.build("sales", 2).Applied >= 10 })
	b.must(r.Stop(t.Context()))
	b.same("state", b.build("sales", 2).State, eventstore.BuildMaking)
	r = b.start(sales(count, few))
	r.caughtUp("sales", 2)
	b.exact()
	for id, n := range given {
		if n != 1 {
			t.Errorf("%s was given %d times", id, n)
		}
	}
}

func TestAnotherVersionIsBuiltByItselfWhileTheOldTablesStay(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(10)...)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	b.must(r.Stop(t.Context()))
	gate := make(chan struct{})
	v2 := func(p *Projection[*seller]) { p.Version, p.KeepOld = 2, true }
	r = b.start(sales(func(Context, sold) error { <-gate; return nil }, v2))
	b.publish(r, some(1)...)
	rows, _ := b.tables()
	b.same("seen by readers", rows, 10)
	close(gate)
	r.caughtUp("sales", 2)
	b.exact()
	p := b.state("sales")
	b.same("old build", p.Build(1).State, eventstore.BuildOld)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActDropBuild})
	p = b.state("sales")
	b.same("builds", len(p.Builds), 1)
	b.exact()
}

func TestRebuildThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(10)...)
	inside := make(chan struct{}, 100)
	gate := make(chan struct{})
	r := b.start(sales(func(ctx Context, _ sold) error {
		if ctx.Meta().Build == 2 {
			inside <- struct{}{}
			<-gate
		}
		return nil
	}))
	r.caughtUp("sales", 1)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	<-inside
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActCancelRebuild})
	close(gate)
	b.publish(r, some(2)...)
	r.caughtUp("sales", 1)
	b.exact()
	var n int
	b.must(b.sqlite.Reader().QueryRowContext(t.Context(), `SELECT count(*) FROM sqlite_schema WHERE name LIKE '%\_\_2' ESCAPE '\'`).Scan(&n))
	b.same("tables of the build", n, 0)
}

func TestPoisonInARebuildLeavesTheCurrentBuildAlone(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(3)...)
	r := b.start(sales(func(ctx Context, _ sold) error {
		if ctx.Meta().Build == 2 {
			return errors.New("no")
		}
		return nil
	}))
	r.caughtUp("sales", 1)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	<-r.halted
	b.publish(r, some(3)...)
	r.caughtUp("sales", 1)
	b.exact()
	b.same("halted", b.build("sales", 2).Halt != nil, true)
}

// The last stretch is begun, and an event comes before it has the writer: it is in the stretch.
func TestLastStretchTakesInWhatComesWhileItWaitsForTheWriter(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(5)...)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	tx, err := b.sqlite.BeginTx(t.Context(), "holds the writer")
	b.must(err)
	b.must(tx.Stage(eventstore.Changes{Publish: []event.Envelope{b.envelope(sold{"late", 1})}}))
	held := make(chan error, 1)
	go func() {
		_, err := b.store.ActOnProjection(context.WithoutCancel(t.Context()), eventstore.ProjectionAct{Kind: eventstore.ActRebuild, Name: "sales", Actor: "ann"})
		held <- err
	}()
	b.must(tx.Commit(t.Context()))
	b.must(<-held)
	b.must(r.Look(t.Context()))
	r.caughtUp("sales", 2)
	b.exact()
}

func TestWithoutSQLARebuildBecomesCurrentToo(t *testing.T) {
	t.Parallel()
	b := onMemory(t)
	l := new(listener)
	p := l.projection()
	p.Name = "sales"
	b.publish(nil, some(10)...)
	r := b.start(p)
	r.caughtUp("sales", 1)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	r.caughtUp("sales", 2)
	b.same("given", len(l.seen), 20)
}

func TestBuildThatFallsBackHoldsWritersUp(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(60)...)
	r := b.prepare(b.store, sales(nil, func(p *Projection[*seller]) { p.Batch = 1 }))
	var mu sync.Mutex
	now := time.Now()
	r.cfg.Now = func() time.Time { // each look at the clock is another check of how far behind it is
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(checkEvery)
		return now
	}
	b.must(r.Start(t.Context()))
	r.caughtUp("sales", 1)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	r.caughtUp("sales", 2)
	b.exact()
	if moves := len(r.moves); moves > 60+20 {
		t.Errorf("%d transactions: the second build was made one by one", moves)
	}
}
