package eventstoretest

import (
	"slices"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var passings = whenRelayed([]check{
	{"subscribers come in order of name, each with its checkpoint", func(f *fixture) {
		f.must(f.store.SaveRegistry(f.ctx, eventstore.Registered{Handlers: []eventstore.Handler{
			{Name: "shipping", Kind: eventstore.EventHandler, Categories: []string{"order", "payment"}},
			{Name: "audit", Kind: eventstore.ProcessManager, Categories: []string{"order"}},
			{Name: "book", Kind: eventstore.EntityKind, Categories: []string{"order"}},
			{Name: "other", Kind: eventstore.EventHandler, Categories: []string{"payment"}},
		}}, nil))
		f.publish(slices.Concat(f.events("order", "a", 3), f.events("order", "b", 1))...)
		f.commit(advance(shipping, orders, 0, 2))
		f.commit(advance(event.Unit{Name: "book", Key: "a"}, orders, 0, 3))
		f.commit(advance(event.Unit{Name: "gone", Key: "a"}, orders, 0, 1)) // registered nowhere
		f.note(f.hold(1, orders), orders, 1, time.Time{})
		got, err := f.store.Passing(f.ctx, []event.LaneRef{lane("order", "none"), orders, lane("order", "b")})
		f.must(err)
		f.same("passing", got, []eventstore.Passing{
			{Lane: lane("order", "none"), Subscribers: []eventstore.Passed{{Name: "audit"}, {Name: "book"}, {Name: "shipping"}}},
			{Lane: orders, Published: 1, Tail: 3, First: 1, Subscribers: []eventstore.Passed{
				{Name: "audit"}, {Name: "book", Checkpoint: 3}, {Name: "shipping", Checkpoint: 2},
			}},
			{Lane: lane("order", "b"), Tail: 1, First: 1, Subscribers: []eventstore.Passed{{Name: "audit"}, {Name: "book"}, {Name: "shipping"}}},
		})
		f.same("lowest", got[1].Lowest(), event.Sequence(0))
		none, err := f.store.Passing(f.ctx, nil)
		f.must(err)
		f.same("none asked", none, []eventstore.Passing{})
	}},
	{"a subscriber is stopped that is halted or paused, for itself or with its handler", func(f *fixture) {
		f.register([]string{"audit", "order"}, []string{"billing", "order"}, []string{"mail", "order"}, []string{"shipping", "order"}, []string{"stock", "order"})
		f.publish(f.events("order", "a", 3)...)
		f.publish(f.events("order", "b", 3)...)
		f.halt(event.Unit{Name: "billing", Key: "a"}, lane("payment", "a"), 1) // of another lane of the unit
		f.pause(event.Unit{Name: "mail", Key: "a"}, base)
		f.pause(event.Unit{Name: "shipping"}, base)
		f.halt(event.Unit{Name: "stock", Key: "a"}, orders, 1)
		f.commit(advance(event.Unit{Name: "stock", Key: "a"}, orders, 0, 1)) // the halt is void now
		f.same("subscribers", f.passing(orders).Subscribers, []eventstore.Passed{
			{Name: "audit"}, {Name: "billing", Stopped: true}, {Name: "mail", Stopped: true}, {Name: "shipping", Stopped: true}, {Name: "stock", Checkpoint: 1},
		})
		f.same("of another key", f.passing(lane("order", "b")).Subscribers, []eventstore.Passed{
			{Name: "audit"}, {Name: "billing"}, {Name: "mail"}, {Name: "shipping", Stopped: true}, {Name: "stock"},
		})
	}},
	{"the lowest checkpoint is the end of the lane where nobody subscribes", func(f *fixture) {
		f.publish(f.events("order", "a", 3)...)
		got := f.passing(orders)
		f.same("lowest", got.Lowest(), event.Sequence(3))
		f.register([]string{"shipping", "order"}, []string{"billing", "order"})
		f.commit(advance(shipping, orders, 0, 2))
		f.commit(advance(billing, orders, 0, 1))
		got = f.passing(orders)
		f.same("lowest", got.Lowest(), event.Sequence(1))
	}},
	{"the first record is the first that is kept, a void too", func(f *fixture) {
		f.publish(f.events("order", "a", 2)...)
		f.purgeAll(later)
		f.same("of none", f.passing(orders), eventstore.Passing{Lane: orders, Tail: 2})
		f.publish(f.events("order", "a", 2)...)
		f.must(f.store.Abandon(f.ctx, orders, 3, "erased"))
		f.same("of two", f.passing(orders), eventstore.Passing{Lane: orders, Tail: 4, First: 3})
	}},
})

// foreign registers handlers of another store, each as {name, category, category, ...}.
func (f *fixture) foreign(handlers ...[]string) {
	f.Helper()
	r := eventstore.Registered{Revision: f.loadRegistry().Revision}
	for _, h := range handlers {
		r.Handlers = append(r.Handlers, eventstore.Handler{Name: h[0], Kind: eventstore.EventHandler, Categories: h[1:], Since: base, StoreID: "another"})
	}
	f.must(f.store.SaveRegistry(f.ctx, r, nil))
}

var foreignHandlers = []check{
	{"the store of a handler is kept and given back", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.foreign([]string{"billing", "order", "payment"})
		f.restart(f.crash)
		got := f.loadRegistry().Handlers
		f.same("stores", []string{got[0].Name, got[0].StoreID, got[1].Name, got[1].StoreID}, []string{"billing", "another", "shipping", ""})
		f.register([]string{"billing", "order", "payment"})
		f.same("replaced", f.loadRegistry().Handlers[0].StoreID, "")
	}},
	{"how far it is, and whether it is stopped, is not known here", func(f *fixture) {
		f.restartRelayed(f.stop)
		f.foreign([]string{"billing", "order"})
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 3)...)
		f.commit(advance(shipping, orders, 0, 2))
		f.commit(advance(billing, orders, 0, 1)) // what was kept when the handler was this store's
		f.pause(event.Unit{Name: "billing"}, base)
		got := f.passing(orders)
		f.same("subscribers", got.Subscribers, []eventstore.Passed{{Name: "billing", Foreign: true}, {Name: "shipping", Checkpoint: 2}})
		f.same("lowest", got.Lowest(), event.Sequence(2))
	}},
	{"a purge waits for handlers of this store to pass, for others until it is published to them, and for the time as ever", func(f *fixture) {
		f.restartRelayed(f.stop)
		f.foreign([]string{"billing", "order"})
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 3)...)
		held := f.own(orders)
		f.note(held, orders, 3, base)
		f.same("before it passed", f.purgeAll(later), 0)
		f.commit(advance(shipping, orders, 0, 2))
		f.same("before its time", f.purgeAll(base), 0)
		f.same("then", f.purgeAll(later), 2)
		f.same("left", sequences(f.lane(orders)), []event.Sequence{3})
		f.commit(advance(shipping, orders, 2, 3))
		f.publish(f.events("order", "a", 1)...)
		f.commit(advance(shipping, orders, 3, 4))
		f.same("what is published", f.purgeAll(later), 1)
		f.same("left", sequences(f.lane(orders)), []event.Sequence{4})
		f.publish(f.events("payment", "a", 2)...)
		f.foreign([]string{"mail", "payment"})
		f.same("with no handler of this store, before it is published", f.purgeAll(later), 0)
		f.note(f.own(payments), payments, 1, base)
		f.same("with no handler of this store", f.purgeAll(later), 1)
		f.same("left", sequences(f.lane(payments)), []event.Sequence{2})
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "mail"}))
		f.same("with nobody", f.purgeAll(later), 1)
	}},
	{"a purge empties nothing that is not published to handlers of other stores", func(f *fixture) {
		f.restartRelayed(f.stop)
		f.foreign([]string{"billing", "order"})
		f.register([]string{"shipping", "order"})
		f.emit(order7, 0, f.events("order", "a", 1)...)
		f.publish(f.events("order", "a", 2)...)
		f.commit(advance(shipping, orders, 0, 3))
		f.note(f.own(orders), orders, 2, base)
		f.same("emptied", f.purgeAll(later), 1)
		got := f.lane(orders)
		f.same("voids", []bool{got[0].Void(), got[1].Void(), got[2].Void()}, []bool{false, true, false})
	}},
	{"it is not in use here, and can be removed", func(f *fixture) {
		f.foreign([]string{"billing", "order"})
		f.act(doing(eventstore.ActRemove, event.Unit{Name: "billing"}))
		f.same("handlers", f.handlerNames(), []string{})
	}},
	{"an overview shows it without a lag, and not as running; it has no partitions here", func(f *fixture) {
		f.foreign([]string{"billing", "order"})
		f.register([]string{"shipping", "order"})
		f.publish(f.events("order", "a", 3)...)
		got := f.handler("billing")
		f.same("billing", []any{got.StoreID, got.Lag, got.Running}, []any{"another", uint64(0), false})
		own := f.handler("shipping")
		f.same("shipping", []any{own.StoreID, own.Lag, own.Running}, []any{"", uint64(3), true})
		var names []string
		for _, p := range f.allPartitions(eventstore.PartitionQuery{}) {
			names = append(names, p.Unit.Name)
		}
		f.same("partitions", names, []string{"shipping"})
	}},
}
