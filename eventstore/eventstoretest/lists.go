package eventstoretest

import (
	"errors"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// passedOver is an advance decided by the lists of a revision.
func passedOver(revision uint64, from, to event.Sequence) eventstore.Changes {
	c := advance(shipping, orders, from, to)
	c.Listed = revision
	return c
}

var listed = []check{
	{"events are passed over by the lists of the present revision", func(f *fixture) {
		f.commit(passedOver(0, 0, 1))
		f.register([]string{"shipping", "order"})
		f.commit(passedOver(f.loadRegistry().Revision, 1, 2))
		f.commit(passedOver(0, 2, 3)) // by no list
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(3))
	}},
	{"a commit by lists of another revision is refused, and nothing of it happens", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		read := f.loadRegistry().Revision
		f.register([]string{"billing", "order"})
		now := f.loadRegistry().Revision
		for _, revision := range []uint64{read, now + 1} {
			c := passedOver(revision, 0, 1)
			c.Publish = f.events("order", "a", 1)
			err := f.refused(c, eventstore.ErrListMoved)
			var moved *eventstore.ListMovedError
			if !errors.As(err, &moved) {
				f.Fatalf("commit gave %v, want a *ListMovedError", err)
			}
			f.same("error", *moved, eventstore.ListMovedError{Read: revision, Actual: now})
		}
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(0))
		f.same("tail", f.tail(orders), event.Sequence(0))
		f.commit(passedOver(now, 0, 1))
	}},
	{"lists moved where nothing was ever saved, too", func(f *fixture) {
		err := f.refused(passedOver(1, 0, 1), eventstore.ErrListMoved)
		var moved *eventstore.ListMovedError
		if !errors.As(err, &moved) || moved.Actual != 0 {
			f.Fatalf("commit gave %v", err)
		}
	}},
	{"what is done to a handler moves the lists", func(f *fixture) {
		f.retired([]string{"shipping", "order"}, []string{"billing", "order"})
		read := f.loadRegistry().Revision
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "billing"}))
		f.refused(passedOver(read, 0, 1), eventstore.ErrListMoved)
	}},
	{"no commit by the former lists happens after a save", func(f *fixture) {
		var at event.Sequence
		for range 30 {
			var (
				group     sync.WaitGroup
				committed error
			)
			c := passedOver(f.loadRegistry().Revision, at, at+1)
			if c.Listed == 0 {
				f.register([]string{"shipping", "order"})
				continue
			}
			group.Go(func() { _, committed = f.try(c) })
			f.register([]string{"shipping", "order"})
			seen := f.checkpoint(shipping, orders)
			group.Wait()
			switch {
			case committed == nil:
				at++
			case !errors.Is(committed, eventstore.ErrListMoved):
				f.Fatalf("commit: %v", committed)
			}
			f.same("checkpoint when the save was done", seen, at)
		}
	}},
}
