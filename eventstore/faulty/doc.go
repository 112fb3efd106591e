// Package faulty is an event store that fails where a test wants it to: [Wrap] puts a [Plan] in front of any other
// store, and the plan decides for each call what goes wrong with it.
//
// A call can fail before it reaches the store (nothing happened), after it (it happened, the answer is lost), or wait
// until the test says go. A commit whose answer is lost always gives [eventstore.ErrUnknownCommit], as the port
// demands; with no faults planned the wrapped store passes the suite of eventstoretest.
//
// Plans are plain functions. [Nth] hits one call, [All] joins plans, and [Seeded] hits calls at random, the same ones
// for the same seed however goroutines interleave.
//
// Reading order: plan.go, store.go.
package faulty
