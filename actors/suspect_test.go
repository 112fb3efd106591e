package actors_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/local"
)

// died is a store on which a process ended: each of these keys has deposits that the ledger has not applied, the first of them
// suspected before, as often as said.
func died(t *testing.T, suspicions map[string]int, each int) *memory.Store {
	t.Helper()
	store := memory.Open()
	registry := types(t)
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	for key, n := range suspicions {
		var c eventstore.Changes
		for i := range each {
			e, err := route(registry)(t.Context(), event.Stream{}, Deposited{Client: key, Amount: i + 1})
			if err != nil {
				t.Fatal(err)
			}
			e.ID, e.Time = fmt.Sprint(key, "-", i+1), time.Now()
			c.Publish = append(c.Publish, e)
		}
		if n > 0 {
			c.Fence.Unit = event.Unit{Name: "ledger", Key: key}
			c.Tried = &eventstore.Tried{
				Unit: c.Fence.Unit, Lane: lane(key), Sequence: 1, EventID: key + "-1", EventType: "account.deposited", Time: time.Now(),
				Suspicions: n, Alone: n - 1,
			}
		}
		if _, err := store.Begin("test").Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

func tried(t *testing.T, store *memory.Store, key string) *eventstore.Tried {
	t.Helper()
	got, err := store.Recover(t.Context(), []eventstore.Ask{{Unit: event.Unit{Name: "ledger", Key: key}, Lanes: []event.LaneRef{lane(key)}}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0].Tried
}

func TestOnlyTheFirstEventAfterAnUncleanEndIsASuspect(t *testing.T) {
	t.Parallel()
	store := died(t, map[string]int{"a": 0, "b": 0}, 3)
	var known sync.Map
	h := ledgers(func(l *ledger, _ actors.Context, e Deposited) error {
		if row := tried(t, store, l.client); row != nil {
			known.Store(fmt.Sprint(l.client, e.Amount), row.Suspicions)
		}
		return nil
	})
	b := setupUnclean(t, store, []actors.Definition{h})
	for range 2 {
		if s := b.saw.suspected.Wait(t); s.sequence != 1 || s.suspicions != 1 || s.alone {
			t.Errorf("suspected: %+v", s)
		}
	}
	for range 6 {
		b.saw.applied.Wait(t)
	}
	b.publish(t, Deposited{Client: "new", Amount: 1}) // had nothing to do when the process died
	b.saw.applied.Wait(t)
	for key, want := range map[string]any{"a1": 1, "b1": 1, "a2": nil, "b2": nil, "new1": nil} {
		if got, _ := known.Load(key); got != want {
			t.Errorf("%s ran with suspicions %v in the store, want %v", key, got, want)
		}
	}
	for _, key := range []string{"a", "b", "new"} {
		if row := tried(t, store, key); row != nil {
			t.Errorf("left: %+v", row)
		}
	}
}

// Whoever was suspected before runs with no other suspect beside it. Those suspected for the first time run together, and so does whoever
// is no suspect at all, with everybody.
func TestASuspectThatMustBeAloneIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		suspicions := map[string]int{}
		for i := range 30 {
			suspicions[fmt.Sprint("again-", i)] = 1 + i%2
			suspicions[fmt.Sprint("first-", i)] = 0
		}
		store := died(t, suspicions, 2)
		var mu sync.Mutex
		suspects, alone, together := 0, 0, 0
		h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			if e.Amount != 1 {
				return nil
			}
			must := suspicions[l.client] > 0
			mu.Lock()
			suspects++
			together = max(together, suspects)
			if must {
				alone++
			}
			if alone > 1 || alone == 1 && suspects > 1 {
				t.Errorf("%d suspects are inside, %d of them are to be alone", suspects, alone)
			}
			mu.Unlock()
			<-pause(t, 10*time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			suspects--
			if must {
				alone--
			}
			return nil
		})
		b := setupUnclean(t, store, []actors.Definition{h}, func(c *actors.Config) { c.Concurrency = 2 })
		for range 60 {
			s := b.saw.suspected.Wait(t)
			if want := suspicions[s.unit.Key]; s.suspicions != want+1 || s.alone != (want > 0) {
				t.Errorf("suspected: %+v, and %d times before", s, want)
			}
		}
		for range 120 {
			b.saw.applied.Wait(t)
		}
		if together < 2 {
			t.Errorf("%d suspects were inside at once, want several of those suspected for the first time", together)
		}
		for key := range suspicions {
			if row := tried(t, store, key); row != nil {
				t.Errorf("left: %+v", row)
			}
		}
	})
}

// Others that are to be alone wait until it is in the store that the one before them has returned, or a crash of theirs would be counted
// against it.
func TestASuspectThatReturnedIsClearedBeforeTheNextOneRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := died(t, map[string]int{"a": 1, "b": 1, "c": 1}, 1)
		var mu sync.Mutex
		var returned []string
		h := ledgers(func(l *ledger, _ actors.Context, e Deposited) error {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range returned {
				if row := tried(t, store, key); row != nil && row.Suspicions > 0 {
					t.Errorf("%s runs while %s is suspected: %+v", l.client, key, row)
				}
			}
			if slices.Contains(returned, l.client) {
				return nil
			}
			returned = append(returned, l.client)
			return errors.New("not now")
		})
		b := &bundle{store: leftUnclean{takesBackSlowly{store, t}}, memory: store, saw: new(recorder), carrier: local.New()}
		b.start(t, []actors.Definition{h}, nil)
		for range 3 {
			b.saw.applied.Wait(t)
		}
	})
}

// takesBackSlowly is a store that takes its time over writing that nobody is suspected.
type takesBackSlowly struct {
	eventstore.Store
	t testing.TB
}

func (s takesBackSlowly) Begin(who string) eventstore.Tx {
	return slowTx{s.Store.Begin(who), s.t}
}

type slowTx struct {
	eventstore.Tx
	t testing.TB
}

func (tx slowTx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	if c.Tried != nil && c.Tried.Suspicions == 0 {
		<-pause(tx.t, time.Second)
	}
	return tx.Tx.Commit(ctx, c)
}

// takeOver starts a transport that wakes nobody.
func (b *bundle) takeOver(t testing.TB, definitions ...actors.Definition) {
	t.Helper()
	if err := b.carrier.Start(t.Context(), transport.Node{Subscriptions: subscriptionsOf(definitions), Wake: func(event.Unit) {}}); err != nil {
		t.Fatal(err)
	}
}

// pause is over after a while of virtual time.
func pause(t testing.TB, d time.Duration) <-chan struct{} {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), d)
	context.AfterFunc(ctx, cancel)
	return ctx.Done()
}

func TestAnEventThatCrashedTheProcessAloneTooOftenIsNotRunAgain(t *testing.T) {
	t.Parallel()
	store := died(t, map[string]int{"a": 4, "b": 3}, 2) // alone 3 and 2 times
	var ran sync.Map
	b := setupUnclean(t, store, []actors.Definition{ledgers(func(l *ledger, _ actors.Context, e Deposited) error {
		ran.Store(l.client, true)
		return nil
	})})
	if halt := b.saw.halted.Wait(t); halt.Unit.Key != "a" || halt.Sequence != 1 || halt.Reason != "crashed the process" {
		t.Errorf("halted: %+v", halt)
	}
	b.applied(t, 2) // of b
	if _, yes := ran.Load("a"); yes {
		t.Error("it ran")
	}
	t.Run("another limit", func(t *testing.T) {
		t.Parallel()
		b := setupUnclean(t, died(t, map[string]int{"a": 2}, 1), []actors.Definition{ledgers(nothing)}, func(c *actors.Config) { c.MaxCrashes = 1 })
		b.saw.halted.Wait(t)
	})
}

// held is a ledger whose first deposits stay inside until they are let go.
type held struct {
	inside chan string
	letGo  chan struct{}
}

func (h *held) handler() actors.Handler[*ledger] {
	h.inside, h.letGo = make(chan string, 100), make(chan struct{})
	return ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		if e.Amount == 1 {
			h.inside <- l.client
			select {
			case <-h.letGo:
			case <-c.Done():
				return c.Err()
			}
		}
		return nil
	})
}

func TestWaitingForOnesTurnCostsNeitherASlotNorAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h held
		def := h.handler()
		def.Timeout = 10 * time.Second
		store := died(t, map[string]int{"a": 1, "b": 1, "c": 1}, 1)
		b := setupUnclean(t, store, []actors.Definition{def, accounts()}, func(c *actors.Config) { c.Concurrency = 2 })
		first := <-h.inside
		synctest.Wait()
		if got := b.balance(t, "x"); got != 0 { // the second slot is for others
			t.Errorf("balance: %d", got)
		}
		waiting := 0
		for _, key := range []string{"a", "b", "c"} {
			a, live := b.Inspect(event.Unit{Name: "ledger", Key: key})
			if !live || a.InHand == nil || !a.InHand.Suspect || !a.InHand.Alone || a.InHand.Sequence != 1 || a.InHand.EventID != key+"-1" || a.InHand.Attempt != 1 {
				t.Fatalf("%s: %+v, %+v", key, a, a.InHand)
			}
			if a.InHand.Waiting != (key != first) {
				t.Errorf("%s waits: %v, and %s is inside", key, a.InHand.Waiting, first)
			}
			if a.InHand.Waiting {
				waiting++
				if row := tried(t, store, key); row.Suspicions != 1 || row.Alone != 0 {
					t.Errorf("%s is counted before it is alone: %+v", key, row)
				}
			}
		}
		if waiting != 2 {
			t.Errorf("%d wait, want 2", waiting)
		}
		<-pause(t, 9*time.Second)
		close(h.letGo) // the next has all its time
		for range 3 {
			b.saw.applied.Wait(t)
		}
		b.same(t, "order of those inside", 2, len(h.inside))
	})
}

func TestAStopEndsTheWaitForATurnAndNobodyIsBlamed(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string]map[string]int{
		"to be alone":          {"a": 1, "b": 1},
		"beside one who is":    {"a": 1, "b": 0},
		"beside many at first": {"a": 1, "b": 0, "c": 0, "d": 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var h held
				store := died(t, keys, 1)
				def := h.handler()
				b := setupUnclean(t, store, []actors.Definition{def}, byHand)
				b.takeOver(t, def)
				b.Wake(event.Unit{Name: "ledger", Key: "a"})
				if <-h.inside != "a" {
					t.Fatal("somebody else is inside")
				}
				for key := range keys {
					b.Wake(event.Unit{Name: "ledger", Key: key})
				}
				synctest.Wait()
				stopped := make(chan error, 1)
				go func() { stopped <- b.Stop(t.Context()) }()
				synctest.Wait()
				for key := range keys {
					row := tried(t, store, key)
					if key != "a" && row != nil && (row.Suspicions > keys[key] || row.Attempts > 0) {
						t.Errorf("%s, whose turn never came: %+v", key, row)
					}
				}
				close(h.letGo)
				if err := <-stopped; err != nil {
					t.Error(err)
				}
				b.saw.applied.Wait(t)
				if row := tried(t, store, "a"); row != nil {
					t.Errorf("a, which went well: %+v", row)
				}
			})
		})
	}
}

// One who is alone inside asks an entity that waits for its own turn: it is answered all the same, or both would wait for each other.
func TestAnEntityThatWaitsForItsTurnAnswersAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := died(t, map[string]int{"a": 1}, 1)
		command(t, store, "x", 1)
		var b *bundle
		asked := make(chan int, 1)
		waits := make(chan struct{})
		def := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			<-waits
			for range 2 {
				got, err := actors.Ask[*Total](c, b, ref("x"), &Deposit{Client: "x", Amount: 10})
				if err != nil {
					return err
				}
				select {
				case asked <- got.Amount:
				default:
				}
			}
			return nil
		})
		def.Timeout = time.Minute
		begun := time.Now()
		b = setupUnclean(t, store, []actors.Definition{def, accounts()}, byHand)
		b.takeOver(t, def, accounts())
		b.Wake(event.Unit{Name: "ledger", Key: "a"})
		synctest.Wait()
		b.Wake(event.Unit{Name: "account", Key: "x"})
		synctest.Wait()
		if a, _ := b.Inspect(event.Unit{Name: "account", Key: "x"}); a.InHand == nil || !a.InHand.Waiting {
			t.Fatalf("the entity does not wait: %+v", a)
		}
		close(waits)
		if got := <-asked; got != 10 {
			t.Errorf("total is %d, want 10: the sent command waits", got)
		}
		b.saw.applied.Wait(t)
		b.saw.applied.Wait(t)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("took %s: somebody waited for a timeout", took)
		}
		if got := b.balance(t, "x"); got != 25 {
			t.Errorf("balance is %d, want 25", got)
		}
	})
}

// command leaves a sent command of 5 to an entity, suspected before.
func command(t *testing.T, store *memory.Store, id string, suspicions int) {
	t.Helper()
	if _, err := store.Start(t.Context(), eventstore.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	enc, err := types(t).Encode(&Deposit{Client: id, Amount: 5})
	if err != nil {
		t.Fatal(err)
	}
	at := event.LaneRef{Category: "account.commands", Key: id}
	u := event.Unit{Name: "account", Key: id}
	_, err = store.Begin("test").Commit(t.Context(), eventstore.Changes{
		Fence: eventstore.Fence{Unit: u},
		Publish: []event.Envelope{{
			ID: "command-" + id, Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data, Category: at.Category, Key: id, Time: time.Now(),
		}},
		Tried: &eventstore.Tried{Unit: u, Lane: at, Sequence: 1, EventID: "command-" + id, Time: time.Now(), Suspicions: suspicions},
	})
	if err := errors.Join(err, store.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// A behavior that ends its goroutine inside the gate is out of it.
func TestASuspectThatEndsItsGoroutineLeavesTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		h := ledgers(func(l *ledger, _ actors.Context, e Deposited) error {
			if ended.CompareAndSwap(false, true) {
				runtime.Goexit()
			}
			return nil
		})
		h.Retry = actors.RetryPolicy{Attempts: 5, Min: time.Hour, Max: time.Hour}
		b := setupUnclean(t, died(t, map[string]int{"a": 1, "b": 1, "c": 1}, 1), []actors.Definition{h})
		begun := time.Now()
		b.saw.applied.Wait(t)
		b.saw.applied.Wait(t)
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("the others waited for %s", took)
		}
	})
}

func TestALedgerThatIsNoSuspectDoesNotWaitAtTheGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h held
		b := setupUnclean(t, died(t, map[string]int{"a": 1}, 1), []actors.Definition{h.handler()})
		<-h.inside
		b.publish(t, Deposited{Client: "new", Amount: 2})
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "new" })
		close(h.letGo)
		b.saw.applied.Wait(t)
	})
}

// What was set aside and is due may have been in hand as well: it is counted, and nobody is beside it.
func TestAnEventSetAsideThatIsDueAfterAnUncleanEndRunsAlone(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	var m mendable
	h := m.handler(actors.ParkSequence, 1)
	t.Run("parked", func(t *testing.T) {
		b := setupOn(t, store, nil, []actors.Definition{h}, byHand)
		b.registered(t, h)
		b.publish(t, amounts(1, 2)...)
		if err := b.Drive(t.Context(), ledgerC, lane("c"), 2); err != nil {
			t.Fatal(err)
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.act(t, eventstore.ActRetry, ledgerC, event.Position{Lane: lane("c"), Sequence: 1})
	})
	m.mend(1)
	b := setupUnclean(t, store, []actors.Definition{h})
	if s := b.saw.suspected.Wait(t); s != (suspected{ledgerC, 1, 1, true}) {
		t.Errorf("suspected: %+v", s)
	}
	b.saw.unparked.Wait(t)
	b.same(t, "effects", audited(1, 2), b.effects(t, "c"))
}

// What served asks at the gate is put away in good state, also when the turn never comes.
func TestAnEntityThatServedAsksAtTheGateIsPassivated(t *testing.T) {
	t.Parallel()
	for name, suspicions := range map[string]int{"before it is counted": 1, "after it is counted": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := died(t, map[string]int{"a": 1}, 1)
				command(t, store, "x", suspicions)
				var h held
				var passivated atomic.Int32
				def, entity := h.handler(), accounts()
				entity.OnPassivate = func(_ context.Context, _ string, s account) {
					if s.Total == 7 {
						passivated.Add(1)
					}
				}
				b := setupUnclean(t, store, []actors.Definition{def, entity}, byHand)
				b.takeOver(t, def, entity)
				b.Wake(event.Unit{Name: "ledger", Key: "a"})
				<-h.inside
				b.Wake(event.Unit{Name: "account", Key: "x"})
				synctest.Wait()
				b.deposit(t, "x", 7)
				stopped := make(chan error, 1)
				go func() { stopped <- b.Stop(t.Context()) }()
				synctest.Wait()
				if passivated.Load() != 1 {
					t.Errorf("OnPassivate was called %d times", passivated.Load())
				}
				close(h.letGo)
				if err := <-stopped; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An ask that is served at the gate may end the goroutine: then the unit waits there no more, and holds up nobody.
func TestAnAskThatEndsTheGoroutineAtTheGateHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := died(t, map[string]int{"a": 1, "b": 1}, 1)
		command(t, store, "x", 1)
		var h held
		def, entity := h.handler(), accounts()
		def.Timeout = time.Minute
		entity.Queries = actors.Queries[account]{actors.OnQuery(func(actors.Query, account, *Balance) (*Total, error) {
			runtime.Goexit()
			return nil, nil
		})}
		b := setupUnclean(t, store, []actors.Definition{def, entity}, byHand)
		b.takeOver(t, def, entity)
		for _, u := range []event.Unit{{Name: "ledger", Key: "a"}, {Name: "account", Key: "x"}, {Name: "ledger", Key: "b"}} {
			b.Wake(u) // in line in this order
			synctest.Wait()
		}
		if first := <-h.inside; first != "a" {
			t.Fatalf("%s is inside", first)
		}
		if _, err := b.Ask(t.Context(), ref("x"), &Balance{}); err == nil {
			t.Error("answered")
		}
		close(h.letGo)
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "b" })
	})
}
