package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func ref(id string) actors.Ref { return actors.Ref{Kind: "account", ID: id} }

func stream(id string) event.Stream { return event.Stream{Kind: "account", ID: id} }

// events gives the types of what an entity emitted.
func (b *bundle) events(t testing.TB, id string) []string {
	t.Helper()
	got, err := b.memory.ReadStream(t.Context(), stream(id), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range got {
		names = append(names, strings.TrimPrefix(e.Type, "account."))
	}
	return names
}

// only makes accounts whose one command is a deposit, decided by f.
func only(f func(c actors.Command, s account, in *Deposit) (*Total, error)) actors.Entity[account] {
	a := accounts()
	a.Commands = actors.Commands[account]{actors.OnCommand(f)}
	return a
}

func deposited(in *Deposit, s account) Deposited {
	return Deposited{Client: in.Client, Amount: in.Amount, Total: s.Total + in.Amount}
}

func TestAnEntityDecidesOnTheStateItsEventsFoldTo(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	b.deposit(t, "a", 10)
	if got := b.deposit(t, "a", 5); got != 15 {
		t.Errorf("got %d, want 15", got)
	}
	if got := b.balance(t, "a"); got != 15 {
		t.Errorf("balance: got %d, want 15", got)
	}
	if got := b.balance(t, "b"); got != 0 {
		t.Errorf("balance of another: got %d, want 0", got)
	}
	if got := b.events(t, "a"); !slices.Equal(got, []string{"deposited", "deposited"}) {
		t.Errorf("events: %v", got)
	}
}

func TestAnEntityComesBackWithItsState(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	for i := range 3 {
		t.Run("process", func(t *testing.T) {
			b := setupOn(t, store, nil, []actors.Definition{accounts()})
			if got := b.deposit(t, "a", 1); got != i+1 {
				t.Errorf("got %d, want %d", got, i+1)
			}
		})
	}
}

func TestARejectedCommandChangesNothingAndSaysWhy(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	b.deposit(t, "a", 10)
	_, err := actors.Ask[*Total](t.Context(), b, ref("a"), &Withdraw{Client: "c", Amount: 11})
	var reject *actors.RejectError
	if !errors.As(err, &reject) || reject.Reason != "account a has only 10" || actors.Retryable(err) {
		t.Errorf("error: %v", err)
	}
	if got := b.balance(t, "a"); got != 10 {
		t.Errorf("balance: %d, want 10", got)
	}
}

// Asks are counted before they are taken: nobody who is taken is turned away later, nobody waits to be taken.
// tags is a state that shares memory between its copies.
type tags struct{ Seen map[string]int }

func tagged(f func(c actors.Command, s *tags, in *Deposit) (*Total, error)) actors.Entity[*tags] {
	return actors.Entity[*tags]{
		Kind: "account", Version: 1,
		New:      func(string) *tags { return &tags{Seen: map[string]int{}} },
		Commands: actors.Commands[*tags]{actors.OnCommand(f)},
		Queries: actors.Queries[*tags]{actors.OnQuery(func(q actors.Query, s *tags, in *Balance) (*Total, error) {
			return &Total{Amount: s.Seen["x"]}, nil
		})},
		Fold: actors.Fold[*tags]{actors.OnEvent(func(s *tags, e Deposited) *tags { s.Seen["x"] += e.Amount; return s })},
	}
}

// A case that changes the state it was given, and then does not commit, must not have changed the live state, whatever S is.
func TestNoStateSurvivesAnAttemptThatDidNotCommit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end  func() error
		plan faulty.Plan
	}{
		"rejected":      {end: func() error { return actors.Reject("no") }},
		"error":         {end: func() error { return errors.New("no") }},
		"panic":         {end: func() error { panic("no") }},
		"refused":       {end: func() error { return nil }, plan: faulty.Nth(faulty.Commit, 2, faulty.Fault{Before: errors.New("disk is full")})},
		"stale":         {end: func() error { return nil }, plan: faulty.Nth(faulty.Commit, 2, faulty.Fault{Before: eventstore.ErrStale})},
		"never arrived": {end: func() error { return nil }, plan: faulty.Nth(faulty.Commit, 2, faulty.Fault{Before: eventstore.ErrUnknownCommit})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, memory.Open(), tt.plan, []actors.Definition{tagged(func(c actors.Command, s *tags, in *Deposit) (*Total, error) {
				s.Seen["x"] += 1000 // which no case may do
				c.Emit(Deposited{Client: "c", Amount: in.Amount})
				if in.Amount == 1 {
					s.Seen["x"] -= 1000
					return &Total{}, nil
				}
				return &Total{}, tt.end()
			})})
			b.deposit(t, "a", 1)
			if _, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 2}); err == nil {
				t.Fatal("the second deposit succeeded")
			}
			if got := b.balance(t, "a"); got != 1 {
				t.Errorf("balance is %d, want 1", got)
			}
			if got := b.events(t, "a"); len(got) != 1 {
				t.Errorf("events: %v", got)
			}
		})
	}
}

// Rejections are frequent: a state whose copies share nothing is as good afterwards as it was before.
func TestARejectionDoesNotCostAReadUnlessTheStateSharesMemory(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		entity actors.Definition
		want   int
	}{
		"value": {entity: only(func(actors.Command, account, *Deposit) (*Total, error) { return nil, actors.Reject("no") }), want: 1},
		"map":   {entity: tagged(func(actors.Command, *tags, *Deposit) (*Total, error) { return nil, actors.Reject("no") }), want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			none := func(faulty.Op) faulty.Fault { return faulty.Fault{} }
			b := setupOn(t, memory.Open(), none, []actors.Definition{tt.entity})
			for range 3 {
				if _, err := b.Ask(t.Context(), ref("a"), &Deposit{}); !errors.Is(err, actors.ErrRejected) {
					t.Fatal(err)
				}
			}
			if got := b.store.(*faulty.Store).Calls(faulty.ReadStream); got != tt.want {
				t.Errorf("the state was read %d times, want %d", got, tt.want)
			}
		})
	}
}

// The answer to a command got lost: asked again under its id, it is answered the same and done once.
// Somebody else appended to the stream: the command is decided again on what is true now.
func TestAVersionConflictHasTheCommandDecidedAgain(t *testing.T) {
	t.Parallel()
	var b *bundle
	var decided atomic.Int32
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if decided.Add(1) <= int32(in.Amount) { // so often somebody comes between
			e, err := route(types(t))(c, stream("a"), Deposited{Client: "c", Amount: 100})
			if err != nil {
				return nil, err
			}
			e.ID = event.NewID()
			_, err = b.memory.Begin("foreign").Commit(t.Context(), eventstore.Changes{Append: []eventstore.Append{
				{Stream: stream("a"), Expected: c.Version(), Events: []event.Envelope{e}},
			}})
			if err != nil {
				return nil, err
			}
		}
		c.Emit(deposited(in, s))
		return &Total{Amount: s.Total + in.Amount}, nil
	})})
	if got := b.deposit(t, "a", 2); got != 202 || decided.Load() != 3 {
		t.Errorf("answered %d after %d decisions, want 202 and 3", got, decided.Load())
	}
	decided.Store(0)
	_, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 9})
	var ask *actors.AskError
	if !errors.As(err, &ask) || ask.Unknown || !errors.Is(err, eventstore.ErrVersionConflict) || decided.Load() != 3 {
		t.Errorf("after %d decisions: %v; want 3 and a version conflict", decided.Load(), err)
	}
}

func TestAnEntityEmitsOnlyWhatItFolds(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		c.Emit(deposited(in, s), Audited{Client: "c"})
		return &Total{}, nil
	})})
	_, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c"})
	if err == nil || !strings.Contains(err.Error(), "it has no case in Fold") {
		t.Errorf("error: %v", err)
	}
	if got := b.events(t, "a"); len(got) != 0 {
		t.Errorf("events: %v", got)
	}
}

func TestAFoldThatPanicsFailsLoudlyAndOnlyItsEntity(t *testing.T) {
	t.Parallel()
	a := accounts()
	a.Fold[0] = actors.OnEvent(func(s account, e Deposited) account {
		if e.Amount == 13 {
			panic("superstition")
		}
		s.Total += e.Amount
		return s
	})
	b := setup(t, []actors.Definition{a})
	if got := b.deposit(t, "a", 13); got != 13 {
		t.Errorf("answered %d: what has been committed has been done", got)
	}
	_, err := b.Ask(t.Context(), ref("a"), &Balance{})
	var p *actors.PanicError
	if !errors.As(err, &p) || p.Value != "superstition" || !strings.Contains(err.Error(), `event 1, "account.deposited"`) {
		t.Errorf("error: %v", err)
	}
	b.deposit(t, "b", 1)
}

func TestSnapshotsSpareTheEventsBeforeThem(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	a := accounts()
	a.SnapshotEvery = 10
	t.Run("first process", func(t *testing.T) {
		b := setupOn(t, store, nil, []actors.Definition{a})
		for range 25 {
			b.deposit(t, "a", 1)
		}
	})
	snapshot, err := store.ReadSnapshot(t.Context(), stream("a"))
	if !errors.Is(err, eventstore.ErrClosed) || snapshot != nil {
		t.Fatalf("a stopped store gave %v, %v", snapshot, err)
	}

	var folded atomic.Int32
	count := a
	count.Fold = actors.Fold[account]{actors.OnEvent(func(s account, e Deposited) account {
		folded.Add(1)
		s.Total += e.Amount
		s.Events++
		return s
	}), a.Fold[1]}
	t.Run("same version of the state", func(t *testing.T) {
		b := setupOn(t, store, nil, []actors.Definition{count})
		if got := b.balance(t, "a"); got != 25 || folded.Load() != 5 {
			t.Errorf("balance %d after folding %d events, want 25 after 5", got, folded.Load())
		}
		snapshot, err := store.ReadSnapshot(t.Context(), stream("a"))
		if err != nil || snapshot.Version != 20 || snapshot.StateVersion != 1 || string(snapshot.Data) != `{"Total":20,"Events":20}` {
			t.Errorf("snapshot: %+v, %v", snapshot, err)
		}
	})
	folded.Store(0)
	count.Version = 2
	t.Run("another version of the state", func(t *testing.T) {
		b := setupOn(t, store, nil, []actors.Definition{count})
		if got := b.balance(t, "a"); got != 25 || folded.Load() != 25 {
			t.Errorf("balance %d after folding %d events, want 25 after 25", got, folded.Load())
		}
	})
}

func TestASnapshotThatDoesNotDecodeIsNotUsed(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	_, err := b.memory.Begin("test").Commit(t.Context(), eventstore.Changes{Snapshot: &eventstore.Snapshot{
		Stream: stream("a"), Version: 1, StateVersion: 1, Data: []byte("{"), Encoding: event.JSON,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.balance(t, "a"); got != 0 {
		t.Errorf("balance is %d, want 0", got)
	}
}

func TestLongStreamsAreFoldedInPages(t *testing.T) {
	t.Parallel()
	const n = 2500
	store := memory.Open()
	a := accounts()
	a.SnapshotEvery = -1
	t.Run("write", func(t *testing.T) {
		many := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			for range n {
				c.Emit(Deposited{Client: "c", Amount: 1})
			}
			return nil, nil
		})
		b := setupOn(t, store, nil, []actors.Definition{many})
		if out, err := b.Ask(t.Context(), ref("a"), &Deposit{}); err != nil || out != nil {
			t.Errorf("got %v, %v, want no reply", out, err)
		}
	})
	b := setupOn(t, store, func(faulty.Op) faulty.Fault { return faulty.Fault{} }, []actors.Definition{a})
	if got := b.balance(t, "a"); got != n {
		t.Errorf("balance is %d, want %d", got, n)
	}
	if got := b.store.(*faulty.Store).Calls(faulty.ReadStream); got != 3 {
		t.Errorf("read in %d pages, want 3", got)
	}
}

func TestModesAndTimersOfAnEntity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			c.Emit(deposited(in, s))
			c.Become("closed")
			c.StartTimer("open", 5*time.Second)
			return &Total{Amount: 1}, nil
		})
		a.Modes = map[string]actors.Commands[account]{"closed": {
			actors.OnCommand(func(c actors.Command, s account, in *Deposit) (*Total, error) { return nil, actors.Reject("closed") }),
		}}
		a.OnTimer = func(c actors.Command, s account, name string) error {
			if name != "open" || s.Total != 3 || c.ID() != "a" || c.Version() != 1 {
				t.Errorf("timer %q of %s at version %d with %+v", name, c.ID(), c.Version(), s)
			}
			c.Become("")
			c.Emit(Withdrawn{Client: "c", Amount: 1})
			return nil
		}
		b := setup(t, []actors.Definition{a}, soonIdle)
		b.deposit(t, "a", 3)
		if _, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c"}); !errors.Is(err, actors.ErrRejected) {
			t.Errorf("while closed: %v", err)
		}
		b.saw.passivated.Wait(t)
		if diff := cmp.Diff([]string{"deposited", "withdrawn"}, b.events(t, "a")); diff != "" {
			t.Errorf("events (-want +got)\n%s", diff)
		}
	})
}

func TestHooksOfAnEntity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log []string
		a := accounts()
		a.New = func(id string) account { log = append(log, "new "+id); return account{Total: 100} }
		a.OnActivate = func(ctx context.Context, id string, s account) error {
			log = append(log, fmt.Sprintf("activate %s %d", id, s.Total))
			return nil
		}
		a.OnPassivate = func(ctx context.Context, id string, s account) {
			log = append(log, fmt.Sprintf("passivate %s %d", id, s.Total))
		}
		b := setup(t, []actors.Definition{a}, soonIdle)
		b.deposit(t, "a", 1)
		b.saw.passivated.Wait(t)
		b.balance(t, "a")
		want := []string{"new a", "activate a 100", "passivate a 101", "new a", "activate a 101"}
		if diff := cmp.Diff(want, log); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestATransactionOfAFailedAttemptIsRolledBack(t *testing.T) {
	t.Parallel()
	var store *withSQL
	b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if _, err := c.Tx().ExecContext(c, "UPDATE"); err != nil {
			return nil, err
		}
		return nil, actors.Reject("no")
	})}, func(c *actors.Config) {
		store = &withSQL{Store: c.Store}
		c.Store = store
	})
	if _, err := b.Ask(t.Context(), ref("a"), &Deposit{}); !errors.Is(err, actors.ErrRejected) {
		t.Fatal(err)
	}
	if store.open.Load() != 0 || store.statements.Load() != 1 {
		t.Errorf("%d transactions open after %d statements", store.open.Load(), store.statements.Load())
	}
}

func TestAStoreWithoutSQLSaysSoAtTheStatement(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if err := c.Tx().QueryRowContext(c, "SELECT 1").Scan(new(int)); !errors.Is(err, eventstore.ErrNoSQL) {
			t.Errorf("query row: %v", err)
		}
		if _, err := c.Tx().QueryContext(c, "SELECT 1"); !errors.Is(err, eventstore.ErrNoSQL) {
			t.Errorf("query: %v", err)
		}
		return &Total{}, nil // the error is not looked at, and counts all the same
	})})
	if _, err := b.Ask(t.Context(), ref("a"), &Deposit{}); !errors.Is(err, eventstore.ErrNoSQL) {
		t.Errorf("ask: %v", err)
	}
}

// A behavior that waits for another must not keep the other from running, however few may run at once.
func TestASentCommandIsDecidedOnceAndItsRejectionIsPassed(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	send := func(command any) {
		t.Helper()
		if err := b.Send(t.Context(), ref("a"), command); err != nil {
			t.Fatal(err)
		}
	}
	send(&Deposit{Client: "c", Amount: 5})
	send(&Withdraw{Client: "c", Amount: 6})
	send(&Withdraw{Client: "c", Amount: 2})
	if err := b.saw.rejected.Wait(t); err.Error() != "rejected: account a has only 5" {
		t.Errorf("rejection: %v", err)
	}
	commands := event.LaneRef{Category: "account.commands", Key: "a"}
	b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 3 })
	if got := b.balance(t, "a"); got != 3 {
		t.Errorf("balance is %d, want 3", got)
	}
	if at := b.checkpoint(t, "account", commands); at != 3 {
		t.Errorf("checkpoint is %d, want 3", at)
	}
	for _, bad := range []struct {
		to      actors.Ref
		command any
		want    error
	}{
		{actors.Ref{Kind: "x", ID: "a"}, &Deposit{}, actors.ErrUnknownEntity},
		{ref("a"), &Balance{}, actors.ErrUnknownCommand},
		{ref(""), &Deposit{}, event.ErrBadKey},
	} {
		if err := b.Send(t.Context(), bad.to, bad.command); !errors.Is(err, bad.want) {
			t.Errorf("send %T to %s: %v, want %v", bad.command, bad.to, err, bad.want)
		}
	}
}

// A command that came by stream and cannot be decided halts the stream. The entity itself stays at people's service.
func TestAHaltedCommandStreamLeavesTheEntityInService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var good atomic.Bool
		b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			if in.Amount == 13 && !good.Load() {
				return nil, errors.New("cannot")
			}
			c.Emit(deposited(in, s))
			return &Total{Amount: s.Total + in.Amount}, nil
		})}, soonIdle)
		for _, amount := range []int{1, 13, 2} {
			if err := b.Send(t.Context(), ref("a"), &Deposit{Client: "c", Amount: amount}); err != nil {
				t.Fatal(err)
			}
		}
		halt := b.saw.halted.Wait(t)
		if halt.Sequence != 2 || halt.Attempts != 5 || halt.Lane.Category != "account.commands" {
			t.Errorf("halt: %+v", halt)
		}
		if got := b.deposit(t, "a", 100); got != 101 {
			t.Errorf("asked while the stream is halted: %d, want 101", got)
		}
		b.saw.passivated.Wait(t)
		if got := b.balance(t, "a"); got != 101 {
			t.Errorf("brought back to life while the stream is halted: %d, want 101", got)
		}
		good.Store(true)
		b.lift(t, halt)
		b.saw.resumed.Wait(t)
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 3 })
		if got := b.balance(t, "a"); got != 116 {
			t.Errorf("balance is %d, want 116", got)
		}
	})
}

// Asks that wait have their turn after each entry of the stream, however long that is.
func TestAsksAreServedBetweenTheEntriesOfTheStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		enter, leave := make(chan int), make(chan struct{})
		b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			enter <- in.Amount
			<-leave
			c.Emit(deposited(in, s))
			return &Total{}, nil
		})})
		for i := range 3 {
			if err := b.Send(t.Context(), ref("a"), &Deposit{Client: "c", Amount: i}); err != nil {
				t.Fatal(err)
			}
		}
		var order []int
		order = append(order, <-enter)
		asked := make(chan error)
		go func() { _, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 100}); asked <- err }()
		synctest.Wait()
		for range 3 {
			leave <- struct{}{}
			order = append(order, <-enter)
		}
		leave <- struct{}{}
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		if order[1] != 100 {
			t.Errorf("order was %v: the ask waited for more than the entry in hand", order)
		}
	})
}
