package projection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// refuse is a behavior's no to events of one item, until it is lifted.
type refuse struct {
	item   string
	err    error
	mu     sync.Mutex
	lifted bool
	tries  []int // Meta.Attempt of each
}

func (r *refuse) check(ctx Context, e sold) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Item != r.item || r.lifted {
		return nil
	}
	r.tries = append(r.tries, ctx.Meta().Attempt)
	return r.err
}

func (r *refuse) lift() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lifted = true
}

func TestEventThatCannotBeAppliedHaltsItsBuildAloneUntilSomebodyDecides(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	no := &refuse{item: "bad", err: actors.Poison(errors.New("cannot take it"))}
	l := new(listener)
	b.publish(nil, sold{"a", 1}, sold{"bad", 1}, sold{"b", 1})
	r := b.start(sales(no.check), l.projection())
	h := <-r.halted
	b.same("halt", []any{h.Event.ID, h.Attempts, h.Reason, h.Error}, []any{"e-2", 1, "poison", "cannot take it"})
	r.caughtUp("ears", 1)
	b.same("others go on", len(l.seen), 3)
	rows, _ := b.tables()
	b.same("applied before it, nothing after", rows, 1)
	b.must(r.Stop(t.Context()))

	r = b.start(sales(no.check), l.projection())
	b.publish(r, sold{"c", 1})
	r.caughtUp("ears", 1)
	b.same("still halted", b.build("sales", 1).Halt.Event.ID, "e-2")
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRetry, Event: "e-2"})
	b.same("halted again", (<-r.halted).Attempts, 1)
	no.lift()
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRetry, Event: "e-2"})
	r.caughtUp("sales", 1)
	b.exact()
}

func TestSkippedEventIsPassedAndTheRestApplied(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	no := &refuse{item: "bad", err: errors.New("not now")}
	b.publish(nil, sold{"a", 1}, sold{"bad", 1}, sold{"b", 1})
	r := b.start(sales(no.check))
	b.same("reason", (<-r.halted).Reason, "retries exhausted")
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActSkip, Event: "e-2"})
	r.caughtUp("sales", 1)
	rows, total := b.tables()
	b.same("applied", []int{rows, total}, []int{2, 2})
	got := b.build("sales", 1)
	b.same("counts", []uint64{got.Applied, got.Skipped}, []uint64{2, 1})
	b.same("attempts", no.tries[len(no.tries)-3:], []int{1, 2, 3})
}

func TestOfABatchTheBadEventAloneCounts(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	no := &refuse{item: "bad", err: errors.New("not now")}
	b.publish(nil, some(30)...)
	b.publish(nil, noise{}, sold{"bad", 1})
	b.publish(nil, some(30)...)
	r := b.start(sales(no.check))
	h := <-r.halted
	b.same("halt", []any{h.Event.ID, h.Attempts}, []any{"e-32", 3})
	got := b.build("sales", 1)
	b.same("counts", []uint64{got.Applied, got.Passed}, []uint64{30, 1})
	b.same("attempts told", no.tries, []int{1, 1, 2, 3}) // the first in a batch, where it does not count
	no.lift()
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRetry, Event: "e-32"})
	r.caughtUp("sales", 1)
	b.exact()
}

func TestAttemptsSurviveARestart(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	no := &refuse{item: "bad", err: errors.New("not now")}
	slow := func(p *Projection[*seller]) {
		p.Retry = actors.RetryPolicy{Attempts: 3, Min: time.Hour, Max: time.Hour}
	}
	b.publish(nil, sold{"bad", 1})
	r := b.start(sales(no.check, slow))
	<-r.retried
	b.must(r.Stop(t.Context()))
	tried := b.build("sales", 1).Tried
	b.same("tried", []any{tried.Attempts, tried.Event.ID, tried.Error}, []any{1, "e-1", "not now"})
	r = b.start(sales(no.check))
	r.until(func() bool { return b.build("sales", 1).Tried.Attempts == 1 })
	b.same("waits as long as it was to", b.build("sales", 1).Tried.Again, tried.Again)
	b.must(r.Stop(t.Context()))
	r = b.prepare(b.store, sales(no.check))
	r.cfg.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	b.must(r.Start(t.Context()))
	b.same("attempts", (<-r.halted).Attempts, 3)
	b.same("attempts told", no.tries, []int{1, 2, 3})
}

// counter counts in a field what it was given, and fails once behind that.
type counter struct {
	n    int
	fail *refuse
	told func(int)
}

func (c *counter) sold(ctx Context, e sold) error {
	c.n++
	if err := c.fail.check(ctx, e); err != nil {
		c.fail.lift()
		return err
	}
	c.told(c.n)
	return nil
}

func TestInstanceWhoseAttemptFailedIsThrownAway(t *testing.T) {
	t.Parallel()
	b := onMemory(t)
	var mu sync.Mutex
	var counts []int
	no := &refuse{item: "bad", err: errors.New("not now")}
	p := Projection[*counter]{Name: "sales", Retry: quick, On: Cases[*counter]{On((*counter).sold)}, Batch: 1, New: func() *counter {
		return &counter{fail: no, told: func(n int) {
			mu.Lock()
			defer mu.Unlock()
			counts = append(counts, n)
		}}
	}}
	b.publish(nil, sold{"a", 1}, sold{"a", 1}, sold{"bad", 1}, sold{"a", 1})
	r := b.start(p)
	r.caughtUp("sales", 1)
	mu.Lock()
	defer mu.Unlock()
	b.same("counted by the instances", counts, []int{1, 2, 1, 2})
}

func TestPanicIsAFailureOfItsEvent(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"a", 1})
	r := b.start(sales(func(Context, sold) error { panic("out of order") }))
	h := <-r.halted
	b.same("halt", []any{h.Attempts, h.Reason, h.Error}, []any{3, "retries exhausted", "behavior panicked: out of order"})
}

func TestBehaviorThatTakesTooLongLosesTheWriter(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	r := b.start(sales(nil))
	r.until(func() bool { return b.build("sales", 1).SetUp })
	b.must(r.Stop(t.Context()))
	b.publish(nil, sold{"a", 1})
	held, leave := make(chan struct{}), make(chan struct{})
	r = b.start(sales(func(ctx Context, _ sold) error {
		if _, err := ctx.Tx().ExecContext(ctx, `UPDATE `+ctx.Table("total")+` SET n = 7`); err != nil {
			return err
		}
		close(held)
		<-leave // ignores its context
		return nil
	}, func(p *Projection[*seller]) { p.Timeout, p.Retry.Attempts = time.Second, 1 }))
	<-held
	b.publish(r, sold{"b", 1}) // would wait for ever, if the writer were not taken from it
	close(leave)
	b.same("error", (<-r.halted).Error, actors.ErrTimeout.Error())
	_, total := b.tables()
	b.same("nothing of it", total, 0)
}

func TestSetupThatFailsHaltsBeforeAllEvents(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"a", 1})
	var mu sync.Mutex
	broken := true
	setup := func(ctx Context) error {
		mu.Lock()
		defer mu.Unlock()
		if err := salesTables(ctx); err != nil {
			return err
		}
		if broken {
			ctx.Table("never_made")
		}
		return nil
	}
	r := b.start(sales(nil, func(p *Projection[*seller]) { p.Setup = setup }))
	h := <-r.halted
	if h.Event.ID != "" || !strings.Contains(h.Error, "never_made") {
		t.Errorf("halt: %+v", h)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActRetry})
	r.caughtUp("sales", 1)
	b.exact()
}

func TestTableThatSetupDidNotMakeFailsTheEvent(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	b.publish(nil, sold{"a", 1})
	r := b.start(sales(func(ctx Context, _ sold) error {
		ctx.Table("other")
		return nil
	}))
	if h := <-r.halted; !strings.Contains(h.Error, "Setup did not make it") {
		t.Errorf("halt: %+v", h)
	}
}

func TestTypeOfANewerProgramIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	e := b.envelope(sold{"a", 1})
	e.Version = 2
	_, err := b.store.Begin("newer").Commit(t.Context(), eventstore.Changes{Publish: []event.Envelope{b.envelope(sold{"z", 1}), e, b.envelope(sold{"b", 1})}})
	b.must(err)
	r := b.start(sales(nil))
	b.same("waits for", <-r.waits, "sold")
	got := b.build("sales", 1)
	b.same("state", []any{got.Applied, got.Halt == nil, got.Tried.Attempts, got.Tried.Event.Place.Sequence}, []any{uint64(1), true, 0, event.Sequence(1)})
	b.must(r.Stop(t.Context()))
	r = b.start(sales(nil))
	b.same("and again after a restart", <-r.waits, "sold")
}

func TestBytesThatDoNotDecodeHalt(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	e := b.envelope(sold{"a", 1})
	e.Data = []byte("{")
	_, err := b.store.Begin("broken").Commit(t.Context(), eventstore.Changes{Publish: []event.Envelope{e}})
	b.must(err)
	r := b.start(sales(nil))
	b.same("reason", (<-r.halted).Reason, "undecodable")
}

func TestPausedProjectionDoesNotMove(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	l := new(listener)
	r := b.start(sales(nil), l.projection())
	r.until(func() bool { return b.build("sales", 1).SetUp })
	b.act(nil, eventstore.ProjectionAct{Kind: eventstore.ActPause}) // nobody tells the runtime
	b.publish(r, some(3)...)
	r.caughtUp("ears", 1)
	b.same("applied", b.build("sales", 1).Applied, uint64(0))
	b.act(r, eventstore.ProjectionAct{Kind: eventstore.ActResume})
	r.caughtUp("sales", 1)
	b.exact()
}

// unreliable is a store some of whose commits and reads fail, by seed.
type unreliable struct {
	Store
	mu     sync.Mutex
	chance *rand.Rand
	faults int // still to come
}

// fault gives one of so many kinds of faults, or 0 for none.
func (u *unreliable) fault(kinds int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.faults == 0 || u.chance.IntN(3) != 0 {
		return 0
	}
	u.faults--
	return 1 + u.chance.IntN(kinds)
}

var errLost = errors.New("connection lost")

func (u *unreliable) Begin(who string) eventstore.Tx {
	return &unreliableTx{Tx: u.Store.Begin(who), u: u}
}

func (u *unreliable) ReadPlaced(ctx context.Context, db eventstore.SQL, after eventstore.Position, categories []string, limit int) ([]eventstore.Placed, error) {
	if u.fault(1) == 1 {
		return nil, errLost
	}
	return u.Store.ReadPlaced(ctx, db, after, categories, limit)
}

type unreliableTx struct {
	eventstore.Tx
	u *unreliable
}

func (x *unreliableTx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	switch x.u.fault(3) {
	case 1:
		return eventstore.Committed{}, errors.Join(fmt.Errorf("%w: %w", eventstore.ErrTrouble, errLost), x.Rollback())
	case 2: // nobody knows, and it did not happen
		return eventstore.Committed{}, errors.Join(eventstore.ErrUnknownCommit, x.Rollback())
	case 3: // nobody knows, and it happened
		_, err := x.Tx.Commit(ctx, c)
		return eventstore.Committed{}, errors.Join(eventstore.ErrUnknownCommit, err)
	}
	return x.Tx.Commit(ctx, c)
}

func TestTroubleOfTheStoreIsNoEventsFaultAndNothingIsAppliedTwice(t *testing.T) {
	t.Parallel()
	b := onSQLite(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b.publish(nil, some(60)...)
	store := &unreliable{Store: b.store, chance: rand.New(rand.NewPCG(seed, 0)), faults: 12}
	r := b.startOn(store, sales(nil, func(p *Projection[*seller]) { p.Batch = 5 }))
	b.publish(r, some(10)...)
	for !r.isCaughtUp("sales", 1) { // a step of which nobody knows that it happened is not told
		r.signals.idle.Wait(b)
	}
	b.exact()
	b.same("halted or tried", []any{b.build("sales", 1).Halt, b.build("sales", 1).Tried}, []any{(*eventstore.ProjectionHalt)(nil), (*eventstore.ProjectionTried)(nil)})
	b.same("attempts counted", len(r.retried), 0)
	if len(r.trouble) == 0 {
		t.Error("no trouble was told")
	}
}
