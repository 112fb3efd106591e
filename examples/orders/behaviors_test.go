package orders_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/keyhold/keyhold/eventstore/sqlite"
	"github.com/keyhold/keyhold/examples/orders"
	paymentv1 "github.com/keyhold/keyhold/examples/orders/proto/payment/v1"
	"github.com/keyhold/keyhold/keyholdtest"
)

// One behavior at a time: given what has happened, when this comes, then that follows. What nobody asks for fails a test by itself: an
// error, a halt, an event that does not survive being stored.

func TestAnOrderIsPlaced(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, orders.Order, "o-1").
		When(&orders.PlaceOrder{ClientID: "c-1", Cents: 4200}).
		ThenEvents(orders.OrderPlaced{OrderID: "o-1", ClientID: "c-1", Total: orders.Euros(4200)}).
		ThenReply(&orders.Done{})
}

func TestAPaidOrderIsNotTakenBack(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, orders.Order, "o-1").
		Given(
			orders.OrderPlaced{OrderID: "o-1", ClientID: "c-1", Total: orders.Euros(4200)},
			orders.OrderPaid{OrderID: "o-1", ClientID: "c-1", PaymentID: "p-1"},
		).
		When(&orders.CancelOrder{}).
		ThenRejected("it is paid").
		ThenEvents()
}

func TestWhatTheBusinessSaysNoTo(t *testing.T) {
	t.Parallel()
	placed := orders.OrderPlaced{OrderID: "o-1", ClientID: "c-1", Total: orders.Euros(4200)}
	paid := orders.OrderPaid{OrderID: "o-1", ClientID: "c-1", PaymentID: "p-1"}
	for name, c := range map[string]struct {
		given   []any
		command any
		reason  string
	}{
		"a second order of one id":     {[]any{placed}, &orders.PlaceOrder{ClientID: "c-2", Cents: 1}, "already placed"},
		"an order about nothing":       {nil, &orders.PlaceOrder{ClientID: "c-1"}, "about 0 cents"},
		"paying what is not there":     {nil, &orders.PayOrder{Cents: 4200}, "cannot be paid"},
		"paying too little":            {[]any{placed}, &orders.PayOrder{PaymentID: "p-9", Cents: 4199}, "payment p-9 is 4199"},
		"paying twice":                 {[]any{placed, paid}, &orders.PayOrder{Cents: 4200}, "it is paid"},
		"looking at what is not there": {nil, &orders.GetOrder{}, "there is no order o-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keyholdtest.Entity(t, orders.Order, "o-1").Given(c.given...).When(c.command).ThenRejected(c.reason).ThenEvents()
		})
	}
}

func TestAPaymentIsReceivedOnce(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, orders.Payment, "p-1").
		Given(&paymentv1.PaymentReceived{PaymentId: "p-1", OrderId: "o-1", Cents: 4200}).
		When(&orders.ReceivePayment{OrderID: "o-2", Cents: 4200}).
		ThenRejected("received already")
}

func TestAPaymentIsSentToItsOrder(t *testing.T) {
	t.Parallel()
	keyholdtest.Handler(t, orders.Settlement, keyholdtest.With(orders.Order)).
		Given(&paymentv1.PaymentReceived{PaymentId: "p-1", OrderId: "o-1", Cents: 4200}).
		ThenSent(orders.Order.ID("o-1"), &orders.PayOrder{PaymentID: "p-1", Cents: 4200})
}

// A handler with tables runs on the store that has them. In virtual time the pauses between attempts cost none.

func onTables(t *testing.T) keyholdtest.Option {
	return keyholdtest.On(sqlite.New(sqlite.Config{Path: filepath.Join(t.TempDir(), "orders.db"), Setup: orders.CreateTables}))
}

// The row and the fact that the event is done commit together, whichever way a commit fails.
func TestAnOrderIsShippedOnceHoweverACommitFails(t *testing.T) {
	t.Parallel()
	for fault, attempts := range map[keyholdtest.CommitFault]int{keyholdtest.Before: 3, keyholdtest.Unknown: 3, keyholdtest.After: 2} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			on := onTables(t)
			keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
				keyholdtest.Handler(k, orders.Shipping(&carrier{})).
					FailCommit(fault, 1).
					Given(
						orders.OrderPlaced{OrderID: "o-1", ClientID: "c-1", Total: orders.Euros(4200)},
						orders.OrderPlaced{OrderID: "o-2", ClientID: "c-1", Total: orders.Euros(1300)},
					).
					ThenRows(`SELECT order_id, cents FROM shipments ORDER BY id`, []any{"o-1", 490}, []any{"o-2", 490}).
					ThenAttempts(attempts)
			}, on)
		})
	}
}

func TestAnOrderThatTheCarrierRefusesHaltsItsClientUntilSomebodyResumesIt(t *testing.T) {
	t.Parallel()
	on := onTables(t)
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		c := &carrier{}
		c.does(func(string) (int64, error) { return 0, errors.New("no such address") })
		shipping := keyholdtest.Handler(k, orders.Shipping(c))
		shipping.Given(orders.OrderPlaced{OrderID: "o-1", ClientID: "c-1", Total: orders.Euros(4200)}).
			ThenAttempts(4).
			ThenHalted("c-1", "no such address").
			ThenRows(`SELECT order_id FROM shipments`)
		c.does(func(string) (int64, error) { return 490, nil })
		shipping.Resume("c-1").
			ThenNotHalted().
			ThenRows(`SELECT order_id FROM shipments`, []any{"o-1"})
	}, on)
}
