// Package outbox takes what was committed from the store to a broker that nodes share.
//
// A [Relay] works on the parts that its node holds. It appends the records of many lanes in one call, by compare-and-append, so that a stream gets exactly
// the entry after its newest; notes in the store what the broker has; and looks again later whether all subscribers have passed it.
//
// It promises that whatever is committed is in the stream of its lane in the end, in order and without a gap, whatever the broker forgets and whichever
// relay dies, for as long as a subscriber has not passed it. Two relays that both believe to hold a part do no harm: the broker compares, the store fences. When
// the store turns out to have gone back in time, the lane stops ([eventstore.Divergences]) and a person decides; nothing else is affected. It does not say who
// may read: that is the business of leases.
//
// What of a lane comes next is decided by [course], and what a look leads to by [terms.judge]: pure functions of what the store and the broker answered. testdata
// has what can happen to a lane as scripts. The rest carries out, for many lanes at once, what these two say.
//
// Limits: a subscriber with a store of its own is told of what is published after it was registered, and of what streams have then. A lane whose name no broker can
// hold is not sent at all: its records are abandoned, with the reason.
//
// Reading order: course.go and testdata, look.go, relay.go, job.go, round.go, note.go, looking.go, audience.go, missing.go.
package outbox
