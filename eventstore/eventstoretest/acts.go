package eventstoretest

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// stateMoved does an act that must be refused with the present state, and gives the error.
func (f *fixture) stateMoved(a eventstore.Act) *eventstore.StateMovedError {
	f.Helper()
	before := f.lastAct()
	_, err := f.store.Act(f.ctx, a)
	var moved *eventstore.StateMovedError
	if !errors.As(err, &moved) || !errors.Is(err, eventstore.ErrStateMoved) {
		f.Fatalf("%s %s gave %v, want a *StateMovedError", a.Kind, a.Unit, err)
	}
	f.same("state told", moved.Now, f.state(a.Unit))
	f.same("last act", f.lastAct(), before)
	if moved.Why == "" {
		f.Fatal("the error does not say why")
	}
	return moved
}

func (f *fixture) lastAct() int64 {
	f.Helper()
	got, err := f.store.LastAct(f.ctx)
	f.must(err)
	return got
}

func (f *fixture) actsAfter(id int64, limit int) []eventstore.ActRecord {
	f.Helper()
	got, err := f.store.ActsAfter(f.ctx, id, limit)
	f.must(err)
	return got
}

func (f *fixture) listActs(q eventstore.ActQuery) []eventstore.ActRecord {
	f.Helper()
	got, err := f.store.ListActs(f.ctx, q)
	f.must(err)
	return got
}

func position(l event.LaneRef, at event.Sequence, id string) event.Position {
	return event.Position{Lane: l, Sequence: at, EventID: id}
}

// haltNext publishes count events, of which shipping has passed all but the last, at which it is halted.
func (f *fixture) haltNext(u event.Unit, l event.LaneRef, count int) eventstore.Halt {
	f.Helper()
	f.publish(f.events(l.Category, l.Key, count)...)
	if count > 1 {
		f.commit(advance(u, l, 0, event.Sequence(count-1)))
	}
	return f.halt(u, l, event.Sequence(count))
}

var actsOnHalts = []check{
	{"retry lifts a halt, forgets the attempts, and leaves a row that tells all", func(f *fixture) {
		h := f.haltNext(shipping, orders, 3)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Tried: triedAt(orders, 3)})
		a := seeing(eventstore.ActRetry, shipping, orders, 3)
		a.Seen.EventID, a.Since, a.Time = h.EventID, h.Since, base.Add(time.Hour)
		got := f.act(a)
		f.same("row", got, eventstore.ActRecord{
			ID: f.lastAct(), Kind: eventstore.ActRetry, Unit: shipping, Event: position(orders, 3, h.EventID),
			Actor: "ann", Reason: "carrier is back", Time: a.Time,
			Detail: "halted at order:a #3 (retries exhausted), now tries it again",
		})
		f.same("rows", f.actsAfter(0, 10), []eventstore.ActRecord{got})
		r := f.recover(shipping, orders)
		f.same("halt", r.Halt, (*eventstore.Halt)(nil))
		f.same("tried", r.Tried, (*eventstore.Tried)(nil))
		f.same("checkpoint", r.Checkpoints[0].Sequence, event.Sequence(2))
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
	}},
	{"retry of a unit that has applied another history leaves the checkpoint where it is, at the event that the broker has", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.commit(advance(shipping, orders, 0, 2))
		h := eventstore.Halt{Unit: shipping, Lane: orders, Sequence: 3, EventID: "another 2", Reason: eventstore.HistoryDiverged, Since: base}
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Halt: &h})
		f.stateMoved(seeing(eventstore.ActSkip, shipping, orders, 3))
		a := seeing(eventstore.ActRetry, shipping, orders, 3)
		f.act(a)
		f.same("recovered", f.recover(shipping, orders), eventstore.Recovered{
			Unit: shipping, Checkpoints: []event.Position{position(orders, 2, "another 2")},
		})
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
	}},
	{"skip moves the checkpoint by exactly one, keeps the event's id, and leaves no dead letter", func(f *fixture) {
		h := f.haltNext(shipping, orders, 3)
		f.publish(f.events("order", "a", 2)...)
		got := f.act(seeing(eventstore.ActSkip, shipping, orders, 3))
		f.same("event", got.Event, position(orders, 3, h.EventID))
		f.same("recovered", f.recover(shipping, orders), eventstore.Recovered{
			Unit: shipping, Checkpoints: []event.Position{position(orders, 3, h.EventID)},
		})
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{})
		f.same("halts", f.listHalts("", event.Unit{}, 10), []eventstore.Halt{})
	}},
	{"dead-letter does the same and keeps the event with what was known of it", func(f *fixture) {
		h := f.haltNext(shipping, orders, 1)
		a := seeing(eventstore.ActDeadLetter, shipping, orders, 1)
		a.Time = base.Add(time.Hour)
		f.act(a)
		f.same("recovered", f.recover(shipping, orders), eventstore.Recovered{
			Unit: shipping, Checkpoints: []event.Position{position(orders, 1, h.EventID)},
		})
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{{
			Unit: shipping, Lane: orders, Sequence: 1, EventID: h.EventID, Type: h.EventType,
			Attempts: h.Attempts, Reason: h.Reason, Error: h.Error, Time: a.Time,
		}})
	}},
	{"what moved since the person looked is refused with the state there is", func(f *fixture) {
		f.haltNext(shipping, orders, 2)
		for what, spoil := range map[string]func(a *eventstore.Act){
			"another event": func(a *eventstore.Act) { a.Seen.Sequence = 1 },
			"another lane":  func(a *eventstore.Act) { a.Seen.Lane = backfillLane("order", "a") },
			"another id":    func(a *eventstore.Act) { a.Seen.EventID = "other" },
			"another time":  func(a *eventstore.Act) { a.Since = base.Add(time.Millisecond) },
		} {
			for _, kind := range []eventstore.ActKind{eventstore.ActRetry, eventstore.ActSkip, eventstore.ActDeadLetter} {
				a := seeing(kind, shipping, orders, 2)
				spoil(&a)
				if moved := f.stateMoved(a); !strings.Contains(moved.Why, "halted at order:a #2") {
					f.Fatalf("%s, %s: %q", kind, what, moved.Why)
				}
			}
		}
		f.same("halt", f.recover(shipping).Halt.Sequence, event.Sequence(2))
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(1))
	}},
	{"an event halted again is another halt", func(f *fixture) {
		h := f.haltNext(shipping, orders, 1)
		a := seeing(eventstore.ActRetry, shipping, orders, 1)
		a.Since = h.Since
		f.act(a)
		h.Since = base.Add(time.Hour)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Halt: &h})
		f.stateMoved(a)
		a.Since = time.Time{} // whichever
		f.act(a)
	}},
	{"a halt that was lifted, or is void, is none", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.haltNext(shipping, orders, 1)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		moved := f.stateMoved(seeing(eventstore.ActSkip, shipping, orders, 1))
		f.same("why", moved.Why, "it is not halted and has nothing parked")
		f.halt(shipping, orders, 1)
		f.commit(advance(shipping, orders, 0, 1))
		f.stateMoved(seeing(eventstore.ActSkip, shipping, orders, 1))
	}},
	{"skip passes nothing but the event of the halt", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		f.halt(shipping, orders, 3)
		for _, kind := range []eventstore.ActKind{eventstore.ActSkip, eventstore.ActDeadLetter} {
			if moved := f.stateMoved(seeing(kind, shipping, orders, 3)); !strings.Contains(moved.Why, "not applied yet") {
				f.Fatal(moved.Why)
			}
		}
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(0))
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{})
	}},
	{"an act needs no fence, and the owner that it passed commits nothing of that event", func(f *fixture) {
		f.raise(shipping, 5)
		f.haltNext(shipping, orders, 1)
		f.raise(shipping, 6)
		f.act(seeing(eventstore.ActSkip, shipping, orders, 1))
		f.refused(leased(shipping, 6, orders, 0, 1), eventstore.ErrCheckpointMoved)
		f.commit(leased(shipping, 6, orders, 1, 2))
	}},
	{"of two that act on one halt one wins", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.haltNext(shipping, orders, 1)
		var (
			group sync.WaitGroup
			won   atomic.Int32
		)
		for _, kind := range []eventstore.ActKind{eventstore.ActRetry, eventstore.ActSkip, eventstore.ActDeadLetter, eventstore.ActSkip} {
			group.Go(func() {
				switch _, err := f.store.Act(f.ctx, seeing(kind, shipping, orders, 1)); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, eventstore.ErrStateMoved):
					f.Errorf("%s: %v", kind, err)
				}
			})
		}
		group.Wait()
		f.same("winners", won.Load(), int32(1))
		f.same("rows", len(f.actsAfter(0, 10)), 1)
	}},
}

var actsOnParked = []check{
	{"retry of what applies its parked events already is refused", func(f *fixture) {
		f.park(shipping, orders, 2)
		f.same("row", f.act(seeing(eventstore.ActRetry, shipping, orders, 1)).Detail,
			"2 events parked from order:a #1 on (retries exhausted), now applies them")
		f.stateMoved(seeing(eventstore.ActRetry, shipping, orders, 1))
	}},
	{"retry of a unit that halted because it had no room has it apply its parked events first", func(f *fixture) {
		f.park(shipping, orders, 2)
		f.publish(f.events("order", "a", 1)...)
		full := eventstore.Halt{Unit: shipping, Lane: orders, Sequence: 3, Reason: eventstore.TooManyParked, Since: base}
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Halt: &full})
		f.act(seeing(eventstore.ActRetry, shipping, orders, 3))
		got := f.recover(shipping)
		f.same("halt", got.Halt, (*eventstore.Halt)(nil))
		f.same("due", got.Due, true)
		f.same("first", f.dueRefs(shipping)[0], parkedRef(orders, 1))
	}},
	{"skip drops the first parked event and goes on with the next; the last one ends parking", func(f *fixture) {
		rows := f.park(shipping, orders, 2)
		got := f.act(seeing(eventstore.ActSkip, shipping, orders, 1))
		f.same("event", got.Event, position(orders, 1, rows[0].EventID))
		f.same("parked", f.parked(shipping), due(rows[1:]))
		f.act(seeing(eventstore.ActSkip, shipping, orders, 2)) // it is due: whoever is at it will not commit
		f.refused(through(shipping, parkedRef(orders, 2)), eventstore.ErrAsideMoved)
		f.same("recovered", f.recover(shipping), eventstore.Recovered{Unit: shipping})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(2))
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{})
	}},
	{"dead-letter keeps the first parked event", func(f *fixture) {
		rows := f.park(shipping, orders, 2)
		a := seeing(eventstore.ActDeadLetter, shipping, orders, 1)
		a.Time, a.Since = base.Add(time.Hour), base
		f.act(a)
		f.same("parked", f.parked(shipping), due(rows[1:]))
		f.same("dead letters", f.listDead("shipping", event.Position{}, 10), []eventstore.Dead{{
			Unit: shipping, Lane: orders, Sequence: 1, EventID: rows[0].EventID, Type: rows[0].Type,
			Attempts: rows[0].Attempts, Reason: rows[0].Reason, Error: rows[0].Error, Time: a.Time,
		}})
	}},
	{"another event than the first, or another failure of it, is refused", func(f *fixture) {
		f.park(shipping, orders, 2)
		f.stateMoved(seeing(eventstore.ActSkip, shipping, orders, 2))
		f.stateMoved(seeing(eventstore.ActRetry, shipping, payments, 1))
		late := seeing(eventstore.ActRetry, shipping, orders, 1)
		late.Since = base.Add(time.Second)
		f.stateMoved(late)
		other := seeing(eventstore.ActRetry, shipping, orders, 1)
		other.Seen.EventID = "other"
		f.stateMoved(other)
		f.same("parked", len(f.parked(shipping)), 2)
	}},
	{"a unit that is halted and parks is acted on at what the person saw", func(f *fixture) {
		rows := f.park(shipping, payments, 1)
		h := f.haltNext(shipping, orders, 1)
		f.act(seeing(eventstore.ActRetry, shipping, payments, 1))
		f.same("parked", f.parked(shipping), due(rows))
		f.same("halt", f.recover(shipping).Halt, &h)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.same("halt", f.recover(shipping).Halt, (*eventstore.Halt)(nil))
	}},
}

var auditRows = []check{
	{"before the first act there is none", func(f *fixture) {
		f.same("last", f.lastAct(), int64(0))
		f.same("after", f.actsAfter(0, 10), []eventstore.ActRecord{})
		f.same("list", f.listActs(eventstore.ActQuery{Limit: 10}), []eventstore.ActRecord{})
	}},
	{"acts are found by id in order, and listed the newest first, page by page", func(f *fixture) {
		f.register([]string{"billing", "order"}, []string{"shipping", "order"})
		f.publish(append(f.events("order", "a", 1), f.events("order", "b", 1)...)...)
		var want []eventstore.ActRecord
		for _, u := range []event.Unit{{Name: "shipping", Key: "b"}, shipping, billing, {Name: "shipping"}} {
			want = append(want, f.act(doing(eventstore.ActPause, u)), f.act(doing(eventstore.ActResume, u)))
		}
		f.same("last", f.lastAct(), want[7].ID)
		var got []eventstore.ActRecord
		for id := int64(0); ; id = got[len(got)-1].ID {
			page := f.actsAfter(id, 3)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
		}
		f.same("acts after", got, want)
		for _, q := range []struct {
			query eventstore.ActQuery
			want  []int
		}{
			{eventstore.ActQuery{}, []int{7, 6, 5, 4, 3, 2, 1, 0}},
			{eventstore.ActQuery{Name: "shipping"}, []int{7, 6, 3, 2, 1, 0}},
			{eventstore.ActQuery{Name: "shipping", Key: "a"}, []int{3, 2}},
			{eventstore.ActQuery{Key: "a"}, []int{5, 4, 3, 2}},
			{eventstore.ActQuery{Name: "ship"}, nil},
		} {
			var rows, listed []eventstore.ActRecord
			for _, i := range q.want {
				rows = append(rows, want[i])
			}
			q.query.Limit = 3
			for {
				page := f.listActs(q.query)
				if len(page) == 0 {
					break
				}
				listed = append(listed, page...)
				q.query.Before = page[len(page)-1].ID
			}
			f.same("list", listed, rows)
		}
	}},
	{"an act has the time of its commit unless it tells one", func(f *fixture) {
		f.haltNext(shipping, orders, 1)
		before := time.Now().Add(-time.Millisecond)
		got := f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		if got.Time.Before(before) || got.Time.After(time.Now()) {
			f.Fatalf("it was at %s", got.Time)
		}
		f.same("row", f.actsAfter(0, 10), []eventstore.ActRecord{got})
	}},
	{"an act that is malformed, or on what is not known, changes nothing and leaves no row", func(f *fixture) {
		f.haltNext(shipping, orders, 1)
		bad := seeing(eventstore.ActSkip, shipping, orders, 1)
		bad.Reason = ""
		nobody := seeing(eventstore.ActRetry, shipping, orders, 1)
		nobody.Actor = ""
		for _, a := range []eventstore.Act{bad, nobody, doing(eventstore.ActSkip, shipping), doing("nonsense", shipping), doing(eventstore.ActStartJob, shipping)} {
			if a.Validate() == nil {
				f.Fatalf("%+v is not malformed", a)
			}
			if _, err := f.store.Act(f.ctx, a); err == nil {
				f.Errorf("%+v was done", a)
			}
		}
		rename, reset := doing(eventstore.ActRename, event.Unit{Name: "unknown"}), doing(eventstore.ActReset, event.Unit{Name: "unknown"})
		rename.To, reset.Start = "known", &eventstore.Start{}
		for _, a := range []eventstore.Act{
			seeing(eventstore.ActRetry, event.Unit{Name: "shipping", Key: "b"}, lane("order", "b"), 1),
			doing(eventstore.ActPause, event.Unit{Name: "unknown"}), doing(eventstore.ActPause, event.Unit{Name: "unknown", Key: "a"}),
			doing(eventstore.ActResume, event.Unit{Name: "unknown"}), doing(eventstore.ActRemove, event.Unit{Name: "unknown"}), rename, reset,
		} {
			_, err := f.store.Act(f.ctx, a)
			f.is(err, eventstore.ErrNotFound)
		}
		f.same("last act", f.lastAct(), int64(0))
		f.same("halts", len(f.listHalts("", event.Unit{}, 10)), 1)
		f.same("pauses", f.listPauses("", event.Unit{}, 10), []eventstore.Pause{})
	}},
	{"acts are kept over a restart, and their ids go on", func(f *fixture) {
		f.haltNext(shipping, orders, 1)
		first := f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.restart(f.crash)
		f.same("rows", f.actsAfter(0, 10), []eventstore.ActRecord{first})
		f.halt(shipping, orders, 1)
		second := f.act(seeing(eventstore.ActSkip, shipping, orders, 1))
		if second.ID <= first.ID {
			f.Fatalf("id %d comes after %d", second.ID, first.ID)
		}
		f.same("last", f.lastAct(), second.ID)
	}},
}
