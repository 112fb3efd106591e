package redis

import (
	"context"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
)

// unconnected is the port of a transport without a connection.
type unconnected struct{ t *Transport }

var _ partitions.Port = unconnected{}

func (u unconnected) Traits() partitions.Traits { return u.t.cfg.traits() }

func (unconnected) Acquire(context.Context, event.Unit, event.Generation) (partitions.Acquired, error) {
	return partitions.Acquired{}, errNotConnected
}

func (unconnected) Renew(_ context.Context, held []partitions.Held) []error {
	return fill(make([]error, len(held)), errNotConnected)
}

func (unconnected) Release(context.Context, partitions.Held, bool) error { return errNotConnected }

func (unconnected) Fetch(context.Context, partitions.Held, []event.Position, int) (partitions.Fetched, error) {
	return partitions.Fetched{}, errNotConnected
}

func (unconnected) Advance(context.Context, partitions.Held, []event.Position, int) (partitions.Fetched, error) {
	return partitions.Fetched{}, errNotConnected
}
