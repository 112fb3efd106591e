package memory

import (
	"context"
	"errors"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var errUnbuilt = errors.New("not built yet")

func (s *Store) DueAsides(context.Context, event.Unit, int) ([]eventstore.Aside, error) {
	return nil, errUnbuilt
}
func (s *Store) DueUnits(context.Context, event.Unit, int) ([]event.Unit, error) { return nil, nil }
func (s *Store) ListParked(context.Context, event.Unit, int64, int) ([]eventstore.Parked, error) {
	return nil, errUnbuilt
}
func (s *Store) ListParking(context.Context, string, event.Unit, int) ([]eventstore.Parking, error) {
	return nil, errUnbuilt
}
func (s *Store) Act(context.Context, eventstore.Act) (eventstore.ActRecord, error) {
	return eventstore.ActRecord{}, errUnbuilt
}
func (s *Store) ActsAfter(context.Context, int64, int) ([]eventstore.ActRecord, error) {
	return nil, nil
}
func (s *Store) LastAct(context.Context) (int64, error) { return 0, nil }
func (s *Store) ListActs(context.Context, eventstore.ActQuery) ([]eventstore.ActRecord, error) {
	return nil, errUnbuilt
}
func (s *Store) UnitState(context.Context, event.Unit) (eventstore.UnitState, error) {
	return eventstore.UnitState{}, errUnbuilt
}
func (s *Store) StartJob(context.Context, eventstore.Job) (eventstore.Job, error) {
	return eventstore.Job{}, errUnbuilt
}
func (s *Store) CountJob(context.Context, eventstore.JobKind, eventstore.Filter) (int, []eventstore.Dead, error) {
	return 0, nil, errUnbuilt
}
func (s *Store) ListJobs(context.Context, int64, bool, int) ([]eventstore.Job, error) {
	return nil, nil
}
func (s *Store) ReadJob(context.Context, int64) (eventstore.Job, error) {
	return eventstore.Job{}, errUnbuilt
}
func (s *Store) ActOnJob(context.Context, int64, eventstore.ActKind, string, string) (eventstore.Job, error) {
	return eventstore.Job{}, errUnbuilt
}
func (s *Store) StepJob(context.Context, int64, int) (eventstore.Job, []event.Unit, error) {
	return eventstore.Job{}, nil, errUnbuilt
}
func (s *Store) Overview(context.Context) (eventstore.Overview, error) {
	return eventstore.Overview{}, errUnbuilt
}
func (s *Store) ListPartitions(context.Context, eventstore.PartitionQuery) ([]eventstore.Partition, error) {
	return nil, errUnbuilt
}
func (s *Store) ListPauses(context.Context, string, event.Unit, int) ([]eventstore.Pause, error) {
	return nil, errUnbuilt
}
