//go:build next

package orders

import "github.com/keyhold/keyhold"

// The next release of the shop: clients send orders back. It is one type of events more, which shipping handles. In a program of your own these lines would stand in
// commands.go, events.go, orders.go, shipping.go and the tables; here they stand apart, behind the build tag next, so that there are two
// programs of which one can be deployed over the other:
//
//	go build -tags next ./examples/orders/cmd/orders
//
// The types and the cases are all that a rolling deploy takes. An older process that comes upon an OrderReturned gives the client's shipping up to a newer one.
func init() {
	Order.Version++ // of what the fold makes of an order: a snapshot of this program is none for an older one, which cannot know what Returned is
	Order.Commands = append(Order.Commands, keyhold.OnCommand(takeBack))
	Order.Fold = append(Order.Fold, keyhold.OnEvent(order.returned))
	ships = append(ships, keyhold.On((*Shipper).Returned))
	sqliteTables += `CREATE TABLE IF NOT EXISTS returns (id INTEGER PRIMARY KEY, order_id TEXT NOT NULL, client_id TEXT NOT NULL, cents INTEGER NOT NULL);`
	postgresTables += `CREATE TABLE IF NOT EXISTS returns (
		id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id TEXT NOT NULL, client_id TEXT NOT NULL, cents BIGINT NOT NULL);`
}

// ReturnOrder says that the client sends an order back.
type ReturnOrder struct{}

// OrderReturned: the order comes back.
type OrderReturned struct {
	OrderID  string `json:"order_id"`
	ClientID string `json:"client_id"`
}

var (
	_ = keyhold.Type[ReturnOrder]("order.return", 1)
	_ = keyhold.Type[OrderReturned]("order.returned", 1)
)

// Returned is the status of an order that came back.
const Returned Status = "returned"

func takeBack(c keyhold.Command, o order, _ *ReturnOrder) (*Done, error) {
	if o.Status != Placed && o.Status != Paid {
		return nil, keyhold.Reject("order %s cannot be returned, it is %s", c.ID(), o.Status)
	}
	c.Emit(OrderReturned{OrderID: c.ID(), ClientID: o.ClientID})
	return &Done{}, nil
}

func (o order) returned(OrderReturned) order {
	o.Status = Returned
	return o
}

// Returned gives back what shipping has cost. The shipment is there: the order's OrderPlaced came before, in the same partition, whichever program applied it.
func (s *Shipper) Returned(ctx keyhold.Context, e OrderReturned) error {
	_, err := ctx.Tx().ExecContext(ctx,
		`INSERT INTO returns (order_id, client_id, cents) SELECT order_id, client_id, cents FROM shipments WHERE order_id = $1`, e.OrderID)
	return err
}
