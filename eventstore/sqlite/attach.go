package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keyhold/keyhold/eventstore"
)

// Attached is a store as an operator uses it, beside the process that owns it or while nobody does. It takes no ownership, starts no generation and
// changes no format. Each act is one short transaction, for which it waits its turn between those of the owner until its
// context ends. Make one with [Attach], and close it.
type Attached struct {
	operations
	path    string
	readers *readers
	turn    chan *connection // the one connection that writes, when nobody has it
	why     error            // nothing can be written; nil otherwise
	frozen  bool             // the file is read as one that nobody changes
	closed  chan struct{}
	detach  func() error // after everything is closed
}

var _ eventstore.Operations = (*Attached)(nil)

// ErrReadOnly: the store was attached where it cannot be written.
var ErrReadOnly = errors.New("store cannot be written from here")

// attachedReaders is how many connections read at once.
const attachedReaders = 4

// Attach opens the store in the file at path for an operator. It refuses a file that is not there, one that is no Keyhold store, and one of
// another format than this program's ([*eventstore.FormatError]). Where the file or its directory cannot be written, it reads,
// and every act gives [ErrReadOnly].
func Attach(ctx context.Context, path string) (*Attached, error) {
	config := Config{Path: path}
	resolved, err := config.resolve()
	if err != nil {
		return nil, err
	}
	info, err := isFile(resolved)
	if err != nil {
		return nil, err
	}
	a := &Attached{path: resolved, turn: make(chan *connection, 1), closed: make(chan struct{}), detach: attached(info)}
	a.operations = operations{a}
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.detach())
	}
	return a, nil
}

// isFile reports a path at which there is no database.
func isFile(path string) (os.FileInfo, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("store %s is not there: check the path, or start the application, which makes it", path)
	case err != nil:
		return nil, fmt.Errorf("store %s cannot be opened: %w", path, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("store %s is no file: give the path of the database", path)
	default:
		return info, nil
	}
}

func (a *Attached) open(ctx context.Context) error {
	writer, err := openAttached(ctx, a.path)
	switch {
	case err == nil:
		writer.held = func() (bool, error) {
			owner, err := holderOf(a.path)
			return owner != nil, err
		}
		if a.readers, err = attachReaders(ctx, a.path, readerDSN(a.path)); err != nil {
			return errors.Join(err, writer.close())
		}
		writer.storeID = a.readers.storeID
	case isReadOnly(err):
		a.why = err
		writer = new(connection)
		if err := a.openFrozen(ctx); err != nil {
			return err
		}
	default:
		return err
	}
	a.turn <- writer
	return nil
}

// openFrozen opens what cannot be written. Where the directory cannot be written either, SQLite has no place to tell other processes that it
// reads: then the file is read as it stands, which is right as long as no log lies beside it.
func (a *Attached) openFrozen(ctx context.Context) (err error) {
	if a.readers, err = attachReaders(ctx, a.path, readerDSN(a.path)); err == nil || !isReadOnly(err) {
		return err
	}
	if a.logged() {
		return fmt.Errorf("store %s was not closed, and what is in its log cannot be read without writing: copy it together with %s-wal to where it can be written", a.path, a.path)
	}
	a.frozen = true
	a.readers, err = attachReaders(ctx, a.path, frozenDSN(a.path))
	return err
}

// logged reports whether there is a write-ahead log with something in it.
func (a *Attached) logged() bool {
	info, err := os.Stat(a.path + "-wal")
	return err == nil && info.Size() > 0
}

// openAttached opens the connection that writes.
func openAttached(ctx context.Context, path string) (*connection, error) {
	connector, err := sqlite.NewConnector(attachedDSN(path))
	if err != nil {
		return nil, err
	}
	c := &connection{connector: connector, patience: defaultPatience}
	if err := c.open(ctx); err != nil {
		return nil, explain(path, err)
	}
	if err := checkFormat(ctx, path, c.conn); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if err := c.tryToWrite(); err != nil {
		return nil, errors.Join(explain(path, err), c.close())
	}
	return c, nil
}

func attachReaders(ctx context.Context, path, dsn string) (*readers, error) {
	db, err := openReadersOf(dsn, attachedReaders)
	if err != nil {
		return nil, err
	}
	r := &readers{db: db}
	if err = checkFormat(ctx, path, db); err == nil {
		_, err = get(ctx, r, `SELECT store_id FROM keyhold_store`, nil, &r.storeID)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

// isReadOnly reports whether an error says that a database cannot be written, or has no place for what must be written to read it.
func isReadOnly(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return true
	}
	return false
}

type rowQueryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// checkFormat reports a database that this program cannot operate.
func checkFormat(ctx context.Context, path string, q rowQueryer) error {
	all, err := formats(migrations)
	if err != nil {
		return err
	}
	switch found, err := formatOf(ctx, q); {
	case err != nil:
		return explain(path, err)
	case found == 0:
		return fmt.Errorf("%s is no Keyhold store: check the path, or start the application, which makes it", path)
	case found != len(all):
		return &eventstore.FormatError{Path: path, Found: found, Known: len(all)}
	}
	return nil
}

// Close waits for what is under way, and closes the database. It is idempotent.
func (a *Attached) Close() error {
	select {
	case <-a.closed:
		return nil
	case c := <-a.turn:
		close(a.closed)
		return errors.Join(a.readers.db.Close(), c.close(), a.detach())
	}
}

func (a *Attached) read(ctx context.Context, f func(*readers) error) error {
	select {
	case <-a.closed:
		return eventstore.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := f(a.readers)
	if a.frozen && a.logged() {
		return fmt.Errorf("store %s was opened by a program meanwhile: attach to it again", a.path)
	}
	if err != nil && code(err) == sqlite3.SQLITE_BUSY {
		return explain(a.path, err)
	}
	return err
}

func (a *Attached) holder() (*eventstore.Owner, error) { return holderOf(a.path) }

func (a *Attached) change(ctx context.Context, who string, f func(*connection) error) error {
	if a.why != nil {
		return fmt.Errorf("%w: %w", ErrReadOnly, a.why)
	}
	var c *connection
	select {
	case <-a.closed:
		return eventstore.ErrClosed
	case c = <-a.turn:
	case <-ctx.Done():
		return fmt.Errorf("%s: wait for another act: %w", who, ctx.Err())
	}
	defer func() { a.turn <- c }()
	if c.db == nil {
		if err := c.open(ctx); err != nil {
			return explain(a.path, err)
		}
	}
	if err := c.beginAttached(ctx, a.path); err != nil {
		return err
	}
	if err := c.changeOnce(ctx, a.path, f); err != nil {
		c.rollback()
		return trouble(err)
	}
	return c.commitAttached(a.path)
}

// tryToWrite finds out whether the database can be written; to begin a transaction does not tell. It does not wait: where somebody
// else writes, it can be.
func (c *connection) tryToWrite() error {
	_, err := c.exec("BEGIN IMMEDIATE")
	if err == nil {
		_, err = c.exec(`DELETE FROM keyhold_acts WHERE FALSE`)
		c.rollback()
	}
	if code(err) == sqlite3.SQLITE_BUSY {
		return nil
	}
	return err
}

// changeOnce applies f in the transaction that is open.
func (c *connection) changeOnce(ctx context.Context, path string, f func(*connection) error) error {
	if err := checkFormat(ctx, path, c.conn); err != nil {
		return err
	}
	if err := c.attempt(f); err != nil {
		return err
	}
	return c.writeCounts()
}

func (c *connection) commitAttached(path string) error {
	err := c.commit()
	switch {
	case err == nil:
		return nil
	case code(err) == sqlite3.SQLITE_FULL, code(err) == sqlite3.SQLITE_BUSY:
		c.rollback()
		return trouble(fmt.Errorf("commit to store %s: %w", path, err))
	}
	_ = c.close()
	return fmt.Errorf("commit to store %s: %w: %w", path, eventstore.ErrUnknownCommit, err)
}

// beginAttached begins a transaction beside the owner, who may write nearly all the time: SQLite's own way to wait looks more and more rarely and
// would hardly ever meet a gap between two of the owner's transactions, so this one looks often.
func (c *connection) beginAttached(ctx context.Context, path string) error {
	c.forgetLanes() // the owner has changed them since
	for {
		_, err := c.exec("BEGIN IMMEDIATE")
		if err == nil {
			return nil
		}
		if code(err) != sqlite3.SQLITE_BUSY {
			return explain(path, err)
		}
		const least, spread = 200 * time.Microsecond, 800 * time.Microsecond
		timer := time.NewTimer(least + rand.N(spread))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("store %s is being written all the time, and there was no turn for this: try again, or with more time: %w: %w", path, context.Cause(ctx), trouble(err))
		}
	}
}
