package projection

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// alter changes tables as the application does.
func (b *bundle) alter(statements ...string) {
	b.Helper()
	tx := b.store.Begin("application")
	db, err := tx.SQL(b.Context())
	b.must(err)
	for _, s := range statements {
		_, err := db.ExecContext(b.Context(), s)
		b.must(err)
	}
	_, err = tx.Commit(b.Context(), eventstore.Changes{})
	b.must(err)
}

func has(t testing.TB, what, text string) {
	t.Helper()
	if !strings.Contains(text, what) {
		t.Errorf("%q does not say %q", text, what)
	}
}

// withTable is a Setup that makes another table, too.
func withTable(name string) func(*Projection[*seller]) {
	return func(p *Projection[*seller]) {
		p.Setup = func(ctx Context) error {
			_, err := ctx.Tx().ExecContext(ctx, `CREATE TABLE `+ctx.Table(name)+` (n)`)
			return errors.Join(err, salesTables(ctx))
		}
	}
}

func TestSwitchThatCannotBeDoneHaltsTheBuildAndBlamesNoEvent(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(20)...)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	b.must(r.Stop(t.Context()))

	inside, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var blamed atomic.Int64
	second := func(p *Projection[*seller]) { p.Version = 2 }
	r = b.start(sales(func(ctx Context, _ sold) error {
		once.Do(func() { close(inside); <-gate })
		if ctx.Meta().Attempt != 1 {
			blamed.Add(1)
		}
		return nil
	}, second, withTable("report")))
	<-inside
	b.alter(`CREATE VIEW report AS SELECT 1 AS one`) // after Setup has looked
	close(gate)
	for range quick.Attempts - 1 {
		has(t, "report", (<-r.retried).Error())
		b.publish(r, some(3)...) // what moves the build does not make it forget
	}
	h := <-r.halted
	b.same("halt", []any{h.Event.Type, h.Event.ID, h.Attempts, h.Reason}, []any{eventstore.AtSwitch, "", quick.Attempts, "retries exhausted"})
	has(t, "report", h.Error)
	has(t, "the switch", h.Event.String())
	b.same("attempts after those seen", len(r.retried), 0)
	b.same("blamed", blamed.Load(), int64(0))
	rows, _ := b.tables()
	b.same("seen by readers", rows, 20)
	b.alter(`DROP VIEW report`)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRetry})
	r.caughtUp("sales", 2)
	b.exact()
}

func TestPauseAfterTroubleIsKeptWhateverWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := sales(nil).compile()
		r := &Runtime{}
		r.cfg.Observer = Observer{}.guarded(slog.New(slog.DiscardHandler))
		b, began := newBuild(r, p, buildID{"sales", 1}), time.Now()
		for i := range 50 {
			time.AfterFunc(time.Duration(i)*time.Millisecond, b.wake)
		}
		b.trouble(t.Context(), "read on", errors.New("no disk"))
		if passed := time.Since(began); passed < firstPause {
			t.Errorf("tried again after %v", passed)
		}
	})
}

func TestBatchEndsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(5)...)
	r := b.prepare(b.store, sales(nil))
	r.batch = -1
	b.must(r.Start(t.Context()))
	r.caughtUp("sales", 1)
	for range 5 {
		b.same("applied", (<-r.moves).Applied, 1)
	}
}

// held is a projection whose first event waits for a gate, and counts what it is given.
type held struct {
	first  sync.Once
	inside chan Context
	gate   chan struct{}
	given  atomic.Int64
}

func (h *held) projection() Projection[*seller] {
	h.inside, h.gate = make(chan Context, 1), make(chan struct{})
	return sales(func(ctx Context, _ sold) error {
		h.given.Add(1)
		h.first.Do(func() { h.inside <- ctx; <-h.gate })
		return nil
	}, func(p *Projection[*seller]) { p.Timeout = -1 }) // so that the context ends with the attempt
}

func TestPauseWaitsForTheEventInHandAlone(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(50)...)
	h := new(held)
	r := b.start(h.projection())
	ctx := <-h.inside
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActPause})
	close(h.gate)
	<-ctx.Done()
	b.same("given", h.given.Load(), int64(1))
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActResume})
	r.caughtUp("sales", 1)
	b.exact()
}

func TestStopWaitsForTheEventInHandAlone(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(50)...)
	h := new(held)
	r := b.start(h.projection())
	<-h.inside
	r.group.Go(func(stopped context.Context) {
		<-stopped.Done()
		close(h.gate)
	})
	b.must(r.Stop(t.Context()))
	b.same("given", h.given.Load(), int64(1))
	b.same("committed", b.build("sales", 1).Applied, uint64(1))
}

func TestGoexitIsAFailureOfItsEvent(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"a", 1}, sold{"bad", 1}, sold{"b", 1})
	r := b.start(sales(func(ctx Context, e sold) error {
		if e.Item == "bad" {
			_, _ = ctx.Tx().ExecContext(ctx, `UPDATE `+ctx.Table("total")+` SET n = 7`)
			runtime.Goexit()
		}
		if e.Item == "b" {
			return errors.New("ask whether it is worth it")
		}
		return nil
	}, func(p *Projection[*seller]) { p.Retry.If = func(error) bool { runtime.Goexit(); return true } }))
	h := <-r.halted
	b.same("halt", []any{h.Event.ID, h.Attempts, h.Error}, []any{"e-2", quick.Attempts, errGoexit.Error()})
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActSkip, Event: "e-2"})
	h = <-r.halted // also where If is what ends its goroutine
	b.same("halt", []any{h.Event.ID, h.Attempts, h.Reason}, []any{"e-3", quick.Attempts, "retries exhausted"})
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActSkip, Event: "e-3"})
	r.caughtUp("sales", 1)
	rows, total := b.tables()
	b.same("applied", []int{rows, total}, []int{1, 1})
}

func TestErrorsOfTablesSayWhatToDo(t *testing.T) {
	t.Parallel()
	halted := func(change func(*Projection[*seller])) string {
		b := onSQLite(t)
		b.publish(nil, some(2)...)
		r := b.start(sales(nil, change))
		return (<-r.halted).Error
	}
	has(t, "has no Setup: give it one", halted(func(p *Projection[*seller]) { p.Setup = nil }))
	has(t, "Setup did not make it: make it there, by the name that ctx.Table gives", halted(func(p *Projection[*seller]) {
		p.Setup = func(ctx Context) error {
			_, err := ctx.Tx().ExecContext(ctx, `CREATE TABLE sales (event)`)
			return err
		}
	}))
	has(t, "only tables can have the names", halted(func(p *Projection[*seller]) {
		p.Setup = func(ctx Context) error {
			_, err := ctx.Tx().ExecContext(ctx, `CREATE VIEW `+ctx.Table("report")+` AS SELECT 1`)
			return errors.Join(err, salesTables(ctx))
		}
	}))
	b := onSQLite(t)
	r := b.start(sales(nil, func(p *Projection[*seller]) {
		p.Setup = func(ctx Context) error {
			if err := salesTables(ctx); err != nil {
				return err
			}
			_, err := ctx.Tx().ExecContext(ctx, `CREATE INDEX sales_by_item ON `+ctx.Table("sales")+` (item)`)
			return err
		}
	}))
	r.until(func() bool { return b.build("sales", 1).SetUp })
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	has(t, `ctx.Table("sales") + "_by_item"`, (<-r.halted).Error)
}

func TestTablesThatCannotBeDroppedKeepNobodyFromAnything(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(5)...)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	b.alter(`CREATE TABLE notes (sale INTEGER REFERENCES sales__1)`, `INSERT INTO notes VALUES (1)`)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	has(t, "notes", (<-r.trouble).Error()) // after the switch
	b.publish(r, some(5)...)
	r.caughtUp("sales", 2)
	b.exact()
	b.must(r.Stop(t.Context()))

	var log bytes.Buffer
	r = b.prepare(b.store, sales(nil))
	r.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b.must(r.Start(t.Context()))
	b.publish(r, some(5)...)
	r.caughtUp("sales", 2)
	b.must(r.Stop(t.Context()))
	has(t, "table notes has a foreign key to sales__1", log.String())
	b.alter(`DROP TABLE notes`)
	r = b.start(sales(nil))
	b.same("left", len(b.state("sales").Left), 0)
	r.caughtUp("sales", 2)
	b.exact()
}

func TestBuildMovesPastManyEventsOfOthersAndLosesNone(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, some(3)...)
	r := b.start(sales(nil))
	r.caughtUp("sales", 1)
	before := b.build("sales", 1)
	others := make([]event.Envelope, 1000)
	for range 5 {
		for i := range others {
			others[i] = b.envelope(noise{})
			others[i].Category = "other"
		}
		_, err := b.store.Begin("others").Commit(t.Context(), eventstore.Changes{Publish: others})
		b.must(err)
	}
	tails := make([]event.Tail, manyOthers+1)
	for i := range tails {
		tails[i].Lane.Category = "other"
	}
	r.Wake(tails)
	r.until(func() bool { return b.build("sales", 1).Position != before.Position })
	after := b.build("sales", 1)
	b.same("the event is the one before", []any{after.EventID, after.EventTime, after.Applied, after.Passed}, []any{before.EventID, before.EventTime, before.Applied, before.Passed})
	lag, err := b.store.ProjectionLag(t.Context(), after.Position, nil)
	b.must(err)
	b.same("events of all after it", lag.Behind, uint64(0))
	b.publish(r, some(3)...)
	r.caughtUp("sales", 1)
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRebuild})
	r.caughtUp("sales", 2)
	b.exact()
}
