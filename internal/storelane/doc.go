// Package storelane lets units run on a store that the process owns as a whole, without a broker: a [partitions.Port] whose
// stream is the store's broker lanes ([Port]), and the way to find the work that a start takes over ([Unpassed], [Due]).
// transport/local and transport/inline share it.
//
// It promises what [partitions.Port] promises: entries in the order of their lane, the same again when asked again, and never
// one past a gap. What it does for order beyond a single lane is said at [Port.Fetch].
//
// It does not lease. The store's ownership, its start generation and the fence in each commit guard all units at once, so a
// lease for each would guard nothing.
//
// When the process before did not stop its store, a unit that has something to do at the start may be what ended it: it is granted
// with [partitions.Acquired].Unclean, once. Which units these are is found out at once ([Port.TakeOver]), before anything is committed,
// since later nobody could tell what was there at the start. A unit that had nothing to do is clean, as all are after a clean end.
//
// # Why Release needs no second look
//
// On a broker, a release must be refused while something is unread: an entry that arrives between the read that found
// nothing and the release wakes nobody. Here the wake is a call that follows each commit, and the runtime keeps a wake that
// reaches a unit on its way out. An event committed before the last read is in that read. One committed after it has its
// wake still to come, whatever the release does meanwhile. So [Port.Release] never answers [partitions.ErrBusy].
//
// Reading order: port.go, backlog.go, left.go.
package storelane
