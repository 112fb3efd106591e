package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/keyhold/keyhold/eventstore"
)

// Store is an [eventstore.Store] in a PostgreSQL database. Make one with [Open] or [New].
type Store struct {
	operations
	config Config
	opened atomic.Pointer[opened] // nil unless started
	taken  atomic.Bool            // from the beginning of a Start on, until that has failed or a Stop is through

	stretch stretch

	// Seams for tests.
	formats fs.FS
	gather  func(*gathering)
	dial    func(pgconn.DialFunc) pgconn.DialFunc
}

var _ eventstore.Store = (*Store)(nil)

// Open makes a store in the database at url. Nothing is opened before Start.
func Open(url string) *Store { return New(Config{URL: url}) }

// New makes a store. Nothing is opened before Start, which also reports what is wrong with the config.
func New(config Config) *Store {
	s := &Store{config: config, formats: migrations}
	s.operations = operations{s}
	return s
}

// opened is what Start opened and Stop closes.
type opened struct {
	config   *resolved
	identity eventstore.Identity
	relayed  bool
	observe  func(eventstore.Notice)
	owner    *owner
	wards    wards

	writers   *pgxpool.Pool // for units of work
	doors     *sql.DB       // the same, as the application sees them
	side      *pgxpool.Pool // for what must not wait for a unit of work
	lanes     *laneIDs
	readers   *readers
	reader    *sql.DB // the application's
	gathering *gathering
	home      atomic.Pointer[string] // the schema of the tables, quoted, once somebody has asked

	hands  hands
	forced context.Context // of all that is under way: over when Stop has lost its patience
	force  context.CancelCauseFunc
	turn   struct { // of all that writes
		sync.Mutex
		ending context.Context // over then, and when the place of the process is lost; another one when it is had again
		end    context.CancelCauseFunc
	}

	closed struct {
		sync.Once
		err error
	}
}

// sidePool is how many connections there are for what must not wait: lanes that are made, commits whose outcome is looked up.
const sidePool = 2

// Start opens the database.
func (s *Store) Start(ctx context.Context, opts eventstore.StartOptions) (_ eventstore.Identity, err error) {
	if err := ctx.Err(); err != nil {
		return eventstore.Identity{}, err
	}
	leased, err := s.config.under(opts.Lease)
	if err != nil {
		return eventstore.Identity{}, err
	}
	config, err := leased.resolve()
	if err != nil {
		return eventstore.Identity{}, err
	}
	if !s.taken.CompareAndSwap(false, true) {
		return eventstore.Identity{}, &eventstore.OwnedError{Path: config.name, PID: os.Getpid(), Here: true}
	}
	defer func() {
		if err != nil {
			s.taken.Store(false)
		}
	}()
	config.dial = s.dial
	owner, err := own(ctx, config, opts)
	if err != nil {
		return eventstore.Identity{}, err
	}
	o, err := s.open(ctx, config, owner, opts)
	if err != nil {
		return eventstore.Identity{}, errors.Join(err, owner.close())
	}
	s.opened.Store(o)
	return o.identity, nil
}

// open opens the database on which the process has its place, up to where work can begin.
func (s *Store) open(ctx context.Context, config *resolved, owner *owner, opts eventstore.StartOptions) (_ *opened, err error) {
	known, err := formats(s.formats)
	if err != nil {
		return nil, err
	}
	o := &opened{config: config, owner: owner, relayed: opts.Relayed, observe: opts.Observe, gathering: newGathering(config.MaxConns)}
	if err := o.wards.start(context.WithoutCancel(ctx), config, o.tell); err != nil { // before anything waits for others
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.wards.stop(context.WithoutCancel(ctx)))
		}
	}()
	if err := config.migrate(ctx, owner.conn, known, opts); err != nil {
		return nil, err
	}
	if s.gather != nil {
		s.gather(o.gathering)
	}
	if o.identity, err = owner.sign(ctx, opts); err != nil {
		if other, is := errors.AsType[*eventstore.ApplicationError](err); is {
			other.Path = config.name
			return nil, other
		}
		return nil, fmt.Errorf("start on store %s: %w", config.name, err)
	}
	o.forced, o.force = context.WithCancelCause(context.WithoutCancel(ctx))
	o.begin()
	defer func() {
		if err != nil {
			err = errors.Join(err, o.closeAll(ctx, !o.identity.Unclean)) // nothing was in a behavior: what is known of the process before stays known
		}
	}()
	if err := o.openPools(ctx); err != nil {
		return nil, err
	}
	if s.config.Setup != nil {
		if err := o.setup(ctx, s.config.Setup); err != nil {
			return nil, err
		}
	}
	return o, owner.watch(context.WithoutCancel(ctx), config.TransactionTimeout, retake{config, o.identity, new(waiter)}, o.lost, o.taken, o.over)
}

func (o *opened) openPools(ctx context.Context) (err error) {
	if o.writers, err = o.config.openPool(ctx, o.config.MaxConns, false); err != nil {
		return err
	}
	o.doors = stdlib.OpenDBFromPool(o.writers)
	if o.side, err = o.config.openPool(ctx, sidePool, false); err != nil {
		return err
	}
	o.lanes = newLaneIDs(o.side)
	own, err := o.config.openPool(ctx, o.config.Readers, true)
	if err != nil {
		return err
	}
	o.readers = &readers{pool: own, storeID: o.identity.StoreID, forced: o.forced}
	o.reader = o.config.openReader()
	return nil
}

// setup has the application make its tables, one process at a time.
func (o *opened) setup(ctx context.Context, f func(context.Context, eventstore.SQL) error) error {
	t := &tx{opened: o, who: "Setup"}
	defer func() { _ = t.Rollback() }()
	db, err := t.SQL(ctx)
	if err == nil {
		_, err = db.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, o.config.key64("setup"))
	}
	if err == nil {
		err = guarded(ctx, db, f)
	}
	if err == nil {
		_, err = t.Commit(ctx, eventstore.Changes{})
	}
	if err != nil {
		return fmt.Errorf("set up store %s: %w", o.config.name, err)
	}
	return nil
}

// guarded makes an error of a panic.
func guarded(ctx context.Context, db eventstore.SQL, f func(context.Context, eventstore.SQL) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f(ctx, db)
}

// ending is over when nothing may write any more that has begun by now.
func (o *opened) ending() context.Context {
	o.turn.Lock()
	defer o.turn.Unlock()
	return o.turn.ending
}

// begin lets units of work write.
func (o *opened) begin() {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.turn.ending, o.turn.end = context.WithCancelCause(o.forced)
}

// end has nothing write any more, for the reason given.
func (o *opened) end(why error) {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.turn.end(why)
}

// lost ends all units of work: the process has no place now.
func (o *opened) lost(why error) {
	err := fmt.Errorf("%w: the connection that holds the place of this process on store %s was lost, it is being taken again: %w", eventstore.ErrTrouble, o.config.name, why)
	o.end(err)
	o.tell(eventstore.Notice{What: "place on the store lost", Error: err})
}

// taken lets units of work begin anew, on new connections: those from before may lead to a server that is gone, or no primary any more.
func (o *opened) taken() {
	o.writers.Reset()
	o.side.Reset()
	o.readers.pool.Reset()
	o.begin()
	o.tell(eventstore.Notice{What: "place on the store taken again", Routine: true})
}

// over is the end of a process that has no place, and gets none.
func (o *opened) over(why error) {
	err := fmt.Errorf("place of this process on store %s is lost for good: stop it, then start again: %w", o.config.name, why)
	o.begin() // what begins from now on gets this reason, not that of the time in between
	o.end(err)
	o.tell(eventstore.Notice{What: "place on the store lost for good", Error: err})
}

func (o *opened) tell(n eventstore.Notice) {
	if o.observe != nil {
		o.observe(n)
	}
}

// Stop waits for the units of work that have the database in hand, closes it and gives the place up. Who has SQL open when ctx
// is done loses it. Stop may be called concurrently, and again when it gave an error.
func (s *Store) Stop(ctx context.Context) error {
	o := s.opened.Load()
	if o == nil {
		return nil
	}
	if err := o.close(ctx); err != nil {
		return fmt.Errorf("stop store %s: %w", o.config.name, err)
	}
	if s.opened.CompareAndSwap(o, nil) {
		s.taken.Store(false)
	}
	return nil
}

func (o *opened) close(ctx context.Context) error {
	empty := o.hands.close()
	select {
	case <-empty:
	case <-ctx.Done():
		o.force(fmt.Errorf("the store is being stopped: %w", eventstore.ErrClosed))
		<-empty // nobody waits for anything but the end of what he has under way
	}
	o.closed.Do(func() {
		o.closed.err = o.closeAll(context.WithoutCancel(ctx), !o.identity.Unclean || !eventstore.IsUntried(ctx))
	})
	return o.closed.err
}

// closeAll closes what was opened, the place last.
func (o *opened) closeAll(ctx context.Context, clean bool) error {
	o.force(eventstore.ErrClosed)
	errs := []error{o.owner.rest(ctx), o.wards.stop(ctx)}
	if o.reader != nil {
		errs = append(errs, o.reader.Close())
	}
	if o.doors != nil {
		errs = append(errs, o.doors.Close())
	}
	for _, pool := range []*pgxpool.Pool{o.writers, o.side} {
		if pool != nil {
			pool.Close()
		}
	}
	if o.readers != nil {
		o.readers.pool.Close()
	}
	if o.owner.isGone() {
		return errors.Join(errs...) // what is to be said of the end of this process was said, or is not true
	}
	if clean {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		_ = o.owner.leave(ctx, o.identity.StartGeneration) // when it cannot be said, the next start takes it for a crash, which it is to be ready for
	}
	return errors.Join(append(errs, o.owner.close())...)
}

// Reader is a pool of connections for the application's own queries outside a unit of work. They cannot write. It is nil while the store is not
// started, and closed by Stop; do not close it.
func (s *Store) Reader() *sql.DB {
	if o := s.opened.Load(); o != nil {
		return o.reader
	}
	return nil
}

// BeginTx begins a transaction of the application's own, into which events can be staged: for code that is neither a
// behavior nor runs in one. It holds a connection until its Commit or Rollback, or until ctx is done. who names the caller in
// messages.
func (s *Store) BeginTx(ctx context.Context, who string) (*eventstore.UserTx, error) {
	return eventstore.BeginUserTx(ctx, s, who)
}

func (s *Store) read(ctx context.Context, f func(*readers) error) error {
	o := s.opened.Load()
	if o == nil || !o.hands.enter() {
		return eventstore.ErrClosed
	}
	defer o.hands.leave()
	if err := ctx.Err(); err != nil {
		return err
	}
	return trouble(ended(o.forced, f(o.readers)))
}

func (s *Store) change(ctx context.Context, _ string, f func(*connection) error) error {
	return s.writing(ctx, func(ctx context.Context, o *opened) error { return change(ctx, o.writers, o.connection, 0, f) })
}

func (s *Store) changeAlone(ctx context.Context, who string, f func(*connection) error) error {
	return s.writing(ctx, func(ctx context.Context, o *opened) error {
		return changeAlone(ctx, o.writers, o.connection, func(err error) { o.tell(notAloneYet(who, err)) }, f)
	})
}

// writing runs f while the process has its place.
func (s *Store) writing(ctx context.Context, f func(context.Context, *opened) error) error {
	o := s.opened.Load()
	if o == nil || !o.hands.enter() {
		return eventstore.ErrClosed
	}
	defer o.hands.leave()
	ctx, stop := within(ctx, o.ending())
	defer stop()
	return f(ctx, o)
}

// connection makes what a transaction goes by.
func (o *opened) connection(ctx context.Context) *connection {
	return &connection{
		ctx: ctx, generation: o.identity.StartGeneration, shared: o.identity.Capabilities.Shared, relayed: o.relayed,
		storeID: o.identity.StoreID, lanes: o.lanes,
	}
}

// within gives a context that also ends with another.
func within(ctx, other context.Context) (context.Context, context.CancelFunc) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() {
		stop()
		cancel(nil)
	}
}

// hands counts what is under way on an opened store. The zero value is open.
type hands struct {
	mu     sync.Mutex
	count  int
	closed bool
	empty  chan struct{}
}

// enter reports whether something may begin; leave must follow then.
func (h *hands) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.count++
	return true
}

func (h *hands) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
	if h.closed && h.count == 0 {
		close(h.empty)
	}
}

// close lets nothing begin any more; what it gives is closed when nothing is under way.
func (h *hands) close() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		h.empty = make(chan struct{})
		if h.count == 0 {
			close(h.empty)
		}
	}
	return h.empty
}

// rollbackPatience is for how long a rollback may take before its connection is given up, which is one as well.
const rollbackPatience = 5 * time.Second
