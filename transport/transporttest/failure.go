package transporttest

import (
	"fmt"

	"github.com/keyhold/keyhold/event"
)

var failure = []check{
	{name: "A halted unit holds up nobody", run: func(f *fixture) {
		bad, behind, other := f.event(orders, "c-1"), f.event(orders, "c-1"), f.event(orders, "c-2")
		f.node.behave = only(shipping, bad.ID, fail(errHalt))
		f.start()
		f.publish(bad) // a halt is no error
		f.publish(behind)
		f.publish(other)
		f.awaitApplied(4)
		f.stop()
		f.start() // nor does it hold up a start
		last := f.event(orders, "c-2")
		f.publish(last)
		f.awaitApplied(6)
		f.same("applied", sorted(f.applied()), sorted([]string{
			"billing " + bad.ID, "billing " + behind.ID, "billing " + other.ID, "shipping " + other.ID,
			"billing " + last.ID, "shipping " + last.ID,
		}))
	}},
	{name: "A unit that fails holds up nobody", run: func(f *fixture) {
		bad, other := f.event(orders, "c-1"), f.event(orders, "c-2")
		f.node.behave = only(shipping, bad.ID, fail(errFail))
		f.start()
		_ = f.transport.Committed(f.Context(), f.commit(bad)) // inline tells here, others report
		f.publish(other)
		f.awaitApplied(3)
		f.stop()
		f.faults()
		f.same("applied", sorted(f.applied()), sorted([]string{
			"billing " + bad.ID, "billing " + other.ID, "shipping " + other.ID,
		}))
	}},
	{name: "A record with a bad key at the head holds up nobody and is terminal at once", run: func(f *fixture) {
		const lane, others = 11, 100
		var events []event.Envelope
		for range lane {
			events = append(events, f.event(payments, "a:b"))
		}
		bad := ids(events...)
		for i := range others {
			events = append(events, f.event(payments, fmt.Sprintf("c-%d", i)))
		}
		f.start()
		f.publish(events...)
		f.awaitApplied(lane + others)
		f.same("of the bad key", f.appliedBy(event.Unit{Name: billing, Key: "a:b"}), bad) // passed, as voids
		f.node.mu.Lock()
		for _, a := range f.node.mu.applied {
			if a.void != (a.unit.Key == "a:b") {
				f.Errorf("void is %v: %s", a.void, a)
			}
		}
		f.node.mu.Unlock()
		set, err := f.store.Abandoned(f.Context(), event.Position{}, 2*lane)
		f.must(err)
		for _, a := range set {
			if a.Reason == "" {
				f.Errorf("%s was abandoned without a reason", a.Record.ID)
			}
		}
		f.same("abandoned", len(set), lane)
	}},
}
