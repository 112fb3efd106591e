package eventstoretest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var records = []check{
	{"sequences of a lane count 1, 2, 3 in commit order", func(f *fixture) {
		first, second := f.events("order", "client-1", 2), f.events("order", "client-1", 1)
		f.same("tails", f.publish(first...).Tails, []event.Tail{{Lane: lane("order", "client-1"), First: 1, Last: 2}})
		f.same("tails", f.publish(second...).Tails, []event.Tail{{Lane: lane("order", "client-1"), First: 3, Last: 3}})
		f.same("lane", f.lane(lane("order", "client-1")), f.placed(1, append(first, second...)...))
		f.same("tail", f.tail(lane("order", "client-1")), event.Sequence(3))
	}},
	{"a lane that does not exist is empty", func(f *fixture) {
		f.same("lane", f.lane(lane("order", "client-1")), []event.Envelope{})
		f.same("tail", f.tail(lane("order", "client-1")), event.Sequence(0))
	}},
	{"pages of a lane continue after a sequence", func(f *fixture) {
		ref := lane("order", "client-1")
		f.publish(f.events("order", "client-1", 5)...)
		all := f.lane(ref)
		for _, page := range []struct {
			after    event.Sequence
			limit    int
			from, to int
		}{{0, 2, 0, 2}, {2, 2, 2, 4}, {4, 2, 4, 5}, {5, 2, 5, 5}, {9, 2, 5, 5}, {0, 5, 0, 5}} {
			got, err := f.store.ReadLane(f.ctx, ref, page.after, page.limit)
			f.must(err)
			f.same("page", got, all[page.from:page.to])
		}
	}},
	{"category, key and lane each tell lanes apart", func(f *fixture) {
		refs := []event.LaneRef{
			{Category: "a", Key: "b"}, {Category: "a", Key: "b", Lane: event.Backfill},
			{Category: "a", Key: "bb"}, {Category: "aa", Key: "b"}, {Category: "b", Key: "a"},
		}
		for _, ref := range refs {
			e := f.event(ref.Category, ref.Key)
			e.Lane = ref.Lane
			f.publish(e)
			f.same("lane", f.lane(ref), f.placed(1, e))
		}
	}},
	{"several lanes in one unit of work, tails in lane order", func(f *fixture) {
		f.publish(f.events("order", "b", 2)...)
		mixed := slices.Concat(f.events("payment", "a", 1), f.events("order", "b", 1), backfill(f.events("order", "b", 2)...),
			f.events("order", "a", 1), f.events("order", "b", 1))
		f.same("tails", f.publish(mixed...).Tails, []event.Tail{
			{Lane: lane("order", "a"), First: 1, Last: 1},
			{Lane: lane("order", "b"), First: 3, Last: 4},
			{Lane: backfillLane("order", "b"), First: 1, Last: 2},
			{Lane: lane("payment", "a"), First: 1, Last: 1},
		})
		f.same("lane", f.laneAfter(lane("order", "b"), 2), f.placed(3, mixed[1], mixed[5]))
		f.same("lane", f.lane(backfillLane("order", "b")), f.placed(1, mixed[2], mixed[3]))
	}},
	{"in one unit of work what entities emit comes first", func(f *fixture) {
		appended, published := f.events("order", "a", 2), f.events("order", "a", 2)
		f.commit(eventstore.Changes{Publish: published, Append: []eventstore.Append{{Stream: order7, Events: appended}}})
		f.same("lane", ids(f.lane(lane("order", "a"))), ids(append(appended, published...)))
	}},
	{"a refused unit of work leaves no hole in any lane", func(f *fixture) {
		f.emit(order7, 0, f.event("order", "a"))
		f.refused(eventstore.Changes{
			Append:  []eventstore.Append{{Stream: order7, Events: f.events("order", "a", 2)}},
			Publish: f.events("payment", "a", 3),
		}, eventstore.ErrVersionConflict)
		f.publish(slices.Concat(f.events("order", "a", 1), f.events("payment", "a", 1))...)
		f.same("lane", sequences(f.lane(lane("order", "a"))), upTo(2))
		f.same("lane", sequences(f.lane(lane("payment", "a"))), upTo(1))
	}},
	{"a unit of work rolled back leaves no hole", func(f *fixture) {
		f.publish(f.event("order", "a"))
		f.must(f.store.Begin(f.Name()).Rollback())
		f.publish(f.event("order", "a"))
		f.same("lane", sequences(f.lane(lane("order", "a"))), upTo(2))
	}},
	{"concurrent writers to one lane leave no gap, and each keeps its order", func(f *fixture) {
		const writers, each = 4, 25
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for n := range each {
					e := f.event("order", "a")
					e.ID, e.CorrelationID, e.CausationID = fmt.Sprintf("%d-%d", w, n), strconv.Itoa(w), strconv.Itoa(n)
					done, err := f.try(eventstore.Changes{Publish: []event.Envelope{e}})
					if err != nil || len(done.Tails) != 1 {
						f.Errorf("commit: %v, %v", done, err)
						return
					}
					if at := done.Tails[0].First; f.idAt(e.Ref(), at) != e.ID {
						f.Errorf("%s was told sequence %d, which is not its", e.ID, at)
					}
				}
			})
		}
		group.Wait()
		got := f.lane(lane("order", "a"))
		f.same("lane", sequences(got), upTo(writers*each))
		next := make(map[string]int)
		for _, e := range got {
			if want := strconv.Itoa(next[e.CorrelationID]); e.CausationID != want {
				f.Fatalf("writer %s: #%d holds its event %s, want %s", e.CorrelationID, e.Sequence, e.CausationID, want)
			}
			next[e.CorrelationID]++
		}
	}},
	{"a reader never sees n+1 without n", func(f *fixture) {
		const writers, each = 4, 25
		ref := lane("order", "a")
		var group sync.WaitGroup
		committed := make(chan struct{}, writers*each)
		for range writers {
			group.Go(func() {
				for range each {
					if _, err := f.try(eventstore.Changes{Publish: f.events("order", "a", 2)}); err != nil {
						f.Errorf("commit: %v", err)
					}
					committed <- struct{}{}
				}
			})
		}
		seen := 0
		for range writers * each {
			<-committed
			tail := f.tail(ref)
			got := f.lane(ref)
			f.same("lane", sequences(got), upTo(len(got)))
			if len(got) < seen || len(got) < int(tail) {
				f.Fatalf("saw %d records, after %d seen before and a tail of %d", len(got), seen, tail)
			}
			if len(got)%2 != 0 {
				f.Fatalf("saw %d records: half a unit of work", len(got))
			}
			seen = len(got)
		}
		group.Wait()
		f.same("records seen", seen, 2*writers*each)
	}},
	{"writers that name the same lanes in opposite order do not wait for each other", func(f *fixture) {
		const writers, each = 4, 20
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for range each {
					pair := []event.Envelope{f.event("order", "a"), f.event("order", "b")}
					if w%2 == 1 {
						slices.Reverse(pair)
					}
					if _, err := f.try(eventstore.Changes{Publish: pair}); err != nil {
						f.Errorf("commit: %v", err)
					}
				}
			})
		}
		group.Wait()
		f.same("lane", sequences(f.lane(lane("order", "a"))), upTo(writers*each))
		f.same("lane", sequences(f.lane(lane("order", "b"))), upTo(writers*each))
	}},
	{"an abandoned record becomes a void in its place", func(f *fixture) {
		events := f.events("order", "a", 3)
		f.publish(events...)
		f.must(f.store.Abandon(f.ctx, lane("order", "a"), 2, "key a:b is not allowed"))
		placed := f.placed(1, events...)
		was := placed[1]
		placed[1] = event.Envelope{ID: was.ID, Category: was.Category, Key: was.Key, Time: was.Time, Sequence: 2, StoreID: was.StoreID}
		f.same("lane", f.lane(lane("order", "a")), placed)
		f.same("tail", f.tail(lane("order", "a")), event.Sequence(3))
		got := f.abandoned(event.Position{}, 10)
		if len(got) != 1 || got[0].Time.IsZero() {
			f.Fatalf("abandoned: %+v", got)
		}
		got[0].Time = base
		f.same("abandoned", got, []eventstore.Abandoned{{Record: was, Reason: "key a:b is not allowed", Time: base}})
	}},
	{"a reader beside Abandon sees a record or its void, whole", func(f *fixture) {
		const total = 50
		events := f.events("order", "a", total)
		f.publish(events...)
		var group sync.WaitGroup
		group.Go(func() {
			for n := range event.Sequence(total) {
				if err := f.store.Abandon(f.ctx, orders, n+1, "bad"); err != nil {
					f.Errorf("abandon: %v", err)
				}
			}
		})
		voids := 0
		for voids < total {
			got := f.lane(orders)
			f.same("lane", ids(got), ids(events))
			before := voids
			voids = 0
			for i, e := range got {
				if e.Void() {
					voids++
				} else if string(e.Data) != string(events[i].Data) {
					f.Errorf("#%d holds %s", e.Sequence, e.Data)
				}
			}
			if voids < before || f.Failed() {
				break
			}
		}
		group.Wait()
		f.same("voids", voids, total)
	}},
	{"abandoning twice keeps the first reason", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		f.must(f.store.Abandon(f.ctx, lane("order", "a"), 1, "first"))
		f.must(f.store.Abandon(f.ctx, lane("order", "a"), 1, "second"))
		got := f.abandoned(event.Position{}, 10)
		if len(got) != 1 || got[0].Reason != "first" || got[0].Record.Void() {
			f.Fatalf("abandoned: %+v", got)
		}
	}},
	{"there is no record to abandon", func(f *fixture) {
		f.publish(f.events("order", "a", 1)...)
		for _, at := range []event.Position{
			{Lane: lane("order", "a"), Sequence: 0}, {Lane: lane("order", "a"), Sequence: 2},
			{Lane: lane("order", "b"), Sequence: 1}, {Lane: backfillLane("order", "a"), Sequence: 1},
		} {
			f.is(f.store.Abandon(f.ctx, at.Lane, at.Sequence, "bad"), eventstore.ErrNotFound)
		}
		f.same("abandoned", f.abandoned(event.Position{}, 10), []eventstore.Abandoned{})
	}},
	{"abandoned records are listed in lane order, page by page", func(f *fixture) {
		f.publish(slices.Concat(f.events("payment", "a", 1), f.events("order", "b", 3), backfill(f.events("order", "a", 1)...), f.events("order", "a", 1))...)
		want := []event.Position{
			{Lane: lane("order", "a"), Sequence: 1}, {Lane: backfillLane("order", "a"), Sequence: 1},
			{Lane: lane("order", "b"), Sequence: 1}, {Lane: lane("order", "b"), Sequence: 3}, {Lane: lane("payment", "a"), Sequence: 1},
		}
		for _, at := range []int{4, 2, 0, 3, 1} {
			f.must(f.store.Abandon(f.ctx, want[at].Lane, want[at].Sequence, "bad"))
		}
		var got []event.Position
		for after := (event.Position{}); ; {
			page := f.abandoned(after, 2)
			if len(page) == 0 {
				break
			}
			for _, a := range page {
				after = event.Position{Lane: a.Record.Ref(), Sequence: a.Record.Sequence}
				got = append(got, after)
			}
		}
		f.same("abandoned", got, want)
	}},
	{"what an entity emitted stays in its stream when its record is abandoned", func(f *fixture) {
		events := f.events("order", "a", 2)
		f.emit(order7, 0, events...)
		f.must(f.store.Abandon(f.ctx, lane("order", "a"), 1, "bad"))
		f.same("stream", f.stream(order7), ofStream(order7, 1, f.placed(1, events...)))
		if got := f.lane(lane("order", "a")); len(got) != 2 || !got[0].Void() || got[1].Void() {
			f.Fatalf("lane: %+v", got)
		}
		f.emit(order7, 2, f.event("order", "a"))
	}},
}

func (f *fixture) abandoned(after event.Position, limit int) []eventstore.Abandoned {
	f.Helper()
	got, err := f.store.Abandoned(f.ctx, after, limit)
	f.must(err)
	return got
}

// idAt reads one record; "" when it is not there. It may be called by any goroutine.
func (f *fixture) idAt(l event.LaneRef, at event.Sequence) string {
	got, err := f.store.ReadLane(f.ctx, l, at-1, 1)
	if err != nil || len(got) != 1 || got[0].Sequence != at {
		return ""
	}
	return got[0].ID
}
