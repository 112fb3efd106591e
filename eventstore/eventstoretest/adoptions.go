package eventstoretest

import (
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Of the five records of [fixture.back] two are published, and the broker's newest is #4: what is above #2 goes up by 2.
var adoptions = whenRelayed([]check{
	{"a checkpoint at or below what is in common stays", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		records := f.back(4)
		f.commit(at(shipping, orders, 1, records[0].ID))
		f.commit(at(billing, orders, 2, records[1].ID))
		f.adopt(orders)
		f.same("below", f.recover(shipping, orders).Checkpoints[0], position(orders, 1, records[0].ID))
		f.same("at", f.recover(billing, orders).Checkpoints[0], position(orders, 2, records[1].ID))
		f.same("lag", f.lag("shipping"), uint64(6))
	}},
	{"an entry far beyond the lane, which nobody published, changes nothing of it", func(f *fixture) {
		records := f.back(1_750_000_000_000)
		f.commit(at(shipping, orders, 1, records[0].ID))
		f.adopt(orders)
		f.same("diverged", len(f.diverged()), 0)
		f.same("records", f.lane(orders), records)
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(1))
		p := f.passing(orders)
		f.same("published", p.Published, event.Sequence(2))
		f.same("tail", p.Tail, event.Sequence(5))
		f.publish(f.events("order", "a", 1)...)
		f.same("the next", f.lane(orders)[5].Sequence, event.Sequence(6))
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{{Lane: orders, Published: 2, Tail: 6}})
	}},
	{"what a handler of this store applied is in common, though it was not noted", func(f *fixture) {
		records := f.back(4)
		f.commit(at(shipping, orders, 3, records[2].ID))
		f.adopt(orders)
		got := f.lane(orders)
		f.same("voids", voids(got), []event.Sequence{4})
		f.same("in common", got[:3], records[:3])
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(3))
		_, kept := where(got)
		f.same("records", kept, ids(records))
	}},
	{"what one handler applied is nothing in common where another applied the broker's history", func(f *fixture) {
		records := f.back(5)
		f.commit(at(shipping, orders, 4, records[3].ID))
		f.commit(at(billing, orders, 3, "broker-3"))
		f.adopt(orders)
		f.same("voids", voids(f.lane(orders)), []event.Sequence{3, 4, 5})
		f.same("in the store's", f.checkpoint(shipping, orders), event.Sequence(7))
		f.same("in the broker's", f.checkpoint(billing, orders), event.Sequence(3))
	}},
	{"a checkpoint in the history of the broker stays, and is nothing in common", func(f *fixture) {
		records := f.back(4)
		f.commit(at(shipping, orders, 3, "broker-3"))
		f.commit(at(billing, orders, 4, "lost"))
		f.adopt(orders)
		f.same("voids", voids(f.lane(orders)), []event.Sequence{3, 4})
		f.same("in the middle", f.checkpoint(shipping, orders), event.Sequence(3))
		f.same("at the end", f.checkpoint(billing, orders), event.Sequence(4))
		f.same("what it reads next", ids(f.laneAfter(orders, 4)), ids(records[2:]))
	}},
	{"a checkpoint on a record of this store above that goes with the record", func(f *fixture) {
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		records := f.back(4)
		f.commit(at(shipping, orders, 5, records[4].ID))
		f.commit(at(billing, orders, 4, records[3].ID)) // where the broker has another event
		f.adopt(orders)
		f.same("the last", f.recover(shipping, orders).Checkpoints[0], position(orders, 7, records[4].ID))
		f.same("the one before", f.recover(billing, orders).Checkpoints[0], position(orders, 6, records[3].ID))
		f.same("lags", []uint64{f.lag("shipping"), f.lag("billing")}, []uint64{0, 1})
		f.commit(advance(billing, orders, 6, 7))
	}},
	{"every handler applies every record of the store once, wherever it stands", func(f *fixture) {
		records := f.back(4)
		broker := []string{records[0].ID, records[1].ID, "broker-3", "lost"}
		stand := map[string][]string{ // what each has applied, in order
			"a": nil, "b": broker[:1], "c": broker[:2], "d": broker[:3], "e": broker, "f": ids(records), "g": ids(records[:4]),
		}
		for name, applied := range stand {
			if n := len(applied); n > 0 {
				f.commit(at(event.Unit{Name: name, Key: "a"}, orders, event.Sequence(n), applied[n-1]))
			}
		}
		f.adopt(orders)
		for name, applied := range stand {
			applied = slices.Clone(applied)
			for _, r := range f.laneAfter(orders, f.checkpoint(event.Unit{Name: name, Key: "a"}, orders)) {
				if !r.Void() {
					applied = append(applied, r.ID)
				}
			}
			own := slices.DeleteFunc(applied, func(id string) bool { return id == "broker-3" || id == "lost" })
			f.same("applied by "+name, own, ids(records))
		}
	}},
	{"halts and attempts go with their event, and stay where it is the broker's", func(f *fixture) {
		records := f.back(4)
		unit := func(name string) event.Unit { return event.Unit{Name: name, Key: "a"} }
		stop := func(name string, l event.LaneRef, seq event.Sequence, id string) {
			h := eventstore.Halt{Unit: unit(name), Lane: l, Sequence: seq, EventID: id, Since: base}
			tried := triedAt(l, seq)
			tried.Unit, tried.EventID = h.Unit, id
			f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: h.Unit}, Halt: &h, Tried: tried})
		}
		f.publish(f.events("payment", "a", 5)...)
		stop("below", orders, 2, records[1].ID)
		stop("ours", orders, 3, records[2].ID)
		stop("theirs", orders, 3, "broker-3")
		stop("elsewhere", payments, 3, f.idAt(payments, 3))
		f.adopt(orders)
		for name, want := range map[string]event.Sequence{"below": 2, "ours": 5, "theirs": 3, "elsewhere": 3} {
			got := f.state(unit(name))
			f.same("halt of "+name, got.Halt.Sequence, want)
			f.same("attempts of "+name, got.Tried.Sequence, want)
		}
	}},
	{"dead letters, parked and abandoned events go with their record, and a purge keeps those it kept", func(f *fixture) {
		f.publish(f.events("order", "a", 9)...)
		f.note(f.own(orders), orders, 2, time.Time{})
		records := f.lane(orders)
		dead := func(u event.Unit, seq event.Sequence, id string) eventstore.Dead {
			d := deadRow(u, orders, seq)
			d.EventID = id
			return d
		}
		parked := parkedRow(billing, orders, 6, "retries exhausted")
		parked.EventID = records[5].ID
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Dead: []eventstore.Dead{
			dead(shipping, 1, records[0].ID), dead(shipping, 3, records[2].ID), dead(shipping, 5, records[4].ID), dead(shipping, 4, "broker-4"),
		}})
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: billing}, Park: []eventstore.Parked{parked}})
		f.must(f.store.Abandon(f.ctx, orders, 7, "erased"))
		f.must(f.store.Abandon(f.ctx, orders, 9, "erased"))
		f.diverge(orders, 4, "lost")
		f.adopt(orders)
		var letters []event.Sequence
		for _, d := range f.listDead("shipping", event.Position{}, 10) {
			letters = append(letters, d.Sequence)
			if r, err := f.store.ReadLane(f.ctx, orders, d.Sequence-1, 1); err != nil || (r[0].ID != d.EventID && d.EventID != "broker-4") {
				f.Errorf("dead letter %s at #%d is of record %v, %v", d.EventID, d.Sequence, r, err)
			}
		}
		f.same("dead letters", letters, []event.Sequence{1, 4, 5, 7})
		f.same("parked", f.parked(billing)[0].Sequence, event.Sequence(8))
		var gone []event.Sequence
		for _, a := range f.abandoned(event.Position{}, 10) {
			gone = append(gone, a.Record.Sequence)
			f.same("abandoned", a.Record.ID, records[a.Record.Sequence-3].ID)
		}
		f.same("abandoned", gone, []event.Sequence{9, 11})
		f.purgeAll(time.Now().Add(time.Hour))
		_, kept := where(f.lane(orders))
		f.same("kept", kept, []string{records[0].ID, records[2].ID, records[4].ID, records[5].ID})
	}},
	{"a replay finds the record of a dead letter that was renumbered", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		records := f.back(4)
		d := deadRow(shipping, orders, 3)
		d.EventID = records[2].ID
		f.commit(eventstore.Changes{Fence: eventstore.Fence{Unit: shipping}, Dead: []eventstore.Dead{d}})
		f.adopt(orders)
		f.stepJob(f.startJob(eventstore.JobReplay, ofShipping).ID, 10)
		f.same("due", f.dueRefs(shipping), deadRefs(orders, 5))
	}},
	{"another lane of the key is left alone", func(f *fixture) {
		back := backfillLane("order", "a")
		f.publish(backfill(f.events("order", "a", 5)...)...)
		want := f.lane(back)
		f.commit(at(shipping, back, 4, want[3].ID))
		f.back(4)
		f.adopt(orders)
		f.same("lane", f.lane(back), want)
		f.same("checkpoint", f.checkpoint(shipping, back), event.Sequence(4))
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 4, 7), unpublishedOf(back, 0, 5)})
	}},
})
