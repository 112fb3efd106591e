//go:build next

package orders_test

import (
	"testing"

	"github.com/keyhold/keyhold/examples/orders"
	"github.com/keyhold/keyhold/keyholdtest"
)

func TestAnOrderIsReturned(t *testing.T) {
	t.Parallel()
	placed := orders.OrderPlaced{OrderID: "o-1", ClientID: "c-1", Total: orders.Euros(4200)}
	keyholdtest.Entity(t, orders.Order, "o-1").
		Given(placed, orders.OrderPaid{OrderID: "o-1", ClientID: "c-1", PaymentID: "p-1"}).
		When(&orders.ReturnOrder{}).
		ThenEvents(orders.OrderReturned{OrderID: "o-1", ClientID: "c-1"})
	for reason, given := range map[string][]any{
		"cannot be returned, it is ":          nil,
		"cannot be returned, it is returned":  {placed, orders.OrderReturned{OrderID: "o-1", ClientID: "c-1"}},
		"cannot be returned, it is cancelled": {placed, orders.OrderCancelled{OrderID: "o-1", ClientID: "c-1", Cents: 4200}},
	} {
		keyholdtest.Entity(t, orders.Order, "o-1").Given(given...).When(&orders.ReturnOrder{}).ThenRejected(reason).ThenEvents()
	}
}

func TestAReturnComesAfterTheParcel(t *testing.T) {
	t.Parallel()
	on := onTables(t)
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		keyholdtest.Handler(k, orders.Shipping(&carrier{})).
			Given(
				orders.OrderPlaced{OrderID: "o-1", ClientID: "c-1", Total: orders.Euros(4200)},
				orders.OrderReturned{OrderID: "o-1", ClientID: "c-1"},
				orders.OrderPlaced{OrderID: "o-2", ClientID: "c-1", Total: orders.Euros(1300)},
			).
			ThenRows(`SELECT order_id, client_id, cents FROM returns`, []any{"o-1", "c-1", 490}).
			ThenRows(`SELECT order_id FROM shipments ORDER BY id`, []any{"o-1"}, []any{"o-2"})
	}, on)
}

// Whichever program settles the payment: what it comes to is decided by one that knows what was returned.
func TestAReturnedOrderIsNotPaid(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, orders.Order, "o-1").
		Given(orders.OrderPlaced{OrderID: "o-1", ClientID: "c-1", Total: orders.Euros(4200)}, orders.OrderReturned{OrderID: "o-1", ClientID: "c-1"}).
		When(&orders.PayOrder{PaymentID: "p-1", Cents: 4200}).
		ThenRejected("it is returned")
}
