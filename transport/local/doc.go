// Package local carries events within one process that owns its store, without a broker: the records in the store are the
// stream, and a commit wakes the units that it concerns.
//
// Nothing polls. What wakes units:
//
//   - Each commit, through [Transport.Committed]: a call of Wake for each lane that grew and each subscriber of its category.
//   - Each start, which goes through all lanes that hold something their subscribers have not passed, and all units that set something
//     aside which is to be applied now. This runs in the background: [Transport.Start] returns at once, so that a large backlog, or a
//     large number of lanes, does not hold up the application. New commits are carried meanwhile. A look that fails is reported and
//     made again. Only after a process that did not stop its store a start goes through them once before it returns: what is there
//     then may be what ended it, and is applied with more care.
//   - [Transport.Notify], which looks again: for code that writes the store without Keyhold's knowledge.
//
// Units of different keys run in parallel; one that is slow or halted concerns no other. It does not deliver before the
// committing caller goes on: transport/inline does.
//
// Reading order: local.go, look.go.
package local
