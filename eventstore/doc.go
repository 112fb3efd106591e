// Package eventstore is the port to the database of one application: entity streams, broker lanes, unit rows,
// checkpoints, halts, dead letters and the registry, all changed in one transaction together with the
// application's own SQL.
//
// The port is a few role interfaces: [Streams], [Records], [Units], [Lanes] (what there is to do), [Registry], and one
// [Beginner]; an adapter implements all of them as a [Store]. What people see and do is [Operations]: [Halts], [Asides], [Acts], [Jobs],
// [Overviews]. Everything that a unit of work changes is data, [Changes],
// handed to [Tx.Commit]; so an adapter can commit many finished units of work as one transaction of the database. What needs no database is
// decided here, so that all adapters refuse the same and say the same: [Changes.Validate], [Act.Decide], [Job.Stepped], [Standing.Status].
//
// Adapters: eventstore/memory, eventstore/sqlite, eventstore/postgres. Each passes the suites of eventstore/eventstoretest.
// Reading order: store.go, changes.go, then the role you need.
package eventstore
