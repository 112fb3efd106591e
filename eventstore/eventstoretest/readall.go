package eventstoretest

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

func (f *fixture) readAll(after eventstore.Position, limit int, categories ...string) ([]event.Envelope, eventstore.Position) {
	f.Helper()
	got, position, err := f.store.ReadAll(f.ctx, after, categories, limit)
	f.must(err)
	return got, position
}

// everything reads page by page up to the end.
func (f *fixture) everything(limit int, categories ...string) []event.Envelope {
	f.Helper()
	var all []event.Envelope
	for after := eventstore.Position(""); ; {
		page, next := f.readAll(after, limit, categories...)
		if len(page) == 0 {
			f.same("position at the end", next, after)
			return all
		}
		if len(page) > limit {
			f.Fatalf("%d events on a page of %d", len(page), limit)
		}
		all, after = append(all, page...), next
	}
}

var readAll = []check{
	{"events of all categories in commit order", func(f *fixture) {
		first, second, third := f.events("order", "a", 2), f.events("payment", "a", 1), f.events("order", "b", 1)
		f.emit(order7, 0, first...)
		f.publish(second...)
		f.publish(backfill(third...)...)
		got := f.everything(eventstore.MaxLimit)
		want := slices.Concat(ofStream(order7, 1, f.placed(1, first...)), f.placed(1, second...), f.placed(1, third...))
		f.same("events", got, want)
	}},
	{"pages are exact whatever their size", func(f *fixture) {
		for range 5 {
			f.publish(slices.Concat(f.events("order", "a", 1), f.events("payment", "b", 1))...)
		}
		all := f.everything(eventstore.MaxLimit)
		f.same("events", len(all), 10)
		for limit := range 4 {
			f.same("pages of "+strconv.Itoa(limit+1), f.everything(limit+1), all)
		}
	}},
	{"an empty store is at its beginning", func(f *fixture) {
		got, position := f.readAll("", 10)
		f.same("events", got, []event.Envelope{})
		f.same("position", position, eventstore.Position(""))
	}},
	{"new events come after the last position", func(f *fixture) {
		f.publish(f.event("order", "a"))
		_, position := f.readAll("", 10)
		next := f.event("order", "b")
		f.publish(next)
		got, _ := f.readAll(position, 10)
		f.same("events", ids(got), []string{next.ID})
	}},
	{"named categories alone", func(f *fixture) {
		orders, payments := f.events("order", "a", 3), f.events("payment", "a", 3)
		for i := range orders {
			f.publish(orders[i], payments[i], f.event("audit", "a"))
		}
		f.same("orders", ids(f.everything(2, "order")), ids(orders))
		f.same("both", ids(f.everything(2, "payment", "order")), []string{
			orders[0].ID, payments[0].ID, orders[1].ID, payments[1].ID, orders[2].ID, payments[2].ID})
		f.same("unknown", f.everything(2, "unknown"), []event.Envelope{})
	}},
	{"categories of commands are left out unless they are named", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{Categories: []eventstore.Category{
			{Name: "order", KeyField: "client_id"}, {Name: "order.commands", KeyField: "id", Commands: true},
		}}, nil))
		emitted, command := f.event("order", "a"), f.event("order.commands", "7")
		f.publish(command, emitted)
		f.same("all", ids(f.everything(10)), []string{emitted.ID})
		f.same("named", ids(f.everything(10, "order.commands")), []string{command.ID})
	}},
	{"voids are left out", func(f *fixture) {
		events := f.events("order", "a", 3)
		f.publish(events...)
		f.must(f.store.Abandon(f.ctx, orders, 2, "bad"))
		f.must(f.store.Abandon(f.ctx, orders, 3, "bad"))
		f.same("events", ids(f.everything(1)), []string{events[0].ID})
	}},
	{"a position that is none is refused", func(f *fixture) {
		if _, _, err := f.store.ReadAll(f.ctx, "no position", nil, 10); err == nil {
			f.Fatal("no error")
		}
	}},
	{"a position is good after a restart", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		got, position := f.readAll("", 2)
		f.restart(f.crash)
		f.publish(f.event("order", "b"))
		rest, _ := f.readAll(position, 10)
		f.same("events", ids(append(got, rest...)), []string{"e-1", "e-2", "e-3", "e-4"})
	}},
	{"a position is good after its event was purged, and no new event comes below it", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		_, position := f.readAll("", 10)
		f.purgeAll(base.Add(time.Hour))
		f.same("events", f.everything(10), []event.Envelope{})
		next := f.event("order", "a")
		f.publish(next)
		got, _ := f.readAll(position, 10)
		f.same("events", ids(got), []string{next.ID})
	}},
	{"a reader beside concurrent writers skips nothing and never goes back", func(f *fixture) {
		const writers, each = 4, 25
		var group sync.WaitGroup
		committed := make(chan struct{}, writers*each)
		for w := range writers {
			group.Go(func() {
				for range each {
					own, shared := f.event("order", strconv.Itoa(w)), f.event("payment", "shared")
					if _, err := f.try(eventstore.Changes{Publish: []event.Envelope{own, shared}}); err != nil {
						f.Errorf("commit: %v", err)
					}
					committed <- struct{}{}
				}
			})
		}
		var (
			position eventstore.Position
			all      []event.Envelope
		)
		for range writers * each {
			<-committed
			var page []event.Envelope
			page, position = f.readAll(position, 3)
			all = append(all, page...)
		}
		group.Wait()
		rest, _ := f.readAll(position, eventstore.MaxLimit)
		all = append(all, rest...)
		f.same("events", len(all), 2*writers*each)
		f.same("events read again", ids(f.everything(eventstore.MaxLimit)), ids(all))
		last := make(map[event.LaneRef]event.Sequence)
		for _, e := range all {
			if e.Sequence != last[e.Ref()]+1 {
				f.Fatalf("%s: #%d comes after #%d", e.Ref(), e.Sequence, last[e.Ref()])
			}
			last[e.Ref()] = e.Sequence
		}
	}},
}
