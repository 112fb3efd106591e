package actors

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/internal/ebb"
)

// table finds the unit that lives under a name and key. There is never more than one.
type table struct {
	seed   maphash.Seed
	shards [64]shard

	mu struct {
		sync.Mutex
		count int
		empty []chan struct{} // each closed when count is 0
	}
}

type shard struct {
	mu struct {
		sync.RWMutex
		closed bool
		units  ebb.Map[event.Unit, *unit]
	}
}

func newTable() *table { return &table{seed: maphash.MakeSeed()} }

func (t *table) shard(id event.Unit) *shard {
	return &t.shards[maphash.Comparable(t.seed, id)%uint64(len(t.shards))]
}

// get gives the unit, made with make if there is none; nil once the table is closed. make must not block.
func (t *table) get(id event.Unit, make func() *unit) *unit {
	s := t.shard(id)
	s.mu.RLock()
	u, closed := s.mu.units.Get(id), s.mu.closed
	s.mu.RUnlock()
	if u != nil || closed {
		return u
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u = s.mu.units.Get(id); u != nil || s.mu.closed {
		return u
	}
	u = make()
	s.mu.units.Set(id, u)
	t.add(1)
	return u
}

// find gives the unit, nil when there is none.
func (t *table) find(id event.Unit) *unit {
	s := t.shard(id)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mu.units.Get(id)
}

// shardwise gives the units there are, some at a time, valid until the next. No lock is held meanwhile.
func (t *table) shardwise() iter.Seq[[]*unit] {
	return func(yield func([]*unit) bool) {
		var some []*unit
		for i := range t.shards {
			s := &t.shards[i]
			some = some[:0]
			s.mu.RLock()
			for _, u := range s.mu.units.All() {
				some = append(some, u)
			}
			s.mu.RUnlock()
			if !yield(some) {
				return
			}
		}
	}
}

// remove forgets a unit; it may have been removed already, and another have taken its place.
func (t *table) remove(u *unit) {
	s := t.shard(u.id)
	s.mu.Lock()
	found := s.mu.units.Get(u.id) == u
	if found {
		s.mu.units.Delete(u.id)
	}
	s.mu.Unlock()
	if found {
		t.add(-1)
	}
}

func (t *table) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.count += n
	if t.mu.count == 0 {
		for _, c := range t.mu.empty {
			close(c)
		}
		t.mu.empty = nil
	}
}

// close lets no unit be made any more.
func (t *table) close() {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.mu.closed = true
		s.mu.Unlock()
	}
}

// all gives the units there are, in order of name and key.
func (t *table) all() []*unit {
	var all []*unit
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for _, u := range s.mu.units.All() {
			all = append(all, u)
		}
		s.mu.RUnlock()
	}
	slices.SortFunc(all, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(a.id.Name, b.id.Name), cmp.Compare(a.id.Key, b.id.Key))
	})
	return all
}

// wait returns when there is no unit, or ctx is done.
func (t *table) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.mu.count == 0 {
		t.mu.Unlock()
		return nil
	}
	empty := make(chan struct{})
	t.mu.empty = append(t.mu.empty, empty)
	t.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for units: %w", context.Cause(ctx))
	}
}
