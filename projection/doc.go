// Package projection runs read models: behaviors that are given the events of one category, of several or of all, in the one order in which
// they were committed, and keep tables that answer questions.
//
// A [Projection] is declared as a value. A [Runtime] runs one loop for each build of it: it reads what comes after the build's
// position, gives it to the behavior in a unit of work, and commits the behavior's SQL together with the position, moved by
// compare-and-set.
//
// Promises: effects in the store exactly once per event, in commit order, with nothing left out, whatever is killed; an event that cannot
// be applied halts its build, durably, before anything later, and nothing else; an idle build costs no polling. A rebuild fills tables of
// its own while readers go on to see those there were, and takes their place in one transaction.
//
// Not promised: order across projections, or that a projection has seen what a caller has just committed. What a behavior does outside of
// [Context.Tx] may be done again. What a behavior keeps in its fields is a cache, lost whenever an attempt does not commit.
//
// Read projection.go, context.go, then runtime.go, build.go, batch.go and stretch.go. The rules of what may follow what are
// in eventstore/projecting.go.
package projection
