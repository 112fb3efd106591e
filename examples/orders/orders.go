package orders

import "github.com/keyhold/keyhold"

// Order is the entity of an order: one actor per order id. Its commands come one at a time, whoever sends them; each sees
// the state that the events before it made.
var Order = keyhold.Entity[order]{
	Kind:    "order",
	Version: 1, // of the struct order: an older snapshot is not used, the events are folded anew
	Commands: keyhold.Commands[order]{
		keyhold.OnCommand(place),
		keyhold.OnCommand(pay),
		keyhold.OnCommand(cancel),
	},
	Queries: keyhold.Queries[order]{keyhold.OnQuery(get)},
	Fold: keyhold.Fold[order]{
		keyhold.OnEvent(order.placed),
		keyhold.OnEvent(order.paid),
		keyhold.OnEvent(order.cancelled),
	},
}

// order is the state of one order. It is folded from the order's events and lives in memory between commands.
type order struct {
	ClientID string `json:"client_id"`
	Cents    int64  `json:"cents"`
	Status   Status `json:"status"`
}

// Status is how far an order has come.
type Status string

const (
	Open      Status = "" // nothing has happened yet
	Placed    Status = "placed"
	Paid      Status = "paid"
	Cancelled Status = "cancelled"
)

// The commands decide. What they emit is committed together with the answer, or not at all.

func place(c keyhold.Command, o order, in *PlaceOrder) (*Done, error) {
	switch {
	case o.Status != Open:
		return nil, keyhold.Reject("order %s is already %s", c.ID(), o.Status)
	case in.Cents <= 0:
		return nil, keyhold.Reject("order %s is about %d cents: it must be about some money", c.ID(), in.Cents)
	}
	c.Emit(OrderPlaced{OrderID: c.ID(), ClientID: in.ClientID, Total: Euros(in.Cents)})
	return &Done{}, nil
}

func pay(c keyhold.Command, o order, in *PayOrder) (*Done, error) {
	switch {
	case o.Status != Placed:
		return nil, keyhold.Reject("order %s cannot be paid, it is %s", c.ID(), o.Status)
	case in.Cents < o.Cents:
		return nil, keyhold.Reject("order %s costs %d cents, payment %s is %d", c.ID(), o.Cents, in.PaymentID, in.Cents)
	}
	c.Emit(OrderPaid{OrderID: c.ID(), ClientID: o.ClientID, PaymentID: in.PaymentID})
	return &Done{}, nil
}

func cancel(c keyhold.Command, o order, _ *CancelOrder) (*Done, error) {
	if o.Status != Placed {
		return nil, keyhold.Reject("order %s cannot be cancelled, it is %s", c.ID(), o.Status)
	}
	c.Emit(OrderCancelled{OrderID: c.ID(), ClientID: o.ClientID, Cents: o.Cents})
	return &Done{}, nil
}

func get(q keyhold.Query, o order, _ *GetOrder) (*View, error) {
	if o.Status == Open {
		return nil, keyhold.Reject("there is no order %s", q.ID())
	}
	return &View{OrderID: q.ID(), ClientID: o.ClientID, Cents: o.Cents, Status: o.Status}, nil
}

// The fold says what an event has made of the state. It cannot say no: what it is given has happened.

func (o order) placed(e OrderPlaced) order {
	return order{ClientID: e.ClientID, Cents: e.Total.Minor, Status: Placed}
}

func (o order) paid(OrderPaid) order {
	o.Status = Paid
	return o
}

func (o order) cancelled(OrderCancelled) order {
	o.Status = Cancelled
	return o
}
