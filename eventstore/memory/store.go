package memory

import (
	"context"
	"crypto/rand"
	"os"
	"sync"

	"github.com/keyhold/keyhold/eventstore"
)

// Store is an [eventstore.Store] in memory. Make one with [Open].
type Store struct {
	owner chan struct{} // holds one token while the store is started

	mu struct {
		sync.RWMutex
		open    bool
		storeID string // "" before the first Start
		node    string // of the owner
		data
	}
}

var _ eventstore.Store = (*Store)(nil)

// Open makes an empty store.
func Open() *Store {
	s := &Store{owner: make(chan struct{}, 1)}
	s.mu.data = newData()
	return s
}

// Start opens the store, which only one caller has at a time: until Stop another Start of the same value is refused with
// [*eventstore.OwnedError], or waits.
func (s *Store) Start(ctx context.Context, opts eventstore.StartOptions) (eventstore.Identity, error) {
	if err := ctx.Err(); err != nil {
		return eventstore.Identity{}, err
	}
	if err := s.own(ctx, opts); err != nil {
		return eventstore.Identity{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.storeID == "" {
		s.mu.storeID = rand.Text()
	}
	s.mu.open = true
	s.mu.node = opts.Node
	s.mu.generation++
	return eventstore.Identity{StoreID: s.mu.storeID, StartGeneration: s.mu.generation}, nil
}

func (s *Store) own(ctx context.Context, opts eventstore.StartOptions) error {
	select {
	case s.owner <- struct{}{}:
		return nil
	default:
	}
	owned := s.ownedBy()
	if !opts.Wait {
		return owned
	}
	if opts.Observe != nil {
		opts.Observe(eventstore.Notice{What: "waiting for owner", Who: owned.Node})
	}
	select {
	case s.owner <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) ownedBy() *eventstore.OwnedError {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &eventstore.OwnedError{Path: "memory", PID: os.Getpid(), Node: s.mu.node}
}

// Stop closes the store and keeps its data.
func (s *Store) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.open {
		s.mu.open = false
		<-s.owner
	}
	return nil
}

// Begin makes a unit of work.
func (s *Store) Begin(string) eventstore.Tx {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &tx{store: s, generation: s.mu.generation}
}

// read runs f with the data, which f may not change; copying what it found is left to the caller, after read.
func (s *Store) read(ctx context.Context, f func(*data)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.mu.open {
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
	if !s.mu.open {
		return eventstore.ErrClosed
	}
	return f(&s.mu.data)
}
