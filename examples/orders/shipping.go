package orders

import (
	"time"

	"github.com/keyhold/keyhold"
)

// Shipping is a handler: one actor per client id. A client's events come in commit order, never two at once; different
// clients ship in parallel. An order that the carrier goes on refusing halts its client, durably, and no other.
func Shipping(carrier Carrier) keyhold.Handler[*Shipper] {
	return keyhold.Handler[*Shipper]{
		Name:         "shipping",
		Categories:   []string{Order.Kind},
		SequentialBy: "client_id",
		StartFrom:    keyhold.Oldest,
		OnPoison:     keyhold.Halt,
		Retry:        keyhold.RetryPolicy{Attempts: 4, Min: 50 * time.Millisecond, Max: time.Second},
		New:          func(clientID string) *Shipper { return &Shipper{carrier: carrier} },
		On:           ships,
	}
}

// ships is what shipping does about which event. It passes over an order that was paid.
var ships = keyhold.Behavior[*Shipper]{keyhold.On((*Shipper).Placed), keyhold.On((*Shipper).Cancelled)}

// Shipper ships the orders of one client.
type Shipper struct{ carrier Carrier }

// Placed ships an order. Waiting work comes first, while other clients wait for their carriers too. The transaction begins
// with the first statement; the row commits together with the fact that this event is done. So there is one row for each
// order, whatever dies when; but the carrier may be asked twice.
func (s *Shipper) Placed(ctx keyhold.Context, e OrderPlaced) error {
	price, err := s.carrier.Quote(ctx, e)
	if err != nil {
		return err // tried again, with a new Shipper; then the client is halted before this event
	}
	_, err = ctx.Tx().ExecContext(ctx,
		`INSERT INTO shipments (order_id, client_id, cents) VALUES ($1, $2, $3)`, e.OrderID, e.ClientID, price)
	return err
}

// Cancelled calls a shipment back. Its row is there: the order's OrderPlaced came before, in the same partition.
func (s *Shipper) Cancelled(ctx keyhold.Context, e OrderCancelled) error {
	_, err := ctx.Tx().ExecContext(ctx, `UPDATE shipments SET recalled = 1 WHERE order_id = $1`, e.OrderID)
	return err
}
