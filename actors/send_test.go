package actors_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
)

// Nothing commits what is sent there, so it would be lost.
func TestWhatOnlyReadsCannotSend(t *testing.T) {
	t.Parallel()
	var b *bundle
	sent := map[string]chan error{"query": make(chan error, 1), "activate": make(chan error, 1), "passivate": make(chan error, 1)}
	send := func(ctx context.Context, from, id string) {
		if from == id {
			sent[from] <- b.Send(ctx, ref("sink"), &Deposit{Client: from, Amount: 1})
		}
	}
	a := accounts()
	a.Queries = actors.Queries[account]{actors.OnQuery(func(q actors.Query, s account, in *Balance) (*Total, error) {
		send(q, "query", q.ID())
		return &Total{Amount: s.Total}, nil
	})}
	a.OnActivate = func(ctx context.Context, id string, _ account) error { send(ctx, "activate", id); return nil }
	a.OnPassivate = func(ctx context.Context, id string, _ account) { send(ctx, "passivate", id) }
	t.Run("runtime", func(t *testing.T) {
		b = setup(t, []actors.Definition{a})
		for id, refused := range map[string]bool{"query": true, "activate": true, "passivate": false} {
			if _, err := b.Ask(t.Context(), ref(id), &Balance{}); errors.Is(err, actors.ErrReadOnly) != refused {
				t.Errorf("%s: asked: %v", id, err)
			}
		}
		if got := b.balance(t, "sink"); got != 0 {
			t.Errorf("balance is %d, want 0", got)
		}
	})
	for from, err := range sent {
		if err := <-err; !errors.Is(err, actors.ErrReadOnly) {
			t.Errorf("%s: %v", from, err)
		}
	}
}

func TestACommandMaySendThroughItsReadingHalf(t *testing.T) {
	t.Parallel()
	var b *bundle
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if c.ID() == "sink" {
			c.Emit(deposited(in, s))
			return &Total{}, nil
		}
		return &Total{}, b.Send(c.Query(), ref("sink"), in)
	})})
	if _, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1}); err != nil {
		t.Fatal(err)
	}
	b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "sink" })
	if got := b.balance(t, "sink"); got != 1 {
		t.Errorf("balance is %d, want 1", got)
	}
}

// Two applications in one process have entities of the same kinds: what is meant for one must not be done by the other.
func TestABehaviorSendsToAnotherRuntimeInAUnitOfWorkOfItsOwn(t *testing.T) {
	t.Parallel()
	var one, two *bundle
	fails := errors.New("fails after it has sent")
	two = setup(t, []actors.Definition{accounts()})
	one = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if c.ID() == "a" {
			t.Error("the sender's own runtime decided what was sent to the other")
			return &Total{}, nil
		}
		if err := two.Send(c, ref("a"), in); err != nil {
			return nil, err
		}
		sent, err := two.memory.ReadLane(t.Context(), event.LaneRef{Category: event.CommandsOf("account"), Key: "a"}, 0, 10)
		if err != nil || len(sent) != 1 {
			t.Errorf("%d commands are durable when Send returns, want 1: %v", len(sent), err)
		}
		if len(sent) == 1 && sent[0].CorrelationID != "corr" {
			t.Errorf("correlation %q, want that of the sender", sent[0].CorrelationID)
		}
		return nil, fails
	})})
	_, err := one.Ask(t.Context(), ref("sender"), &Deposit{Client: "c", Amount: 1}, actors.CorrelationID("corr"))
	if !errors.Is(err, fails) {
		t.Errorf("error: %v", err)
	}
	two.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Key == "a" })
	if got := two.balance(t, "a"); got != 1 {
		t.Errorf("balance is %d, want 1", got)
	}
}

// The entity of the other application has the same kind and id: it is another entity, and no circle. The one that asks gives up
// its slot, and a circle through both applications is seen.
func TestABehaviorAsksAnEntityOfAnotherRuntime(t *testing.T) {
	t.Parallel()
	one, two := new(bundle), new(bundle)
	forwards := func(to **bundle) actors.Entity[account] {
		return only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			next := ref(c.ID())
			if in.Client == "through" {
				return actors.Ask[*Total](c, *to, ref("b"), &Balance{})
			}
			return actors.Ask[*Total](c, *to, next, in)
		})
	}
	slot := func(c *actors.Config) { c.Concurrency = 1 }
	one = setup(t, []actors.Definition{forwards(&two)}, slot)
	two = setup(t, []actors.Definition{forwards(&one)}, slot)
	if _, err := one.Ask(t.Context(), ref("a"), &Deposit{Client: "through"}); err != nil {
		t.Error(err)
	}
	if _, err := one.Ask(t.Context(), ref("a"), &Deposit{Client: "round"}); !errors.Is(err, actors.ErrAskCycle) {
		t.Errorf("round both: %v", err)
	}
}

// On a store with a single writer each of these would wait for itself.
func TestAUnitOfWorkInsideAnOpenTransactionIsRefused(t *testing.T) {
	t.Parallel()
	var b *bundle
	sql := func(u actors.UnitOfWork) error {
		_, err := u.Tx().ExecContext(u, "UPDATE")
		return err
	}
	refused := make(chan map[string]error, 1)
	b = setup(t, []actors.Definition{accounts(), ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		errs := map[string]error{}
		err := b.Do(c, func(u actors.UnitOfWork) error {
			errs["Do, then SQL outside of it and in it"] = errors.Join(sql(c.UnitOfWork), sql(u))
			errs["Do in a Do in it"] = b.Do(u, nothingMore)
			_, errs["Ask in a Do in it"] = b.Ask(u, ref("a"), &Balance{})
			return nil
		})
		if !errors.Is(err, actors.ErrAskInTx) {
			t.Errorf("the Do whose SQL was refused: %v", err)
		}
		errs["Do in it"] = b.Do(c, nothingMore)
		errs["Do in it, the context wrapped"] = b.Do(context.WithValue(c, l, 1), nothingMore)
		_, errs["Ask in it"] = b.Ask(c, ref("a"), &Balance{})
		refused <- errs
		return nil
	})}, func(c *actors.Config) { c.Store = &withSQL{Store: c.Store} })
	b.publish(t, Deposited{Client: "c"})
	for what, err := range <-refused {
		if !errors.Is(err, actors.ErrAskInTx) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func nothingMore(actors.UnitOfWork) error { return nil }

func TestACommandThatIsTooLargeIsNotSent(t *testing.T) {
	t.Parallel()
	var b *bundle
	sent := make(chan error, 1)
	b = setup(t, []actors.Definition{accounts(), ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		sent <- b.Send(c, ref("a"), &Deposit{Client: strings.Repeat("x", event.MaxData)})
		return nil
	})})
	b.publish(t, Deposited{Client: "c"})
	err := <-sent
	if !errors.Is(err, event.ErrTooLarge) || !strings.Contains(err.Error(), "account.deposit") {
		t.Errorf("send: %v", err)
	}
	if h := b.saw.halted.Wait(t); h.Attempts != 1 || h.Reason != "poison" { // no further attempt makes it smaller
		t.Errorf("halt: %+v", h)
	}
	if err := b.Send(t.Context(), ref("a"), &Deposit{Client: strings.Repeat("x", event.MaxData)}); !errors.Is(err, event.ErrTooLarge) {
		t.Errorf("send from outside: %v", err)
	}
}
