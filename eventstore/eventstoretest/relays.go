package eventstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// whenRelayed has behaviours tested on a store that was started for a relay.
func whenRelayed(checks []check) []check {
	all := make([]check, len(checks))
	for i, c := range checks {
		all[i] = check{c.name, func(f *fixture) {
			f.restartRelayed(f.stop)
			c.run(f)
		}}
	}
	return all
}

func allParts() []event.Part {
	parts := make([]event.Part, event.Parts)
	for i := range parts {
		parts[i] = event.Part(i)
	}
	return parts
}

// hold raises the parts of lanes to a generation, and gives the fences of their owner.
func (f *fixture) hold(g event.Generation, lanes ...event.LaneRef) []eventstore.PartFence {
	f.Helper()
	var held []eventstore.PartFence
	for _, l := range lanes {
		if !eventstore.Holds(held, l) {
			f.raise(l.Part().Unit(), g)
			held = append(held, eventstore.PartFence{Part: l.Part(), Generation: g})
		}
	}
	return held
}

// own takes the part of a lane over, whoever had it.
func (f *fixture) own(l event.LaneRef) []eventstore.PartFence {
	f.Helper()
	return f.hold(f.recover(l.Part().Unit()).Generation+1, l)
}

// unpublished gives everything that is, in lane order.
func (f *fixture) unpublished() []eventstore.Unpublished {
	f.Helper()
	got, err := f.store.Unpublished(f.ctx, allParts(), eventstore.MaxLimit)
	f.must(err)
	slices.SortFunc(got, func(a, b eventstore.Unpublished) int { return a.Lane.Compare(b.Lane) })
	return got
}

// note notes what is published of one lane, with a look if at is not zero.
func (f *fixture) note(held []eventstore.PartFence, l event.LaneRef, through event.Sequence, at time.Time) {
	f.Helper()
	f.must(f.store.NotePublished(f.ctx, held, []eventstore.Published{{Lane: l, Through: through, Look: at}}))
}

func (f *fixture) passing(l event.LaneRef) eventstore.Passing {
	f.Helper()
	got, err := f.store.Passing(f.ctx, []event.LaneRef{l})
	f.must(err)
	f.same("lanes", len(got), 1)
	return got[0]
}

// fenced are all calls that name the parts that their caller holds, each as a change of one lane.
func (f *fixture) fenced(held []eventstore.PartFence, l event.LaneRef) map[string]func() error {
	r := f.store
	return map[string]func() error{
		"NotePublished": func() error {
			return r.NotePublished(f.ctx, held, []eventstore.Published{{Lane: l, Through: 1, Look: base}})
		},
		"SetLooks":    func() error { return r.SetLooks(f.ctx, held, []eventstore.Look{{Lane: l, Published: 9, Due: base}}) },
		"AllLooksDue": func() error { return r.AllLooksDue(f.ctx, held, base) },
		"Diverge":     func() error { return r.Diverge(f.ctx, held, divergence(l, 1, "other")) },
	}
}

// relaying are the calls of the roles of a relay.
func relaying(r eventstore.Store, ctx context.Context) map[string]func() error {
	return map[string]func() error{
		"Unpublished":   func() error { _, err := r.Unpublished(ctx, allParts(), 1); return err },
		"ReadLanes":     func() error { _, err := r.ReadLanes(ctx, []eventstore.LaneRead{{Lane: orders, Limit: 1}}); return err },
		"NotePublished": func() error { return r.NotePublished(ctx, nil, []eventstore.Published{{Lane: orders}}) },
		"DueLooks":      func() error { _, err := r.DueLooks(ctx, allParts(), base, 1); return err },
		"SetLooks":      func() error { return r.SetLooks(ctx, nil, []eventstore.Look{{Lane: orders}}) },
		"AllLooksDue":   func() error { return r.AllLooksDue(ctx, allFences(), base) },
		"Passing":       func() error { _, err := r.Passing(ctx, []event.LaneRef{orders}); return err },
		"Diverge":       func() error { return r.Diverge(ctx, nil, divergence(orders, 1, "lost")) },
		"ListDiverged":  func() error { _, err := r.ListDiverged(ctx, event.LaneRef{}, 1); return err },
		"Adopt":         func() error { _, err := r.Adopt(ctx, position(orders, 1, "lost"), "ann", "why"); return err },
	}
}

func allFences() []eventstore.PartFence {
	held := make([]eventstore.PartFence, event.Parts)
	for i := range held {
		held[i] = eventstore.PartFence{Part: event.Part(i), Generation: 1}
	}
	return held
}

// untouched reports whatever a call of [fixture.fenced] may have left.
func (f *fixture) untouched(l event.LaneRef) {
	f.Helper()
	f.same("published", f.passing(l).Published, event.Sequence(0))
	f.same("looks", f.dueLooks(later), []eventstore.Look{})
	f.same("divergences", f.diverged(), []eventstore.Divergence{})
}

// unpublishedOf is one lane of an answer.
func unpublishedOf(l event.LaneRef, published, tail event.Sequence) eventstore.Unpublished {
	return eventstore.Unpublished{Lane: l, Published: published, Tail: tail}
}

var relays = whenRelayed([]check{
	{"a commit makes each lane that grew unpublished, once", func(f *fixture) {
		f.same("at first", f.unpublished(), []eventstore.Unpublished{})
		f.publish(slices.Concat(f.events("order", "a", 2), backfill(f.events("order", "a", 1)...), f.events("payment", "b", 1))...)
		f.emit(order7, 0, f.events("order", "a", 3)...)
		f.commit(advance(shipping, lane("order", "z"), 0, 5)) // a checkpoint is no record
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{
			unpublishedOf(orders, 0, 5), unpublishedOf(backfillLane("order", "a"), 0, 1), unpublishedOf(lane("payment", "b"), 0, 1),
		})
	}},
	{"a commit that is refused makes nothing unpublished", func(f *fixture) {
		c := advance(shipping, orders, 3, 4)
		c.Publish = f.events("order", "a", 1)
		f.refused(c, eventstore.ErrCheckpointMoved)
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{})
	}},
	{"lanes of the parts asked are given, up to the limit", func(f *fixture) {
		ofPart := make(map[event.Part]int)
		for i := range 100 {
			l := lane("order", fmt.Sprintf("k-%d", i))
			f.publish(f.events("order", l.Key, 1)...)
			ofPart[l.Part()]++
		}
		total := 0
		for _, part := range allParts() {
			got, err := f.store.Unpublished(f.ctx, []event.Part{part}, eventstore.MaxLimit)
			f.must(err)
			f.same("lanes of part "+part.String(), len(got), ofPart[part])
			for _, u := range got {
				f.same("part of "+u.Lane.String(), u.Lane.Part(), part)
			}
			total += len(got)
		}
		f.same("lanes", total, 100)
		got, err := f.store.Unpublished(f.ctx, allParts(), 7)
		f.must(err)
		f.same("up to the limit", len(got), 7)
		none, err := f.store.Unpublished(f.ctx, nil, 7)
		f.must(err)
		f.same("of no part", none, []eventstore.Unpublished{})
	}},
	{"what is noted is published, and what comes after it is not", func(f *fixture) {
		held := f.hold(1, orders)
		f.publish(f.events("order", "a", 3)...)
		f.note(held, orders, 2, time.Time{})
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 2, 3)})
		f.note(held, orders, 3, time.Time{})
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{})
		f.publish(f.events("order", "a", 1)...)
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 3, 4)})
	}},
	{"what is noted only grows", func(f *fixture) {
		held := f.hold(1, orders)
		f.publish(f.events("order", "a", 3)...)
		for _, through := range []event.Sequence{3, 1, 3} {
			f.note(held, orders, through, time.Time{})
			f.same("published", f.passing(orders).Published, event.Sequence(3))
		}
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{})
	}},
	{"several lanes are noted at once", func(f *fixture) {
		other := lane("payment", "b")
		held := f.hold(1, orders, other)
		f.publish(slices.Concat(f.events("order", "a", 2), f.events("payment", "b", 2))...)
		f.must(f.store.NotePublished(f.ctx, held, []eventstore.Published{{Lane: other, Through: 2}, {Lane: orders, Through: 1}}))
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 1, 2)})
		f.must(f.store.NotePublished(f.ctx, held, nil))
		f.must(f.store.NotePublished(f.ctx, nil, nil))
	}},
	{"a note above the last sequence is an error, and nothing is noted", func(f *fixture) {
		other := lane("payment", "b")
		held := f.hold(1, orders, other)
		f.publish(slices.Concat(f.events("order", "a", 2), f.events("payment", "b", 2))...)
		err := f.store.NotePublished(f.ctx, held, []eventstore.Published{{Lane: orders, Through: 2}, {Lane: other, Through: 3}})
		if err == nil || errors.Is(err, eventstore.ErrStale) {
			f.Fatalf("note gave %v", err)
		}
		if err := f.store.NotePublished(f.ctx, f.hold(2, lane("order", "none")), []eventstore.Published{{Lane: lane("order", "none"), Through: 1}}); err == nil {
			f.Fatal("a lane without records was noted")
		}
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 0, 2), unpublishedOf(other, 0, 2)})
	}},
	{"whoever does not hold the part at its generation changes nothing", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		at := func(g event.Generation) []eventstore.PartFence {
			return []eventstore.PartFence{{Part: orders.Part(), Generation: g}}
		}
		for what, held := range map[string][]eventstore.PartFence{"never raised": at(1), "at generation 0": at(0)} {
			for name, call := range f.fenced(held, orders) {
				if err := call(); !errors.Is(err, eventstore.ErrStale) {
					f.Errorf("%s, %s: %v", name, what, err)
				}
			}
		}
		f.hold(5, orders)
		for what, held := range map[string][]eventstore.PartFence{"below": at(4), "above": at(6)} {
			for name, call := range f.fenced(held, orders) {
				if err := call(); !errors.Is(err, eventstore.ErrStale) {
					f.Errorf("%s, %s: %v", name, what, err)
				}
			}
		}
		f.untouched(orders)
		for name, call := range f.fenced(at(5), orders) {
			if err := call(); err != nil {
				f.Errorf("%s by the owner: %v", name, err)
			}
		}
	}},
	{"a lane of none of the parts held is refused", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		other := lane("order", "b")
		for i := 0; other.Part() == orders.Part(); i++ {
			other.Key = fmt.Sprintf("b-%d", i)
		}
		for name, call := range f.fenced(f.hold(1, other), orders) {
			if err := call(); name != "AllLooksDue" && !errors.Is(err, eventstore.ErrStale) {
				f.Errorf("%s: %v", name, err)
			}
		}
		f.publish(f.events("order", other.Key, 1)...)
		held := f.hold(2, other)
		f.is(f.store.NotePublished(f.ctx, held, []eventstore.Published{{Lane: other, Through: 1, Look: base}, {Lane: orders}}), eventstore.ErrStale)
		f.is(f.store.SetLooks(f.ctx, held, []eventstore.Look{{Lane: other, Due: base}, {Lane: orders}}), eventstore.ErrStale)
		f.untouched(orders)
		f.untouched(other)
	}},
	{"one part that is not held refuses the whole call", func(f *fixture) {
		other := lane("order", "b")
		for i := 0; other.Part() == orders.Part(); i++ {
			other.Key = fmt.Sprintf("b-%d", i)
		}
		f.publish(slices.Concat(f.events("order", "a", 1), f.events("order", other.Key, 1))...)
		held := f.hold(1, orders, other)
		f.raise(other.Part().Unit(), 2)
		f.is(f.store.NotePublished(f.ctx, held, []eventstore.Published{{Lane: orders, Through: 1, Look: base}}), eventstore.ErrStale)
		f.is(f.store.SetLooks(f.ctx, held, []eventstore.Look{{Lane: orders, Due: base}}), eventstore.ErrStale)
		f.is(f.store.AllLooksDue(f.ctx, held, base), eventstore.ErrStale)
		f.untouched(orders)
	}},
	{"nothing that is committed while others note is lost", func(f *fixture) {
		const writers, each = 4, 40
		held := f.hold(1, orders)
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for range each {
					if _, err := f.try(eventstore.Changes{Publish: f.events("order", "a", 1)}); err != nil {
						f.Errorf("commit: %v", err)
						return
					}
				}
			})
		}
		written := make(chan struct{})
		go func() { group.Wait(); close(written) }()
		for over := false; ; {
			select {
			case <-written:
				over = true
			default:
			}
			found := f.unpublished()
			for _, u := range found {
				f.note(held, u.Lane, u.Tail, time.Time{})
			}
			if over && len(found) == 0 {
				break
			}
		}
		f.same("published", f.passing(orders).Published, event.Sequence(writers*each))
	}},
	{"what is committed beside a transaction that is open is found, and so is what that one commits", func(f *fixture) {
		if !f.id.Capabilities.Shared || !f.id.Capabilities.SQL {
			f.Skip("one transaction at a time")
		}
		held := f.hold(1, orders)
		open := f.store.Begin("open")
		_, err := open.SQL(f.ctx)
		f.must(err)
		f.publish(f.events("order", "a", 1)...)
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 0, 1)})
		f.note(held, orders, 1, time.Time{})
		_, err = open.Commit(f.ctx, eventstore.Changes{Publish: f.events("order", "a", 1)})
		f.must(err)
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 1, 2)})
	}},
	{"what is unpublished, and what is noted, is kept over a restart", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 3), f.events("order", "b", 1))...)
		f.note(f.own(orders), orders, 2, time.Time{})
		f.note(f.own(lane("order", "b")), lane("order", "b"), 1, time.Time{})
		for _, end := range []func(){f.crash, f.stop} {
			f.restartRelayed(end)
			f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 2, 3)})
		}
	}},
	{"several lanes are read at once, each as one would be", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 4), backfill(f.events("order", "a", 2)...), f.events("order", "b", 2))...)
		f.must(f.store.Abandon(f.ctx, orders, 2, "erased"))
		asked := []eventstore.LaneRead{
			{Lane: lane("order", "b"), Limit: 10}, {Lane: orders, After: 1, Limit: 2}, {Lane: lane("order", "none"), Limit: 1},
			{Lane: backfillLane("order", "a"), Limit: 1}, {Lane: orders, After: 4, Limit: 1}, {Lane: orders, Limit: eventstore.MaxLimit},
		}
		got, err := f.store.ReadLanes(f.ctx, asked)
		f.must(err)
		f.same("runs", len(got), len(asked))
		for i, a := range asked {
			want, err := f.store.ReadLane(f.ctx, a.Lane, a.After, a.Limit)
			f.must(err)
			f.same(fmt.Sprintf("run %d", i), got[i], want)
		}
		f.same("sizes", []int{len(got[0]), len(got[1]), len(got[2]), len(got[3]), len(got[4]), len(got[5])}, []int{2, 2, 0, 1, 0, 4})
		none, err := f.store.ReadLanes(f.ctx, nil)
		f.must(err)
		f.same("none asked", none, [][]event.Envelope{})
	}},
	{"of several lanes no more is read than may be", func(f *fixture) {
		const kib = 1 << 10
		all := f.events("order", "a", 6)
		for i, size := range []int{4 * kib, 1 * kib, 3 * kib, 1, 100 * kib, 0} {
			all[i].Data = bytes.Repeat([]byte{'x'}, size)
		}
		f.publish(append(all, f.events("order", "b", 3)...)...)
		var asked []eventstore.LaneRead
		want := []int{1, 2, 3, 1, 2, 4, 6, 6}
		for _, a := range []eventstore.LaneRead{
			{Bytes: 1}, {Bytes: 5 * kib}, {Bytes: 8 * kib}, {After: 4, Bytes: 1}, {After: 2, Bytes: 4 * kib}, {Bytes: 8*kib + 1}, {Bytes: 1 << 20}, {},
		} {
			a.Lane, a.Limit = orders, 10
			asked = append(asked, a)
		}
		asked, want = append(asked, eventstore.LaneRead{Lane: lane("order", "b"), Limit: 2, Bytes: 1 << 20}), append(want, 2)
		got, err := f.store.ReadLanes(f.ctx, asked)
		f.must(err)
		var sizes []int
		for i, a := range asked {
			sizes = append(sizes, len(got[i]))
			whole, err := f.store.ReadLane(f.ctx, a.Lane, a.After, len(got[i]))
			f.must(err)
			f.same(fmt.Sprintf("run %d", i), got[i], whole)
		}
		f.same("records read", sizes, want)
	}},
	{"a bad limit is an error", func(f *fixture) {
		for _, limit := range []int{0, -1, eventstore.MaxLimit + 1} {
			_, read := f.store.ReadLanes(f.ctx, []eventstore.LaneRead{{Lane: orders, Limit: 1}, {Lane: orders, Limit: limit}})
			_, unpublished := f.store.Unpublished(f.ctx, allParts(), limit)
			_, due := f.store.DueLooks(f.ctx, allParts(), base, limit)
			_, listed := f.store.ListDiverged(f.ctx, event.LaneRef{}, limit)
			for _, err := range []error{read, unpublished, due, listed} {
				if err == nil {
					f.Errorf("limit %d was taken", limit)
				}
			}
		}
	}},
})
