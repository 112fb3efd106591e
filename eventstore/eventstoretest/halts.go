package eventstoretest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// halt halts a unit before an event and gives the row.
func (f *fixture) halt(u event.Unit, l event.LaneRef, at event.Sequence) eventstore.Halt {
	f.Helper()
	h := eventstore.Halt{
		Unit: u, Lane: l, Sequence: at, EventID: fmt.Sprintf("e-%d", at), EventType: "order.happened",
		Attempts: 5, Reason: "retries exhausted", Error: "no carrier", Since: base, Generation: 3,
	}
	f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Halt: &h})
	return h
}

func (f *fixture) listHalts(name string, after event.Unit, limit int) []eventstore.Halt {
	f.Helper()
	got, err := f.store.ListHalts(f.ctx, name, after, limit)
	f.must(err)
	return got
}

func (f *fixture) listDead(name string, after event.Position, limit int) []eventstore.Dead {
	f.Helper()
	got, err := f.store.ListDead(f.ctx, name, after, limit)
	f.must(err)
	return got
}

func lift(ref eventstore.HaltRef) eventstore.Changes { return eventstore.Changes{LiftHalt: &ref} }

// moved checks that err is a *HaltMovedError and gives the halt there is.
func (f *fixture) moved(err error, wanted eventstore.HaltRef) *eventstore.Halt {
	f.Helper()
	var moved *eventstore.HaltMovedError
	if !errors.As(err, &moved) {
		f.Fatalf("got %v, want a *HaltMovedError", err)
	}
	f.same("halt wanted", moved.Wanted, wanted)
	return moved.Now
}

var halts = []check{
	{"a halt comes back as it was, and fences nothing but its unit", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		h := f.halt(shipping, orders, 2)
		f.same("halt", f.recover(shipping).Halt, &h)
		f.same("halt of another unit", f.recover(billing).Halt, (*eventstore.Halt)(nil))
		f.same("halt of another key", f.recover(event.Unit{Name: "shipping", Key: "b"}).Halt, (*eventstore.Halt)(nil))
		f.same("list", f.listHalts("", event.Unit{}, 10), []eventstore.Halt{h})
	}},
	{"a unit has one halt, the last", func(f *fixture) {
		f.halt(shipping, orders, 2)
		h := f.halt(shipping, lane("payment", "a"), 1)
		f.same("halt", f.recover(shipping).Halt, &h)
		f.same("list", f.listHalts("shipping", event.Unit{}, 10), []eventstore.Halt{h})
	}},
	{"a halt at or below the checkpoint is void", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.commit(advance(shipping, orders, 0, 2))
		for _, at := range []event.Sequence{1, 2} {
			h := f.halt(shipping, orders, at)
			f.same("halt", f.recover(shipping, orders).Halt, (*eventstore.Halt)(nil))
			f.same("list", f.listHalts("", event.Unit{}, 10), []eventstore.Halt{})
			f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
			_, err := f.try(lift(h.Ref()))
			f.same("halt now", f.moved(err, h.Ref()), (*eventstore.Halt)(nil))
		}
		h := f.halt(shipping, orders, 3)
		f.same("halt", f.recover(shipping).Halt, &h)
	}},
	{"a checkpoint that passes a halt makes it void", func(f *fixture) {
		f.halt(shipping, orders, 3)
		f.commit(advance(shipping, orders, 0, 2))
		if f.recover(shipping).Halt == nil {
			f.Fatal("the halt at 3 is void at checkpoint 2")
		}
		f.commit(advance(shipping, orders, 2, 3))
		f.same("halt", f.recover(shipping).Halt, (*eventstore.Halt)(nil))
	}},
	{"only the checkpoint of its own lane makes a halt void", func(f *fixture) {
		h := f.halt(shipping, orders, 3)
		f.commit(advance(shipping, backfillLane("order", "a"), 0, 9))
		f.commit(advance(shipping, lane("payment", "a"), 0, 9))
		f.commit(advance(billing, orders, 0, 9))
		f.same("halt", f.recover(shipping).Halt, &h)
	}},
	{"a halt may come with the checkpoint before it", func(f *fixture) {
		c := advance(shipping, orders, 0, 2)
		c.Halt = &eventstore.Halt{Unit: shipping, Lane: orders, Sequence: 3, Since: base}
		f.commit(c)
		got := f.recover(shipping, orders)
		f.same("checkpoint", got.Checkpoints[0].Sequence, event.Sequence(2))
		f.same("halt", got.Halt, c.Halt)
	}},
	{"a halt is kept over a restart", func(f *fixture) {
		h := f.halt(shipping, orders, 2)
		f.restart(f.crash)
		f.same("halt", f.recover(shipping).Halt, &h)
		f.same("list", f.listHalts("", event.Unit{}, 10), []eventstore.Halt{h})
		f.commit(lift(h.Ref()))
	}},
	{"lifting ends a halt", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		h := f.halt(shipping, orders, 1)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{})
		f.commit(lift(h.Ref()))
		f.same("halt", f.recover(shipping).Halt, (*eventstore.Halt)(nil))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
	}},
	{"lifting a halt that moved is refused with the halt there is", func(f *fixture) {
		first := f.halt(shipping, orders, 1)
		now := f.halt(shipping, orders, 2)
		backRef := eventstore.HaltRef{Unit: shipping, Lane: backfillLane("order", "a"), Sequence: 2}
		for _, ref := range []eventstore.HaltRef{first.Ref(), backRef} {
			_, err := f.try(lift(ref))
			f.same("halt now", f.moved(err, ref), &now)
		}
		f.same("halt", f.recover(shipping).Halt, &now)
	}},
	{"lifting where there is no halt is refused with none", func(f *fixture) {
		h := f.halt(shipping, orders, 1)
		ref := eventstore.HaltRef{Unit: billing, Lane: orders, Sequence: 1}
		_, err := f.try(lift(ref))
		f.same("halt now", f.moved(err, ref), (*eventstore.Halt)(nil))
		f.commit(lift(h.Ref()))
		_, err = f.try(lift(h.Ref()))
		f.same("halt now", f.moved(err, h.Ref()), (*eventstore.Halt)(nil))
	}},
	{"a refused lift leaves nothing of the unit of work", func(f *fixture) {
		ref := eventstore.HaltRef{Unit: shipping, Lane: orders, Sequence: 1}
		c := advance(shipping, orders, 0, 1)
		c.LiftHalt, c.Publish = &ref, f.events("audit", "a", 1)
		_, err := f.try(c)
		f.moved(err, ref)
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(0))
		f.same("tail", f.tail(lane("audit", "a")), event.Sequence(0))
	}},
	{"of two that lift one halt one wins", func(f *fixture) {
		h := f.halt(shipping, orders, 1)
		var (
			group sync.WaitGroup
			won   atomic.Int32
		)
		for range 4 {
			group.Go(func() {
				var moved *eventstore.HaltMovedError
				switch _, err := f.try(lift(h.Ref())); {
				case err == nil:
					won.Add(1)
				case !errors.As(err, &moved):
					f.Errorf("lift: %v", err)
				}
			})
		}
		group.Wait()
		f.same("winners", won.Load(), int32(1))
	}},
	{"an owner that looked at a halted unit does not get in the way of the act", func(f *fixture) {
		h := f.halt(shipping, orders, 1)
		f.raise(shipping, 7, orders)
		f.commit(lift(h.Ref()))
	}},
	{"skip: lift, dead letter and checkpoint are one commit", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		h := f.halt(shipping, orders, 1)
		ref := h.Ref()
		dead := eventstore.Dead{Unit: shipping, Lane: orders, Sequence: 1, EventID: h.EventID, Type: h.EventType, Reason: "skipped", Time: base}
		c := advance(shipping, orders, 0, 1)
		c.LiftHalt, c.Dead = &ref, []eventstore.Dead{dead}
		f.commit(c)
		f.same("halt", f.recover(shipping).Halt, (*eventstore.Halt)(nil))
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(1))
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{dead})
	}},
	{"halts are listed by unit, page by page", func(f *fixture) {
		want := []eventstore.Halt{
			f.halt(event.Unit{Name: "billing", Key: "b"}, lane("order", "b"), 1),
			f.halt(event.Unit{Name: "shipping", Key: "a"}, orders, 1),
			f.halt(event.Unit{Name: "shipping", Key: "aa"}, lane("order", "aa"), 1),
			f.halt(event.Unit{Name: "shipping", Key: "c"}, lane("order", "c"), 1),
		}
		for _, q := range []struct {
			name string
			want []eventstore.Halt
		}{{"", want}, {"shipping", want[1:]}, {"ship", nil}} {
			var got []eventstore.Halt
			for after := (event.Unit{}); ; after = got[len(got)-1].Unit {
				page := f.listHalts(q.name, after, 2)
				if len(page) == 0 {
					break
				}
				got = append(got, page...)
			}
			f.same("halts of "+q.name, got, q.want)
		}
	}},
	{"a page of halts is full although void ones lie between", func(f *fixture) {
		f.halt(event.Unit{Name: "shipping", Key: "a"}, orders, 1)
		f.commit(advance(shipping, orders, 0, 1))
		want := []eventstore.Halt{
			f.halt(event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"), 1),
			f.halt(event.Unit{Name: "shipping", Key: "c"}, lane("order", "c"), 1),
		}
		f.same("halts", f.listHalts("shipping", event.Unit{}, 2), want)
	}},
	{"dead letters come in the commit of their checkpoint, as they were", func(f *fixture) {
		dead := eventstore.Dead{
			Unit: shipping, Lane: orders, Sequence: 1, EventID: "e-1", Type: "order.happened",
			Attempts: 5, Reason: "poison", Error: "no carrier", Time: base,
		}
		c := advance(shipping, orders, 0, 1)
		c.Dead = []eventstore.Dead{dead}
		f.commit(c)
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{dead})
		f.same("of another handler", f.listDead("billing", event.Position{}, 10), []eventstore.Dead{})
		c = advance(shipping, orders, 0, 2) // has moved
		c.Dead = []eventstore.Dead{{Unit: shipping, Lane: orders, Sequence: 2, Time: base}}
		f.refused(c, eventstore.ErrCheckpointMoved)
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{dead})
	}},
	{"dead letters are listed by key, category, lane and sequence, page by page", func(f *fixture) {
		var want []eventstore.Dead
		for _, l := range []event.LaneRef{lane("payment", "a"), backfillLane("payment", "a"), lane("order", "b"), lane("payment", "b")} {
			for n := event.Sequence(9); n <= 10; n++ {
				want = append(want, eventstore.Dead{Unit: event.Unit{Name: "shipping", Key: l.Key}, Lane: l, Sequence: n, Time: base})
			}
		}
		shuffled := slices.Clone(want)
		slices.Reverse(shuffled)
		for _, d := range shuffled {
			f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: d.Unit}, Dead: []eventstore.Dead{d}})
		}
		var got []eventstore.Dead
		for after := (event.Position{}); ; {
			page := f.listDead("shipping", after, 3)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			last := got[len(got)-1]
			after = event.Position{Lane: last.Lane, Sequence: last.Sequence}
		}
		f.same("dead letters", got, want)
	}},
}
