package actors_test

import (
	"errors"
	"fmt"
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

// ledger is the behavior of the tests' handler: one instance per client.
type ledger struct {
	client string
	seen   int
}

// ledgers is a handler of deposits that calls on. Tests change a copy.
func ledgers(on func(l *ledger, c actors.Context, e Deposited) error) actors.Handler[*ledger] {
	return actors.Handler[*ledger]{
		Name: "ledger", Categories: []string{"account"}, SequentialBy: "Client",
		New: func(key string) *ledger { return &ledger{client: key} },
		On:  actors.Behavior[*ledger]{actors.On(on)},
	}
}

func nothing(*ledger, actors.Context, Deposited) error { return nil }

func lane(key string) event.LaneRef { return event.LaneRef{Category: "account", Key: key} }

// publish commits events, as somebody who is no actor does.
func (b *bundle) publish(t testing.TB, events ...any) {
	t.Helper()
	err := b.Do(t.Context(), func(u actors.UnitOfWork) error {
		u.Emit(events...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bundle) checkpoint(t testing.TB, name string, lane event.LaneRef) event.Sequence {
	t.Helper()
	got, err := b.memory.Recover(t.Context(), []eventstore.Ask{{Unit: event.Unit{Name: name, Key: lane.Key}, Lanes: []event.LaneRef{lane}}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0].Checkpoints[0].Sequence
}

func (b *bundle) lift(t testing.TB, h eventstore.Halt) {
	t.Helper()
	ref := h.Ref()
	if _, err := b.memory.Begin("test").Commit(t.Context(), eventstore.Changes{LiftHalt: &ref}); err != nil {
		t.Fatal(err)
	}
	b.Resume(h.Unit)
}

func amounts(from, to int) []any {
	var all []any
	for i := from; i <= to; i++ {
		all = append(all, Deposited{Client: "c", Amount: i})
	}
	return all
}

func TestEventsOfAKeyAreAppliedInOrderAndOneAtATime(t *testing.T) {
	t.Parallel()
	const keys, each = 8, 50
	var mu sync.Mutex
	inside, applied := map[string]bool{}, map[string][]int{}
	b := setup(t, []actors.Definition{ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		mu.Lock()
		if inside[l.client] {
			t.Errorf("%s: two events at once", l.client)
		}
		inside[l.client] = true
		mu.Unlock()
		mu.Lock()
		defer mu.Unlock()
		inside[l.client] = false
		applied[l.client] = append(applied[l.client], e.Amount)
		return nil
	})})
	var want []int
	for i := range each {
		want = append(want, i)
		for k := range keys {
			b.publish(t, Deposited{Client: fmt.Sprint("c", k), Amount: i})
		}
	}
	for range keys * each {
		b.saw.applied.Wait(t)
	}
	for k := range keys {
		if diff := cmp.Diff(want, applied[fmt.Sprint("c", k)]); diff != "" {
			t.Errorf("key %d: (-want +got)\n%s", k, diff)
		}
	}
}

func TestKeysRunInParallel(t *testing.T) {
	t.Parallel()
	const keys = 5
	var inside sync.WaitGroup
	inside.Add(keys)
	b := setup(t, []actors.Definition{ledgers(func(*ledger, actors.Context, Deposited) error {
		inside.Done()
		inside.Wait() // returns only if all are inside at once
		return nil
	})})
	for k := range keys {
		b.publish(t, Deposited{Client: fmt.Sprint("c", k)})
	}
	for range keys {
		b.saw.applied.Wait(t)
	}
}

func TestNoMoreUnitsRunAtOnceThanConcurrencyAllows(t *testing.T) {
	t.Parallel()
	const keys, limit = 40, 3
	var inside, most atomic.Int32
	b := setup(t, []actors.Definition{ledgers(func(*ledger, actors.Context, Deposited) error {
		n := inside.Add(1)
		defer inside.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		return nil
	})}, func(c *actors.Config) { c.Concurrency = limit })
	for range 5 {
		for k := range keys {
			b.publish(t, Deposited{Client: fmt.Sprint("c", k)})
		}
	}
	for range 5 * keys {
		b.saw.applied.Wait(t)
	}
	if most.Load() > limit {
		t.Errorf("%d at once, the limit is %d", most.Load(), limit)
	}
}

// An attempt that does not commit must leave nothing behind in memory, however it ends.
func TestAFailedAttemptCostsTheInstance(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		first func() error
		plan  faulty.Plan // of the first commit of the unit
	}{
		"error":                {first: func() error { return broken }},
		"panic":                {first: func() error { panic("broken") }},
		"bad event":            {first: func() error { return nil }},
		"commit refused":       {plan: firstCommit(faulty.Fault{Before: broken})},
		"commit stale":         {plan: firstCommit(faulty.Fault{Before: eventstore.ErrStale})},
		"checkpoint moved":     {plan: firstCommit(faulty.Fault{Before: &eventstore.CheckpointError{}})},
		"commit never arrived": {plan: firstCommit(faulty.Fault{Before: eventstore.ErrUnknownCommit})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var instances, calls atomic.Int32
			h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
				l.seen++
				if l.seen != 1 {
					t.Errorf("an instance has seen the event %d times", l.seen)
				}
				if calls.Add(1) == 1 && tt.first != nil {
					if name == "bad event" {
						c.Emit(Unnamed{})
					}
					return tt.first()
				}
				return nil
			})
			h.New = func(key string) *ledger { instances.Add(1); return &ledger{client: key} }
			h.Retry.Min = time.Microsecond
			b := setupOn(t, memory.Open(), tt.plan, []actors.Definition{h})
			b.publish(t, Deposited{Client: "c"})
			b.saw.applied.Wait(t)
			if instances.Load() != 2 || calls.Load() != 2 {
				t.Errorf("%d instances and %d calls, want 2 of each", instances.Load(), calls.Load())
			}
		})
	}
}

// firstCommit plans a fault for the first commit that moves a checkpoint.
func firstCommit(f faulty.Fault) faulty.Plan {
	var done atomic.Bool
	return func(op faulty.Op) faulty.Fault {
		if op.Call == faulty.Commit && len(op.Changes.Advance) > 0 && !done.Swap(true) {
			return f
		}
		return faulty.Fault{}
	}
}

// A commit whose answer is lost did happen: the event must not run a second time.
func TestACommitWhoseAnswerIsLostIsFoundOut(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	b := setupOn(t, memory.Open(), firstCommit(faulty.Fault{After: errors.New("connection lost")}), []actors.Definition{
		ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			calls.Add(1)
			c.Emit(Audited{Client: l.client})
			return nil
		})})
	b.publish(t, amounts(1, 2)...)
	b.saw.anew.Wait(t)
	b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 2 })
	if calls.Load() != 2 {
		t.Errorf("%d calls for 2 events", calls.Load())
	}
	if tail, err := b.memory.LaneTail(t.Context(), event.LaneRef{Category: "audit", Key: "c"}); err != nil || tail != 2 {
		t.Errorf("%d audits (%v), want 2", tail, err)
	}
}

// A store that is full, or out of reach, is no event's fault: no attempt is counted, and nothing halts.
func TestTroubleOfTheStoreIsNotHeldAgainstTheEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk is full")
		failed := 0
		plan := func(op faulty.Op) faulty.Fault {
			if op.Call == faulty.Commit && len(op.Changes.Advance) > 0 && failed < 10 {
				failed++
				return faulty.Fault{Before: full}
			}
			return faulty.Fault{}
		}
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			if c.Meta().Attempt != 1 {
				t.Errorf("attempt %d", c.Meta().Attempt)
			}
			return nil
		})
		h.Retry.Attempts = 2
		b := setupOn(t, memory.Open(), plan, []actors.Definition{h})
		b.publish(t, Deposited{Client: "c"})
		b.saw.applied.Wait(t)
		if err := b.saw.anew.Wait(t); !errors.Is(err, full) {
			t.Errorf("told: %v", err)
		}
	})
}

func TestAPoisonEventHaltsItsUnitOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var good atomic.Bool
		var calls atomic.Int32
		var applied []int
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			if l.client == "c" && e.Amount == 2 && !good.Load() {
				calls.Add(1)
				return errors.New("cannot")
			}
			if l.client == "c" {
				applied = append(applied, e.Amount)
			}
			return nil
		})
		b := setup(t, []actors.Definition{h})
		b.publish(t, amounts(1, 3)...)
		halt := b.saw.halted.Wait(t)
		if calls.Load() != 5 {
			t.Errorf("%d attempts, want 5", calls.Load())
		}
		want := eventstore.Halt{
			Unit: event.Unit{Name: "ledger", Key: "c"}, Lane: lane("c"), Sequence: 2, EventID: halt.EventID, EventType: "account.deposited",
			Attempts: 5, Reason: "retries exhausted", Error: "cannot", Since: halt.Since, Generation: 1,
		}
		if diff := cmp.Diff(want, halt); diff != "" {
			t.Errorf("halt (-want +got)\n%s", diff)
		}
		b.publish(t, Deposited{Client: "d", Amount: 9})
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "d" })
		b.Wake(halt.Unit)
		synctest.Wait()
		if diff := cmp.Diff([]int{1}, applied); diff != "" {
			t.Errorf("applied behind the halt (-want +got)\n%s", diff)
		}

		good.Store(true)
		b.lift(t, halt)
		if u := b.saw.resumed.Wait(t); u != halt.Unit {
			t.Errorf("resumed: %s", u)
		}
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 3 })
		if diff := cmp.Diff([]int{1, 2, 3}, applied); diff != "" {
			t.Errorf("applied (-want +got)\n%s", diff)
		}
	})
}

func TestAHaltOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	poison := func(*ledger, actors.Context, Deposited) error { return actors.Poison(errors.New("cannot")) }
	var halt eventstore.Halt
	t.Run("first process", func(t *testing.T) {
		b := setupOn(t, store, nil, []actors.Definition{ledgers(poison)})
		b.publish(t, Deposited{Client: "c"})
		halt = b.saw.halted.Wait(t)
		if halt.Attempts != 1 || halt.Reason != "poison" {
			t.Errorf("halted after %d attempts because of %q, want 1 and poison", halt.Attempts, halt.Reason)
		}
	})
	var good atomic.Bool
	b := setupOn(t, store, nil, []actors.Definition{ledgers(func(*ledger, actors.Context, Deposited) error {
		if !good.Load() {
			t.Error("the behavior was run although its unit is halted")
		}
		return nil
	})})
	if err := b.Drive(t.Context(), halt.Unit, halt.Lane, halt.Sequence); err != nil {
		t.Fatal(err)
	}
	good.Store(true)
	b.lift(t, halt)
	b.saw.applied.Wait(t)
}

func TestReleaseSetsTheEventAsideAndGoesOn(t *testing.T) {
	t.Parallel()
	var applied []int
	h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		if e.Amount == 2 {
			return actors.Poison(errors.New("cannot"))
		}
		applied = append(applied, e.Amount)
		return nil
	})
	h.SequentialBy = "" // Release is the default then
	b := setup(t, []actors.Definition{h})
	b.publish(t, amounts(1, 3)...)
	dead := b.saw.dead.Wait(t)
	b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 3 })
	if diff := cmp.Diff([]int{1, 3}, applied); diff != "" {
		t.Errorf("applied (-want +got)\n%s", diff)
	}
	stored, err := b.memory.ListDead(t.Context(), "ledger", event.Position{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]eventstore.Dead{dead}, stored); diff != "" {
		t.Errorf("dead letters (-told +stored)\n%s", diff)
	}
	if dead.Sequence != 2 || dead.Reason != "poison" || dead.Error != "cannot" {
		t.Errorf("dead letter: %+v", dead)
	}
}

func TestAnErrorsClassDecidesOnRetries(t *testing.T) {
	t.Parallel()
	plain := errors.New("plain")
	for name, tt := range map[string]struct {
		err      error
		retryIf  func(error) bool
		attempts int
		reason   string
	}{
		"plain":                      {err: plain, attempts: 3, reason: "retries exhausted"},
		"poison":                     {err: actors.Poison(plain), attempts: 1, reason: "poison"},
		"rejected":                   {err: actors.Reject("no"), attempts: 1, reason: "rejected"},
		"rejection worth a retry":    {err: actors.Retry(actors.Reject("no")), attempts: 3, reason: "retries exhausted"},
		"poison in a retry":          {err: actors.Retry(fmt.Errorf("x: %w", actors.Poison(plain))), attempts: 3, reason: "retries exhausted"},
		"not among those to retry":   {err: plain, retryIf: func(error) bool { return false }, attempts: 1, reason: "not worth a retry"},
		"marked, whatever If says":   {err: actors.Retry(plain), retryIf: func(error) bool { return false }, attempts: 3, reason: "retries exhausted"},
		"among those that are tried": {err: plain, retryIf: func(err error) bool { return errors.Is(err, plain) }, attempts: 3, reason: "retries exhausted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ledgers(func(*ledger, actors.Context, Deposited) error { return tt.err })
			h.Retry = actors.RetryPolicy{Attempts: 3, Min: time.Microsecond, If: tt.retryIf}
			b := setup(t, []actors.Definition{h})
			b.publish(t, Deposited{Client: "c"})
			halt := b.saw.halted.Wait(t)
			if halt.Attempts != tt.attempts || halt.Reason != tt.reason || halt.Error != tt.err.Error() {
				t.Errorf("%d attempts, reason %q, error %q; want %d, %q, %q", halt.Attempts, halt.Reason, halt.Error, tt.attempts, tt.reason, tt.err)
			}
		})
	}
}

func TestRetriesBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		h := ledgers(func(*ledger, actors.Context, Deposited) error {
			at = append(at, time.Now())
			return errors.New("cannot")
		})
		h.Retry = actors.RetryPolicy{Attempts: 6, Min: time.Second, Max: 3 * time.Second}
		b := setup(t, []actors.Definition{h})
		b.publish(t, Deposited{Client: "c"})
		b.saw.halted.Wait(t)
		for i, most := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second} {
			if d := at[i+1].Sub(at[i]); d > most {
				t.Errorf("pause %d took %v, at most %v is due", i+1, d, most)
			}
		}
		if at[5].Sub(at[0]) < time.Millisecond {
			t.Error("there was no pause to speak of")
		}
	})
}

func TestBytesThatDoNotDecodeArePoison(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{ledgers(nothing)})
	b.commit(t, event.Envelope{ID: "x", Type: "account.deposited", Version: 1, Encoding: event.JSON, Data: []byte(`{`), Category: "account", Key: "c"})
	halt := b.saw.halted.Wait(t)
	if halt.Reason != "undecodable" || halt.Attempts != 1 {
		t.Errorf("reason %q after %d attempts, want undecodable and 1", halt.Reason, halt.Attempts)
	}
}

// commit puts a record into the store that no codec had a part in.
func (b *bundle) commit(t testing.TB, e event.Envelope) {
	t.Helper()
	if _, err := b.memory.Begin("test").Commit(t.Context(), eventstore.Changes{Publish: []event.Envelope{e}}); err != nil {
		t.Fatal(err)
	}
	b.Wake(event.Unit{Name: "ledger", Key: e.Key})
}

func TestATypeForANewerProgramWaits(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]event.Envelope{
		"a listed type":   {ID: "x", Type: "account.frozen", Version: 1, Category: "account", Key: "c"},
		"a later version": {ID: "x", Type: "account.deposited", Version: 2, Category: "account", Key: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, []actors.Definition{ledgers(nothing)}, func(c *actors.Config) {
				c.Listed = map[string][]string{"ledger": {"account.frozen"}}
			})
			b.commit(t, e)
			got := b.saw.waits.Wait(t)
			if got.Type != e.Type || got.Sequence != 1 {
				t.Errorf("waits for %q #%d", got.Type, got.Sequence)
			}
			b.publish(t, Deposited{Client: "c"})
			if err := b.Drive(t.Context(), event.Unit{Name: "ledger", Key: "c"}, lane("c"), 2); err != nil {
				t.Fatal(err)
			}
			if at := b.checkpoint(t, "ledger", lane("c")); at != 0 {
				t.Errorf("checkpoint is %d: the event was passed over", at)
			}
		})
	}
}

func TestEventsOfNoInterestArePassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, []actors.Definition{ledgers(nothing)}, soonIdle)
		b.publish(t, Withdrawn{Client: "c"}, Withdrawn{Client: "c"}, Deposited{Client: "c"})
		b.saw.applied.Wait(t)
		synctest.Wait()
		if at := b.checkpoint(t, "ledger", lane("c")); at != 3 {
			t.Errorf("checkpoint is %d, want 3: it moves over what was passed with the next commit", at)
		}
		b.publish(t, Withdrawn{Client: "c"})
		b.saw.passivated.Wait(t)
		synctest.Wait()
		if at := b.checkpoint(t, "ledger", lane("c")); at != 4 {
			t.Errorf("checkpoint is %d, want 4: it is committed when the unit is put away", at)
		}
	})
}

func TestWhatFollowsFromAnEventHasTheSameIdAtEveryAttempt(t *testing.T) {
	t.Parallel()
	var ids []string
	h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		if l.client != "c-a" {
			return nil
		}
		c.Emit(Audited{Client: l.client, Of: c.Meta().ID}, Audited{Client: l.client})
		c.Send(actors.Ref{Kind: "account", ID: "b"}, &Deposit{Client: "x", Amount: 1})
		if c.Meta().Attempt == 1 {
			return errors.New("once more")
		}
		return nil
	})
	h.Retry.Min = time.Microsecond
	b := setup(t, []actors.Definition{h, accounts()}, func(c *actors.Config) { c.Concurrency = 1 })
	trace := event.Trace{Parent: "00-1-2-01"}
	b.deposit(t, "a", 1, actors.CorrelationID("why"), actors.Tenant("acme"), actors.Trace(trace))
	b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Category == "account.commands" })

	cause, err := b.memory.ReadLane(t.Context(), lane("c-a"), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	parent := cause[0].ID
	var led []event.Envelope
	for _, ref := range []event.LaneRef{{Category: "audit", Key: "c-a"}, {Category: "account.commands", Key: "b"}} {
		got, err := b.memory.ReadLane(t.Context(), ref, 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		led = append(led, got...)
	}
	for i, e := range led {
		ids = append(ids, e.ID)
		want := event.DerivedID(parent, i, "ledger/c-a")
		if e.ID != want || e.CausationID != parent || e.CorrelationID != "why" || e.Tenant != "acme" || e.Trace != trace {
			t.Errorf("event %d: id %s, want %s; cause %s of %s, correlation %s, tenant %s, trace %v", i, e.ID, want, e.CausationID, parent, e.CorrelationID, e.Tenant, e.Trace)
		}
	}
	if len(ids) != 3 {
		t.Errorf("%d envelopes, want 3", len(ids))
	}
}

func TestABadEventFailsTheUnitOfWorkEvenIfNobodyLooks(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]any{
		"no wire name": Unnamed{Client: "c"},
		"no key":       Audited{},
		"illegal key":  Audited{Client: "a:b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
				c.Emit(Audited{Client: "fine"}, bad)
				return nil
			})
			h.Retry = actors.RetryPolicy{Attempts: 2, Min: time.Microsecond}
			b := setup(t, []actors.Definition{h})
			b.publish(t, Deposited{Client: "c"})
			b.saw.halted.Wait(t)
			if tail, err := b.memory.LaneTail(t.Context(), event.LaneRef{Category: "audit", Key: "fine"}); err != nil || tail != 0 {
				t.Errorf("%d events committed (%v), want none", tail, err)
			}
		})
	}
}

// An event committed while the unit is being put away must not have to wait for another one.
// A behavior that ignores its context keeps its own unit occupied, and nothing else.
// Ending the goroutine of an actor (as FailNow does in a test's behavior) must not wedge its unit, nor cost a slot.
func TestFencesOfAUnitNeverGoBack(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	var last actors.Fence
	for range 3 {
		t.Run("process", func(t *testing.T) {
			b := setupOn(t, store, nil, []actors.Definition{ledgers(func(l *ledger, c actors.Context, e Deposited) error {
				f := c.Fence()
				if f.Generation < last.Generation || f.Generation == last.Generation && f.Sequence <= last.Sequence {
					t.Errorf("%+v after %+v", f, last)
				}
				if f.Unit != (event.Unit{Name: "ledger", Key: "c"}) || f.Lane != lane("c") {
					t.Errorf("fence: %+v", f)
				}
				last = f
				return nil
			})})
			b.publish(t, amounts(1, 3)...)
			for range 3 {
				b.saw.applied.Wait(t)
			}
		})
	}
	if last.Generation != 3 || last.Sequence != 9 {
		t.Errorf("last fence: %+v", last)
	}
}
