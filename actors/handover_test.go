package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
)

func TestAUnitIsHandedOverAfterTheEventInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		enter, letGo := make(chan context.Context, 9), make(chan struct{})
		gone := make(chan bool, 9)
		a := w.join(t, []actors.Definition{auditing("A", once(enter, letGo, true))}, func(c *actors.Config) {
			c.Others.LetGo = func(_ event.Unit, unread bool) { gone <- unread }
		})
		a.HandOver(ledgerOf("c")) // it is not there: nothing happens
		a.publish(t, amounts(1, 3)...)
		c := <-enter
		a.HandOver(ledgerOf("c"))
		pass(time.Minute)
		if c.Err() != nil || len(gone) > 0 {
			t.Error("the event in hand was not left to finish")
		}
		close(letGo)
		if !<-gone {
			t.Error("nothing is left to do, it says")
		}
		pass(time.Second)
		if a.Live(ledgerOf("c")) {
			t.Error("it is still there")
		}
		same(t, "given back", int64(1), a.port.released.Load())
		b := w.join(t, []actors.Definition{auditing("B", nil)})
		b.Wake(ledgerOf("c"))
		pass(time.Second)
		same(t, "audits", []string{"1 by A", "2 by B", "3 by B"}, w.audits(t, b, "c"))
		b.saw.suspected.Send(suspected{})
		same(t, "suspected", event.Unit{}, b.saw.suspected.Wait(t).unit) // it was left clean
	})
}

func TestAsksDuringAHandOverAreForTheOtherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newNodes()
		enter, letGo := make(chan struct{}), make(chan struct{})
		slow := accounts()
		slow.Queries = actors.Queries[account]{actors.OnQuery(func(_ actors.Query, s account, _ *Balance) (*Total, error) {
			close(enter)
			<-letGo
			return &Total{Amount: s.Total}, nil
		})}
		a := w.join(t, []actors.Definition{slow})
		a.deposit(t, "a", 5)
		answers := make(chan string, 9)
		ask := func(what any) {
			got, err := a.Ask(t.Context(), ref("a"), what)
			switch {
			case err == nil:
				answers <- fmt.Sprint(got.(*Total).Amount)
			case errors.Is(err, actors.ErrUnavailable) && actors.Retryable(err):
				answers <- "unavailable"
			default:
				answers <- err.Error()
			}
		}
		go ask(&Balance{})
		<-enter
		go ask(&Deposit{Client: "c", Amount: 1})
		synctest.Wait()
		a.HandOver(event.Unit{Name: "account", Key: "a"})
		close(letGo)
		pass(time.Second)
		same(t, "answers", map[string]bool{"5": true, "unavailable": true}, map[string]bool{<-answers: true, <-answers: true})
		b := w.join(t, []actors.Definition{accounts()})
		same(t, "balance", 5, b.balance(t, "a"))
	})
}
