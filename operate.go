package keyhold

import (
	"context"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var _ admin.Operator = (*App)(nil)

// Halts implements [admin.Operator].
func (a *App) Halts(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Halt, error) {
	if _, err := a.live(); err != nil {
		return nil, err
	}
	return a.cfg.Store.ListHalts(ctx, name, after, limit)
}

// Halt implements [admin.Operator].
func (a *App) Halt(ctx context.Context, u event.Unit) (*eventstore.Halt, error) {
	if _, err := a.live(); err != nil {
		return nil, err
	}
	known, err := a.cfg.Store.Recover(ctx, []eventstore.Ask{{Unit: u}})
	if err != nil {
		return nil, err
	}
	return known[0].Halt, nil
}

// LiftHalt implements [admin.Operator].
func (a *App) LiftHalt(ctx context.Context, halt eventstore.HaltRef) error {
	r, err := a.live()
	if err != nil {
		return err
	}
	if _, err := a.cfg.Store.Begin("lift halt").Commit(ctx, eventstore.Changes{LiftHalt: &halt}); err != nil {
		return err
	}
	r.runtime.Resume(halt.Unit)
	return nil
}
