package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// connection is one connection inside one transaction that writes, for as long as that lasts. It is used by one goroutine at a time.
type connection struct {
	ctx        context.Context // of the transaction
	conn       *pgx.Conn
	generation event.Generation // of the start of this process; 0 for an operator, who has none
	shared     bool             // other processes may have the store started
	relayed    bool             // what is to be published is noted
	storeID    string
	lanes      *laneIDs
	counts     counts
	acts       []*eventstore.ActRecord // to be written at the end
	step       projectionStep          // that was checked
	mostLanes  int                     // through which an act on a handler may go beside others; 0 = as many as is bearable. For tests
}

// query implements queryer. While its rows are open, the connection runs nothing else.
func (c *connection) query(ctx context.Context, query string, args ...any) (rows, error) {
	return c.conn.Query(ctx, query, args...)
}

// exec runs a statement and tells how many rows it changed.
func (c *connection) exec(query string, args ...any) (int64, error) {
	tag, err := c.conn.Exec(c.ctx, query, args...)
	return tag.RowsAffected(), err
}

// get scans the one row that a query gives at most; found is false when it gives none.
func (c *connection) get(query string, args []any, into ...any) (found bool, err error) {
	return get(c.ctx, c, query, args, into...)
}

// lane gives the number that a lane has on the server of the transaction. One that is not there is made.
func (c *connection) lane(ref event.LaneRef) (id int64, err error) {
	const number = `SELECT id FROM keyhold_lanes WHERE category = $1 AND key = $2 AND lane = $3`
	found, err := c.get(number, laneArgs(ref), &id)
	if err != nil || found {
		return id, err
	}
	if err := c.lanes.learn(c.ctx, []event.LaneRef{ref}); err != nil {
		return 0, err
	}
	if found, err = c.get(number, laneArgs(ref), &id); err == nil && !found {
		err = fmt.Errorf("%w: lane %s was made, and is not there", eventstore.ErrTrouble, ref)
	}
	return id, err
}

// Every transaction that writes first takes an advisory lock that stands for the store, shared, and looks at the store's row in the statement
// after that. A start takes it alone while it draws its generation: so it waits for all transactions that are under way, the COMMIT included
// whose answer somebody lost, and whoever comes later sees the new generation. Nobody ever waits for the row.
const (
	shareStore = `SELECT pg_advisory_xact_lock_shared('keyhold_store'::regclass::oid::int4, 0)`
	aloneStore = `SELECT pg_advisory_xact_lock('keyhold_store'::regclass::oid::int4, 0)`
	readFence  = `SELECT start_generation, owned_generation, registry_revision FROM keyhold_store`
)

// fence is what readFence gives.
type fence struct {
	start, owned event.Generation
	revision     uint64
}

func (f *fence) into() []any { return []any{&f.start, &f.owned, &f.revision} }

// check reports whether another process has started on the store since, in a way that does not leave this one its place.
func (c *connection) check(f fence) error {
	switch {
	case c.generation == 0: // an operator, who owns nothing
		return nil
	case !c.shared && f.start != c.generation:
		return fmt.Errorf("store was started again, at generation %d, this process started it at %d: %w", f.start, c.generation, eventstore.ErrStale)
	case f.owned > c.generation:
		return fmt.Errorf("store was started by a process that does not share it, at generation %d, this process started it at %d: %w", f.owned, c.generation, eventstore.ErrStale)
	}
	return nil
}

// begin begins a transaction, takes the store's lock, shared or, if there is patience for that, alone, and checks that the process still has its place: one round trip. The lock
// comes before all that the transaction locks otherwise.
func (c *connection) begin(patience time.Duration) error {
	var s script
	var f fence
	s.add(beginWork, nil, nil)
	if patience > 0 {
		takeAlone(&s, patience)
	} else {
		s.add(shareStore, nil, nil)
	}
	s.get(readFence, nil, func(bool) error { return c.check(f) }, f.into()...)
	err := s.run(c.ctx, c.conn)
	if patience > 0 {
		err = notAlone(err)
	}
	return err
}
