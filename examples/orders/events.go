package orders

import "github.com/keyhold/keyhold"

// OrderPlaced: a client has ordered.
type OrderPlaced struct {
	OrderID  string `json:"order_id"`
	ClientID string `json:"client_id"` // the partition key, as in every event of the category
	Cents    int64  `json:"cents"`
}

// OrderPaid: the order is paid in full.
type OrderPaid struct {
	OrderID   string `json:"order_id"`
	ClientID  string `json:"client_id"`
	PaymentID string `json:"payment_id"`
}

// OrderCancelled: the order is off.
type OrderCancelled struct {
	OrderID  string `json:"order_id"`
	ClientID string `json:"client_id"`
	Cents    int64  `json:"cents"` // what the order was about
}

// What is stored is the wire name, so the Go types may be renamed.
var (
	_ = keyhold.Type[OrderPlaced]("order.placed", 1)
	_ = keyhold.Type[OrderPaid]("order.paid", 1)
	_ = keyhold.Type[OrderCancelled]("order.cancelled", 1)
)
