package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// connection is the one connection that writes, with its prepared statements. It is used by one goroutine at a time.
//
// Its own statements are never interrupted: none takes long, and interrupting one that writes would roll back its group.
type connection struct {
	connector  driver.Connector
	patience   time.Duration
	generation event.Generation // of this start; 0 before it was drawn, and where the process does not own the store
	storeID    string
	// held tells whether any process has the store started; nil: this one has, and the connection is its writer's.
	held func() (bool, error)
	// mostLanes is how many lanes an act on a handler may go through beside others; 0 = as many as is bearable. For tests.
	mostLanes int
	relayed   bool // lanes that grow are noted for a relay
	unclean   bool // the process that had the store before did not stop it

	db         *sql.DB // a pool of one
	conn       *sql.Conn
	guard      *guarded // what is behind conn
	statements map[string]*sql.Stmt
	lanes      map[event.LaneRef]*lane // as the transaction sees them; forgotten when anything is rolled back
	counts     counts
}

// lane is a row of keyhold_lanes.
type lane struct {
	id   int64
	last event.Sequence
}

// maxLanes bounds how many lanes are remembered, at about 200 bytes each.
const maxLanes = 50_000

func (c *connection) open(ctx context.Context) error {
	db := sql.OpenDB(dialer{c.connector, c.patience, func(g *guarded) { c.guard = g }})
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	c.db, c.conn = db, conn
	c.statements = make(map[string]*sql.Stmt)
	c.forgetLanes()
	c.counts.forget()
	return nil
}

// close closes the connection; a transaction that is open is rolled back.
func (c *connection) close() error {
	if c.db == nil {
		return nil
	}
	var errs []error
	for _, s := range c.statements {
		errs = append(errs, s.Close())
	}
	errs = append(errs, c.conn.Close(), c.db.Close())
	c.db, c.conn, c.guard, c.statements = nil, nil, nil, nil
	return errors.Join(errs...)
}

func (c *connection) statement(query string) (*sql.Stmt, error) {
	if s := c.statements[query]; s != nil {
		return s, nil
	}
	s, err := c.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	c.statements[query] = s
	return s, nil
}

// exec runs a statement and tells how many rows it changed.
func (c *connection) exec(query string, args ...any) (int64, error) {
	s, err := c.statement(query)
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query implements queryer. Its context does not end a statement.
func (c *connection) query(_ context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := c.statement(query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(context.Background(), args...)
}

// get scans the one row that a query gives at most; found is false when it gives none.
func (c *connection) get(query string, args []any, into ...any) (found bool, err error) {
	return get(context.Background(), c, query, args, into...)
}

// identify draws this start's generation, from which on every earlier owner is stale.
func (c *connection) identify(path string, opts eventstore.StartOptions) error {
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	var clean bool
	var generation event.Generation
	var application string
	_, err := c.get(`SELECT clean, application FROM keyhold_store`, nil, &clean, &application)
	if given := opts.Application; err == nil && given != "" && given != application {
		if application != "" && application != opts.Formerly {
			err = &eventstore.ApplicationError{Path: path, Has: application, Given: given}
		}
		application = given
	}
	if err == nil {
		_, err = c.get(`UPDATE keyhold_store SET start_generation = start_generation + 1, clean = 0, application = ?, trouble = '', about = '' RETURNING store_id, start_generation`,
			[]any{application}, &c.storeID, &generation)
	}
	if err == nil {
		err = c.relay(opts.Relayed)
	}
	if err != nil {
		c.rollback()
		return err
	}
	if err := c.commit(); err != nil {
		return err
	}
	c.generation, c.unclean = generation, !clean
	return nil
}

// markClean says whether the process that has the store now leaves it as it should.
func (c *connection) markClean(clean bool) error {
	if err := c.begin(); err != nil {
		return err
	}
	_, err := c.exec(`UPDATE keyhold_store SET clean = ?`, clean)
	if err == nil {
		err = c.commit()
	}
	if err != nil {
		c.rollback()
	}
	return err
}

// begin begins a transaction and checks in it that the process still owns the database. Other programs may read it
// meanwhile, but not write.
func (c *connection) begin() error {
	if c.db == nil {
		if err := c.open(context.Background()); err != nil {
			return err
		}
	}
	if _, err := c.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := c.fence(); err != nil {
		c.rollback()
		return err
	}
	return nil
}

// fence reports whether another process has started on the database since.
func (c *connection) fence() error {
	var now event.Generation
	if _, err := c.get(`SELECT start_generation FROM keyhold_store`, nil, &now); err != nil {
		return err
	}
	if now != c.generation {
		return fmt.Errorf("store was started again, at generation %d, this process started it at %d: %w", now, c.generation, eventstore.ErrStale)
	}
	return nil
}

func (c *connection) commit() error {
	_, err := c.exec("COMMIT")
	return err
}

// attempt applies one job of the transaction. An error must have come before its first write, or be followed by a rollback.
func (c *connection) attempt(apply func(*connection) error) error {
	err := apply(c)
	if err != nil {
		c.counts.drop()
		return err
	}
	c.counts.keep()
	return nil
}

// rollback ends the transaction, if there still is one.
func (c *connection) rollback() {
	_, _ = c.exec("ROLLBACK") // an error says that the database did it already
	c.forgetLanes()
	c.counts.forget()
}

// save marks the place to which undo goes back; keep gives the mark up.
func (c *connection) save() error {
	_, err := c.exec("SAVEPOINT unit")
	return err
}

func (c *connection) keep() error {
	_, err := c.exec("RELEASE unit")
	return err
}

// undo fails when the mark is not there any more: then the transaction is gone.
func (c *connection) undo() error {
	c.forgetLanes()
	c.counts.drop()
	if _, err := c.exec("ROLLBACK TO unit"); err != nil {
		return err
	}
	return c.keep()
}

func (c *connection) forgetLanes() { c.lanes = make(map[event.LaneRef]*lane) }

// lane gives the row of a lane, which it makes when it is not there.
func (c *connection) lane(ref event.LaneRef) (*lane, error) {
	if l := c.lanes[ref]; l != nil {
		return l, nil
	}
	l := new(lane)
	args := []any{ref.Category, ref.Key, ref.Lane}
	found, err := c.get(`SELECT id, last FROM keyhold_lanes WHERE category = ? AND key = ? AND lane = ?`, args, &l.id, &l.last)
	if err == nil && !found {
		_, err = c.get(`INSERT INTO keyhold_lanes (category, key, lane, last) VALUES (?, ?, ?, 0) RETURNING id`, args, &l.id)
	}
	if err != nil {
		return nil, err
	}
	if len(c.lanes) >= maxLanes {
		c.forgetLanes()
	}
	c.lanes[ref] = l
	return l, nil
}

// draw takes count sequences from the counter of a lane and gives the first. The row has the last word: if it is not what
// is remembered, because an operator adopted the lane from outside, it is read again.
func (c *connection) draw(ref event.LaneRef, count int) (lane int64, first event.Sequence, err error) {
	for range 2 {
		l, err := c.lane(ref)
		if err != nil {
			return 0, 0, err
		}
		last := l.last + event.Sequence(count)
		n, err := c.exec(`UPDATE keyhold_lanes SET last = ? WHERE id = ? AND last = ?`, int64(last), l.id, int64(l.last))
		if err != nil {
			return 0, 0, err
		}
		if n == 1 {
			c.counts.drawn(ref.Category, count, l.last == 0)
			first, l.last = l.last+1, last
			return l.id, first, nil
		}
		delete(c.lanes, ref)
	}
	return 0, 0, fmt.Errorf("counter of lane %s is not what it was read to be", ref)
}
