package actors_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
)

func TestApplyFoldsOneEventAndSaysWhatCannotBeFolded(t *testing.T) {
	t.Parallel()
	e := accounts()
	e.Fold[1] = actors.OnEvent(func(account, Withdrawn) account { panic("no money") })
	got, err := e.Apply(account{Total: 1}, Deposited{Amount: 2})
	if diff := cmp.Diff(account{Total: 3, Events: 1}, got); diff != "" || err != nil {
		t.Errorf("folded: %v\n%s", err, diff)
	}
	for _, c := range []struct {
		event any
		want  string
	}{{Audited{}, "no case in Fold"}, {Withdrawn{}, "no money"}} {
		got, err := e.Apply(account{Total: 1}, c.event)
		if err == nil || !strings.Contains(err.Error(), c.want) || got != (account{Total: 1}) {
			t.Errorf("%T: got %+v, %v", c.event, got, err)
		}
	}
}

func TestSnapshottedLosesWhatASnapshotDoesNotHold(t *testing.T) {
	t.Parallel()
	type state struct {
		Kept int
		lost int
	}
	got, err := actors.Entity[state]{}.Snapshotted(types(t), state{Kept: 1, lost: 2})
	if err != nil || got != (state{Kept: 1}) {
		t.Errorf("got %+v, %v", got, err)
	}
	named, err := actors.Entity[Deposit]{}.Snapshotted(types(t), Deposit{Client: "c", Amount: 3})
	if err != nil || named != (Deposit{Client: "c", Amount: 3}) {
		t.Errorf("got %+v, %v", named, err)
	}
	if _, err := (actors.Entity[struct{ C chan int }]{}).Snapshotted(types(t), struct{ C chan int }{}); err == nil {
		t.Error("a channel went through a snapshot")
	}
}
