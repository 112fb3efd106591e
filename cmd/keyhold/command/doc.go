// Package command is the operator's command: what is stopped in a store and why, what was set aside, and the acts that set it going
// again. The program keyhold is this package and nothing else; an application mounts it under a command of its own with [New], over
// the store that it opens itself.
//
// # Promises
//
// The command is no node: it takes no ownership, runs no behavior, and works beside the process that has the store open as well as on
// a store that nobody has open. Every act names the state that it was decided on and is refused, with the present state, when that has
// moved ([ExitMoved]).
//
// Output is a table, or one JSON document whose names stay. What comes from a store (keys, errors, payloads) never reaches a
// terminal as anything but text: control characters are escaped. Errors go to the error stream and end with what to do. Exit codes
// are constants of this package.
//
// # Reading order
//
// options.go (what an embedder gives), command.go (the tree), session.go (what one run has), then a noun: status.go, partitions.go,
// dead.go, jobs.go. How things look: view.go, table.go, text.go, watch.go. What may go wrong: fault.go.
package command

//go:generate go test -run TestReferenceIsUpToDate -update
