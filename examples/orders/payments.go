package orders

import (
	"github.com/keyhold/keyhold"
	paymentv1 "github.com/keyhold/keyhold/examples/orders/proto/payment/v1"
)

// Payment is the entity of a payment, one actor per payment id. Its event is a protobuf message, which needs no wire name
// beside its own.
var Payment = keyhold.Entity[payment]{
	Kind:     "payment",
	Version:  1,
	Commands: keyhold.Commands[payment]{keyhold.OnCommand(receive)},
	Fold:     keyhold.Fold[payment]{keyhold.OnEvent(payment.received)},
}

type payment struct {
	Received bool `json:"received"`
}

func receive(c keyhold.Command, p payment, in *ReceivePayment) (*Done, error) {
	if p.Received {
		return nil, keyhold.Reject("payment %s was received already", c.ID())
	}
	c.Emit(&paymentv1.PaymentReceived{PaymentId: c.ID(), OrderId: in.OrderID, Cents: in.Cents})
	return &Done{}, nil
}

func (p payment) received(*paymentv1.PaymentReceived) payment { return payment{Received: true} }

// Settlement is a handler: it tells each order of its payments, in the order in which they arrived. Orders do not wait for
// one another.
var Settlement = keyhold.Handler[settlement]{
	Name:         "settlement",
	Categories:   []string{Payment.Kind},
	SequentialBy: "order_id",
	StartFrom:    keyhold.Oldest,
	New:          func(orderID string) settlement { return settlement{} },
	On:           keyhold.Behavior[settlement]{keyhold.On(settlement.received)},
}

type settlement struct{}

// The command is a record of this unit of work: it exists if, and only if, the payment counts as handled. The order decides
// it later, once. Should it say no, the payment stands and the log says so; a real shop would refund here.
func (settlement) received(ctx keyhold.Context, e *paymentv1.PaymentReceived) error {
	ctx.Send(Order.ID(e.GetOrderId()), &PayOrder{PaymentID: e.GetPaymentId(), Cents: e.GetCents()})
	return nil
}
