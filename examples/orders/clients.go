package orders

import "github.com/keyhold/keyhold"

// Clients is a read model: how many orders each client has. It counts up and down, which no event could stand twice; it may,
// because each event is applied exactly once. Its SQL is such as SQLite and PostgreSQL both take.
var Clients = keyhold.Handler[clients]{
	Name:         "clients",
	Categories:   []string{Order.Kind},
	SequentialBy: "client_id",
	StartFrom:    keyhold.Oldest,
	New:          func(clientID string) clients { return clients{} },
	On: keyhold.Behavior[clients]{
		keyhold.On(clients.placed),
		keyhold.On(clients.paid),
		keyhold.On(clients.cancelled),
	},
}

type clients struct{}

func (clients) placed(ctx keyhold.Context, e OrderPlaced) error {
	_, err := ctx.Tx().ExecContext(ctx, `
		INSERT INTO orders_per_client AS c (client_id, orders, paid, cents) VALUES ($1, 1, 0, $2)
		ON CONFLICT (client_id) DO UPDATE SET orders = c.orders + 1, cents = c.cents + excluded.cents`, e.ClientID, e.Total.Minor)
	return err
}

func (clients) paid(ctx keyhold.Context, e OrderPaid) error {
	_, err := ctx.Tx().ExecContext(ctx, `UPDATE orders_per_client SET paid = paid + 1 WHERE client_id = $1`, e.ClientID)
	return err
}

func (clients) cancelled(ctx keyhold.Context, e OrderCancelled) error {
	_, err := ctx.Tx().ExecContext(ctx,
		`UPDATE orders_per_client SET orders = orders - 1, cents = cents - $2 WHERE client_id = $1`, e.ClientID, e.Cents)
	return err
}
