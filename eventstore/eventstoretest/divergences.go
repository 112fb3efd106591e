package eventstoretest

import (
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func divergence(l event.LaneRef, at event.Sequence, id string) eventstore.Divergence {
	return eventstore.Divergence{Lane: l, Sequence: at, EventID: id, StoredEventID: "ours", Since: base}
}

func (f *fixture) diverged() []eventstore.Divergence {
	f.Helper()
	got, err := f.store.ListDiverged(f.ctx, event.LaneRef{}, eventstore.MaxLimit)
	f.must(err)
	return got
}

// diverge notes that the newest entry of the broker is another event.
func (f *fixture) diverge(l event.LaneRef, newest event.Sequence, id string) eventstore.Divergence {
	f.Helper()
	d := divergence(l, newest, id)
	f.must(f.store.Diverge(f.ctx, f.own(l), d))
	return d
}

func (f *fixture) adopt(l event.LaneRef) eventstore.ActRecord {
	f.Helper()
	var seen event.Position
	for _, d := range f.diverged() {
		if d.Lane == l {
			seen = d.Position()
		}
	}
	done, err := f.store.Adopt(f.ctx, seen, "ann", "the backup of monday")
	f.must(err)
	return done
}

// at moves a checkpoint to an event by its id.
func at(u event.Unit, l event.LaneRef, to event.Sequence, id string) eventstore.Changes {
	c := advance(u, l, 0, to)
	c.Advance[0].EventID = id
	return c
}

// back is a store that went back: of 5 records 2 are noted as published, and the newest of the broker is at a sequence, and unknown here.
func (f *fixture) back(newest event.Sequence) []event.Envelope {
	f.Helper()
	f.publish(f.events("order", "a", 5)...)
	f.note(f.own(orders), orders, 2, time.Time{})
	f.diverge(orders, newest, "lost")
	return f.lane(orders)
}

// where gives the records of the lane that are no voids: how many there are below, and their ids in order.
func where(records []event.Envelope) (first event.Sequence, kept []string) {
	for _, r := range records {
		if r.Void() {
			continue
		}
		if len(kept) == 0 {
			first = r.Sequence
		}
		kept = append(kept, r.ID)
	}
	return first, kept
}

var divergences = whenRelayed([]check{
	{"divergences come in lane order, page by page", func(f *fixture) {
		var want []eventstore.Divergence
		for _, l := range []event.LaneRef{orders, backfillLane("order", "a"), lane("order", "b"), payments} {
			f.publish(slices.Concat(f.events(l.Category, l.Key, 1), backfill(f.events(l.Category, l.Key, 1)...))...)
			want = append(want, divergence(l, 7, "lost"))
		}
		for _, i := range []int{2, 0, 3, 1} {
			f.diverge(want[i].Lane, 7, "lost")
		}
		f.same("all", f.diverged(), want)
		page, err := f.store.ListDiverged(f.ctx, want[0].Lane, 2)
		f.must(err)
		f.same("page", page, want[1:3])
		page, err = f.store.ListDiverged(f.ctx, want[3].Lane, 2)
		f.must(err)
		f.same("after the last", page, []eventstore.Divergence{})
	}},
	{"the first divergence of a lane stays", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		first := f.diverge(orders, 7, "lost")
		f.diverge(orders, 9, "later")
		f.same("divergences", f.diverged(), []eventstore.Divergence{first})
	}},
	{"a lane that diverged is not unpublished, until it is adopted; others are", func(f *fixture) {
		f.publish(slices.Concat(f.events("order", "a", 1), f.events("order", "b", 1))...)
		f.diverge(orders, 1, "lost")
		f.publish(f.events("order", "a", 1)...) // whoever commits goes on
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(lane("order", "b"), 0, 1)})
		f.same("tail", f.tail(orders), event.Sequence(2))
		f.adopt(orders)
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 1, 3), unpublishedOf(lane("order", "b"), 0, 1)})
	}},
	{"divergences are kept over a restart", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		d := f.diverge(orders, 7, "lost")
		f.restartRelayed(f.crash)
		f.same("divergences", f.diverged(), []eventstore.Divergence{d})
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{})
	}},
	{"what did not diverge, or at another event than was seen, cannot be adopted, and an adoption needs an actor and a reason", func(f *fixture) {
		before := f.back(4)
		for _, l := range []event.LaneRef{lane("order", "b"), lane("order", "none")} {
			_, err := f.store.Adopt(f.ctx, position(l, 4, "lost"), "ann", "why")
			f.is(err, eventstore.ErrNotFound)
		}
		for _, seen := range []event.Position{position(orders, 3, "lost"), position(orders, 4, "another"), position(orders, 4, ""), {Lane: orders}} {
			_, err := f.store.Adopt(f.ctx, seen, "ann", "why")
			f.is(err, eventstore.ErrStateMoved)
		}
		for _, who := range [][2]string{{"", "why"}, {"ann", ""}, {"", ""}} {
			if _, err := f.store.Adopt(f.ctx, position(orders, 4, "lost"), who[0], who[1]); err == nil {
				f.Errorf("adopted by %q", who)
			}
		}
		f.same("lane", f.lane(orders), before)
		f.same("rows", f.actsAfter(0, 10), []eventstore.ActRecord{})
		f.same("divergences", len(f.diverged()), 1)
	}},
	{"records above what is in common go above what the broker has, and voids take the place of the broker's own", func(f *fixture) {
		before := f.back(4)
		f.adopt(orders)
		got := f.lane(orders)
		f.same("sequences", sequences(got), upTo(7))
		f.same("in common", got[:2], before[:2])
		f.same("voids", voids(got), []event.Sequence{3, 4})
		f.same("id of the broker's newest", got[3].ID, "lost")
		for i := range before[2:] {
			want := before[2+i]
			want.Sequence += 2
			f.same("renumbered", got[4+i], want)
		}
		f.same("tail", f.tail(orders), event.Sequence(7))
		f.same("passing", f.passing(orders), eventstore.Passing{Lane: orders, Published: 4, Tail: 7, First: 1})
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 4, 7)})
		f.same("drawn next", f.publish(f.events("order", "a", 1)...).Tails, []event.Tail{{Lane: orders, First: 8, Last: 8}})
		f.same("divergences", f.diverged(), []eventstore.Divergence{})
	}},
	{"a store that is shorter than the broker gets voids up to there", func(f *fixture) {
		before := f.back(9)
		f.adopt(orders)
		got := f.lane(orders)
		f.same("sequences", sequences(got), upTo(12))
		f.same("voids", voids(got), []event.Sequence{3, 4, 5, 6, 7, 8, 9})
		first, kept := where(got[2:])
		f.same("first renumbered", first, event.Sequence(10))
		f.same("renumbered", kept, ids(before[2:]))
	}},
	{"a store that has nothing above what is in common gets voids alone", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		f.note(f.own(orders), orders, 2, time.Time{})
		f.diverge(orders, 4, "lost")
		f.adopt(orders)
		f.same("voids", voids(f.lane(orders)), []event.Sequence{3, 4})
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{})
		f.same("drawn next", f.publish(f.events("order", "a", 1)...).Tails, []event.Tail{{Lane: orders, First: 5, Last: 5}})
	}},
	{"a broker that has less than was noted, and another event there, counts as the newer", func(f *fixture) {
		f.publish(f.events("order", "a", 5)...)
		f.note(f.own(orders), orders, 4, time.Time{})
		f.commit(at(shipping, orders, 4, f.idAt(orders, 4)))
		before := f.lane(orders)
		f.diverge(orders, 3, "lost")
		f.adopt(orders)
		got := f.lane(orders)
		f.same("voids", voids(got), []event.Sequence{3})
		_, kept := where(got)
		f.same("records", kept, ids(before))
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 3, 6)})
		f.same("checkpoint", f.checkpoint(shipping, orders), event.Sequence(5)) // with its event
	}},
	{"a lane without records is adopted", func(f *fixture) {
		f.diverge(orders, 2, "lost")
		f.adopt(orders)
		f.same("voids", voids(f.lane(orders)), []event.Sequence{1, 2})
		f.same("tail", f.tail(orders), event.Sequence(2))
		f.register([]string{"shipping", "order"})
		f.same("lag", f.lag("shipping"), uint64(2))
		f.commit(advance(shipping, orders, 0, 2))
		f.purgeAll(time.Now().Add(time.Hour))
		f.same("purged", f.lane(orders), []event.Envelope{})
	}},
	{"streams keep their events and versions, and the order of all events stays", func(f *fixture) {
		f.emit(order7, 0, f.events("order", "a", 2)...)
		f.publish(f.events("order", "a", 1)...)
		f.emit(order7, 2, f.events("order", "a", 1)...)
		stream, all := f.stream(order7), ids(f.everything(10))
		f.diverge(orders, 2, "lost")
		f.adopt(orders)
		for i := range stream {
			stream[i].Sequence += 2
		}
		f.same("stream", f.stream(order7), stream)
		f.same("order of all", ids(f.everything(10)), all)
		f.emit(order7, 3, f.events("order", "a", 1)...)
	}},
	{"a lane whose beginning was purged has no hole", func(f *fixture) {
		for _, c := range []struct {
			key           string
			purged        int
			newest, first event.Sequence
			voids         []event.Sequence
		}{
			{"below", 1, 4, 2, []event.Sequence{2, 3, 4}},
			{"between", 3, 6, 4, []event.Sequence{4, 5, 6}},
			{"above", 4, 3, 5, nil},
			{"all", 5, 7, 6, []event.Sequence{6, 7}},
		} {
			l := lane("order", c.key)
			f.publish(f.events("order", c.key, c.purged)...)
			f.purgeAll(later)
			f.publish(f.events("order", c.key, 5-c.purged)...)
			before := ids(f.lane(l))
			f.note(f.own(l), l, 1, time.Time{})
			f.diverge(l, c.newest, "lost")
			f.adopt(l)
			got := f.lane(l)
			f.same("first of "+c.key, got[0].Sequence, c.first)
			f.same("last of "+c.key, got[len(got)-1].Sequence, f.tail(l))
			f.same("voids of "+c.key, voids(got), c.voids)
			_, kept := where(got)
			f.same("records of "+c.key, kept, before)
			f.same("published of "+c.key, f.passing(l).Published, c.newest)
		}
	}},
	{"voids go with a purge like others", func(f *fixture) {
		f.back(4)
		f.adopt(orders)
		f.purgeAll(time.Now().Add(time.Hour))
		f.same("lane", f.lane(orders), []event.Envelope{})
		f.same("drawn next", f.publish(f.events("order", "a", 1)...).Tails, []event.Tail{{Lane: orders, First: 8, Last: 8}})
	}},
	{"voids above what stays go when that goes", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.back(4)
		f.adopt(orders)
		f.purgeAll(time.Now().Add(time.Hour))
		f.same("lane", sequences(f.lane(orders)), upTo(7))
		f.commit(advance(shipping, orders, 0, 6))
		f.purgeAll(time.Now().Add(time.Hour))
		f.same("lane", sequences(f.lane(orders)), []event.Sequence{7})
	}},
	{"an adoption is an act: it leaves a row, and is done once", func(f *fixture) {
		f.back(4)
		last := f.lastAct()
		done := f.adopt(orders)
		if done.ID <= last || done.Detail == "" || done.Time.IsZero() {
			f.Fatalf("row: %+v", done)
		}
		f.same("row", done, eventstore.ActRecord{
			ID: done.ID, Kind: eventstore.ActAdopt, Event: position(orders, 4, "lost"),
			Actor: "ann", Reason: "the backup of monday", Detail: done.Detail, Time: done.Time,
		})
		f.same("rows", f.actsAfter(last, 10), []eventstore.ActRecord{done})
		before := f.lane(orders)
		_, err := f.store.Adopt(f.ctx, position(orders, 4, "lost"), "ann", "again")
		f.is(err, eventstore.ErrNotFound)
		f.same("lane", f.lane(orders), before)
		f.same("rows", f.actsAfter(last, 10), []eventstore.ActRecord{done})
	}},
	{"a lane that was adopted may diverge again, below and above its voids", func(f *fixture) {
		before := f.back(4)
		f.adopt(orders)
		f.diverge(orders, 3, "lost again")
		f.adopt(orders)
		got := f.lane(orders)
		f.same("sequences", sequences(got), upTo(8))
		f.same("voids", voids(got), []event.Sequence{3, 4, 5})
		f.diverge(orders, 7, "and again")
		f.adopt(orders)
		got = f.lane(orders)
		f.same("sequences", sequences(got), upTo(12))
		_, kept := where(got)
		f.same("records", kept, ids(before))
		f.same("order of all", ids(f.everything(10)), ids(before))
		f.same("drawn next", f.publish(f.events("order", "a", 1)...).Tails, []event.Tail{{Lane: orders, First: 13, Last: 13}})
	}},
	{"an adopted lane is due to be looked at, whatever look it had", func(f *fixture) {
		f.back(4)
		f.setLook(f.own(orders), eventstore.Look{Lane: orders, Published: 2, Due: time.Now().Add(time.Hour), Gap: time.Hour, Retire: true})
		f.adopt(orders)
		got := f.dueLooks(time.Now().Add(time.Minute))
		f.same("looks", len(got), 1)
		f.same("look", []any{got[0].Lane, got[0].Published, got[0].Gap, got[0].Retire}, []any{orders, event.Sequence(4), time.Duration(0), false})
	}},
	{"an adoption is kept over a restart, and can be done without a relay", func(f *fixture) {
		f.back(4)
		f.restart(f.stop)
		f.adopt(orders)
		want := f.lane(orders)
		f.restartRelayed(f.crash)
		f.same("lane", f.lane(orders), want)
		f.same("unpublished", f.unpublished(), []eventstore.Unpublished{unpublishedOf(orders, 4, 7)})
		f.same("divergences", f.diverged(), []eventstore.Divergence{})
	}},
})
