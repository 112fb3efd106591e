// Package inline delivers events in the goroutine that commits them: when a commit made outside of any behavior returns to its
// caller, every subscriber has applied it, and all that the behaviors committed in turn. Made for tests and for small
// programs that want one thing to happen at a time.
//
// It promises, for the whole process:
//
//   - One event at a time. Events are delivered in the order in which their commits were told, those of one commit in lane
//     order; each to its subscribers in the order of their registration, one after the other.
//   - What a behavior commits is queued behind what is queued already, and delivered before the outer commit returns.
//     An ask inside a behavior is such a commit: what it led to is delivered after that behavior, not when the ask returns. An
//     outer ask returns when everything is delivered if it committed something itself; if all it did was ask others, it returns
//     with its answer, and a goroutine delivers what they committed.
//   - A start delivers first what is unpassed, lane by lane: a store that survives the process may be opened again.
//
// A caller that gives up (its context ends) leaves its events in the queue. Others that wait take them along; where nobody
// waits, a goroutine does that ends with the queue. Errors are returned to the caller in whose goroutine they
// occurred, or reported; an event that met one is not tried again before something wakes its unit.
//
// It does not promise parallelism: a slow behavior holds up everybody who commits. And it cannot know what a behavior does
// behind its back: a commit made inside a behavior, but under a context that does not derive from the behavior's, waits for
// its own delivery, which waits for the behavior, until that context ends. Use the behavior's context.
//
// Reading order: inline.go, run.go, queue.go.
package inline
