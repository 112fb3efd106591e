package actors_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/transport/inline"
)

// With a transport that delivers inside Committed, everything that a command leads to has happened when it is answered; also
// what asks the very entity that was asked, which must be free for it.
func TestWithInlineDeliveryEverythingHasHappenedWhenAnAskReturns(t *testing.T) {
	t.Parallel()
	mem := memory.Open()
	b := &bundle{store: mem, memory: mem, saw: new(recorder), carrier: inline.New()}
	var log []string
	ledger := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		log = append(log, fmt.Sprint("ledger ", e.Amount))
		c.Emit(Audited{Client: l.client, By: fmt.Sprint(e.Amount)})
		if e.Amount == 1 {
			_, err := actors.Ask[*Total](c, b, ref("a"), &Deposit{Client: l.client, Amount: 2})
			return err
		}
		if e.Amount == 2 {
			return b.Send(c, ref("a"), &Deposit{Client: l.client, Amount: 3})
		}
		return nil
	})
	auditor := actors.Handler[struct{}]{
		Name: "auditor", Categories: []string{"audit"}, New: func(string) struct{} { return struct{}{} },
		On: actors.Behavior[struct{}]{actors.On(func(_ struct{}, c actors.Context, e Audited) error {
			log = append(log, "audit "+e.By)
			return nil
		})},
	}
	b.start(t, []actors.Definition{accounts(), ledger, auditor}, nil)
	b.deposit(t, "a", 1)
	want := []string{"ledger 1", "ledger 2", "audit 1", "audit 2", "ledger 3", "audit 3"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := b.balance(t, "a"); got != 6 {
		t.Errorf("balance is %d, want 6", got)
	}
}

// Nobody waits for what a timer commits; it is delivered all the same, also to the very unit whose timer it was.
func TestWithInlineDeliveryATimersEventsReachItsOwnUnit(t *testing.T) {
	t.Parallel()
	mem := memory.Open()
	b := &bundle{store: mem, memory: mem, saw: new(recorder), carrier: inline.New()}
	h := ledgers(func(l *ledger, c actors.Context, e Deposited) error {
		if e.Amount == 1 {
			c.StartTimer("x", time.Millisecond)
		}
		return nil
	})
	h.OnTimer = func(l *ledger, c actors.Context, name string) error {
		c.Emit(Deposited{Client: l.client, Amount: 2})
		return nil
	}
	b.start(t, []actors.Definition{h}, nil)
	b.publish(t, Deposited{Client: "c", Amount: 1})
	b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 2 })
}

// What an ask inside a behavior committed is delivered before what the behavior itself commits, so the outer ask waits for both.
func TestWithInlineDeliveryAnOuterAskThatCommitsReturnsAfterWhatTheInnerOneLedTo(t *testing.T) {
	t.Parallel()
	mem := memory.Open()
	b := &bundle{store: mem, memory: mem, saw: new(recorder), carrier: inline.New()}
	var log []int
	b.start(t, []actors.Definition{
		only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			if c.ID() == "outer" {
				if _, err := b.Ask(c, ref("inner"), &Deposit{Client: "c-outer", Amount: 1}); err != nil {
					return nil, err
				}
			}
			c.Emit(deposited(in, s))
			return &Total{}, nil
		}),
		ledgers(func(l *ledger, c actors.Context, e Deposited) error {
			log = append(log, e.Amount)
			return nil
		}),
	}, nil)
	b.deposit(t, "outer", 2)
	if diff := cmp.Diff([]int{1, 2}, log); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
