package eventstoretest

import (
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// suspects are rows set aside that may have ended the process.
var suspects = []check{
	{"suspicions of a parked event are kept while it is due, and are its alone", func(f *fixture) {
		f.park(shipping, orders, 2)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.commit(counted(shipping, parkedRef(orders, 1), 2))
		f.same("suspicions", f.suspicions(shipping), []int{2, 0})
		f.same("due", f.dueRefs(shipping), []eventstore.AsideRef{parkedRef(orders, 1), parkedRef(orders, 2)})
		f.commit(counted(shipping, parkedRef(orders, 1), 0))
		f.same("taken back", f.suspicions(shipping), []int{0, 0})
		f.commit(counted(shipping, parkedRef(orders, 1), 1))
		f.commit(through(shipping, parkedRef(orders, 1)))
		f.same("of the next", f.suspicions(shipping), []int{0})
	}},
	{"suspicions of a dead letter are kept while it is due", func(f *fixture) {
		f.register([]string{"shipping", "order"})
		f.dead(shipping, orders, 2)
		f.stepJob(f.startJob(eventstore.JobReplay, ofShipping).ID, 10)
		f.commit(counted(shipping, deadRef(orders, 2), 3))
		f.same("suspicions", f.suspicions(shipping), []int{0, 3})
		f.commit(stays(shipping, deadRef(orders, 2), eventstore.AsideFailure{Attempts: 9, Reason: "crashed the process", Time: base.Add(time.Hour)}))
		f.commit(through(shipping, deadRef(orders, 1)))
		f.stepJob(f.startJob(eventstore.JobReplay, ofShipping).ID, 10)
		f.same("handed out anew", f.suspicions(shipping), []int{0})
	}},
	{"a row that failed and is tried again is suspected of nothing", func(f *fixture) {
		f.park(shipping, orders, 1)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.commit(counted(shipping, parkedRef(orders, 1), 2))
		f.commit(stays(shipping, parkedRef(orders, 1), eventstore.AsideFailure{Attempts: 9, Reason: "crashed the process", Time: base}))
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.same("suspicions", f.suspicions(shipping), []int{0})
	}},
	{"only a row that is due is suspected", func(f *fixture) {
		f.park(shipping, orders, 2)
		for _, ref := range []eventstore.AsideRef{parkedRef(orders, 1), parkedRef(orders, 9), deadRef(orders, 1)} {
			f.refused(counted(shipping, ref, 1), eventstore.ErrAsideMoved)
		}
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.refused(counted(shipping, parkedRef(orders, 2), 1), eventstore.ErrAsideMoved)
		f.refused(counted(billing, parkedRef(orders, 1), 1), eventstore.ErrAsideMoved)
		f.same("suspicions", f.suspicions(shipping), []int{0, 0})
	}},
	{"suspicions outlive a crash", func(f *fixture) {
		f.park(shipping, orders, 1)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		f.commit(counted(shipping, parkedRef(orders, 1), 2))
		f.restart(f.crash)
		f.same("suspicions", f.suspicions(shipping), []int{2})
	}},
	{"malformed suspicions are refused", func(f *fixture) {
		f.park(shipping, orders, 1)
		f.act(seeing(eventstore.ActRetry, shipping, orders, 1))
		good := counted(shipping, parkedRef(orders, 1), 1)
		for what, spoil := range map[string]func(c *eventstore.Changes){
			"no unit":    func(c *eventstore.Changes) { c.Fence = eventstore.Fence{} },
			"no kind":    func(c *eventstore.Changes) { c.Suspect.Kind = 0 },
			"no place":   func(c *eventstore.Changes) { c.Suspect.Sequence = 0 },
			"below zero": func(c *eventstore.Changes) { c.Suspect.Suspicions = -1 },
			"settled":    func(c *eventstore.Changes) { c.Settle = &eventstore.Settle{AsideRef: c.Suspect.AsideRef} },
		} {
			c, s := good, *good.Suspect
			c.Suspect = &s
			spoil(&c)
			if _, err := f.store.Begin("test").Commit(f.ctx, c); err == nil {
				f.Errorf("%s: committed", what)
			}
		}
		f.same("suspicions", f.suspicions(shipping), []int{0})
	}},
}

// counted counts a row among what may have ended the process.
func counted(u event.Unit, ref eventstore.AsideRef, n int) eventstore.Changes {
	return eventstore.Changes{Fence: eventstore.Fence{Unit: u}, Suspect: &eventstore.Suspect{AsideRef: ref, Suspicions: n}}
}

// suspicions are those of what is due, in order.
func (f *fixture) suspicions(u event.Unit) []int {
	f.Helper()
	var all []int
	for _, a := range f.dueAsides(u, 10) {
		all = append(all, a.Suspicions)
	}
	return all
}
