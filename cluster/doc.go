// Package cluster decides which node goes for which unit, so that the units of an application spread over its nodes, and follow when nodes come
// and go. It never decides who may run a unit: that is the lease's doing alone, and whatever this package gets wrong costs time, not order.
//
// [Placement] is pure: members in, ranks out (weighted rendezvous). [Contest] is pure as well: what is known of a unit in, what to do about it out. [Node] is the
// shell: it beats, so that others know of it, scans for units that have work, listens to wakes, and holds its share of the parts.
//
// Who goes for a unit that has work: the node that ranks first for it, at once; when somebody holds the lease, at the moment it lapses. The next in rank
// waits a grace longer, so that a first one that is frozen, but not known to be, is replaced all the same. A node that could not recover a unit, or does not
// know the type of its next event, ranks itself last for it for a while.
//
// A unit that is held by a node that does not rank first for it stays there until the first one asks, which it does once it has ranked first for a while: then the holder finishes
// the event in hand and lets go. Moves are capped, so that a node that joins does not stop the others.
//
// Who the members are is said by the list in the broker, on which a node is while it beats, and by [transport.Gossip], which is quicker, and there when the broker is not. Gossip only hints: alone it
// makes nobody lose a unit.
//
// Asks go from any node to the one that has the entity through a [Router]. It knows nothing that the members do not say, but for exceptions: entities that another member has than the one that
// ranks first. Whoever is asked //
// Reading order: placement.go, contest.go, members.go, node.go, beat.go, hearing.go, scan.go, parts.go; then route.go, which is pure, owners.go, router.go; client.go, learn.go.
package cluster
