// Package redis carries events between nodes through Redis 7.0 or later (6.2 without a maxmemory), or Valkey: standalone, behind Sentinel, or as a Cluster, which is
// found out by asking the server. One line in an application chooses it:
//
//	keyhold.Config{Transport: redis.Open("redis://localhost:6379")}
//
// Redis may lose anything at any time, all of it included: what was committed is in the store, and is published again. What it keeps is
// described, name by name, in docs/wire.md.
//
// # Leases
//
// A unit runs on the node that holds its lease, a string with an expiry that names the owner and a generation. Every script that changes
// something for an owner compares that string first, in the same step; whoever lost the lease can neither read nor acknowledge nor give back. The
// generation is drawn above all that Redis remembers and above the floor that the caller knows from the store. Until it is released a unit's
// generation key tells who had it last: a unit whose lease lapsed is unclean, unless this very process had it.
//
// A Redis that lost its memory may have granted, before that, leases which it does not know any more. It says so itself: a birth key holds the
// replication id of the server and since when it remembers. The acquire script compares both with the server it runs on, so that one that was sent before a loss
// and runs after it is refused like any other; nothing is granted until one TTL has passed.
//
// # Reading
//
// The id of an entry is its sequence: `7-0`. A read sets the unit's group to the position of the caller and reads from there, in one fenced step. So it gives
// what an owner before left pending as well as what is new, in order and complete, at a cost that does not depend on how much is pending, and the same again when
// it is asked again. Entries are acknowledged up to durable checkpoints only, by id, whoever read them.
//
// The stream says how far there is to read, the store fills in what the stream has lost below that (trimmed, deleted, never there after a loss of
// memory). Nothing is read from the store above the newest entry of the stream: it would be right, the store is the truth, but each unit that has
// nothing to do would cost a query, and the relay brings what is missing to the stream anyway. A sequence that neither has is a gap.
//
// What another store produces no relay here brings back, and its producer does not know how far the reader is: it has no reason to look before the lane is to leave. So there the newest string
// tells as well: where it names more than the stream has, the producer is asked.
//
// # Publishing
//
// Only the append script writes to streams: the entry after the newest is appended, anything else is answered with what the newest is. So a relay that was frozen, or asks again
// because a reply was lost, changes nothing, and a record that was not published can never look as if it were. The keys are marked as having work in the same step, and wakes
// are sent for those that had none. Wakes may be lost; the node is told to scan whenever listening begins.
//
// A lane is retired when every subscriber has passed it, for which a subscriber without a group counts as one that has not; those of other stores hold back a trim, too,
// for nobody else knows how far they are. Whoever holds a lane in this way gets work there, so that its owner comes.
//
// # Memory
//
// Redis is asked with each beat, at each connection for wakes and at each lease it refuses whether it is still the server it was: see birth.go. A server that would lose
// what it has (an evicting maxmemory-policy), or an account that may not run what is needed, is refused by Connect. When memory is full nothing is published
// ([transport.ErrFull]), and everything else goes on, so that readers can make room; the node is told at 90 %.
//
// # Calls
//
// Units of a node that read, acknowledge, acquire or release at the same time share calls: one is under way per kind and server, what comes meanwhile goes together with the
// next. So nothing waits when there is little to do, and calls grow under load. Each unit has its own answer. Renewals have their own connections and share nothing
// with the rest.
//
// The client library never repeats a call. One whose outcome is not known (a timeout, a connection that ended after the call was written) is reported so;
// scripts that are not loaded, and slots of a Cluster that moved, are dealt with here, for each call by itself.
//
// What the client library, go-redis, logs by itself goes to slog.Default at level debug, instead of standard error: it is one log for the whole process, so it cannot be that of
// one application. A program that calls SetLogger of go-redis has its own.
//
// Reading order: redis.go, config.go, connect.go, server.go, script.go, fault.go, names.go, entry.go; port.go, lease.go, read.go, batch.go, lost.go;
// broker.go, publish.go, retire.go, registrations.go, missing.go, work.go, members.go, birth.go, watch.go, require.go, log.go.
package redis
