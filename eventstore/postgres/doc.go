// Package postgres is the event store in a PostgreSQL database: the store of many nodes. The application's own tables live in the
// same database and change in the same transactions. It needs PostgreSQL 14 or later.
//
// # Promises
//
// A start without [eventstore.StartOptions].Relayed has the store alone, one with it shares it with others of its kind. Either holds its place by an
// advisory lock of a session of its own: free the instant its process dies, kept while it is frozen, and given up for lost when the server leaves that
// session without an answer. A process that lost its place commits nothing ([eventstore.ErrTrouble]) until it has it back, which it tries by itself: after a restart or
// a failover of the server it goes on. Where another process has started that leaves it none, it commits nothing more until it is stopped and started again; and
// whether it knows or not, each of its transactions finds out by the store's row ([eventstore.ErrStale]).
//
// A commit that returned nil is as durable as the server makes commits (synchronous_commit). One whose answer was lost is looked up: that it was rolled
// back is [eventstore.ErrTrouble], that its events are there is success; where neither can be told for certain it is [eventstore.ErrUnknownCommit].
//
// A unit of work without SQL of its own takes two round trips; one with SQL adds one for its beginning and one for each statement. It has one of
// [Config].MaxConns connections from its first SQL on, and others wait for the rows that it has changed: so do slow work before SQL, not after. Between
// two statements it may take [Config].TransactionTimeout ([ErrIdle]): that is how long what a frozen process has locked stays locked, also where it was frozen in the middle of
// what it sends, which the server waits for without end and the other processes of the store therefore look after. Transactions are
// READ COMMITTED: a unit of work that reads a row in order to change it locks it, by SELECT … FOR UPDATE. Other than on SQLite, a statement that fails loses the whole
// transaction, unless a SAVEPOINT was made before.
//
// SQL of a unit of work stays inside it: statements that would end the transaction, or change the session for those that come after, are refused
// ([ErrNotAllowed]).
//
// Sequences of a lane are in the order of commits, and so are the positions of [eventstore.Streams].ReadAll; nothing ever appears below what was read, and no
// transaction but those that are committing events holds that up.
//
// An operator reaches the store beside the processes that have it, or while none does ([Attach]): each act is one short transaction, which decides on what
// whoever had the unit before it left. Overviews cost what is stopped or set aside, not what there is. A handler is in use while any process lives that has saved it.
//
// Readers see the tables of a projection through views. A switch replaces a view, so that grants on it and views over it stay, where the new table begins with
// the same columns; else it makes the view anew, which loses grants and is refused where something depends on it. It waits for a reader who has the view in an open transaction
// for a second, then it is tried again; likewise tables that somebody reads are left, and dropped later.
//
// # Not promised
//
// That a standby has what was committed: after a failover to one that is behind, the store went back in time. Poolers in transaction mode take
// sessions apart, and with them the lock of a process: connect to the server, or to a pooler in session mode. Any other program may read and write
// in the database; it must leave tables called keyhold_ alone, and advisory locks of two numbers the first of which is the oid of such a table.
//
// # How transactions meet
//
// Whoever writes locks in one order: the store (shared; a start, and few others, have it alone, for which they queue for a while only, and then let those pass who are in the way before they do again,
// for longer), the rows of units, what stands in the way of units, projections,
// checkpoints in lane order, lanes in lane order, counts, acts. What is decided by is read in the statement that locks it, or after it. A lane gets its row
// before, in a transaction of its own, so that nobody waits for one that another is making.
//
// Units of work without SQL of the application's that come while others are under way share a transaction: one batch, one COMMIT, an answer for each. It waits for no
// lock, and who is not as it expected is left out of it and commits alone.
//
// # Inside
//
// migrations/ has the layout, with what each table is for. Reading order: config.go, store.go (what a start does), session.go (connections), owner.go,
// retake.go and alone.go (the place of a process), migrate.go; query.go, script.go and connection.go (how statements run, and the fence), tx.go, apply.go (what a commit writes), gathering.go and
// together.go (how several share a transaction), outcome.go (what
// became of it), door.go (the application's SQL), standstill.go (what is frozen), publishin.go and guest.go (transactions that the application
// began itself), position.go (the order of all), counts.go, asides.go, then the role you need. operations.go is what a process and an
// operator share, attach.go the operator's way in; relay.go, passing.go and adoption.go are for what publishes records to a broker.
package postgres
