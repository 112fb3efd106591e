package sqlite

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/eventstoretest"
)

// owning is what only the owner of a store does.
type owning interface {
	eventstore.Beginner
	eventstore.Units
	eventstore.Lanes
	eventstore.ProjectionBuilds
	eventstore.Relays
	eventstore.Intake
	eventstore.Presence
	Diverge(ctx context.Context, held []eventstore.PartFence, d eventstore.Divergence) error
	SaveRegistry(ctx context.Context, r eventstore.Registered, starts []eventstore.Start) error
	FirstBroker(ctx context.Context, memory string) (string, error)
	Revision(ctx context.Context) (uint64, error)
	CategoryHasEvents(ctx context.Context, category string) (bool, error)
}

// beside is a store whose operator is attached from outside, while the rest is done by its owner.
type beside struct {
	owning
	eventstore.Operations
	owner    *Store
	attached *Attached
}

func (s *beside) Start(ctx context.Context, opts eventstore.StartOptions) (eventstore.Identity, error) {
	id, err := s.owner.Start(ctx, opts)
	if err != nil {
		return id, err
	}
	s.attached, err = Attach(ctx, s.owner.config.Path)
	s.Operations = s.attached
	return id, err
}

func (s *beside) Stop(ctx context.Context) error {
	if s.attached != nil {
		if err := s.attached.Close(); err != nil {
			return err
		}
	}
	return s.owner.Stop(ctx)
}

func TestOperatorBesideTheOwnerKeepsThePromisesOfThePort(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(t *testing.T) eventstoretest.Harness {
		path := filepath.Join(t.TempDir(), "store.db")
		var last *beside
		reopen := func() *beside {
			owner := Open(path)
			last = &beside{owning: owner, Operations: owner, owner: owner}
			return last
		}
		store := reopen()
		id, err := store.Start(t.Context(), eventstore.StartOptions{Node: "first"})
		if err != nil {
			t.Fatal(err)
		}
		return eventstoretest.Harness{
			Store: store, Identity: id,
			Reopen: func() eventstore.Store { return reopen() },
			Crash: func() {
				path = crashImage(t, path)
				if err := last.attached.Close(); err != nil {
					t.Error(err)
				}
				stopNow(t, last.owner)
			},
		}
	}, "Halts", "Acts on halts", "Acts on parked events", "Acts", "Pauses", "Jobs on dead letters", "Jobs on units", "Jobs", "Handlers", "Overview", "Partitions", "Unit state")
}
