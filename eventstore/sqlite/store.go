package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Config says where a store is and what it does at each start. Path is required.
type Config struct {
	// Path of the database file. Its directory must be there, the file is made. Beside it SQLite keeps Path-wal and
	// Path-shm, and Keyhold Path.lock.
	Path string
	// Setup runs at each Start, after Keyhold's own migrations, in a transaction of its own: the place to create or change
	// the tables of the application. What a unit of work may not do, it may not do either ([ErrNotAllowed]). A panic in it is an
	// error of Start. May be nil.
	Setup func(ctx context.Context, db eventstore.SQL) error
	// Readers is how many connections read at once, for Keyhold and again for [Store.Reader]; 0 is the larger of 4 and the
	// number of processors.
	Readers int
}

// Store is an [eventstore.Store] in a SQLite file. Make one with [Open] or [New].
type Store struct {
	operations
	config Config
	opened atomic.Pointer[opened] // nil unless started
	taken  atomic.Bool            // from the beginning of a Start on, until that has failed or a Stop is through

	// Seams for tests.
	formats fs.FS
	dial    func(dsn string) (driver.Connector, error)
	tune    func(*writer)
}

var _ eventstore.Store = (*Store)(nil)

// Open makes a store in the file at path. Nothing is opened before Start.
func Open(path string) *Store { return New(Config{Path: path}) }

// New makes a store. Nothing is opened before Start, which also reports what is wrong with the config.
func New(config Config) *Store {
	s := &Store{config: config, formats: migrations, dial: sqlite.NewConnector, tune: func(*writer) {}}
	s.operations = operations{s}
	return s
}

// opened is what Start opened and Stop closes.
type opened struct {
	identity eventstore.Identity
	node     string
	owner    *owner
	writer   *writer
	readers  *readers
	reader   *sql.DB // the application's

	closing sync.Once
	closed  struct {
		sync.Once
		err error
	}
}

// Start opens the database. A store that is started already, by this value, another or another process, is owned.
func (s *Store) Start(ctx context.Context, opts eventstore.StartOptions) (_ eventstore.Identity, err error) {
	if err := ctx.Err(); err != nil {
		return eventstore.Identity{}, err
	}
	if !s.taken.CompareAndSwap(false, true) {
		return eventstore.Identity{}, &eventstore.OwnedError{Path: s.config.Path, PID: os.Getpid(), Here: true}
	}
	defer func() {
		if err != nil {
			s.taken.Store(false)
		}
	}()
	path, err := s.config.resolve()
	if err != nil {
		return eventstore.Identity{}, err
	}
	owner, err := own(ctx, path, opts)
	if err != nil {
		return eventstore.Identity{}, err
	}
	o, err := s.open(ctx, path, opts)
	if err != nil {
		return eventstore.Identity{}, errors.Join(err, owner.release())
	}
	o.owner, o.node = owner, opts.Node
	s.opened.Store(o)
	return o.identity, nil
}

// resolve gives the absolute path of the database, after all symbolic links, also where the file is not there yet: whoever
// uses it by another name must meet the same lock.
func (c *Config) resolve() (string, error) {
	if c.Readers < 0 {
		return "", fmt.Errorf("sqlite: Readers is %d, it cannot be negative", c.Readers)
	}
	switch lower := strings.ToLower(c.Path); {
	case c.Path == "":
		return "", errors.New("sqlite: Path is empty: name the database file")
	case strings.Contains(lower, ":memory:") || strings.Contains(lower, "mode=memory"):
		return "", fmt.Errorf("sqlite: %s is a database in memory, which is lost with its last connection: use eventstore/memory", c.Path)
	case strings.HasPrefix(lower, "file:"):
		return "", fmt.Errorf("sqlite: %s is a URI: give the path of the file", c.Path)
	}
	path, err := filepath.Abs(c.Path)
	if err != nil {
		return "", fmt.Errorf("sqlite: %w", err)
	}
	const most = 40 // links, as in the kernel
	for range most {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", fmt.Errorf("store %s: its directory is not there, create it first: %w", c.Path, err)
		}
		path = filepath.Join(dir, filepath.Base(path))
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link: a file, or nothing yet
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return "", fmt.Errorf("store %s: too many symbolic links", c.Path)
}

// open opens the database that the process owns, up to where work can begin.
func (s *Store) open(ctx context.Context, path string, opts eventstore.StartOptions) (_ *opened, err error) {
	o := new(opened)
	defer func() {
		if err != nil {
			if o.writer != nil {
				o.writer.leave(!o.writer.unclean) // nothing was in a behavior: what is known of the process before stays known
			}
			err = errors.Join(err, o.closeDatabase())
		}
	}()
	if o.writer, err = s.openWriter(ctx, path, opts); err != nil {
		return o, err
	}
	size := s.config.Readers
	if size == 0 {
		size = max(4, runtime.GOMAXPROCS(0))
	}
	own, err := openReaders(path, size)
	if err != nil {
		return o, err
	}
	o.readers = &readers{db: own, storeID: o.writer.storeID}
	if o.reader, err = openReaders(path, size); err != nil {
		return o, err
	}
	o.identity = eventstore.Identity{
		StoreID: o.writer.storeID, StartGeneration: o.writer.generation, Unclean: o.writer.unclean,
		Capabilities: eventstore.Capabilities{SQL: true, Durable: true},
	}
	return o, o.writer.start(ctx)
}

func (s *Store) openWriter(ctx context.Context, path string, opts eventstore.StartOptions) (*writer, error) {
	connector, err := s.dial(writerDSN(path))
	if err != nil {
		return nil, err
	}
	w := newWriter(path, connector, opts.Observe)
	s.tune(w)
	if err := w.open(ctx); err != nil {
		return w, explain(path, err)
	}
	known, err := formats(s.formats)
	if err != nil {
		return w, err
	}
	if err := migrate(ctx, path, &w.connection, known, opts); err != nil {
		return w, explain(path, err)
	}
	if err := w.identify(path, opts); err != nil {
		return w, explain(path, err)
	}
	if s.config.Setup == nil {
		return w, nil
	}
	return w, w.setup(ctx, s.config.Setup)
}

// Stop waits for what is in the writer's hand or queue, closes the database and gives the ownership up. Who has SQL open when ctx
// is done loses it. Stop may be called concurrently, and again when it gave an error.
func (s *Store) Stop(ctx context.Context) error {
	o := s.opened.Load()
	if o == nil {
		return nil
	}
	if err := o.close(ctx); err != nil {
		return fmt.Errorf("stop store %s: %w", s.config.Path, err)
	}
	if s.opened.CompareAndSwap(o, nil) {
		s.taken.Store(false)
	}
	return nil
}

func (o *opened) close(ctx context.Context) error {
	o.closing.Do(func() { close(o.writer.closing) })
	if err := o.writer.stop(ctx); err != nil {
		return err
	}
	o.closed.Do(func() {
		o.writer.leave(!o.writer.unclean || !eventstore.IsUntried(ctx))
		o.closed.err = errors.Join(o.closeDatabase(), o.owner.release())
	})
	return o.closed.err
}

// closeDatabase closes what was opened. The writer goes last: it takes the write-ahead log with it.
func (o *opened) closeDatabase() error {
	var errs []error
	if o.reader != nil {
		errs = append(errs, o.reader.Close())
	}
	if o.readers != nil {
		errs = append(errs, o.readers.db.Close())
	}
	if o.writer != nil {
		errs = append(errs, o.writer.close())
	}
	return errors.Join(errs...)
}

// Reader is a pool of connections for the application's own queries outside a unit of work. They cannot write, nor ATTACH
// another file, nor VACUUM INTO one. Keep
// transactions and open rows short: while one lasts, the write-ahead log of the database only grows. It is nil while the store is not
// started, and closed by Stop; do not close it.
func (s *Store) Reader() *sql.DB {
	if o := s.opened.Load(); o != nil {
		return o.reader
	}
	return nil
}

// BeginTx begins a transaction of the application's own, into which events can be staged: for code that is neither a
// behavior nor runs in one. It holds the writer until its Commit or Rollback, or until ctx is done. who names the caller in
// messages.
func (s *Store) BeginTx(ctx context.Context, who string) (*eventstore.UserTx, error) {
	return eventstore.BeginUserTx(ctx, s, who)
}

// PublishIn implements [eventstore.Beginner]: there is one connection that writes, so a transaction of another cannot be written into.
func (s *Store) PublishIn(ctx context.Context, tx eventstore.SQL, _ []event.Envelope) (*eventstore.Pending, error) {
	if s.opened.Load() == nil {
		return nil, eventstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: a %T cannot be written into on SQLite: begin it by BeginTx", eventstore.ErrOtherTx, tx)
}

func (s *Store) read(ctx context.Context, f func(*readers) error) error {
	o := s.opened.Load()
	if o == nil {
		return eventstore.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := f(o.readers)
	if err != nil && o.isClosing() {
		return eventstore.ErrClosed // the database says something of its own
	}
	return err
}

func (o *opened) isClosing() bool {
	select {
	case <-o.writer.closing:
		return true
	default:
		return false
	}
}

func (s *Store) change(ctx context.Context, who string, f func(*connection) error) error {
	o := s.opened.Load()
	if o == nil {
		return eventstore.ErrClosed
	}
	return o.writer.do(ctx, newJob(who, f))
}

func (s *Store) holder() (*eventstore.Owner, error) {
	o := s.opened.Load()
	if o == nil {
		return nil, eventstore.ErrClosed
	}
	return &eventstore.Owner{PID: os.Getpid(), Node: o.node, Generation: o.identity.StartGeneration}, nil
}
