// Package host runs actors on protoactor-go, and is the only place that imports it (its actor package, nothing else).
//
// What protoactor-go gives: the life of an actor, its isolation, and the order of its messages. What is replaced, and why:
//
//   - The mailbox. The library's own runs until it is empty, so that busy actors keep the goroutines of all others; this one
//     gives way after a slice. It is not bounded: whoever sends counts before (see package actors), because a full mailbox of
//     the library blocks its sender, or loses messages.
//   - The dispatcher: at most a given number of actors run at once. The others wait in a queue without a goroutine.
//   - Supervision. The library restarts an actor whose message panicked and goes on with the next: for a stream of events
//     that would skip one. Here the actor is told ([Actor.Failed]) and stopped. It is a last resort: package actors
//     catches the panics of behaviors itself.
//   - Logging and metrics, which are off. A metrics provider would keep a callback for each actor ever spawned.
//
// Reading order: system.go, mailbox.go, slots.go.
package host
