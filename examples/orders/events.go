package orders

import "github.com/keyhold/keyhold"

// OrderPlaced: a client has ordered.
type OrderPlaced struct {
	OrderID  string `json:"order_id"`
	ClientID string `json:"client_id"` // the partition key, as in every event of the category
	Total    Money  `json:"total"`
}

// OrderPlacedV1 is OrderPlaced as release 1 has stored it: everything was in euros then. Nobody makes one any more, and nobody meets
// one either: it is read as an OrderPlaced.
type OrderPlacedV1 struct {
	OrderID  string `json:"order_id"`
	ClientID string `json:"client_id"`
	Cents    int64  `json:"cents"`
}

// Money is an amount in the smallest unit of a currency.
type Money struct {
	Minor    int64  `json:"minor"`
	Currency string `json:"currency"`
}

// Euros is money as the shop takes it.
func Euros(cents int64) Money { return Money{Minor: cents, Currency: "EUR"} }

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
	_ = keyhold.Type[OrderPlaced]("order.placed", 2)
	_ = keyhold.Type[OrderPlacedV1]("order.placed", 1)
	_ = keyhold.Upcast(func(e OrderPlacedV1) OrderPlaced {
		return OrderPlaced{OrderID: e.OrderID, ClientID: e.ClientID, Total: Euros(e.Cents)}
	})

	_ = keyhold.Type[OrderPaid]("order.paid", 1)
	_ = keyhold.Type[OrderCancelled]("order.cancelled", 1)
)
