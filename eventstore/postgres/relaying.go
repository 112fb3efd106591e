package postgres

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// What a relay needs is not kept yet: nothing is found, and whatever is noted is refused.

func (s *Store) Unpublished(context.Context, []event.Part, int) ([]eventstore.Unpublished, error) {
	return nil, eventstore.ErrNotRelayed
}

func (s *Store) ReadLanes(context.Context, []eventstore.LaneRead) ([][]event.Envelope, error) {
	return nil, eventstore.ErrNotRelayed
}

func (s *Store) NotePublished(context.Context, []eventstore.PartFence, []eventstore.Published) error {
	return eventstore.ErrNotRelayed
}

func (s *Store) DueLooks(context.Context, []event.Part, time.Time, int) ([]eventstore.Look, error) {
	return nil, eventstore.ErrNotRelayed
}

func (s *Store) SetLooks(context.Context, []eventstore.PartFence, []eventstore.Look) error {
	return eventstore.ErrNotRelayed
}

func (s *Store) AllLooksDue(context.Context, []eventstore.PartFence, time.Time) error {
	return eventstore.ErrNotRelayed
}

func (s *Store) Passing(context.Context, []event.LaneRef) ([]eventstore.Passing, error) {
	return nil, eventstore.ErrNotRelayed
}

func (s *Store) Diverge(context.Context, []eventstore.PartFence, eventstore.Divergence) error {
	return eventstore.ErrNotRelayed
}

func (s *Store) ListDiverged(context.Context, event.LaneRef, int) ([]eventstore.Divergence, error) {
	return nil, eventstore.ErrNotRelayed
}

func (s *Store) Adopt(context.Context, event.LaneRef, string, string) (eventstore.ActRecord, error) {
	return eventstore.ActRecord{}, eventstore.ErrNotRelayed
}
