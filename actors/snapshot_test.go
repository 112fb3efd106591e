package actors_test

import (
	"testing"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/memory"
)

// The state of the next release counts deposits apart, from events that were there before it. It is one struct, or the other.
type counted struct{ Total, Deposits int }

type counting struct {
	Total    int
	Events   int
	Deposits int
}

func countsDeposits[S any](version int, deposit func(s S, amount int) S, total func(S) int) actors.Entity[S] {
	return actors.Entity[S]{
		Kind: "account", Version: version, SnapshotEvery: 10,
		Commands: actors.Commands[S]{actors.OnCommand(func(c actors.Command, s S, in *Deposit) (*Total, error) {
			c.Emit(Deposited{Client: in.Client, Amount: in.Amount})
			return &Total{}, nil
		})},
		Queries: actors.Queries[S]{actors.OnQuery(func(_ actors.Query, s S, _ *Balance) (*Total, error) { return &Total{Amount: total(s)}, nil })},
		Fold: actors.Fold[S]{
			actors.OnEvent(func(s S, e Deposited) S { return deposit(s, e.Amount) }),
			actors.OnEvent(func(s S, e Withdrawn) S { return s }),
		},
	}
}

// A snapshot of the release before is of no use to a state of other fields, whether somebody thought of raising the version or not.
func TestASnapshotOfAnotherStateIsNotUsed(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	before := accounts()
	before.SnapshotEvery = 10
	t.Run("the release before", func(t *testing.T) {
		b := setupOn(t, store, nil, []actors.Definition{before})
		for range 15 {
			b.deposit(t, "a", 1)
		}
	})
	renamed := func(version int) actors.Definition {
		return countsDeposits(version, func(s counted, amount int) counted { return counted{s.Total + amount, s.Deposits + 1} }, func(s counted) int { return s.Deposits })
	}
	added := func(version int) actors.Definition {
		return countsDeposits(version, func(s counting, amount int) counting { return counting{s.Total + amount, s.Events, s.Deposits + 1} }, func(s counting) int { return s.Deposits })
	}
	for _, next := range []struct {
		name string
		def  actors.Definition
	}{
		{"the version was raised", renamed(2)},
		{"a field less and one more, of the same version", renamed(1)},
		{"a field more, of the same version", added(1)},
	} {
		t.Run(next.name, func(t *testing.T) {
			b := setupOn(t, store, nil, []actors.Definition{next.def})
			if got := b.balance(t, "a"); got != 15 {
				t.Errorf("%d deposits, want 15: the snapshot knows of none", got)
			}
		})
	}
}

// The order of fields may change, and a text in JSON may be written in another way.
func TestASnapshotThatSaysTheSameIsUsed(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	_, err := b.memory.Begin("test").Commit(t.Context(), eventstore.Changes{Snapshot: &eventstore.Snapshot{
		Stream: stream("a"), Version: 1, StateVersion: 1, Data: []byte(`{ "Events": 1, "Total": 7 }`), Encoding: event.JSON,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.balance(t, "a"); got != 7 {
		t.Errorf("balance is %d, want 7", got)
	}
}

// An event that was renamed is given to whoever handles what it became.
func TestRenamedEventsAreNotPassedOver(t *testing.T) {
	t.Parallel()
	type PaidIn struct{ Client string }
	renamed, err := codec.NewRegistry(append(declarations(),
		codec.Of[PaidIn]("account.paidin", 1),
		codec.UpcastOf(func(p PaidIn) (Deposited, error) { return Deposited{Client: p.Client, Amount: 3}, nil })))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan Deposited, 1)
	b := setup(t, []actors.Definition{ledgers(func(_ *ledger, _ actors.Context, d Deposited) error {
		got <- d
		return nil
	})}, func(c *actors.Config) { c.Codec = renamed })
	b.commit(t, event.Envelope{ID: "x", Type: "account.paidin", Version: 1, Encoding: event.JSON, Data: []byte(`{"Client":"c"}`), Category: "account", Key: "c"})
	b.saw.applied.Wait(t)
	select {
	case d := <-got:
		if d != (Deposited{Client: "c", Amount: 3}) {
			t.Errorf("handled %+v", d)
		}
	default:
		t.Error("it was passed over")
	}
}
