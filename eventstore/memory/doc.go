// Package memory is the event store that lives in the process: for tests, and for applications that may forget.
//
// It keeps every promise of the port but two, and its capabilities say so: it has no SQL ([eventstore.ErrNoSQL]) and
// nothing survives the process. Stop keeps the data: a later Start of the same *Store finds it, under a new start
// generation, so a test can restart an application. Every commit is applied under one lock, held for a microsecond or
// two and never over a callback; readers copy what they found after they gave the lock back.
//
// Several handles on one store ([Share]) are several nodes on one database, all in one process: each is started with Relayed.
//
// Reading order: store.go, data.go, commit.go, then the role you need.
package memory
