package orders

import (
	"context"
	"time"
)

// Carrier is who takes the parcels: something outside that takes its time and may say no.
type Carrier interface {
	// Quote gives the price of shipping an order. It may be called concurrently, and again for the same order.
	Quote(ctx context.Context, e OrderPlaced) (cents int64, err error)
}

// FlatRate is a carrier that always says the same, after a while.
type FlatRate struct {
	Cents int64
	Takes time.Duration
}

// Quote implements [Carrier].
func (f FlatRate) Quote(ctx context.Context, _ OrderPlaced) (int64, error) {
	wait := time.NewTimer(f.Takes)
	defer wait.Stop()
	select {
	case <-wait.C:
		return f.Cents, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}
