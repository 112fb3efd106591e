package transporttest

import (
	"fmt"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

var delivery = []check{
	{name: "Each subscriber gets each event of its categories and nobody else does", run: func(f *fixture) {
		f.start()
		o1, o2, p1 := f.event(orders, "c-1"), f.event(orders, "c-2"), f.event(payments, "c-1")
		f.publish(o1, o2, p1) // one commit, three lanes
		o3 := f.event(orders, "c-1")
		f.publish(o3)
		f.awaitApplied(7)
		f.same("applied", sorted(f.applied()), sorted([]string{
			"shipping " + o1.ID, "shipping " + o2.ID, "shipping " + o3.ID,
			"billing " + o1.ID, "billing " + o2.ID, "billing " + o3.ID, "billing " + p1.ID,
		}))
	}},
	{name: "A category without subscribers causes nothing", run: func(f *fixture) {
		f.publish(f.event(audits, "c-0"))
		f.start()
		f.publish(f.event(audits, "c-1"))
		e := f.event(payments, "c-2")
		f.publish(e)
		f.awaitApplied(1)
		f.same("units reached", f.reached(), []event.Unit{{Name: billing, Key: "c-2"}})
	}},
	{name: "What was committed before the first start is delivered", with: transport.Replay, run: func(f *fixture) {
		before := f.event(orders, "c-1")
		f.publish(before) // told before it starts, which does nothing
		f.start()
		after := f.event(orders, "c-1")
		f.publish(after)
		f.awaitApplied(4)
		f.same("shipping", f.appliedBy(event.Unit{Name: shipping, Key: "c-1"}), ids(before, after))
	}},
	{name: "What was committed between two starts is delivered once", run: func(f *fixture) {
		f.start()
		first := f.event(orders, "c-1")
		f.publish(first)
		f.awaitApplied(2)
		f.stop()
		told, untold := f.event(orders, "c-1"), f.event(orders, "c-1")
		f.forgetReached()
		f.publish(told) // after Stop: does nothing
		f.commit(untold)
		f.same("units reached after Stop", f.reached(), []event.Unit(nil))
		f.start()
		f.awaitApplied(6)
		last := f.event(orders, "c-1")
		f.publish(last)
		f.awaitApplied(8)
		f.same("shipping", f.appliedBy(event.Unit{Name: shipping, Key: "c-1"}), ids(first, told, untold, last))
		f.same("billing", f.appliedBy(event.Unit{Name: billing, Key: "c-1"}), ids(first, told, untold, last))
	}},
	{name: "A large backlog is delivered", with: transport.Replay, run: func(f *fixture) {
		const keys = 600
		var events []event.Envelope
		for i := range keys {
			events = append(events, f.event(payments, fmt.Sprintf("c-%d", i)))
		}
		f.commit(events...)
		f.start()
		f.awaitApplied(keys)
	}},
	{name: "An event that was not applied comes again", with: transport.Ack, run: func(f *fixture) {
		e := f.event(orders, "c-1")
		f.node.behave = only(shipping, e.ID, fail(errFail))
		f.start()
		_ = f.transport.Committed(f.Context(), f.commit(e)) // inline tells here, others report
		f.awaitApplied(1)
		f.stop()
		f.faults()
		f.same("applied", f.applied(), []string{"billing " + e.ID})

		f.node.behave = only("", "", nil)
		f.start()
		f.awaitApplied(2)
		f.same("applied", f.applied(), []string{"billing " + e.ID, "shipping " + e.ID})
	}},
	{name: "Each handler has its own place", with: transport.ConsumerGroups, run: func(f *fixture) {
		e1, e2 := f.event(orders, "c-1"), f.event(orders, "c-1")
		f.node.behave = only(shipping, e1.ID, fail(errHalt))
		f.start()
		f.publish(e1)
		f.publish(e2)
		f.awaitApplied(2)
		f.same("applied", f.applied(), []string{"billing " + e1.ID, "billing " + e2.ID})
	}},
	{name: "An event that one handler sets aside is applied by the other", with: transport.DeadLetter, run: func(f *fixture) {
		e1, e2 := f.event(orders, "c-1"), f.event(orders, "c-1")
		f.node.behave = only(shipping, e1.ID, fail(errDead))
		f.start()
		f.publish(e1, e2)
		f.awaitApplied(4)
		f.same("shipping", f.appliedBy(event.Unit{Name: shipping, Key: "c-1"}), ids(e1, e2)) // passed both
		f.same("billing", f.appliedBy(event.Unit{Name: billing, Key: "c-1"}), ids(e1, e2))
		dead, err := f.store.ListDead(f.Context(), shipping, event.Position{}, 10)
		f.must(err)
		if len(dead) != 1 || dead[0].EventID != e1.ID {
			f.Errorf("dead letters of shipping: %v", dead)
		}
	}},
}
