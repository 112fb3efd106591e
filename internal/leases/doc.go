// Package leases keeps what a node holds: it renews leases in time, and says at once when one must not be relied on any more.
//
// A [Keeper] promises, for each lease given to it:
//
//   - It is renewed when it is a heartbeat old at the latest (two, with Config.Seldom), whatever else the node does: renewals share no goroutine and no queue with
//     the work that is done under them, and a call that hangs holds up only what is in it.
//   - A renewal that fails is made again soon; only the deadline ends a lease, or an answer that it is held no longer.
//   - The deadline, a margin before the lease ends as counted from when it was last asked for, is told when it comes, on the monotonic clock, also
//     while a renewal is under way. A renewal that comes after it does not revive the lease.
//   - A host that was suspended has lost everything: its monotonic clock stood still while leases ran out. It is noticed because the wall clock has
//     gone on, by whoever looks first: the keeper, or somebody who calls [Keeper.Look] before he relies on a lease.
//
// It does not say who may do what: that is decided by those it tells. A lease that is held and idle costs an entry in a map, its place in two heaps,
// and its part of one call in a heartbeat.
//
// Reading order: keeper.go, renew.go, clock.go, queue.go.
package leases
