package eventstoretest

import (
	"fmt"
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var payments = lane("payment", "a")

var parkedEvents = []check{
	{"parked events come back as they were, in the order in which they were parked", func(f *fixture) {
		want := f.park(shipping, orders, 3)
		want = append(want, f.park(shipping, payments, 2)...)
		want = append(want, f.park(shipping, orders, 1)...)
		f.same("parked", f.parked(shipping), want)
		f.same("of another handler", f.parked(billing), []eventstore.Parked{})
		f.same("of another key", f.parked(event.Unit{Name: "shipping", Key: "b"}), []eventstore.Parked{})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(4))
		f.same("due", f.dueRefs(shipping), []eventstore.AsideRef{})
		f.same("due units", f.dueUnits(event.Unit{}, 10), []event.Unit{})
	}},
	{"ordinal and due are the store's, whatever is given", func(f *fixture) {
		want := parkedRow(shipping, orders, 1, "poison")
		given := want
		given.Ordinal, given.Due = 99, true
		c := advance(shipping, orders, 0, 1)
		c.Park = []eventstore.Parked{given}
		f.commit(c)
		f.same("parked", f.parked(shipping), []eventstore.Parked{want})
		f.same("due", f.dueRefs(shipping), []eventstore.AsideRef{})
	}},
	{"parked events are listed page by page", func(f *fixture) {
		want := f.park(shipping, orders, 5)
		var got []eventstore.Parked
		for after := int64(0); ; after = got[len(got)-1].Ordinal {
			page, err := f.store.ListParked(f.ctx, shipping, after, 2)
			f.must(err)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
		}
		f.same("parked", f.unnumbered(got), want)
	}},
	{"recovering tells how many are parked of each category, and whether they are due", func(f *fixture) {
		f.park(shipping, payments, 2)
		f.park(shipping, orders, 3)
		f.park(billing, lane("refund", "a"), 1)
		got := f.recover(shipping)
		f.same("parked", got.Parked, []eventstore.ParkedIn{{Category: "order", Count: 3}, {Category: "payment", Count: 2}})
		f.same("due", got.Due, false)
		f.act(seeing(eventstore.ActRetry, shipping, payments, 1))
		f.same("due", f.recover(shipping).Due, true)
		f.same("due of another", f.recover(billing).Due, false)
		f.same("raised", f.raise(shipping, 7).Parked, got.Parked)
	}},
	{"retry makes the first parked event due, and due are then all, in order, with their records", func(f *fixture) {
		f.park(shipping, orders, 2)
		f.park(shipping, payments, 1)
		want := due(f.parked(shipping))
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.same("parked", f.parked(shipping), want)
		f.same("due", f.dueAsides(shipping, 10), []eventstore.Aside{
			{AsideRef: parkedRef(orders, 1), Attempts: 5, Record: f.lane(orders)[0]},
			{AsideRef: parkedRef(orders, 2), Record: f.lane(orders)[1]},
			{AsideRef: parkedRef(payments, 1), Attempts: 5, Record: f.lane(payments)[0]},
		})
		f.same("first of them", len(f.dueAsides(shipping, 1)), 1)
		f.same("due units", f.dueUnits(event.Unit{}, 10), []event.Unit{shipping})
	}},
	{"the record of a row set aside may be a void", func(f *fixture) {
		f.park(shipping, orders, 1)
		f.must(f.store.Abandon(f.ctx, orders, 1, "erased"))
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		got := f.dueAsides(shipping, 10)
		f.same("due", got, []eventstore.Aside{{AsideRef: parkedRef(orders, 1), Attempts: 5, Record: f.lane(orders)[0]}})
		f.same("void", got[0].Record.Void(), true)
	}},
	{"what is due may be changed by who got it", func(f *fixture) {
		f.park(shipping, orders, 1)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		want := fmt.Sprint(f.dueAsides(shipping, 10))
		f.dueAsides(shipping, 10)[0].Record.Data[0] = 'X'
		f.same("due", fmt.Sprint(f.dueAsides(shipping, 10)), want)
	}},
	{"a row that is through goes, the next becomes due, and with the last parking ends", func(f *fixture) {
		rows := f.park(shipping, orders, 2)
		rows = append(rows, f.park(shipping, payments, 1)...)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		for i, r := range rows {
			f.same("parked", f.parked(shipping), due(rows[i:]))
			f.same("due", f.dueRefs(shipping)[0], parkedRef(r.Lane, r.Sequence))
			c := through(shipping, parkedRef(r.Lane, r.Sequence))
			c.Publish = f.events("shipment", "a", 1)
			f.commit(c)
			f.same("effects", f.tail(lane("shipment", "a")), event.Sequence(i+1))
		}
		f.same("parked", f.parked(shipping), []eventstore.Parked{})
		f.same("parking", f.listParking("", event.Unit{}, 10), []eventstore.Parking{})
		f.same("due units", f.dueUnits(event.Unit{}, 10), []event.Unit{})
		f.same("recovered", f.recover(shipping), eventstore.Recovered{Unit: shipping})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(2))
		want := f.park(shipping, orders, 1)
		f.same("parked anew, not due", f.parked(shipping), want)
	}},
	{"a row that failed again stays with what became of it, and nothing is due any more", func(f *fixture) {
		rows := f.park(shipping, orders, 2)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		failed := eventstore.AsideFailure{Attempts: 9, Reason: "poison", Error: "still no carrier", Time: base.Add(time.Hour)}
		f.commit(stays(shipping, parkedRef(orders, 1), failed))
		rows[0].Attempts, rows[0].Reason, rows[0].Error, rows[0].Time = failed.Attempts, failed.Reason, failed.Error, failed.Time
		f.same("parked", f.parked(shipping), rows)
		f.same("due", f.dueRefs(shipping), []eventstore.AsideRef{})
		f.same("due units", f.dueUnits(event.Unit{}, 10), []event.Unit{})
		f.refused(through(shipping, parkedRef(orders, 1)), eventstore.ErrAsideMoved)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.commit(through(shipping, parkedRef(orders, 1)))
		f.same("parked", f.parked(shipping), due(rows[1:]))
	}},
	{"what is parked while the first is due waits behind it", func(f *fixture) {
		rows := f.park(shipping, orders, 1)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		rows = append(rows, f.park(shipping, orders, 1)...)
		f.same("parked", f.parked(shipping), due(rows))
		f.commit(through(shipping, parkedRef(orders, 1)))
		f.same("parked", f.parked(shipping), due(rows[1:]))
	}},
	{"nothing is parked behind what is not there any more", func(f *fixture) {
		first := parkedRow(shipping, orders, 1, "poison")
		c := advance(shipping, orders, 0, 1)
		c.Park = []eventstore.Parked{first}
		f.commit(c)
		f.act(seeing(eventstore.ActSkip, shipping, orders, 1))
		behind := advance(shipping, orders, 1, 2)
		behind.Park = []eventstore.Parked{parkedRow(shipping, orders, 2, "")}
		f.refused(behind, eventstore.ErrAsideMoved)
		f.same("parked", f.parked(shipping), []eventstore.Parked{})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(1))
		both := advance(shipping, orders, 1, 3)
		both.Park = []eventstore.Parked{parkedRow(shipping, orders, 2, "poison"), parkedRow(shipping, orders, 3, "")}
		f.commit(both)
		other := advance(shipping, payments, 0, 1)
		other.Park = []eventstore.Parked{parkedRow(shipping, payments, 1, "")} // of a category of which nothing is parked
		f.refused(other, eventstore.ErrAsideMoved)
		f.same("parked then", f.parked(shipping), both.Park)
	}},
	{"settling another row than the first that is due is refused, whole", func(f *fixture) {
		f.park(shipping, orders, 2)
		refs := map[string]eventstore.AsideRef{
			"not first": parkedRef(orders, 2), "no such row": parkedRef(orders, 9), "other lane": parkedRef(payments, 1),
			"no dead letter": deadRef(orders, 1),
		}
		check := func(u event.Unit, what string, ref eventstore.AsideRef) {
			f.Helper()
			for _, c := range []eventstore.Changes{through(u, ref), stays(u, ref, eventstore.AsideFailure{Attempts: 9, Time: base})} {
				c.Publish = f.events("shipment", "a", 1)
				c.Dead = []eventstore.Dead{deadRow(u, orders, 7)}
				f.refused(c, eventstore.ErrAsideMoved)
				f.same(what, f.tail(lane("shipment", "a")), event.Sequence(0))
				f.same(what, f.listDead(u.Name, event.Position{}, 10), []eventstore.Dead{})
			}
		}
		before := f.parked(shipping)
		check(shipping, "not due", parkedRef(orders, 1))
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		for what, ref := range refs {
			check(shipping, what, ref)
		}
		check(billing, "of another unit", parkedRef(orders, 1))
		f.same("parked", f.parked(shipping), due(before))
		f.commit(through(shipping, parkedRef(orders, 1)))
		check(shipping, "gone", parkedRef(orders, 1))
	}},
	{"a stale owner can neither park nor settle nor note attempts", func(f *fixture) {
		rows := f.park(shipping, orders, 1)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.raise(shipping, 5)
		f.raise(shipping, 6)
		park := advance(shipping, orders, 1, 2)
		park.Park = []eventstore.Parked{parkedRow(shipping, orders, 2, "poison")}
		tried := eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Tried: triedAt(orders, 2)}
		for _, c := range []eventstore.Changes{park, through(shipping, parkedRef(orders, 1)), tried} {
			c.Fence.Generation = 5
			f.refused(c, eventstore.ErrStale)
		}
		f.same("parked", f.parked(shipping), due(rows))
		f.same("tried", f.recover(shipping, orders).Tried, (*eventstore.Tried)(nil))
		c := through(shipping, parkedRef(orders, 1))
		c.Fence.Generation = 6
		f.commit(c)
	}},
	{"events are parked in the commit of their checkpoint or not at all", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		f.commit(advance(shipping, orders, 0, 1))
		c := advance(shipping, orders, 0, 2) // has moved
		c.Park = []eventstore.Parked{parkedRow(shipping, orders, 2, "poison")}
		f.refused(c, eventstore.ErrCheckpointMoved)
		f.same("parked", f.parked(shipping), []eventstore.Parked{})
	}},
	{"units that park are listed by unit, page by page, with the first row and the count", func(f *fixture) {
		var want []eventstore.Parking
		for i, u := range []event.Unit{{Name: "billing", Key: "b"}, {Name: "shipping", Key: "a"}, {Name: "shipping", Key: "aa"}, {Name: "shipping", Key: "c"}} {
			rows := f.park(u, lane("order-"+u.Name, u.Key), i+1)
			want = append(want, eventstore.Parking{Unit: u, First: rows[0], Count: i + 1})
		}
		for _, q := range []struct {
			name string
			want []eventstore.Parking
		}{{"", want}, {"shipping", want[1:]}, {"ship", nil}} {
			var got []eventstore.Parking
			for after := (event.Unit{}); ; after = got[len(got)-1].Unit {
				page := f.listParking(q.name, after, 2)
				if len(page) == 0 {
					break
				}
				for _, p := range page {
					p.First.Ordinal = 0
					got = append(got, p)
				}
			}
			f.same("parking of "+q.name, got, q.want)
		}
	}},
	{"units with rows that are due are listed by unit, page by page, but for those that are halted or paused", func(f *fixture) {
		var want []event.Unit
		for _, name := range []string{"billing", "shipping"} {
			f.register([]string{name, "order-" + name})
			for _, key := range []string{"a", "b", "c", "halted", "not-due", "paused"} {
				u, l := event.Unit{Name: name, Key: key}, lane("order-"+name, key)
				f.park(u, l, 1)
				if key != "not-due" {
					f.act(seeing(eventstore.ActRetry, u, l, 1))
				}
				if len(key) == 1 {
					want = append(want, u)
				}
			}
			f.halt(event.Unit{Name: name, Key: "halted"}, lane("order-"+name, "halted"), 2)
			f.act(doing(eventstore.ActPause, event.Unit{Name: name, Key: "paused"}))
		}
		var got []event.Unit
		for after := (event.Unit{}); ; after = got[len(got)-1] {
			page := f.dueUnits(after, 2)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
		}
		f.same("due", got, want)
		f.act(doing(eventstore.ActPause, event.Unit{Name: "billing"}))
		f.same("with a handler paused", f.dueUnits(event.Unit{}, 10), want[3:])
	}},
	{"purge neither deletes nor empties what a parked event refers to", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		f.publish(f.events("order", "a", 4)...)
		c := advance(billing, orders, 0, 4)
		c.Park = []eventstore.Parked{parkedRow(billing, orders, 2, "poison"), parkedRow(billing, orders, 3, "")}
		f.commit(c)
		f.commit(advance(shipping, orders, 0, 4))
		want := f.lane(orders)[1:]
		want[2] = void(want[2])
		f.same("purged", f.purgeAll(later), 2)
		f.same("lane", f.lane(orders), want)
		f.act(seeing(eventstore.ActRetry, billing, orders, 2))
		f.same("due", f.dueAsides(billing, 1)[0].Record, want[0])
		f.commit(through(billing, parkedRef(orders, 2)))
		f.same("purged once it is through", f.purgeAll(later), 1)
		f.same("lane", f.lane(orders), want[1:])
		f.commit(through(billing, parkedRef(orders, 3)))
		f.same("purged", f.purgeAll(later), 2)
		f.same("lane", f.lane(orders), []event.Envelope{})
	}},
	{"parked events, and what is due of them, are kept over a restart", func(f *fixture) {
		rows := f.park(shipping, orders, 2)
		others := f.park(billing, payments, 2)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		for _, end := range []func(){f.crash, f.stop} {
			f.restart(end)
			f.same("parked", f.parked(shipping), due(rows))
			f.same("parked", f.parked(billing), others)
			f.same("due", f.dueUnits(event.Unit{}, 10), []event.Unit{shipping})
		}
		more := f.park(shipping, orders, 1) // goes behind what was there before
		f.same("parked", f.parked(shipping), due(slices.Concat(rows, more)))
		f.commit(through(shipping, parkedRef(orders, 1)))
		f.same("parked", f.parked(shipping), due(slices.Concat(rows[1:], more)))
	}},
}

// triedAt is what is known of attempts of the unit shipping/a.
func triedAt(l event.LaneRef, at event.Sequence) *eventstore.Tried {
	return &eventstore.Tried{
		Unit: shipping, Lane: l, Sequence: at, EventID: fmt.Sprintf("at-%d", at), EventType: "order.happened",
		Attempts: 2, Error: "no carrier", Time: base, Again: base.Add(time.Minute), Suspicions: 3, Alone: 1,
	}
}

var attempts = []check{
	{"what is known of attempts comes back as it was", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		want := triedAt(orders, 1)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Tried: want})
		f.same("tried", f.recover(shipping, orders).Tried, want)
		f.same("of a raise", f.raise(shipping, 3).Tried, want)
		f.same("of another unit", f.recover(billing, orders).Tried, (*eventstore.Tried)(nil))
		f.same("state", f.state(shipping).Tried, want)
		f.same("unpassed", f.unpassed("shipping", "order"), []event.LaneRef{orders})
	}},
	{"a unit has one, the last; without a time of the next attempt there is none", func(f *fixture) {
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Tried: triedAt(orders, 1)})
		want := triedAt(payments, 4)
		want.Again, want.Error, want.Suspicions, want.Alone = time.Time{}, "", 0, 0
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Tried: want})
		f.same("tried", f.recover(shipping).Tried, want)
	}},
	{"one at or below the checkpoint of its lane is void", func(f *fixture) {
		want := triedAt(orders, 3)
		c := advance(shipping, orders, 0, 2)
		c.Tried = want
		f.commit(c)
		f.commit(advance(shipping, payments, 0, 9))
		f.commit(advance(billing, orders, 0, 9))
		f.commit(advance(shipping, backfillLane("order", "a"), 0, 9))
		f.same("tried", f.recover(shipping).Tried, want)
		f.commit(advance(shipping, orders, 2, 3))
		f.same("tried", f.recover(shipping).Tried, (*eventstore.Tried)(nil))
		f.same("state", f.state(shipping).Tried, (*eventstore.Tried)(nil))
	}},
	{"it is forgotten with the effects of the event, or with the halt", func(f *fixture) {
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Tried: triedAt(orders, 3)})
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: billing}, Untry: true})
		if f.recover(shipping).Tried == nil {
			f.Fatal("another unit forgot it")
		}
		f.refused(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping, Generation: 3}, Untry: true}, eventstore.ErrStale)
		if f.recover(shipping).Tried == nil {
			f.Fatal("a stale owner forgot it")
		}
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Untry: true})
		f.same("tried", f.recover(shipping).Tried, (*eventstore.Tried)(nil))
	}},
	{"it is kept over a restart", func(f *fixture) {
		want := triedAt(orders, 1)
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Tried: want})
		f.restart(f.crash)
		f.same("tried", f.recover(shipping).Tried, want)
	}},
}

var unclean = []check{
	{"a store whose owner stopped it was left clean, one whose owner was killed was not", func(f *fixture) {
		f.same("the first start", f.id.Unclean, false)
		f.restart(f.stop)
		f.same("after a stop", f.id.Unclean, false)
		f.publish(f.event("order", "a"))
		f.restart(f.crash)
		f.same("after a crash", f.id.Unclean, f.harness.Crash != nil)
		f.restart(f.stop)
		f.same("after a stop", f.id.Unclean, false)
	}},
}
