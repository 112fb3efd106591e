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
// The examples of [App], [App.Halts], [Do] and [PublishTx] run as they stand. What each field of a declaration means:
//
//	go doc github.com/keyhold/keyhold/actors Handler
//	go doc github.com/keyhold/keyhold/actors Entity
//
// From anywhere: [Ask] an entity and wait for its reply, [Send] it a command durably, [Publish] events, [Do] both and SQL in one unit
// of work, or [PublishTx] events in a transaction of your own. Inside a behavior its context does all that, in the behavior's own
// unit of work.
//
// # Promises
//
// Per (handler, key), effects land in commit order, once, in the transaction that moves the handler's checkpoint; a crash at any
// point loses nothing and skips nothing; an event that cannot be applied halts its own key, durably, and no other, until somebody
// acts ([App.Admin], or the command keyhold). A handler without SequentialBy, or with OnPoison Release, sets such
// an event aside instead, and goes on.
//
// Not promised: effects outside the store happen at least once, with at most one event in doubt per key.
//
// # Names and keys
//
// A name (of an application, a handler, a category, an entity kind, a wire name) is UTF-8 text of 1 to 255 bytes, of 1 to 246 for
// handlers, categories and kinds. It has no ':', '{' or '}', no control character, and is not of the form __name__, which is
// Keyhold's own. Handlers and entity kinds share one name space; none of them, and no category, may end in ".commands".
//
// A partition key, or the id of an entity, is such a text of 1 to 255 bytes that is neither "dlq" nor "backfill" (or what
// Config.BackfillSuffix says instead).
//
// A key is the value of one direct field of the event, by its JSON name, in a protobuf message by its proto name: a string as it
// is, an integer in decimal, 16 bytes ([16]byte, in protobuf bytes) as the text of a UUID. What cannot be told from a field never set
// counts as empty: "", the zero UUID, nil, and 0, unless the field is a pointer to an integer, or optional in protobuf. An event
// whose key is empty or illegal fails the unit of work that emits it, with [ErrBadKey].
//
// # Reading order
//
// config.go, app.go, registration.go (what the declarations say), registrar.go (against what the store holds), route.go, doors.go, pending.go; then
// the package actors.
package keyhold
