package memory

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Store is an [eventstore.Store] in memory, or one handle on it. Make one with [Open], and more on the same data with [Share].
type Store struct {
	mu         *core
	generation event.Generation // of its start, 0 while it is not started; mu guards it
}

// core is what the handles on one store share.
type core struct {
	sync.RWMutex
	storeID string        // "" before the first Start
	node    string        // of who started last
	freed   chan struct{} // closed when one stops; nil while nobody waits for that
	data
}

var _ eventstore.Store = (*Store)(nil)

// Open makes an empty store.
func Open() *Store {
	return &Store{mu: &core{data: newData()}}
}

// Share makes one more handle on the data of a store. It is started and stopped for itself, as the store of another process would be: so several nodes run
// in one process, each with a handle of its own that is started with Relayed.
func Share(s *Store) *Store { return &Store{mu: s.mu} }

// Start opens the store, which only one caller has at a time: until Stop another Start of one that shares its data is refused with
// [*eventstore.OwnedError], or waits, and one of the same value is refused. Handles that are all started with Relayed have it at the same time.
func (s *Store) Start(ctx context.Context, opts eventstore.StartOptions) (eventstore.Identity, error) {
	told := false
	for {
		if err := ctx.Err(); err != nil {
			return eventstore.Identity{}, err
		}
		id, owned, freed, err := s.tryStart(&opts)
		switch {
		case err != nil:
			return id, err
		case owned == nil:
			return id, nil
		case owned.Here || !opts.Wait:
			return eventstore.Identity{}, owned
		case opts.Observe != nil && !told:
			opts.Observe(eventstore.Notice{What: "waiting for owner", Who: owned.Node})
			told = true
		}
		select {
		case <-freed:
		case <-ctx.Done():
		}
	}
}

// tryStart starts the store, or tells who has it, and when to try again.
func (s *Store) tryStart(opts *eventstore.StartOptions) (eventstore.Identity, *eventstore.OwnedError, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation != 0 {
		return eventstore.Identity{}, &eventstore.OwnedError{Path: "memory", PID: os.Getpid(), Node: s.mu.node, Here: true}, nil, nil
	}
	if len(s.mu.starts) > 0 && !(opts.Relayed && s.mu.relayed) {
		if opts.Wait && s.mu.freed == nil {
			s.mu.freed = make(chan struct{})
		}
		return eventstore.Identity{}, &eventstore.OwnedError{Path: "memory", PID: os.Getpid(), Node: s.mu.node}, s.mu.freed, nil
	}
	if has := s.mu.application; opts.Application != "" && has != opts.Application {
		if has != "" && has != opts.Formerly {
			return eventstore.Identity{}, nil, nil, &eventstore.ApplicationError{Path: "memory", Has: has, Given: opts.Application}
		}
		s.mu.application = opts.Application
	}
	if s.mu.storeID == "" {
		s.mu.storeID = rand.Text()
	}
	s.mu.node = opts.Node
	s.mu.data.generation++
	s.generation = s.mu.data.generation
	s.mu.starts = append(s.mu.starts, eventstore.Owner{PID: os.Getpid(), Node: opts.Node, Generation: s.generation})
	s.mu.relay(opts.Relayed)
	return eventstore.Identity{
		StoreID: s.mu.storeID, StartGeneration: s.generation, Capabilities: eventstore.Capabilities{Shared: opts.Relayed},
	}, nil, nil, nil
}

// Stop closes the store and keeps its data.
func (s *Store) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation == 0 {
		return nil
	}
	s.mu.starts = slices.DeleteFunc(s.mu.starts, func(o eventstore.Owner) bool { return o.Generation == s.generation })
	s.generation = 0
	if s.mu.freed != nil {
		close(s.mu.freed)
		s.mu.freed = nil
	}
	return nil
}

// Begin makes a unit of work.
func (s *Store) Begin(string) eventstore.Tx {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &tx{store: s, generation: s.generation}
}

// PublishIn implements [eventstore.Beginner]: there is no transaction that it could write into.
func (s *Store) PublishIn(ctx context.Context, tx eventstore.SQL, _ []event.Envelope) (*eventstore.Pending, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.generation == 0 {
		return nil, eventstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: a %T cannot be written into: memory has no transactions of an application's own", eventstore.ErrOtherTx, tx)
}

// read runs f with the data, which f may not change; copying what it found is left to the caller, after read.
func (s *Store) read(ctx context.Context, f func(*data)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.generation == 0 {
		return eventstore.ErrClosed
	}
	f(&s.mu.data)
	return nil
}

// change runs f with the data.
func (s *Store) change(ctx context.Context, f func(*data) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation == 0 {
		return eventstore.ErrClosed
	}
	return f(&s.mu.data)
}
