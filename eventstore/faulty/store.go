package faulty

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Store is an [eventstore.Store] that fails by plan.
type Store struct {
	eventstore.Operations // of the store behind; those that are not below never fail by plan
	eventstore.ProjectionBuilds

	inner eventstore.Store

	mu struct {
		sync.Mutex
		plan  Plan
		calls map[Call]int
	}
}

var _ eventstore.Store = (*Store)(nil)

// Wrap puts a plan before a store; nil plans nothing.
func Wrap(inner eventstore.Store, plan Plan) *Store {
	s := &Store{Operations: inner, ProjectionBuilds: inner, inner: inner}
	s.mu.calls = make(map[Call]int)
	s.SetPlan(plan)
	return s
}

// SetPlan replaces the plan, for calls that begin from now on. Calls are counted on.
func (s *Store) SetPlan(plan Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.plan = plan
}

// Calls tells how many calls of a method there were, those that failed included.
func (s *Store) Calls(call Call) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.calls[call]
}

// fault counts a call and asks the plan for it.
func (s *Store) fault(op Op) Fault {
	s.mu.Lock()
	s.mu.calls[op.Call]++
	op.N = s.mu.calls[op.Call]
	plan := s.mu.plan
	s.mu.Unlock()
	if plan == nil {
		return Fault{}
	}
	return plan(op)
}

// enter does what comes before a call.
func (f Fault) enter(ctx context.Context) error {
	if f.Wait != nil {
		select {
		case <-f.Wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.Before
}

// call makes one call that has an answer.
func call[T any](ctx context.Context, s *Store, name Call, do func() (T, error)) (T, error) {
	var none T
	f := s.fault(Op{Call: name})
	if err := f.enter(ctx); err != nil {
		return none, err
	}
	answer, err := do()
	if err == nil && f.After != nil {
		return none, f.After
	}
	return answer, err
}

// act makes one call that has no answer.
func (s *Store) act(ctx context.Context, name Call, do func() error) error {
	_, err := call(ctx, s, name, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// Start starts the store behind, unless the plan has a fault for it; one that fails After is stopped again.
func (s *Store) Start(ctx context.Context, opts eventstore.StartOptions) (eventstore.Identity, error) {
	started := false
	id, err := call(ctx, s, Start, func() (eventstore.Identity, error) {
		id, err := s.inner.Start(ctx, opts)
		started = err == nil
		return id, err
	})
	if err != nil && started {
		err = errors.Join(err, s.inner.Stop(ctx))
	}
	return id, err
}

// Stop stops the store behind; it is never made to fail.
func (s *Store) Stop(ctx context.Context) error { return s.inner.Stop(ctx) }

// Begin makes a unit of work whose SQL and Commit fail by plan.
func (s *Store) Begin(who string) eventstore.Tx {
	return &tx{Tx: s.inner.Begin(who), store: s, who: who}
}

// PublishIn writes into a transaction of the application's, unless the plan has a fault for it.
func (s *Store) PublishIn(ctx context.Context, tx eventstore.SQL, events []event.Envelope) (*eventstore.Pending, error) {
	return call(ctx, s, PublishIn, func() (*eventstore.Pending, error) { return s.inner.PublishIn(ctx, tx, events) })
}

type tx struct {
	eventstore.Tx
	store *Store
	who   string
	turn  atomic.Bool // it has its turn: there is nothing to wait for any more
}

func (t *tx) SQL(ctx context.Context) (eventstore.SQL, error) {
	f := t.store.fault(Op{Call: SQL, Who: t.who})
	if t.turn.Load() {
		f.Wait = nil
	}
	if err := f.enter(ctx); err != nil {
		return nil, err
	}
	door, err := t.Tx.SQL(ctx)
	t.turn.Store(t.turn.Load() || err == nil)
	if err == nil && f.After != nil {
		return nil, f.After
	}
	return door, err
}

func (t *tx) Commit(ctx context.Context, c eventstore.Changes) (eventstore.Committed, error) {
	f := t.store.fault(Op{Call: Commit, Who: t.who, Changes: &c})
	if err := f.enter(ctx); err != nil {
		return eventstore.Committed{}, errors.Join(err, t.Rollback()) // over, whatever it returns
	}
	done, err := t.Tx.Commit(ctx, c)
	switch {
	case err != nil || f.After == nil:
		return done, err
	case errors.Is(f.After, eventstore.ErrUnknownCommit):
		return eventstore.Committed{}, f.After
	}
	return eventstore.Committed{}, fmt.Errorf("%w: %w", eventstore.ErrUnknownCommit, f.After)
}

// The methods from here on pass their call on, by plan.

func (s *Store) ReadStream(ctx context.Context, ref event.Stream, after uint64, limit int) ([]event.Envelope, error) {
	return call(ctx, s, ReadStream, func() ([]event.Envelope, error) { return s.inner.ReadStream(ctx, ref, after, limit) })
}

func (s *Store) ReadSnapshot(ctx context.Context, ref event.Stream) (*eventstore.Snapshot, error) {
	return call(ctx, s, ReadSnapshot, func() (*eventstore.Snapshot, error) { return s.inner.ReadSnapshot(ctx, ref) })
}

func (s *Store) ReadReply(ctx context.Context, ref event.Stream, commandID string) (*eventstore.Reply, error) {
	return call(ctx, s, ReadReply, func() (*eventstore.Reply, error) { return s.inner.ReadReply(ctx, ref, commandID) })
}

func (s *Store) ReadAll(ctx context.Context, after eventstore.Position, categories []string, limit int) ([]event.Envelope, eventstore.Position, error) {
	type page struct {
		events []event.Envelope
		next   eventstore.Position
	}
	p, err := call(ctx, s, ReadAll, func() (page, error) {
		events, next, err := s.inner.ReadAll(ctx, after, categories, limit)
		return page{events, next}, err
	})
	if err != nil {
		return nil, after, err
	}
	return p.events, p.next, nil
}

func (s *Store) ReadLane(ctx context.Context, lane event.LaneRef, after event.Sequence, limit int) ([]event.Envelope, error) {
	return call(ctx, s, ReadLane, func() ([]event.Envelope, error) { return s.inner.ReadLane(ctx, lane, after, limit) })
}

func (s *Store) LaneTail(ctx context.Context, lane event.LaneRef) (event.Sequence, error) {
	return call(ctx, s, LaneTail, func() (event.Sequence, error) { return s.inner.LaneTail(ctx, lane) })
}

func (s *Store) Abandon(ctx context.Context, lane event.LaneRef, seq event.Sequence, reason string) error {
	return s.act(ctx, Abandon, func() error { return s.inner.Abandon(ctx, lane, seq, reason) })
}

func (s *Store) Abandoned(ctx context.Context, after event.Position, limit int) ([]eventstore.Abandoned, error) {
	return call(ctx, s, Abandoned, func() ([]eventstore.Abandoned, error) { return s.inner.Abandoned(ctx, after, limit) })
}

func (s *Store) Recover(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	return call(ctx, s, Recover, func() ([]eventstore.Recovered, error) { return s.inner.Recover(ctx, asked) })
}

func (s *Store) Raise(ctx context.Context, asked []eventstore.Ask) ([]eventstore.Recovered, error) {
	return call(ctx, s, Raise, func() ([]eventstore.Recovered, error) { return s.inner.Raise(ctx, asked) })
}

func (s *Store) Unpassed(ctx context.Context, name, category string, after event.LaneRef, limit int) ([]event.LaneRef, error) {
	return call(ctx, s, Unpassed, func() ([]event.LaneRef, error) { return s.inner.Unpassed(ctx, name, category, after, limit) })
}

func (s *Store) Purge(ctx context.Context, before time.Time, limit int) (int, error) {
	return call(ctx, s, Purge, func() (int, error) { return s.inner.Purge(ctx, before, limit) })
}

func (s *Store) LoadRegistry(ctx context.Context) (eventstore.Registered, error) {
	return call(ctx, s, LoadRegistry, func() (eventstore.Registered, error) { return s.inner.LoadRegistry(ctx) })
}

func (s *Store) SaveRegistry(ctx context.Context, r eventstore.Registered, starts []eventstore.Start) error {
	return s.act(ctx, SaveRegistry, func() error { return s.inner.SaveRegistry(ctx, r, starts) })
}

func (s *Store) Revision(ctx context.Context) (uint64, error) {
	return call(ctx, s, Revision, func() (uint64, error) { return s.inner.Revision(ctx) })
}

func (s *Store) FirstBroker(ctx context.Context, memory string) (string, error) {
	return call(ctx, s, FirstBroker, func() (string, error) { return s.inner.FirstBroker(ctx, memory) })
}

func (s *Store) Present(ctx context.Context) ([]eventstore.Owner, error) {
	return call(ctx, s, Present, func() ([]eventstore.Owner, error) { return s.inner.Present(ctx) })
}

func (s *Store) Say(ctx context.Context, trouble string, since time.Time) error {
	return s.act(ctx, Say, func() error { return s.inner.Say(ctx, trouble, since) })
}

// Describe implements [eventstore.Presence].
func (s *Store) Describe(ctx context.Context, about string) error {
	return s.act(ctx, Describe, func() error { return s.inner.Describe(ctx, about) })
}

func (s *Store) CategoryHasEvents(ctx context.Context, category string) (bool, error) {
	return call(ctx, s, CategoryHasEvents, func() (bool, error) { return s.inner.CategoryHasEvents(ctx, category) })
}

func (s *Store) ListHalts(ctx context.Context, name string, after event.Unit, limit int) ([]eventstore.Halt, error) {
	return call(ctx, s, ListHalts, func() ([]eventstore.Halt, error) { return s.inner.ListHalts(ctx, name, after, limit) })
}

func (s *Store) ListDead(ctx context.Context, name string, after event.Position, limit int) ([]eventstore.Dead, error) {
	return call(ctx, s, ListDead, func() ([]eventstore.Dead, error) { return s.inner.ListDead(ctx, name, after, limit) })
}
