package keyholdtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
)

// Two cases that an entity under test has beside its own.
type (
	// history is a command that emits events.
	history struct{ events []any }
	emitted struct{}
	// look is a query for the state as it lies in memory: where S shares memory, with that memory.
	look         struct{}
	sight[S any] struct {
		state   S
		version uint64
	}
)

// observed gives an entity these cases, and has it take a snapshot as often as it can.
func observed[S any](def keyhold.Entity[S]) keyhold.Entity[S] {
	def.Commands = append(slices.Clone(def.Commands), keyhold.OnCommand(func(c keyhold.Command, _ S, in *history) (*emitted, error) {
		c.Emit(in.events...)
		return nil, nil
	}))
	def.Queries = append(slices.Clone(def.Queries), keyhold.OnQuery(func(q keyhold.Query, s S, _ *look) (*sight[S], error) {
		return &sight[S]{state: s, version: q.Version()}, nil
	}))
	if def.SnapshotEvery >= 0 {
		def.SnapshotEvery = 1
	}
	return def
}

// replay follows the state of one entity by folding what was stored: twice, each time from bytes of its own, so that the two
// share nothing.
type replay[S any] struct {
	def         keyhold.Entity[S]
	state, twin S
	version     uint64
	told        bool
}

func newReplay[S any](def keyhold.Entity[S], id string) *replay[S] {
	m := &replay[S]{def: def}
	if def.New != nil {
		m.state, m.twin = def.New(id), def.New(id)
	}
	return m
}

func diffState(want, got any) string { return cmp.Diff(want, got, stateComparison) }

// fold applies one event, twice decoded.
func (m *replay[S]) fold(e *event.Envelope, one, two any) error {
	before := m.twin
	next, err := m.def.Apply(m.state, one)
	if err != nil {
		return err
	}
	if d := diffState(before, m.state); d != "" {
		return fmt.Errorf("the fold of %s changed the state that it was given: somebody may still hold it, so change a copy "+
			"(maps.Clone, slices.Clone) (-before +after):\n%s", e.Type, d)
	}
	again, err := m.def.Apply(m.twin, two)
	if err != nil {
		return err
	}
	if d := diffState(next, again); d != "" {
		return fmt.Errorf("the fold of %s made two states of the same event: it must depend on its arguments alone (-once +again):\n%s", e.Type, d)
	}
	m.state, m.twin, m.version = next, again, e.StreamVersion
	return nil
}

// look gives the state as it lies in memory.
func (e *EntityTest[S]) look() (*sight[S], error) {
	ctx, cancel := e.k.context()
	defer cancel()
	return keyhold.Ask[*sight[S]](ctx, e.k.app, e.def.ID(e.id), &look{})
}

// done is something that was done with an entity.
type done[S any] struct {
	what   string
	before *sight[S] // nil where it was not looked at, or could not be
	err    error
}

// check follows what was stored and compares it with what lies in memory, now and before what was done.
func (e *EntityTest[S]) check(d done[S]) {
	e.k.T.Helper()
	if e.told {
		return
	}
	if err := e.compare(d); err != nil {
		e.told = true // everything after it would be wrong as well
		e.k.errorf("%s: %v", e.unit(), err)
	}
}

func (e *EntityTest[S]) compare(d done[S]) error {
	if d.before != nil {
		if err := e.follow(d.before.version); err != nil {
			return err
		}
	}
	was := e.twin
	now, err := e.look()
	switch {
	case err != nil && d.err != nil:
		return nil // that error says it
	case err != nil:
		return fmt.Errorf("after %s: %w", d.what, err)
	}
	if err := e.follow(now.version); err != nil {
		return err
	}
	if d.before != nil {
		if changed := diffState(was, d.before.state); changed != "" {
			return fmt.Errorf("%s changed the state that it was given: emit an event, and have the fold make a new state (-before +after):\n%s", d.what, changed)
		}
	}
	if other := diffState(e.state, now.state); other != "" {
		return fmt.Errorf("after %s the state in memory is not what its events make of it: something in them does not survive "+
			"being stored (-stored +in memory):\n%s", d.what, other)
	}
	return e.snapshot()
}

// follow folds what was stored up to a version.
func (e *EntityTest[S]) follow(version uint64) error {
	ctx := context.WithoutCancel(e.k.T.Context())
	for e.version < version {
		events, err := e.k.store.ReadStream(ctx, event.Stream{Kind: e.def.Kind, ID: e.id}, e.version, int(min(version-e.version, most)))
		if err != nil {
			return err
		}
		for i := range events {
			if err := e.fold(&events[i], e.k.decode(&events[i]), e.k.decode(&events[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshot has the state go through a snapshot.
func (e *EntityTest[S]) snapshot() error {
	if e.def.SnapshotEvery < 0 {
		return nil
	}
	got, err := e.def.Snapshotted(e.k.types, e.state)
	if err != nil {
		return fmt.Errorf("a snapshot of the state: %w", err)
	}
	if d := diffState(e.state, got); d != "" {
		return fmt.Errorf("the state does not survive a snapshot (-state +snapshot):\n%s", d)
	}
	return nil
}
