package faulty

import (
	"context"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Of what operators do to a store these are the calls that a running application depends on.

func (s *Store) DueAsides(ctx context.Context, u event.Unit, limit int) ([]eventstore.Aside, error) {
	return call(ctx, s, DueAsides, func() ([]eventstore.Aside, error) { return s.inner.DueAsides(ctx, u, limit) })
}

func (s *Store) DueUnits(ctx context.Context, after event.Unit, limit int) ([]event.Unit, error) {
	return call(ctx, s, DueUnits, func() ([]event.Unit, error) { return s.inner.DueUnits(ctx, after, limit) })
}

func (s *Store) Act(ctx context.Context, a eventstore.Act) (eventstore.ActRecord, error) {
	return call(ctx, s, Act, func() (eventstore.ActRecord, error) { return s.inner.Act(ctx, a) })
}

func (s *Store) LastAct(ctx context.Context) (int64, error) {
	return call(ctx, s, LastAct, func() (int64, error) { return s.inner.LastAct(ctx) })
}

func (s *Store) ActsAfter(ctx context.Context, id int64, limit int) ([]eventstore.ActRecord, error) {
	return call(ctx, s, ActsAfter, func() ([]eventstore.ActRecord, error) { return s.inner.ActsAfter(ctx, id, limit) })
}

func (s *Store) ListJobs(ctx context.Context, before int64, open bool, limit int) ([]eventstore.Job, error) {
	return call(ctx, s, ListJobs, func() ([]eventstore.Job, error) { return s.inner.ListJobs(ctx, before, open, limit) })
}

func (s *Store) StepJob(ctx context.Context, id int64, max int) (eventstore.Job, []event.Unit, error) {
	type step struct {
		job   eventstore.Job
		units []event.Unit
	}
	done, err := call(ctx, s, StepJob, func() (step, error) {
		j, units, err := s.inner.StepJob(ctx, id, max)
		return step{j, units}, err
	})
	return done.job, done.units, err
}
