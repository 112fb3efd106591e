package faulty_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/eventstoretest"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
)

var (
	errBoom = errors.New("boom")
	orders  = event.LaneRef{Category: "order", Key: "a"}
	unit    = event.Unit{Name: "shipping", Key: "a"}
)

// open starts a memory store behind a plan.
func open(t *testing.T, plan faulty.Plan) *faulty.Store {
	t.Helper()
	s := faulty.Wrap(memory.Open(), plan)
	if _, err := s.Start(t.Context(), eventstore.StartOptions{Relayed: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s
}

func publish(ctx context.Context, s eventstore.Store) error {
	_, err := s.Begin("test").Commit(ctx, one())
	return err
}

func one() eventstore.Changes {
	return eventstore.Changes{Publish: []event.Envelope{{ID: "e-1", Type: "order.placed", Category: "order", Key: "a"}}}
}

func tail(t *testing.T, s eventstore.Store) event.Sequence {
	t.Helper()
	got, err := s.LaneTail(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestWithoutFaultsItIsTheStoreBehind(t *testing.T) {
	t.Parallel()
	eventstoretest.Run(t, func(t *testing.T) eventstoretest.Harness {
		data := memory.Open()
		s := faulty.Wrap(data, nil)
		id, err := s.Start(t.Context(), eventstore.StartOptions{Node: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return eventstoretest.Harness{Store: s, Identity: id, Reopen: func() eventstore.Store { return faulty.Wrap(memory.Share(data), nil) }}
	})
}

func TestCommitThatFailsBeforeChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, faulty.Nth(faulty.Commit, 1, faulty.Fault{Before: errBoom}))
	tx := s.Begin("test")
	if _, err := tx.Commit(t.Context(), one()); !errors.Is(err, errBoom) || errors.Is(err, eventstore.ErrUnknownCommit) {
		t.Fatalf("got %v", err)
	}
	if got := tail(t, s); got != 0 {
		t.Fatalf("tail is %d", got)
	}
	if _, err := tx.Commit(t.Context(), one()); !errors.Is(err, eventstore.ErrEnded) {
		t.Fatalf("the unit of work is not over: %v", err)
	}
	if err := publish(t.Context(), s); err != nil {
		t.Fatalf("the next commit: %v", err)
	}
}

func TestCommitWhoseAnswerIsLostHasHappenedAndIsUnknown(t *testing.T) {
	t.Parallel()
	for _, after := range []error{errBoom, eventstore.ErrUnknownCommit} {
		s := open(t, faulty.Nth(faulty.Commit, 1, faulty.Fault{After: after}))
		done, err := s.Begin("test").Commit(t.Context(), one())
		if !errors.Is(err, eventstore.ErrUnknownCommit) || !errors.Is(err, after) {
			t.Fatalf("got %v", err)
		}
		if diff := cmp.Diff(eventstore.Committed{}, done); diff != "" {
			t.Fatal(diff)
		}
		if got := tail(t, s); got != 1 {
			t.Fatalf("tail is %d", got)
		}
	}
}

func TestCommitThatTheStoreRefusesIsRefusedAlthoughItsAnswerWasToBeLost(t *testing.T) {
	t.Parallel()
	s := open(t, faulty.Nth(faulty.Commit, 1, faulty.Fault{After: errBoom}))
	stale := one()
	stale.Fence = eventstore.Fence{Unit: unit, Generation: 5}
	if _, err := s.Begin("test").Commit(t.Context(), stale); !errors.Is(err, eventstore.ErrStale) || errors.Is(err, errBoom) {
		t.Fatalf("got %v", err)
	}
}

func TestCommitThatWaitsHappensWhenItMay(t *testing.T) {
	t.Parallel()
	entered, may := make(chan struct{}), make(chan struct{})
	s := open(t, func(op faulty.Op) faulty.Fault {
		if op.Call != faulty.Commit {
			return faulty.Fault{}
		}
		close(entered)
		return faulty.Fault{Wait: may}
	})
	var group sync.WaitGroup
	group.Go(func() {
		if err := publish(t.Context(), s); err != nil {
			t.Errorf("commit: %v", err)
		}
	})
	<-entered
	if got := tail(t, s); got != 0 {
		t.Errorf("tail is %d before the commit may happen", got)
	}
	close(may)
	group.Wait()
	if got := tail(t, s); got != 1 {
		t.Errorf("tail is %d after", got)
	}
}

func TestCommitThatWaitsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := open(t, nil)
	s.SetPlan(func(faulty.Op) faulty.Fault {
		cancel()
		return faulty.Fault{Wait: make(chan struct{})}
	})
	if err := publish(ctx, s); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	s.SetPlan(nil)
	if got := tail(t, s); got != 0 {
		t.Fatalf("tail is %d", got)
	}
}

// every makes each call once; each gives what the call gave.
func every(s *faulty.Store) map[faulty.Call]func(ctx context.Context) error {
	return map[faulty.Call]func(ctx context.Context) error{
		faulty.Start:        func(ctx context.Context) error { _, err := s.Start(ctx, eventstore.StartOptions{}); return err },
		faulty.Commit:       func(ctx context.Context) error { return publish(ctx, s) },
		faulty.ReadStream:   func(ctx context.Context) error { _, err := s.ReadStream(ctx, event.Stream{}, 0, 1); return err },
		faulty.ReadSnapshot: func(ctx context.Context) error { _, err := s.ReadSnapshot(ctx, event.Stream{}); return err },
		faulty.ReadReply:    func(ctx context.Context) error { _, err := s.ReadReply(ctx, event.Stream{}, "c"); return err },
		faulty.ReadAll:      func(ctx context.Context) error { _, _, err := s.ReadAll(ctx, "", nil, 1); return err },
		faulty.ReadLane:     func(ctx context.Context) error { _, err := s.ReadLane(ctx, orders, 0, 1); return err },
		faulty.LaneTail:     func(ctx context.Context) error { _, err := s.LaneTail(ctx, orders); return err },
		faulty.Abandon:      func(ctx context.Context) error { return s.Abandon(ctx, orders, 1, "bad") },
		faulty.Abandoned:    func(ctx context.Context) error { _, err := s.Abandoned(ctx, event.Position{}, 1); return err },
		faulty.Recover:      func(ctx context.Context) error { _, err := s.Recover(ctx, nil); return err },
		faulty.Raise:        func(ctx context.Context) error { return raise(ctx, s) },
		faulty.Unpassed: func(ctx context.Context) error {
			_, err := s.Unpassed(ctx, "h", "order", event.LaneRef{}, 1)
			return err
		},
		faulty.Purge:             func(ctx context.Context) error { _, err := s.Purge(ctx, time.Unix(1, 0), 1); return err },
		faulty.LoadRegistry:      func(ctx context.Context) error { _, err := s.LoadRegistry(ctx); return err },
		faulty.SaveRegistry:      func(ctx context.Context) error { return save(ctx, s) },
		faulty.Revision:          func(ctx context.Context) error { _, err := s.Revision(ctx); return err },
		faulty.FirstBroker:       func(ctx context.Context) error { _, err := s.FirstBroker(ctx, "memory"); return err },
		faulty.Present:           func(ctx context.Context) error { _, err := s.Present(ctx); return err },
		faulty.Describe:          func(ctx context.Context) error { return s.Describe(ctx, "a node") },
		faulty.Say:               func(ctx context.Context) error { return s.Say(ctx, "broken", time.Unix(1, 0)) },
		faulty.CategoryHasEvents: func(ctx context.Context) error { _, err := s.CategoryHasEvents(ctx, "order"); return err },
		faulty.ListHalts:         func(ctx context.Context) error { _, err := s.ListHalts(ctx, "", event.Unit{}, 1); return err },
		faulty.ListDead:          func(ctx context.Context) error { _, err := s.ListDead(ctx, "h", event.Position{}, 1); return err },
		faulty.DueAsides:         func(ctx context.Context) error { _, err := s.DueAsides(ctx, unit, 1); return err },
		faulty.DueUnits:          func(ctx context.Context) error { _, err := s.DueUnits(ctx, event.Unit{}, 1); return err },
		faulty.Act:               func(ctx context.Context) error { return pauseOrResume(ctx, s) },
		faulty.LastAct:           func(ctx context.Context) error { _, err := s.LastAct(ctx); return err },
		faulty.ActsAfter:         func(ctx context.Context) error { _, err := s.ActsAfter(ctx, 0, 1); return err },
		faulty.ListJobs:          func(ctx context.Context) error { _, err := s.ListJobs(ctx, 0, true, 1); return err },
		faulty.StepJob:           func(ctx context.Context) error { _, _, err := s.StepJob(ctx, 1, 1); return err },
		faulty.Unpublished:       func(ctx context.Context) error { _, err := s.Unpublished(ctx, nil, 1); return err },
		faulty.ReadLanes:         func(ctx context.Context) error { _, err := s.ReadLanes(ctx, nil); return err },
		faulty.NotePublished:     func(ctx context.Context) error { return s.NotePublished(ctx, nil, nil) },
		faulty.DueLooks:          func(ctx context.Context) error { _, err := s.DueLooks(ctx, nil, time.Unix(1, 0), 1); return err },
		faulty.SetLooks:          func(ctx context.Context) error { return s.SetLooks(ctx, nil, nil) },
		faulty.AllLooksDue:       func(ctx context.Context) error { return s.AllLooksDue(ctx, nil, time.Unix(1, 0)) },
		faulty.Passing:           func(ctx context.Context) error { _, err := s.Passing(ctx, nil); return err },
		faulty.Diverge:           func(ctx context.Context) error { return diverge(ctx, s) },
		faulty.ListDiverged:      func(ctx context.Context) error { _, err := s.ListDiverged(ctx, event.LaneRef{}, 1); return err },
		faulty.Adopt:             func(ctx context.Context) error { return adopt(ctx, s) },
	}
}

func raise(ctx context.Context, s eventstore.Store) error {
	_, err := s.Raise(ctx, []eventstore.Ask{{Unit: unit, Generation: 5}})
	return err
}

// diverge notes that a lane diverged, as the owner of its part.
func diverge(ctx context.Context, s eventstore.Store) error {
	part := orders.Part()
	known, err := s.Recover(ctx, []eventstore.Ask{{Unit: part.Unit()}})
	if err != nil {
		return err
	}
	held := eventstore.PartFence{Part: part, Generation: known[0].Generation + 1}
	if _, err := s.Raise(ctx, []eventstore.Ask{{Unit: part.Unit(), Generation: held.Generation}}); err != nil {
		return err
	}
	return s.Diverge(ctx, []eventstore.PartFence{held}, eventstore.Divergence{Lane: orders, Sequence: 1, EventID: "lost"})
}

func adopt(ctx context.Context, s eventstore.Store) error {
	if err := diverge(ctx, s); err != nil {
		return err
	}
	_, err := s.Adopt(ctx, event.Position{Lane: orders, Sequence: 1, EventID: "lost"}, "ann", "the backup of monday")
	return err
}

func save(ctx context.Context, s eventstore.Store) error {
	r, err := s.LoadRegistry(ctx)
	if err != nil {
		return err
	}
	return s.SaveRegistry(ctx, r, nil)
}

// pauseOrResume acts on the unit whatever it is doing.
func pauseOrResume(ctx context.Context, s *faulty.Store) error {
	a := eventstore.Act{Kind: eventstore.ActPause, Unit: unit, Actor: "ann"}
	_, err := s.Act(ctx, a)
	if errors.Is(err, eventstore.ErrStateMoved) {
		a.Kind = eventstore.ActResume
		_, err = s.Act(ctx, a)
	}
	return err
}

// letters registers the handler of the unit, gives it two dead letters, and starts a replay of them.
func letters(t *testing.T, s *faulty.Store) {
	t.Helper()
	err := s.SaveRegistry(t.Context(), eventstore.Registered{Handlers: []eventstore.Handler{{Name: unit.Name, Categories: []string{orders.Category}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := eventstore.Changes{Fence: eventstore.Fence{Unit: unit}, Dead: []eventstore.Dead{{Unit: unit, Lane: orders, Sequence: 1}, {Unit: unit, Lane: orders, Sequence: 2}}}
	if _, err := s.Begin("test").Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	j := eventstore.Job{Kind: eventstore.JobReplay, Filter: eventstore.Filter{Handler: unit.Name}, Actor: "ann", Reason: "carrier is back"}
	if _, err := s.StartJob(t.Context(), j); err != nil {
		t.Fatal(err)
	}
}

func TestActAndStepThatFailBeforeDidNotHappenAndThoseThatFailAfterDid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault faulty.Fault
		due   int
		acts  int64 // after the start of the job
	}{{faulty.Fault{Before: errBoom}, 0, 1}, {faulty.Fault{After: errBoom}, 1, 2}} {
		s := open(t, faulty.All(faulty.Nth(faulty.Act, 1, c.fault), faulty.Nth(faulty.StepJob, 1, c.fault)))
		letters(t, s)
		if err := pauseOrResume(t.Context(), s); !errors.Is(err, errBoom) {
			t.Fatalf("act gave %v", err)
		}
		if j, units, err := s.StepJob(t.Context(), 1, 1); !errors.Is(err, errBoom) || j.ID != 0 || units != nil {
			t.Fatalf("step gave %+v, %v, %v", j, units, err)
		}
		if due, err := s.DueAsides(t.Context(), unit, 10); err != nil || len(due) != c.due {
			t.Errorf("%+v: due %+v, %v", c.fault, due, err)
		}
		if last, err := s.LastAct(t.Context()); err != nil || last != c.acts {
			t.Errorf("%+v: last act %d, %v", c.fault, last, err)
		}
		if j, units, err := s.StepJob(t.Context(), 1, 1); err != nil || j.Handed != c.due+1 || len(units) != 1 {
			t.Errorf("%+v: the next step gave %+v, %v, %v", c.fault, j, units, err)
		}
	}
}

func TestEveryCallCanFailBeforeAndAfterAndThenWorks(t *testing.T) {
	t.Parallel()
	for _, fault := range []faulty.Fault{{Before: errBoom}, {After: errBoom}} {
		for name := range every(nil) {
			s := open(t, nil)
			if err := publish(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			letters(t, s)
			if name == faulty.Start {
				if err := s.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			s.SetPlan(faulty.Nth(name, s.Calls(name)+1, fault))
			do := every(s)[name]
			if err := do(t.Context()); !errors.Is(err, errBoom) {
				t.Errorf("%s with %+v gave %v", name, fault, err)
			}
			if err := do(t.Context()); err != nil {
				t.Errorf("%s again gave %v", name, err)
			}
		}
	}
}

func TestCallThatFailsBeforeDidNotHappenAndOneThatFailsAfterDid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault     faulty.Fault
		happened  bool
		abandoned int
	}{{faulty.Fault{Before: errBoom}, false, 0}, {faulty.Fault{After: errBoom}, true, 1}} {
		s := open(t, nil)
		if err := publish(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		s.SetPlan(faulty.All(
			faulty.Nth(faulty.Raise, 1, c.fault), faulty.Nth(faulty.Abandon, 1, c.fault), faulty.Nth(faulty.SaveRegistry, 1, c.fault),
		))
		for _, err := range []error{raise(t.Context(), s), save(t.Context(), s), s.Abandon(t.Context(), orders, 1, "bad")} {
			if !errors.Is(err, errBoom) {
				t.Fatalf("got %v", err)
			}
		}
		recovered, err := s.Recover(t.Context(), []eventstore.Ask{{Unit: unit}})
		if err != nil || (recovered[0].Generation == 5) != c.happened {
			t.Errorf("%+v: raised to %+v, %v", c.fault, recovered, err)
		}
		registered, err := s.LoadRegistry(t.Context())
		if err != nil || (registered.Revision > 0) != c.happened {
			t.Errorf("%+v: registry %+v, %v", c.fault, registered, err)
		}
		abandoned, err := s.Abandoned(t.Context(), event.Position{}, 10)
		if err != nil || len(abandoned) != c.abandoned {
			t.Errorf("%+v: abandoned %+v, %v", c.fault, abandoned, err)
		}
	}
}

func TestStoreWhoseStartFailsAfterIsNotStarted(t *testing.T) {
	t.Parallel()
	s := faulty.Wrap(memory.Open(), faulty.Nth(faulty.Start, 1, faulty.Fault{After: errBoom}))
	if _, err := s.Start(t.Context(), eventstore.StartOptions{}); !errors.Is(err, errBoom) {
		t.Fatalf("got %v", err)
	}
	if _, err := s.LaneTail(t.Context(), orders); !errors.Is(err, eventstore.ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

// sqlStore is a store with a door that leads nowhere, which is all that faults before and behind it need.
type sqlStore struct{ eventstore.Store }

type sqlTx struct{ eventstore.Tx }

func (s sqlStore) Begin(who string) eventstore.Tx { return sqlTx{s.Store.Begin(who)} }

func (sqlStore) PublishIn(context.Context, eventstore.SQL, []event.Envelope) (*eventstore.Pending, error) {
	return nil, nil
}

func (sqlTx) SQL(context.Context) (eventstore.SQL, error) { return nil, nil }

func TestSQLFailsByPlan(t *testing.T) {
	t.Parallel()
	s := faulty.Wrap(sqlStore{memory.Open()}, faulty.All(
		faulty.Nth(faulty.SQL, 1, faulty.Fault{Before: errBoom}),
		faulty.Nth(faulty.SQL, 2, faulty.Fault{After: errBoom}),
		faulty.Nth(faulty.PublishIn, 1, faulty.Fault{Before: errBoom}),
		faulty.Nth(faulty.PublishIn, 2, faulty.Fault{After: errBoom}),
	))
	for range 2 {
		if _, err := s.PublishIn(t.Context(), nil, nil); !errors.Is(err, errBoom) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := s.PublishIn(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Begin("test").SQL(t.Context()); !errors.Is(err, errBoom) {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := s.Begin("test").SQL(t.Context()); err != nil {
		t.Fatal(err)
	}
}
