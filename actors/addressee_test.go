package actors_test

import (
	"context"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/actors"
)

func TestCommandsForNobodyAreRefusedInWordsThatHelp(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts(), ledgers(nothing)})
	doors := map[string]func(to actors.Ref, command any) error{
		"ask":  func(to actors.Ref, command any) error { _, err := b.Ask(t.Context(), to, command); return err },
		"tell": func(to actors.Ref, command any) error { return b.Tell(t.Context(), to, command) },
		"send": func(to actors.Ref, command any) error { return b.Send(t.Context(), to, command) },
		"send in a unit of work": func(to actors.Ref, command any) error {
			return b.Do(context.Background(), func(u actors.UnitOfWork) error {
				u.Send(to, command)
				return nil
			})
		},
	}
	for door, knock := range doors {
		for _, c := range []struct {
			to      actors.Ref
			command any
			want    string
		}{
			{ref("a"), Deposit{Client: "c", Amount: 1}, "commands and queries are pointers: pass &actors_test.Deposit{...}"},
			{ref("a"), 17, "int is no command: pass a pointer to a struct"},
			{ref("a"), nil, "the command is nil"},
			{ref("a"), (*Deposit)(nil), "the command is a nil *actors_test.Deposit"},
			{ref(""), &Deposit{}, "the id is empty: name the account that is meant"},
			{actors.Ref{Kind: "acount", ID: "a"}, &Deposit{}, `no such kind of entity: "acount" (known: "account")`},
			{actors.Ref{Kind: "ledger", ID: "a"}, &Deposit{}, `(known: "account")`},
		} {
			if err := knock(c.to, c.command); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %T: error %v does not say %q", door, c.command, err, c.want)
			}
		}
	}
	if err := b.Send(t.Context(), ref("a"), &Balance{}); err == nil || !strings.Contains(err.Error(), "it is a query, whose answer nobody would get: ask it") {
		t.Errorf("send of a query: %v", err)
	}
	if got := b.balance(t, "a"); got != 0 {
		t.Errorf("balance is %d: something was decided", got)
	}
}

func TestEventThatIsNotFoldedIsWorthNoSecondAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		c.Emit(Audited{Client: in.Client})
		return &Total{}, nil
	})})
	if err := b.Send(t.Context(), ref("a"), &Deposit{Client: "c"}); err != nil {
		t.Fatal(err)
	}
	if h := b.saw.halted.Wait(t); h.Attempts != 1 || h.Reason != "poison" {
		t.Errorf("halted after %d attempts: %s", h.Attempts, h.Reason)
	}
}
