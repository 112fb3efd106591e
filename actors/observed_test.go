package actors_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
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

// works notes which units of work began, and how they ended.
type works struct {
	mu    sync.Mutex
	open  map[*actors.Work]bool
	began int
	ended []string
}

func (w *works) look(c *actors.Config) {
	w.open = map[*actors.Work]bool{}
	c.Observer.Begin = func(ctx context.Context, work *actors.Work) (context.Context, event.Trace) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.open[work] = true
		w.began++
		return ctx, event.Trace{}
	}
	c.Observer.End = func(work *actors.Work) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.open[work] {
			w.ended = append(w.ended, "never began")
		}
		delete(w.open, work)
		w.ended = append(w.ended, fmt.Sprintf("%s %s", work.Use, work.Outcome))
	}
}

// expect compares how works ended; none may be open.
func (w *works) expect(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) > 0 || w.began != len(w.ended) {
		t.Errorf("%d began and %d ended: %d are open", w.began, len(w.ended), len(w.open))
	}
	if d := cmp.Diff(want, w.ended); d != "" {
		t.Error(d)
	}
}

func TestEveryUnitOfWorkThatBeganEnds(t *testing.T) {
	t.Parallel()
	once := func(first func(c actors.Context) error) func(*ledger, actors.Context, Deposited) error {
		var calls atomic.Int32
		return func(_ *ledger, c actors.Context, _ Deposited) error {
			if calls.Add(1) == 1 {
				return first(c)
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		first func(c actors.Context) error
		word  string
	}{
		"error":      {func(actors.Context) error { return errors.New("no") }, "event failed"},
		"panic":      {func(actors.Context) error { panic("no") }, "event failed"},
		"goexit":     {func(actors.Context) error { runtime.Goexit(); return nil }, "event failed"},
		"timeout":    {func(c actors.Context) error { <-c.Done(); return c.Err() }, "event failed"},
		"goexit, tx": {func(c actors.Context) error { c.Emit(Audited{Client: "c"}); runtime.Goexit(); return nil }, "event failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, h := new(works), ledgers(once(c.first))
				h.Timeout, h.Retry = time.Second, actors.RetryPolicy{Attempts: 3, Min: time.Millisecond}
				b := setup(t, []actors.Definition{h}, w.look)
				b.publish(t, Deposited{Client: "c"})
				b.saw.applied.Wait(t)
				synctest.Wait()
				w.expect(t, c.word, "event committed")
			})
		})
	}
}

func TestABehaviorThatIgnoresItsTimeoutEndsWhenItReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, letGo := new(works), make(chan struct{})
		h := ledgers(func(_ *ledger, c actors.Context, _ Deposited) error {
			if c.Meta().Attempt == 1 {
				<-letGo
			}
			return nil
		})
		h.Timeout = time.Second
		b := setup(t, []actors.Definition{h}, w.look)
		b.publish(t, Deposited{Client: "c"})
		b.saw.overdue.Wait(t)
		close(letGo)
		b.saw.applied.Wait(t)
		synctest.Wait()
		w.expect(t, "event failed", "event committed")
	})
}

func TestEveryAskThatBeganEnds(t *testing.T) {
	t.Parallel()
	in := func(ask any, plan faulty.Plan, change func(*actors.Entity[account]), more ...option) func(t *testing.T) *works {
		return func(t *testing.T) *works {
			w, e := new(works), accounts()
			if change != nil {
				change(&e)
			}
			b := setupOn(t, memory.Open(), plan, []actors.Definition{e}, append(more, w.look)...)
			if _, err := b.Ask(t.Context(), ref("a"), ask); err == nil {
				t.Error("no error")
			}
			synctest.Wait()
			return w
		}
	}
	conflict := func(op faulty.Op) faulty.Fault {
		if op.Call == faulty.Commit {
			return faulty.Fault{Before: eventstore.ErrVersionConflict}
		}
		return faulty.Fault{}
	}
	for name, c := range map[string]struct {
		run  func(t *testing.T) *works
		want []string
	}{
		"rejection":           {in(&Withdraw{Client: "c", Amount: 1}, nil, nil), []string{"command rejected"}},
		"conflicts":           {in(&Deposit{Client: "c"}, conflict, nil), []string{"command refused", "command refused", "command refused"}},
		"a store that panics": {in(&Deposit{Client: "c"}, nil, nil, func(c *actors.Config) { c.Store = panicky{c.Store} }), []string{"command unknown"}},
		"goexit of a command": {in(&Deposit{Client: "c"}, nil, func(e *actors.Entity[account]) {
			e.Commands = actors.Commands[account]{actors.OnCommand(func(actors.Command, account, *Deposit) (*Total, error) { runtime.Goexit(); return nil, nil })}
		}), []string{"command failed"}},
		"goexit of a query": {in(&Balance{}, nil, func(e *actors.Entity[account]) {
			e.Queries = actors.Queries[account]{actors.OnQuery(func(actors.Query, account, *Balance) (*Total, error) { runtime.Goexit(); return nil, nil })}
		}), []string{"query failed"}},
		"panic of a query": {in(&Balance{}, nil, func(e *actors.Entity[account]) {
			e.Queries = actors.Queries[account]{actors.OnQuery(func(actors.Query, account, *Balance) (*Total, error) { panic("no") })}
		}), []string{"query failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.run(t).expect(t, c.want...)
			})
		})
	}
}

// panicky is a store whose commits panic.
type panicky struct{ eventstore.Store }

func (p panicky) Begin(who string) eventstore.Tx { return panickyTx{p.Store.Begin(who)} }

type panickyTx struct{ eventstore.Tx }

func (panickyTx) Commit(context.Context, eventstore.Changes) (eventstore.Committed, error) {
	panic("beneath")
}

func TestWhatAStopInterruptsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, enter := new(works), make(chan string, 9)
		b := setup(t, []actors.Definition{slow(enter, nil, true)}, w.look)
		b.publish(t, Deposited{Client: "c"})
		<-enter
		if err := b.stopWithin(t, 5*time.Second); err == nil {
			t.Error("nothing was interrupted")
		}
		w.expect(t, "event failed")
	})
}
