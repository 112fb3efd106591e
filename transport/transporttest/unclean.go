package transporttest

import (
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

var unclean = []check{
	{
		name: "What a dead process may have had in hand is granted unclean, once",
		before: func(f *fixture) {
			f.commit(f.event(orders, "c-1"), f.event(orders, "c-1"), backfill(f.event(payments, "c-2")))
		},
		run: func(f *fixture) {
			f.start()
			f.awaitApplied(5)
			want := []string{"billing c-1", "billing c-2", "shipping c-1"}
			f.same("unclean", f.unclean(), want)
			f.publish(f.event(orders, "c-1"), f.event(orders, "c-2"))
			f.awaitApplied(9)
			f.stop()
			f.start() // the same process
			f.publish(f.event(orders, "c-1"))
			f.awaitApplied(11)
			f.same("unclean later", f.unclean(), want)
		},
	},
	{
		name: "A unit that had nothing to do when the process died is clean",
		before: func(f *fixture) {
			lane := event.LaneRef{Category: orders, Key: "c-1"}
			f.commit(f.event(orders, "c-1"), f.event(audits, "c-2"))
			_, err := f.store.Begin("test").Commit(f.Context(), eventstore.Changes{
				Fence: eventstore.Fence{Unit: event.Unit{Name: shipping, Key: "c-1"}}, Advance: []eventstore.Advance{{Lane: lane, To: 1}},
			})
			f.must(err)
		},
		run: func(f *fixture) {
			f.start()
			f.awaitApplied(1)
			f.publish(f.event(orders, "c-1"), f.event(orders, "c-2"))
			f.awaitApplied(5)
			f.same("unclean", f.unclean(), []string{"billing c-1"})
		},
	},
	{
		name: "A unit that is reached before the look is unclean all the same, and once",
		before: func(f *fixture) {
			for i := range 50 {
				f.commit(f.event(payments, fmt.Sprintf("c-%02d", i)))
			}
		},
		run: func(f *fixture) {
			f.start()
			var want []string
			for i := 49; i >= 0; i-- {
				f.node.wake(event.Unit{Name: billing, Key: fmt.Sprintf("c-%02d", i)})
				want = append(want, fmt.Sprintf("billing c-%02d", i))
			}
			f.awaitApplied(50)
			f.stop()
			f.same("unclean", f.unclean(), sorted(want))
		},
	},
	{
		name:   "What was set aside and is due is found, and was in hand",
		before: parkedAndDue,
		run: func(f *fixture) {
			f.start()
			u := event.Unit{Name: shipping, Key: "c-1"}
			f.await("the unit to be reached", func() bool { return f.node.mu.reached[u] && len(f.node.mu.unclean) == 1 })
			f.same("unclean", f.unclean(), []string{"shipping c-1"})
		},
	},
}

// parkedAndDue leaves a unit that has passed all its events, of which it parked one that is to be applied now.
func parkedAndDue(f *fixture) {
	f.must(f.store.SaveRegistry(f.Context(), eventstore.Registered{
		Categories: []eventstore.Category{{Name: orders, KeyField: "Client"}},
		Handlers:   []eventstore.Handler{{Name: shipping, Kind: eventstore.EventHandler, Categories: []string{orders}, Sequential: true}},
	}, nil))
	u, e := event.Unit{Name: shipping, Key: "c-1"}, f.event(orders, "c-1")
	f.commit(e)
	at := event.Position{Lane: e.Ref(), Sequence: 1, EventID: e.ID}
	for name, park := range map[string][]eventstore.Parked{
		shipping: {{Unit: u, Lane: at.Lane, Sequence: 1, EventID: e.ID, Type: e.Type, Attempts: 1, Reason: "poison", Time: e.Time}},
		billing:  nil,
	} {
		_, err := f.store.Begin("test").Commit(f.Context(), eventstore.Changes{
			Fence:   eventstore.Fence{Unit: event.Unit{Name: name, Key: "c-1"}},
			Advance: []eventstore.Advance{{Lane: at.Lane, To: 1, EventID: e.ID}},
			Park:    park,
		})
		f.must(err)
	}
	_, err := f.store.Act(f.Context(), eventstore.Act{Kind: eventstore.ActRetry, Unit: u, Seen: at, Actor: "test"})
	f.must(err)
}
