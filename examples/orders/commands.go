package orders

import "github.com/keyhold/keyhold"

// PlaceOrder places an order; the entity's id is the order's.
type PlaceOrder struct {
	ClientID string `json:"client_id"`
	Cents    int64  `json:"cents"`
}

// PayOrder says that the order's money is there. Payments send it; see [Settlement].
type PayOrder struct {
	PaymentID string `json:"payment_id"`
	Cents     int64  `json:"cents"`
}

// CancelOrder takes an order back that is not paid yet.
type CancelOrder struct{}

// GetOrder asks for an order as it is now.
type GetOrder struct{}

// ReceivePayment says that money has arrived; the entity's id is the payment's.
type ReceivePayment struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

// Done is the answer of every command: all there is to say is that it was done.
type Done struct{}

// View answers [GetOrder].
type View struct {
	OrderID  string `json:"order_id"`
	ClientID string `json:"client_id"`
	Cents    int64  `json:"cents"`
	Status   Status `json:"status"`
}

// What travels needs a wire name: commands through the store, answers that are kept for a command that is asked again, and whatever one node asks of another.
var (
	_ = keyhold.Type[PlaceOrder]("order.place", 1)
	_ = keyhold.Type[PayOrder]("order.pay", 1)
	_ = keyhold.Type[CancelOrder]("order.cancel", 1)
	_ = keyhold.Type[ReceivePayment]("payment.receive", 1)
	_ = keyhold.Type[GetOrder]("order.get", 1)
	_ = keyhold.Type[View]("order.view", 1)
	_ = keyhold.Type[Done]("done", 1)
)
