// Package sqlite is the event store in a SQLite file: the embedded default, no server at all. The application's own tables
// live in the same file and change in the same transactions.
//
// # Promises
//
// One process has the file at a time, by a lock of the operating system beside it: free the instant its holder dies, kept
// while it is frozen. On Linux the file itself is locked as well, so that neither a hard link nor a deleted lock file lets a second
// owner in. Should another process start on the file all the same, each write transaction of the first finds
// out by the start generation ([eventstore.ErrStale]).
//
// A commit that returned nil was synced to the disk (write-ahead log, synchronous=FULL).
//
// Finished units of work that wait are committed together, up to 128 in one transaction of the database, without any delay made for
// it; each still commits or fails alone. A unit of work with SQL of its own ([eventstore.Tx.SQL]) gets the connection for
// as long as its body takes, while all other writes wait: so do slow work before SQL, not after. It loses the
// connection when its context is done. Reads never wait for it.
//
// SQL of a unit of work stays inside it: what reaches beyond is refused ([ErrNotAllowed]). A statement whose context is done may run on
// for a second before it is interrupted, and so may one that gives its next row, or has no context, once the unit of work's is done. Interrupting one that writes, INSERT OR ROLLBACK and RAISE(ROLLBACK) make SQLite give up the whole
// transaction: then the others of the group are committed anew, but for those with SQL, which are told that it was not their doing ([eventstore.ErrTrouble]).
//
// An operator reaches the store beside the process that owns it, or while nobody does ([Attach]): it takes no ownership, and each act is one
// short transaction that waits for its turn between those of the owner. Overviews cost what is stopped or set aside, not what there is:
// sums over lanes are kept in the transactions that change what they sum up.
//
// # Not promised
//
// A network file system (its locks, and the shared memory of the write-ahead log, do not work there). Any other program
// may read the file, and may write its own tables for moments; it must leave those called keyhold_ alone.
//
// # Inside
//
// migrations/ has the layout, with what each table is for. Reading order: store.go (what a start does), tx.go, job.go, writer.go
// (groups), visit.go (the application's SQL), guard.go (what keeps it inside its unit of work; interrupt.go ends what runs on), connection.go, apply.go (what
// a commit writes; aside.go, counts.go), then the role you need. operations.go is what owner and operator share, attach.go the operator's
// way in; acts.go, handlers.go and jobstep.go carry out what package eventstore decides. owner.go and claim_linux.go are the locks, mark_linux.go
// tells who has one without taking it, wal.go keeps the write-ahead log short.
package sqlite
