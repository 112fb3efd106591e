// Package keyhold runs event-sourced actors, one for each key, inside your application: events of one key are applied one at a
// time, in the order in which they were committed, exactly once in your database; events of different keys run in parallel.
//
// Declare an [Entity] (decides commands, emits events) and a [Handler] (applies the events of one key), register them with an
// [App], and run it:
//
//	app := keyhold.New(keyhold.Config{
//		Name:      "orders",
//		Store:     sqlite.Open("orders.db"),
//		Transport: local.New(),
//	})
//	app.Register(Order, Shipping)
//	keyhold.Main(app)
//
// From anywhere: [Ask] an entity and wait for its reply, [Send] it a command durably, [PublishTx] events from a transaction of your
// own, or [Do] a unit of work.
//
// What is promised: per (handler, key), effects land in commit order, once, in the transaction that moves the handler's
// checkpoint; a crash at any point loses nothing and skips nothing; an event that cannot be applied halts its own key, durably,
// and no other. What is not: effects outside the store happen at least once, with at most one event in doubt per key.
//
// Reading order: config.go, app.go, registration.go, route.go, doors.go; then the package actors.
package keyhold
