// Package keyholdtest tests entities and handlers: given what has happened, when a command is decided or an event is applied, then this
// follows.
//
//	keyholdtest.Entity(t, Order, "o-1").
//		Given(OrderPlaced{OrderID: "o-1", ClientID: "c-1", Cents: 4200}).
//		When(&PayOrder{PaymentID: "p-1", Cents: 4200}).
//		ThenEvents(OrderPaid{OrderID: "o-1", ClientID: "c-1", PaymentID: "p-1"}).
//		ThenReply(&Done{})
//
//	keyholdtest.Handler(t, Settlement, keyholdtest.With(Order)).
//		Given(&PaymentReceived{PaymentId: "p-1", OrderId: "o-1", Cents: 4200}).
//		ThenSent(Order.ID("o-1"), &PayOrder{PaymentID: "p-1", Cents: 4200})
//
// Nothing is simulated. What is under test runs in an application: registered, with its keys checked, its events encoded, stored and
// decoded, its snapshots taken, its failures tried again. The store is one in memory, or the one that the test chose ([On]), and events are
// delivered before the call that committed them returns. So there is nothing to wait for.
//
// In virtual time backoff and timeouts take no time, and timers ring when the test says so:
//
//	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
//		order := keyholdtest.Entity(k, Order, "o-1").When(&PlaceOrder{ClientID: "c-1", Cents: 4200})
//		k.Advance(24 * time.Hour)
//		order.ThenEvents(OrderExpired{OrderID: "o-1", ClientID: "c-1"})
//	})
//
// What goes wrong in production can be made to: commits fail (FailCommit), bytes cannot be decoded (GivenPoison), the process starts
// anew ([Kit.Restart]).
//
// A test need not ask for what nobody wants. It fails by itself for an error of a command that it did not expect, for a key that is
// halted, an event set aside or parked, a fold that changes what it is given or depends on more than its arguments, a command that changes the
// state without an event, a state that would not survive being stored.
//
// It does not test what needs several things at once: one event is handled at a time. And a behavior that never returns is only
// noticed in virtual time.
//
// Reading order: example_test.go, and examples/orders/behaviors_test.go for how it looks in an application; kit.go, entity.go, handler.go;
// then replay.go, which checks entities, and journal.go, which knows what happened.
package keyholdtest
