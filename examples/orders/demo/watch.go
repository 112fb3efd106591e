package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/examples/orders"
)

// watched is the application's shipping with a mark at entering and one at leaving. All else is untouched.
type watched struct {
	*orders.Shipper
	marker *marker
}

// watch declares the handler that the application declares, with watched in place of its behavior.
func watch(h keyhold.Handler[*orders.Shipper], m *marker) keyhold.Handler[*watched] {
	return keyhold.Handler[*watched]{
		Name: h.Name, Categories: h.Categories, SequentialBy: h.SequentialBy, StartFrom: h.StartFrom,
		OnPoison: h.OnPoison, Retry: h.Retry, Timeout: h.Timeout,
		New: func(key string) *watched { return &watched{h.New(key), m} },
		On:  keyhold.Behavior[*watched]{keyhold.On((*watched).placed), keyhold.On((*watched).cancelled)},
	}
}

func (w *watched) placed(ctx keyhold.Context, e orders.OrderPlaced) error {
	return w.within(ctx, e.OrderID, func() error { return w.Placed(ctx, e) })
}

func (w *watched) cancelled(ctx keyhold.Context, e orders.OrderCancelled) error {
	return w.within(ctx, e.OrderID, func() error { return w.Cancelled(ctx, e) })
}

// within marks the way in and out, also of a panic. A mark that cannot be written fails the attempt: nothing may happen unseen.
func (w *watched) within(ctx keyhold.Context, order string, behavior func() error) (err error) {
	meta := ctx.Meta()
	k := mark{Enter: true, Client: ctx.Key(), Order: order, Event: meta.ID, Seq: uint64(meta.Sequence), Attempt: meta.Attempt}
	k.Generation = uint64(ctx.Fence().Generation)
	if err := w.marker.put(k); err != nil {
		return err
	}
	k.Enter = false
	defer func() { err = errors.Join(err, w.marker.put(k)) }()
	return behavior()
}

// carrier takes a moment for each quote, and refuses one order until it is talked round.
type carrier struct {
	refuses string // order id
	mended  atomic.Bool
}

const quickest, slowest = 5 * time.Millisecond, 25 * time.Millisecond

// Quote implements [orders.Carrier].
func (c *carrier) Quote(ctx context.Context, e orders.OrderPlaced) (int64, error) {
	if e.OrderID == c.refuses && !c.mended.Load() {
		return 0, fmt.Errorf("the carrier refuses order %s: no such address", e.OrderID)
	}
	return orders.FlatRate{Cents: 490, Takes: quickest + rand.N(slowest-quickest)}.Quote(ctx, e)
}
