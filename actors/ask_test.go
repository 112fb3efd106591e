package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport"
)

func TestAsksThatCannotBeAreRefusedByName(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts(), ledgers(nothing)})
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx     context.Context
		to      actors.Ref
		command any
		want    error
	}{
		"unknown kind":     {to: actors.Ref{Kind: "acount", ID: "a"}, command: &Deposit{}, want: actors.ErrUnknownEntity},
		"a handler":        {to: actors.Ref{Kind: "ledger", ID: "a"}, command: &Deposit{}, want: actors.ErrUnknownEntity},
		"unknown command":  {to: ref("a"), command: &Audited{}, want: actors.ErrUnknownCommand},
		"illegal id":       {to: ref("a:b"), command: &Deposit{}, want: event.ErrBadKey},
		"context was done": {ctx: done, to: ref("a"), command: &Deposit{}, want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := tt.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			_, err := b.Ask(ctx, tt.to, tt.command)
			var ask *actors.AskError
			if !errors.Is(err, tt.want) || !errors.As(err, &ask) || ask.Unknown || ask.To != tt.to || ask.Command != fmt.Sprintf("%T", tt.command) {
				t.Errorf("error: %v", err)
			}
		})
	}
	if _, err := b.Ask(t.Context(), ref("a"), (*Deposit)(nil)); err == nil {
		t.Error("a nil command was taken")
	}
	if _, err := actors.Ask[*Balance](t.Context(), b, ref("a"), &Balance{}); err == nil || !strings.Contains(err.Error(), "correct the type argument") {
		t.Errorf("wrong type argument: %v", err)
	}
}

func TestAFullMailboxRefusesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enter, leave := make(chan struct{}), make(chan struct{})
		a := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			enter <- struct{}{}
			<-leave
			return &Total{}, nil
		})
		a.Mailbox = 2
		b := setup(t, []actors.Definition{a})
		var asks sync.WaitGroup
		ask := func() {
			asks.Go(func() {
				if _, err := b.Ask(t.Context(), ref("a"), &Deposit{}); err != nil {
					t.Errorf("taken, and then: %v", err)
				}
			})
		}
		ask()
		<-enter
		ask()
		ask()
		synctest.Wait()
		_, err := b.Ask(t.Context(), ref("a"), &Deposit{})
		if !errors.Is(err, actors.ErrMailboxFull) || !actors.Retryable(err) {
			t.Errorf("error: %v", err)
		}
		if err := b.Tell(t.Context(), ref("a"), &Deposit{}); !errors.Is(err, actors.ErrMailboxFull) {
			t.Errorf("tell: %v", err)
		}
		for range 2 {
			leave <- struct{}{}
			<-enter
		}
		leave <- struct{}{}
		asks.Wait()
	})
}

func TestAnAskThatIsGivenUpBeforeItBeganNeverBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enter, leave := make(chan int), make(chan struct{})
		b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			enter <- in.Amount
			<-leave
			c.Emit(deposited(in, s))
			return &Total{}, nil
		})})
		ctx, giveUp := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		go func() { _, err := b.Ask(ctx, ref("a"), &Deposit{Client: "c", Amount: 1}); errs <- err }()
		<-enter
		go func() { _, err := b.Ask(ctx, ref("a"), &Deposit{Client: "c", Amount: 2}); errs <- err }()
		synctest.Wait()
		giveUp()
		var unknown []bool
		for range 2 {
			var ask *actors.AskError
			if err := <-errs; !errors.As(err, &ask) || !errors.Is(err, context.Canceled) {
				t.Fatalf("error: %v", err)
			}
			unknown = append(unknown, ask.Unknown)
		}
		slices.SortFunc(unknown, func(a, b bool) int {
			if a == b {
				return 0
			}
			return map[bool]int{false: -1, true: 1}[a]
		})
		if !slices.Equal(unknown, []bool{false, true}) {
			t.Errorf("outcome unknown: %v, want it of the one that had begun alone", unknown)
		}
		close(leave)
		if got := b.balance(t, "a"); got != 1 {
			t.Errorf("balance is %d, want 1: what has begun goes on, what has not does not begin", got)
		}
	})
}

func TestACommitThatWasRefusedIsNotUnknown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault     faulty.Fault
		unknown   bool
		committed int
	}{
		"before":        {fault: faulty.Fault{Before: errors.New("disk is full")}},
		"answer lost":   {fault: faulty.Fault{After: errors.New("connection lost")}, unknown: true, committed: 1},
		"never arrived": {fault: faulty.Fault{Before: eventstore.ErrUnknownCommit}, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, memory.Open(), faulty.Nth(faulty.Commit, 1, tt.fault), []actors.Definition{accounts()})
			_, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1})
			var ask *actors.AskError
			if !errors.As(err, &ask) || ask.Unknown != tt.unknown || actors.Retryable(err) {
				t.Errorf("error: %v", err)
			}
			if got := b.balance(t, "a"); got != tt.committed {
				t.Errorf("balance is %d, want %d", got, tt.committed)
			}
		})
	}
}

func TestACommandAskedAgainUnderItsIDGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	lost := faulty.Nth(faulty.Commit, 1, faulty.Fault{After: errors.New("connection lost")})
	t.Run("first process", func(t *testing.T) {
		b := setupOn(t, store, lost, []actors.Definition{accounts()})
		_, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 5}, actors.CommandID("cmd-1"))
		var ask *actors.AskError
		if !errors.As(err, &ask) || !ask.Unknown {
			t.Fatalf("error: %v", err)
		}
		if got := b.deposit(t, "a", 5, actors.CommandID("cmd-1")); got != 5 {
			t.Errorf("answered %d, want 5", got)
		}
		b.deposit(t, "a", 7)
	})
	b := setupOn(t, store, nil, []actors.Definition{accounts()})
	if got := b.deposit(t, "a", 5, actors.CommandID("cmd-1")); got != 5 {
		t.Errorf("answered %d after a restart, want 5", got)
	}
	if got := b.balance(t, "a"); got != 12 {
		t.Errorf("balance is %d, want 12", got)
	}
	_, err := b.Ask(t.Context(), ref("a"), &Withdraw{Client: "c", Amount: 1}, actors.CommandID("cmd-1"))
	if !errors.Is(err, actors.ErrCommandReused) || actors.Retryable(err) {
		t.Errorf("another command under the id: %v", err)
	}
	if got := b.deposit(t, "b", 1, actors.CommandID("cmd-1")); got != 1 {
		t.Errorf("another entity under the id: %d, want 1", got)
	}
}

func TestARejectionIsRememberedUnderItsID(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	for range 2 {
		_, err := b.Ask(t.Context(), ref("a"), &Withdraw{Client: "c", Amount: 5}, actors.CommandID("cmd-1"))
		if !errors.Is(err, actors.ErrRejected) || err.Error() != "rejected: account a has only 0" {
			t.Errorf("error: %v", err)
		}
		b.deposit(t, "a", 5) // it could be done now, but it was answered already
	}
}

// Asked again after a lost answer, what was rejected is no success.
func TestARejectionWithoutAReasonIsRememberedToo(t *testing.T) {
	t.Parallel()
	e := accounts()
	e.Commands[1] = actors.OnCommand(func(actors.Command, account, *Withdraw) (*Total, error) { return nil, actors.Reject("") })
	b := setup(t, []actors.Definition{e})
	for range 2 {
		if out, err := b.Ask(t.Context(), ref("a"), &Withdraw{Client: "c", Amount: 5}, actors.CommandID("cmd-1")); !errors.Is(err, actors.ErrRejected) {
			t.Errorf("got %v, %v", out, err)
		}
	}
}

func TestAnAskInsideOnesOwnTransactionIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store *withSQL
		results := make(chan error, 4)
		var b *bundle
		b = setup(t, []actors.Definition{accounts(), ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			_, err := b.Ask(c, ref("a"), &Balance{})
			results <- err
			if _, err := c.Tx().ExecContext(c, "UPDATE"); err != nil {
				return err
			}
			if store.open.Load() != 1 {
				t.Errorf("%d transactions open, want 1", store.open.Load())
			}
			_, err = b.Ask(c, ref("a"), &Balance{})
			results <- err
			results <- b.Do(c, func(actors.UnitOfWork) error { return nil })
			return nil
		})}, func(c *actors.Config) {
			store = &withSQL{Store: c.Store}
			c.Store = store
		})
		b.publish(t, Deposited{Client: "c"})
		b.saw.applied.Wait(t)
		if err := <-results; err != nil {
			t.Errorf("before the first statement: %v", err)
		}
		for range 2 {
			if err := <-results; !errors.Is(err, actors.ErrAskInTx) || actors.Retryable(err) {
				t.Errorf("after it: %v", err)
			}
		}
		if store.open.Load() != 0 || store.statements.Load() != 1 {
			t.Errorf("%d transactions open, %d statements", store.open.Load(), store.statements.Load())
		}
	})
}

func TestAnAskOfAUnitThatWaitsForItIsRefused(t *testing.T) {
	t.Parallel()
	var b *bundle
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		next := map[string]string{"a": "b", "b": "c", "c": "a"}[c.ID()]
		if in.Client == "self" {
			next = c.ID()
		}
		return actors.Ask[*Total](c, b, ref(next), in)
	})}, func(c *actors.Config) { c.Concurrency = 1 })
	for _, who := range []string{"self", "round"} {
		if _, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: who}); !errors.Is(err, actors.ErrAskCycle) {
			t.Errorf("%s: %v", who, err)
		}
	}
}

func TestABehaviorThatAsksGivesUpItsSlot(t *testing.T) {
	t.Parallel()
	var b *bundle
	b = setup(t, []actors.Definition{accounts(), ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		if l.client != "start" {
			return nil
		}
		_, err := b.Ask(c, ref("a"), &Deposit{Client: "other", Amount: 1})
		return err
	})}, func(c *actors.Config) { c.Concurrency = 1 })
	b.publish(t, Deposited{Client: "start"})
	b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "start" })
}

func TestATellIsDecidedAndItsAnswerDropped(t *testing.T) {
	t.Parallel()
	told := make(chan event.LaneRef, 1)
	b := setup(t, []actors.Definition{accounts()}, telling(told))
	if err := b.Tell(t.Context(), ref("a"), &Withdraw{Client: "c", Amount: 1}); err != nil { // to be rejected
		t.Fatal(err)
	}
	if err := b.Tell(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1}); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got != lane("c") {
		t.Errorf("the transport was told of %s", got)
	}
	if got := b.balance(t, "a"); got != 1 {
		t.Errorf("balance is %d, want 1", got)
	}
}

// telling passes on what the transport would be told.
func telling(lanes chan<- event.LaneRef) option {
	return func(c *actors.Config) {
		c.Committed = func(_ context.Context, tails []event.Tail) error {
			for _, tail := range tails {
				lanes <- tail.Lane
			}
			return nil
		}
	}
}

// What is committed is told by whoever takes the answer. Where nobody does any more, it is told all the same.
func TestWhatIsCommittedIsToldAlthoughTheAskerHasLeft(t *testing.T) {
	t.Parallel()
	enter, leave, told := make(chan struct{}), make(chan struct{}), make(chan event.LaneRef, 1)
	b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		close(enter)
		<-leave
		c.Emit(deposited(in, s))
		return &Total{}, nil
	})}, telling(told))
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := b.Ask(ctx, ref("a"), &Deposit{Client: "c"}); gone <- err }()
	<-enter
	giveUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(leave)
	if got := <-told; got != lane("c") {
		t.Errorf("the transport was told of %s", got)
	}
}

func TestABehaviorSeesWhoAsksAndThatItIsNested(t *testing.T) {
	t.Parallel()
	type key struct{}
	b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if got := c.Value(key{}); got != "asker" {
			t.Errorf("value: %v", got)
		}
		if !transport.IsNested(c) {
			t.Error("a transport would take a commit made here for one that may wait for its delivery")
		}
		if _, ok := c.Deadline(); !ok || c.Err() != nil {
			t.Errorf("deadline: %v, error: %v", ok, c.Err())
		}
		derived, cancel := context.WithCancel(c)
		cancel()
		if !errors.Is(derived.Err(), context.Canceled) || c.Err() != nil {
			t.Error("a context derived from it has ended it, or not ended itself")
		}
		return &Total{}, nil
	})})
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "asker"))
	defer cancel()
	if _, err := b.Ask(ctx, ref("a"), &Deposit{Client: "c"}); err != nil {
		t.Fatal(err)
	}
}

func TestWhatACommandLeadsToKnowsItsCause(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	b.deposit(t, "a", 1, actors.CommandID("cmd-1"))
	b.deposit(t, "a", 2, actors.CommandID("cmd-2"), actors.CorrelationID("corr"), actors.Tenant("acme"), actors.Trace(event.Trace{State: "s"}))
	b.deposit(t, "a", 3)
	got, err := b.memory.ReadStream(t.Context(), stream("a"), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	type cause struct {
		Correlation, Causation, Tenant string
		Trace                          event.Trace
	}
	var causes []cause
	for _, e := range got {
		causes = append(causes, cause{e.CorrelationID, e.CausationID, e.Tenant, e.Trace})
	}
	want := []cause{{Correlation: "cmd-1", Causation: "cmd-1"}, {"corr", "cmd-2", "acme", event.Trace{State: "s"}}, {Correlation: got[2].ID}}
	if diff := cmp.Diff(want, causes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWhatABehaviorAsksForSharesItsCorrelation(t *testing.T) {
	t.Parallel()
	var b *bundle
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if c.ID() == "first" {
			if _, err := b.Ask(c, ref("asked"), in); err != nil {
				return nil, err
			}
			err := b.Do(c, func(u actors.UnitOfWork) error {
				u.Emit(Audited{Client: "done"})
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		c.Emit(deposited(in, s))
		return &Total{}, nil
	})})
	if _, err := b.Ask(t.Context(), ref("first"), &Deposit{Client: "c"}, actors.Tenant("acme")); err != nil {
		t.Fatal(err)
	}
	got, err := b.memory.ReadLane(t.Context(), lane("c"), 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	audits, err := b.memory.ReadLane(t.Context(), event.LaneRef{Category: "audit", Key: "done"}, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, audits...)
	if len(got) != 3 {
		t.Fatalf("%d events, want 3", len(got))
	}
	for _, e := range got {
		if e.CorrelationID == "" || e.CorrelationID != got[0].CorrelationID || e.Tenant != "acme" {
			t.Errorf("correlation %q and tenant %q, want %q and acme", e.CorrelationID, e.Tenant, got[0].CorrelationID)
		}
	}
}

func TestEntitiesAreAskedWhileTheStoreIsOutOfReach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("no route to host")
		var out atomic.Bool
		out.Store(true)
		plan := func(op faulty.Op) faulty.Fault {
			if op.Call == faulty.Recover && out.Load() {
				return faulty.Fault{Before: down}
			}
			return faulty.Fault{}
		}
		b := setupOn(t, memory.Open(), plan, []actors.Definition{accounts()})
		_, err := b.Ask(t.Context(), ref("a"), &Balance{})
		if !errors.Is(err, actors.ErrUnavailable) || !errors.Is(err, down) || !actors.Retryable(err) {
			t.Errorf("error: %v", err)
		}
		out.Store(false)
		if got := b.balance(t, "a"); got != 0 {
			t.Errorf("balance is %d, want 0", got)
		}
	})
}
