package actors_test

import (
	"errors"
	"fmt"
	"slices"
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

var ledgerC = event.Unit{Name: "ledger", Key: "c"}

// registered tells the store what is registered, as an application does: people act on nothing else.
func (b *bundle) registered(t testing.TB, definitions ...actors.Definition) {
	t.Helper()
	was, err := b.memory.LoadRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := eventstore.Registered{Revision: was.Revision}
	for _, d := range definitions {
		desc := d.Describe()
		r.Handlers = append(r.Handlers, eventstore.Handler{Name: desc.Name, Kind: desc.Kind, Categories: desc.Categories})
	}
	if err := b.memory.SaveRegistry(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
}

// act does what a person does, and tells the runtime.
func (b *bundle) act(t testing.TB, kind eventstore.ActKind, u event.Unit, seen event.Position) {
	t.Helper()
	a := eventstore.Act{Kind: kind, Unit: u, Seen: seen, Actor: "ops", Reason: "test"}
	if _, err := b.memory.Act(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if u.Key == "" {
		b.ResumeAll(u.Name)
	} else {
		b.Resume(u)
	}
}

// replay hands out all dead letters of a handler, and gives the job.
func (b *bundle) replay(t testing.TB, handler string) int64 {
	t.Helper()
	job, err := b.memory.StartJob(t.Context(), eventstore.Job{
		Kind: eventstore.JobReplay, Filter: eventstore.Filter{Handler: handler}, Actor: "ops", Reason: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	_, units, err := b.memory.StepJob(t.Context(), job.ID, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		b.Resume(u)
	}
	return job.ID
}

// parked gives what a unit has parked, as "#2 poison".
func (b *bundle) parked(t testing.TB, u event.Unit) []string {
	t.Helper()
	rows, err := b.memory.ListParked(t.Context(), u, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range rows {
		all = append(all, fmt.Sprintf("#%d %d %s", p.Sequence, p.Attempts, p.Reason))
	}
	return all
}

// applied waits until an event was applied.
func (b *bundle) applied(t testing.TB, seq event.Sequence) {
	t.Helper()
	b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == seq })
}

// effects gives what was emitted for a key, in order: "2 of <event id>".
func (b *bundle) effects(t testing.TB, key string) []string {
	t.Helper()
	audits, err := b.memory.ReadLane(t.Context(), event.LaneRef{Category: "audit", Key: key}, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range audits {
		all = append(all, string(e.Data))
	}
	return all
}

// mendable is a handler that audits each deposit, and cannot take some until they are mended.
type mendable struct {
	mu     sync.Mutex
	broken map[int]bool
	seen   []int // of key c, attempts included
}

func (m *mendable) mend(amounts ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range amounts {
		delete(m.broken, a)
	}
}

func (m *mendable) handler(poison actors.Policy, broken ...int) actors.Handler[*ledger] {
	m.broken = map[int]bool{}
	for _, a := range broken {
		m.broken[a] = true
	}
	h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.client == "c" {
			m.seen = append(m.seen, e.Amount)
		}
		c.Emit(Audited{Client: l.client, By: fmt.Sprint(e.Amount)})
		if m.broken[e.Amount] {
			return errors.New("broken")
		}
		return nil
	})
	h.OnPoison, h.Retry = poison, actors.RetryPolicy{Attempts: 2, Min: time.Millisecond}
	return h
}

func (m *mendable) saw() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

func audited(amounts ...int) []string {
	var all []string
	for _, a := range amounts {
		all = append(all, fmt.Sprintf(`{"Client":"c","By":"%d","Of":""}`, a))
	}
	return all
}

func (b *bundle) same(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", what, diff)
	}
}

func TestAKeyParksWhatComesBehindAnEventAndAppliesItInOrderWhenAPersonSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m mendable
		h := m.handler(actors.ParkSequence, 2)
		b := setup(t, []actors.Definition{h})
		b.registered(t, h)
		b.publish(t, amounts(1, 4)...)
		if p := b.saw.parked.Wait(t); p.Sequence != 2 || p.Attempts != 2 || p.Reason != "retries exhausted" || p.Error != "broken" || p.Time.IsZero() {
			t.Errorf("parked: %+v", p)
		}
		b.publish(t, Deposited{Client: "other", Amount: 1})
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "other" }) // nobody else is concerned
		synctest.Wait()
		b.publish(t, amounts(5, 5)...)
		synctest.Wait()
		b.same(t, "parked", []string{"#2 2 retries exhausted", "#3 0 ", "#4 0 ", "#5 0 "}, b.parked(t, ledgerC))
		b.same(t, "checkpoint", event.Sequence(5), b.checkpoint(t, "ledger", lane("c")))
		b.same(t, "effects", audited(1), b.effects(t, "c"))

		m.mend(2)
		b.act(t, eventstore.ActRetry, ledgerC, event.Position{Lane: lane("c"), Sequence: 2})
		if category := b.saw.unparked.Wait(t); category != "account" {
			t.Errorf("parking of %q is over", category)
		}
		b.publish(t, amounts(6, 6)...)
		b.applied(t, 6)
		b.same(t, "parked in the end", []string(nil), b.parked(t, ledgerC))
		b.same(t, "effects in the end", audited(1, 2, 3, 4, 5, 6), b.effects(t, "c"))
		b.same(t, "behaviors", []int{1, 2, 2, 2, 3, 4, 5, 6}, m.saw())
	})
}

func TestAParkedEventThatFailsAgainStaysAndKeepsTheOthersWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m mendable
		h := m.handler(actors.ParkSequence, 1, 3)
		b := setup(t, []actors.Definition{h})
		b.registered(t, h)
		b.publish(t, amounts(1, 3)...)
		b.saw.parked.Wait(t)
		synctest.Wait()
		first := event.Position{Lane: lane("c"), Sequence: 1}
		b.act(t, eventstore.ActRetry, ledgerC, first)
		if e := b.saw.asideFailed.Wait(t); e.Sequence != 1 || e.Type != "account.deposited" {
			t.Errorf("failed again: %+v", e)
		}
		synctest.Wait()
		b.same(t, "parked", []string{"#1 4 retries exhausted", "#2 0 ", "#3 0 "}, b.parked(t, ledgerC))

		m.mend(1)
		b.act(t, eventstore.ActRetry, ledgerC, first)
		if e := b.saw.asideFailed.Wait(t); e.Sequence != 3 {
			t.Errorf("failed: %+v", e)
		}
		synctest.Wait()
		b.same(t, "parked then", []string{"#3 2 retries exhausted"}, b.parked(t, ledgerC))
		b.act(t, eventstore.ActSkip, ledgerC, event.Position{Lane: lane("c"), Sequence: 3})
		synctest.Wait()
		b.publish(t, amounts(4, 4)...)
		b.applied(t, 4)
		b.same(t, "effects", audited(1, 2, 4), b.effects(t, "c"))
	})
}

func TestAKeyThatHasParkedAllItMayHalts(t *testing.T) {
	t.Parallel()
	var m mendable
	h := m.handler(actors.ParkSequence, 1)
	h.MaxParked = 3
	b := setup(t, []actors.Definition{h})
	b.publish(t, amounts(1, 5)...)
	if halt := b.saw.halted.Wait(t); halt.Sequence != 4 || halt.Reason != "too many parked" {
		t.Errorf("halted at #%d: %s", halt.Sequence, halt.Reason)
	}
	b.same(t, "parked", []string{"#1 2 retries exhausted", "#2 0 ", "#3 0 "}, b.parked(t, ledgerC))
}

func TestADeadLetterIsReplayedByItsHandlerAloneAndOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m, other mendable
		h, witness := m.handler(actors.Release, 2), other.handler(actors.Halt)
		witness.Name = "witness"
		b := setup(t, []actors.Definition{h, witness})
		b.registered(t, h, witness)
		b.publish(t, amounts(1, 3)...)
		b.saw.dead.Wait(t)
		synctest.Wait()

		failed := b.replay(t, "ledger")
		if e := b.saw.asideFailed.Wait(t); e.Sequence != 2 {
			t.Errorf("failed: %+v", e)
		}
		synctest.Wait()
		dead, err := b.memory.ListDead(t.Context(), "ledger", event.Position{}, 10)
		if err != nil || len(dead) != 1 || dead[0].Attempts != 3 {
			t.Errorf("dead letters: %+v, %v", dead, err)
		}
		m.mend(2)
		through := b.replay(t, "ledger")
		if e := b.saw.replayed.Wait(t); e.Sequence != 2 || e.Type != "account.deposited" {
			t.Errorf("replayed: %+v", e)
		}
		synctest.Wait()
		if dead, err := b.memory.ListDead(t.Context(), "ledger", event.Position{}, 10); err != nil || len(dead) > 0 {
			t.Errorf("dead letters: %+v, %v", dead, err)
		}
		for id, want := range map[int64][2]int{failed: {0, 1}, through: {1, 0}} {
			job, _, err := b.memory.StepJob(t.Context(), id, 10)
			if err != nil || job.State != eventstore.JobDone || [2]int{job.Through, job.Failed} != want {
				t.Errorf("job: %+v, %v", job, err)
			}
		}
		b.same(t, "behaviors", []int{1, 2, 2, 3, 2, 2}, m.saw())
		b.same(t, "of the other handler", []int{1, 2, 3}, other.saw())
	})
}

// A command that halted its entity, and was made a dead letter by a person, is decided like any other when it is replayed.
func TestADeadLetterOfAnEntityIsDecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		def := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			switch {
			case in.Amount == 2 && broken.Load():
				return nil, actors.Poison(errors.New("broken"))
			case in.Amount == 3 && !broken.Load():
				return nil, actors.Reject("too late")
			case in.Amount == 3:
				return nil, actors.Poison(errors.New("broken"))
			}
			c.Emit(deposited(in, s))
			return &Total{}, nil
		})
		b := setup(t, []actors.Definition{def})
		b.registered(t, def)
		u, commands := event.Unit{Name: "account", Key: "a"}, event.LaneRef{Category: "account.commands", Key: "a"}
		for amount := range 5 {
			if err := b.Send(t.Context(), ref("a"), &Deposit{Client: "c", Amount: amount}); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			halt := b.saw.halted.Wait(t)
			b.act(t, eventstore.ActDeadLetter, u, event.Position{Lane: commands, Sequence: halt.Sequence})
			b.saw.resumed.Wait(t)
		}
		synctest.Wait()
		b.same(t, "balance", 5, b.balance(t, "a"))
		broken.Store(false)
		b.replay(t, "account")
		b.saw.rejected.Wait(t)
		synctest.Wait()
		b.same(t, "balance after the replay", 7, b.balance(t, "a"))
		if dead, err := b.memory.ListDead(t.Context(), "account", event.Position{}, 10); err != nil || len(dead) > 0 {
			t.Errorf("dead letters: %+v, %v", dead, err)
		}
	})
}

// settling tells commits that end an attempt at a row set aside.
func settling(op faulty.Op) bool { return op.Changes != nil && op.Changes.Settle != nil }

// The commit with which a parked event is through may have happened when its answer is lost: the store says whether it did.
func TestAnEventSetAsideIsAppliedOnceWhateverItsCommitAnswers(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faulty.Fault{
		"it happened":       {After: errors.New("connection reset")},
		"it did not happen": {Before: eventstore.ErrUnknownCommit},
		"the disk is full":  {Before: eventstore.ErrTrouble},
		"somebody acted":    {Before: eventstore.ErrAsideMoved},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var m mendable
				var times atomic.Int32
				h := m.handler(actors.ParkSequence, 1)
				b := setupOn(t, memory.Open(), func(op faulty.Op) faulty.Fault {
					if settling(op) && times.Add(1) == 1 {
						return fault
					}
					return faulty.Fault{}
				}, []actors.Definition{h})
				b.registered(t, h)
				b.publish(t, amounts(1, 3)...)
				b.saw.parked.Wait(t)
				synctest.Wait()
				m.mend(1)
				b.act(t, eventstore.ActRetry, ledgerC, event.Position{Lane: lane("c"), Sequence: 1})
				b.saw.anew.Wait(t) // it is not the event's fault
				b.saw.unparked.Wait(t)
				b.publish(t, amounts(4, 4)...)
				b.applied(t, 4)
				b.same(t, "effects", audited(1, 2, 3, 4), b.effects(t, "c"))
				if times.Load() == 0 {
					t.Error("nothing failed")
				}
			})
		})
	}
}

// A behavior that does nothing has nothing to commit but that.
func TestAnEventSetAsideIsThroughAlsoWhereItHasNoEffect(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	h := ledgers(func(*ledger, actors.Context, Deposited) error {
		if broken.Load() {
			return actors.Poison(errors.New("broken"))
		}
		return nil
	})
	h.OnPoison = actors.ParkSequence
	b := setup(t, []actors.Definition{h})
	b.registered(t, h)
	b.publish(t, amounts(1, 1)...)
	b.saw.parked.Wait(t)
	broken.Store(false)
	b.act(t, eventstore.ActRetry, ledgerC, event.Position{Lane: lane("c"), Sequence: 1})
	b.saw.unparked.Wait(t)
	b.same(t, "parked", []string(nil), b.parked(t, ledgerC))
}

// What is known of attempts goes with the commit that deals with the event, whichever that is.
func TestAttemptsAreForgottenWithTheEvent(t *testing.T) {
	t.Parallel()
	for _, poison := range []actors.Policy{actors.Halt, actors.Release, actors.ParkSequence, 0} {
		t.Run(poison.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				forgotten := 0
				h := ledgers(func(_ *ledger, c actors.Context, e Deposited) error {
					if poison != 0 || c.Meta().Attempt == 1 {
						return errors.New("broken")
					}
					return nil
				})
				h.OnPoison, h.Retry = poison, actors.RetryPolicy{Attempts: 2, Min: time.Millisecond}
				b := setupOn(t, memory.Open(), func(op faulty.Op) faulty.Fault {
					mu.Lock()
					defer mu.Unlock()
					if op.Changes != nil && op.Changes.Untry {
						forgotten++
					}
					return faulty.Fault{}
				}, []actors.Definition{h})
				b.publish(t, amounts(1, 1)...)
				synctest.Wait()
				<-pause(t, time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if forgotten != 1 {
					t.Errorf("%d commits forget attempts, want 1", forgotten)
				}
			})
		})
	}
}

// An attempt that failed is remembered, with its error, until the event is through; a restart has it go on, not begin anew.
func TestAttemptsSurviveARestart(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	var attempts []int
	h := ledgers(func(_ *ledger, c actors.Context, _ Deposited) error {
		attempts = append(attempts, c.Meta().Attempt)
		return errors.New("broken")
	})
	h.Retry = actors.RetryPolicy{Attempts: 3, Min: time.Hour, Max: time.Hour}
	for process := range 3 {
		t.Run("process", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setupOn(t, store, nil, []actors.Definition{h})
				if process == 0 {
					b.publish(t, amounts(1, 2)...)
				}
				if process == 2 {
					if halt := b.saw.halted.Wait(t); halt.Attempts != 3 || halt.Reason != "retries exhausted" {
						t.Errorf("halted after %d attempts: %s", halt.Attempts, halt.Reason)
					}
					synctest.Wait()
				} else {
					b.saw.retried.Wait(t)
					synctest.Wait()
				}
				got, err := store.Recover(t.Context(), []eventstore.Ask{{Unit: ledgerC, Lanes: []event.LaneRef{lane("c")}}})
				if err != nil {
					t.Fatal(err)
				}
				switch tried := got[0].Tried; {
				case process == 2 && tried != nil:
					t.Errorf("tried, after it was given up: %+v", tried)
				case process == 2:
				case tried == nil || tried.Attempts != process+1 || tried.Error != "broken" || tried.Sequence != 1 || tried.EventType != "account.deposited":
					t.Errorf("tried: %+v", tried)
				case tried.Again.Before(time.Now()) || tried.Again.After(time.Now().Add(time.Hour)):
					t.Errorf("again at %s, now is %s", tried.Again, time.Now())
				}
			})
		})
	}
	if diff := cmp.Diff([]int{1, 2, 3}, attempts); diff != "" {
		t.Errorf("attempts (-want +got)\n%s", diff)
	}
}

// A person may drop the last parked event before the unit has heard of it: nothing is parked behind what is not there any more.
func TestNothingIsParkedBehindWhatAPersonHasDropped(t *testing.T) {
	t.Parallel()
	var m mendable
	h := m.handler(actors.ParkSequence, 1)
	b := setup(t, []actors.Definition{h})
	b.registered(t, h)
	b.publish(t, amounts(1, 1)...)
	b.saw.parked.Wait(t)
	if _, err := b.memory.Act(t.Context(), eventstore.Act{
		Kind: eventstore.ActSkip, Unit: ledgerC, Seen: event.Position{Lane: lane("c"), Sequence: 1}, Actor: "ops", Reason: "test",
	}); err != nil {
		t.Fatal(err)
	}
	b.publish(t, amounts(2, 2)...)
	b.applied(t, 2)
	b.same(t, "effects", audited(2), b.effects(t, "c"))
	b.same(t, "parked", []string(nil), b.parked(t, ledgerC))
}
