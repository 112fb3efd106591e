package faulty

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func (s *Store) Unpublished(ctx context.Context, parts []event.Part, limit int) ([]eventstore.Unpublished, error) {
	return call(ctx, s, Unpublished, func() ([]eventstore.Unpublished, error) { return s.inner.Unpublished(ctx, parts, limit) })
}

func (s *Store) ReadLanes(ctx context.Context, asked []eventstore.LaneRead) ([][]event.Envelope, error) {
	return call(ctx, s, ReadLanes, func() ([][]event.Envelope, error) { return s.inner.ReadLanes(ctx, asked) })
}

func (s *Store) NotePublished(ctx context.Context, held []eventstore.PartFence, notes []eventstore.Published) error {
	return s.act(ctx, NotePublished, func() error { return s.inner.NotePublished(ctx, held, notes) })
}

func (s *Store) DueLooks(ctx context.Context, parts []event.Part, now time.Time, limit int) ([]eventstore.Look, error) {
	return call(ctx, s, DueLooks, func() ([]eventstore.Look, error) { return s.inner.DueLooks(ctx, parts, now, limit) })
}

func (s *Store) SetLooks(ctx context.Context, held []eventstore.PartFence, looks []eventstore.Look) error {
	return s.act(ctx, SetLooks, func() error { return s.inner.SetLooks(ctx, held, looks) })
}

func (s *Store) AllLooksDue(ctx context.Context, held []eventstore.PartFence, now time.Time) error {
	return s.act(ctx, AllLooksDue, func() error { return s.inner.AllLooksDue(ctx, held, now) })
}

func (s *Store) Passing(ctx context.Context, lanes []event.LaneRef) ([]eventstore.Passing, error) {
	return call(ctx, s, Passing, func() ([]eventstore.Passing, error) { return s.inner.Passing(ctx, lanes) })
}

func (s *Store) Diverge(ctx context.Context, held []eventstore.PartFence, d eventstore.Divergence) error {
	return s.act(ctx, Diverge, func() error { return s.inner.Diverge(ctx, held, d) })
}

func (s *Store) ListDiverged(ctx context.Context, after event.LaneRef, limit int) ([]eventstore.Divergence, error) {
	return call(ctx, s, ListDiverged, func() ([]eventstore.Divergence, error) { return s.inner.ListDiverged(ctx, after, limit) })
}

func (s *Store) Adopt(ctx context.Context, seen event.Position, actor, reason string) (eventstore.ActRecord, error) {
	return call(ctx, s, Adopt, func() (eventstore.ActRecord, error) { return s.inner.Adopt(ctx, seen, actor, reason) })
}

func (s *Store) Taken(ctx context.Context, asked []eventstore.TakenAsk) ([]eventstore.Taken, error) {
	return call(ctx, s, Taken, func() ([]eventstore.Taken, error) { return s.inner.Taken(ctx, asked) })
}
