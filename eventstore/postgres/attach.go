package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keyhold/keyhold/eventstore"
)

// Attached is a store as an operator uses it, beside the processes that have it started or while nobody does. It takes no place, starts no
// generation and changes no format. Each act is one short transaction beside theirs. Make one with [Attach], and close it.
type Attached struct {
	operations
	config  *resolved
	writers *pgxpool.Pool
	side    *pgxpool.Pool // for lanes that are made
	lanes   *laneIDs
	readers *readers
	why     error // nothing can be written; nil otherwise

	mostLanes int // see connection

	mu struct {
		sync.RWMutex // read, while something is under way
		closed       bool
	}
}

var _ eventstore.Operations = (*Attached)(nil)

// ErrReadOnly: the store was attached by a role that may not write it.
var ErrReadOnly = errors.New("store cannot be written from here")

// How many connections an operator has.
const (
	attachedWriters = 2
	attachedReaders = 4
)

// Attach opens the store in the database at url for an operator; where Keyhold's tables are in a schema of their own, the url says so:
// ...?search_path=orders. It refuses a database in which there is no Keyhold store, and one of another format than this program's
// ([*eventstore.FormatError]). Where the role may not write all of Keyhold's tables, it reads, and every act gives [ErrReadOnly].
func Attach(ctx context.Context, url string) (*Attached, error) { return Config{URL: url}.Attach(ctx) }

// Attach is [Attach] for a config, of which URL, Schema and TransactionTimeout count.
func (c Config) Attach(ctx context.Context) (*Attached, error) {
	config, err := c.operated()
	if err != nil {
		return nil, err
	}
	a := &Attached{config: config}
	a.operations = operations{a}
	if err := a.open(ctx); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// operated is the config with the schema that the url names, so that the locks of that schema are met.
func (c Config) operated() (*resolved, error) {
	config, err := c.resolve()
	if err != nil || c.Schema != "" {
		return config, err
	}
	if c.Schema = config.pool.ConnConfig.RuntimeParams["search_path"]; c.Schema == "" {
		return config, nil
	}
	return c.resolve()
}

func (a *Attached) open(ctx context.Context) (err error) {
	if a.writers, err = a.config.openPool(ctx, attachedWriters, false); err != nil {
		return err
	}
	if a.side, err = a.config.openPool(ctx, 1, false); err != nil {
		return err
	}
	a.lanes = newLaneIDs(a.side)
	own, err := a.config.openPool(ctx, attachedReaders, true)
	if err != nil {
		return err
	}
	a.readers = &readers{pool: own}
	if err := a.checkFormat(ctx, a.readers); err != nil {
		return err
	}
	if _, err := get(ctx, a.readers, `SELECT store_id FROM keyhold_store`, nil, &a.readers.storeID); err != nil {
		return a.unreachable(err)
	}
	a.why, err = a.mayWrite(ctx)
	return err
}

func (a *Attached) unreachable(err error) error {
	return fmt.Errorf("store %s cannot be read: %w", a.config.name, trouble(err))
}

// checkFormat reports a database that this program cannot operate.
func (a *Attached) checkFormat(ctx context.Context, q queryer) error {
	known, err := formats(migrations)
	if err != nil {
		return err
	}
	switch found, err := formatOf(ctx, q); {
	case err != nil:
		return a.unreachable(err)
	case found == 0:
		return fmt.Errorf("%s is no Keyhold store: check the database and its search_path, or start the application, which makes it", a.config.name)
	case found != len(known):
		return &eventstore.FormatError{Path: a.config.name, Found: found, Known: len(known)}
	}
	return nil
}

// mayWrite tells why the role may not write.
func (a *Attached) mayWrite(ctx context.Context) (why error, err error) {
	var readOnly bool
	var table string
	if err := a.writers.QueryRow(ctx, `SELECT current_setting('default_transaction_read_only')::boolean, coalesce((SELECT min(relname::text) FROM pg_class
		WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'keyhold_store'::regclass) AND relkind = 'r' AND relname LIKE 'keyhold\_%' AND relname <> 'keyhold_format'
		AND NOT (has_table_privilege(oid, 'INSERT') AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))), '')`).Scan(&readOnly, &table); err != nil {
		return nil, a.unreachable(err)
	}
	switch {
	case readOnly:
		return fmt.Errorf("%w: the server gives read-only transactions", ErrReadOnly), nil
	case table != "":
		return fmt.Errorf("%w: the role %q may not change table %s", ErrReadOnly, a.config.pool.ConnConfig.User, table), nil
	}
	return nil, nil
}

// Close waits for what is under way, and closes the connections. It is idempotent.
func (a *Attached) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.closed {
		a.mu.closed = true
		a.close()
	}
	return nil
}

func (a *Attached) close() {
	for _, pool := range []*pgxpool.Pool{a.writers, a.side} {
		if pool != nil {
			pool.Close()
		}
	}
	if a.readers != nil {
		a.readers.pool.Close()
	}
}

func (a *Attached) read(ctx context.Context, f func(*readers) error) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.mu.closed {
		return eventstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return trouble(ended(ctx, f(a.readers)))
}

func (a *Attached) change(ctx context.Context, _ string, f func(*connection) error) error {
	return a.writing(func() error { return change(ctx, a.writers, a.connection, 0, a.onFormat(f)) })
}

func (a *Attached) changeAlone(ctx context.Context, _ string, f func(*connection) error) error {
	return a.writing(func() error { return changeAlone(ctx, a.writers, a.connection, func(error) {}, a.onFormat(f)) })
}

// writing runs f where the operator may write, until which Close waits.
func (a *Attached) writing(f func() error) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	switch {
	case a.mu.closed:
		return eventstore.ErrClosed
	case a.why != nil:
		return a.why
	}
	return f()
}

// onFormat has f change a store of the format that this program knows.
func (a *Attached) onFormat(f func(*connection) error) func(*connection) error {
	return func(c *connection) error {
		// A newer program that brings the format up waits for this, or this finds what it did.
		if _, err := c.exec(`SELECT pg_advisory_xact_lock_shared($1)`, a.config.key64("migrate")); err != nil {
			return err
		}
		if err := a.checkFormat(c.ctx, c); err != nil {
			return err
		}
		return f(c)
	}
}

// connection is that of an operator, who has no generation.
func (a *Attached) connection(ctx context.Context) *connection {
	return &connection{ctx: ctx, shared: true, storeID: a.readers.storeID, lanes: a.lanes, mostLanes: a.mostLanes}
}
