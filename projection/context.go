package projection

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Context is what a behavior gets with an event, and what Setup gets. It ends with the call it was given to: keep none. It is cancelled
// when the event takes longer than Timeout, and when the application stops.
type Context struct {
	context.Context
	a    *attempt
	meta Meta
}

// Meta tells which event is being applied. In Setup only Build is set.
type Meta struct {
	ID       string
	Type     string // wire name, as stored
	Category string
	Key      string
	Lane     event.Lane
	Sequence event.Sequence // in its lane
	Time     time.Time      // when it was emitted
	Stream   event.Stream   // of the entity that emitted it; zero for events that no entity emitted
	// Position is the event's place in the order of all events of the store. It is opaque: compare it with nothing.
	Position      eventstore.Position
	CorrelationID string
	CausationID   string
	Tenant        string
	Trace         event.Trace
	Build         int // number of the build
	Attempt       int // 1 for the first; failures in a batch of several do not count
}

// Meta tells which event is being applied.
func (c Context) Meta() Meta { return c.meta }

// Tx is the application's own SQL in the transaction that moves the build past this event. It begins with the first statement of the
// batch: work that waits belongs before it. On a store without SQL every statement gives [eventstore.ErrNoSQL], and the event fails.
func (c Context) Tx() eventstore.SQL { return lazySQL{c.a} }

// Table gives the name of this build's own table: orders_by_day__2 for orders_by_day. Setup makes it; readers use the plain name,
// which is a view of the current build's. A name that is none, or that Setup did not ask for, fails the call.
func (c Context) Table(name string) string {
	if err := c.a.table(name); err != nil {
		c.a.fail(err)
	}
	return eventstore.TableOf(name, c.a.number)
}

// tableName is what a table may be called: it is put into SQL as it is.
var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// buildSuffix would make the table of one build the name of another's.
var buildSuffix = regexp.MustCompile(`__[0-9]+$`)

func checkTable(name string) error {
	lower := strings.ToLower(name)
	switch {
	case !tableName.MatchString(name):
		return fmt.Errorf("table %q: use letters, digits and _, 100 at most, and begin with no digit", name)
	case strings.HasPrefix(lower, "keyhold_"), strings.HasPrefix(lower, "sqlite_"):
		return fmt.Errorf("table %q: names that begin like this are not the application's: choose another", name)
	case buildSuffix.MatchString(name):
		return fmt.Errorf("table %q: it ends like the table of one build: choose another", name)
	}
	return nil
}

// attempt is one unit of work: a batch of events, or Setup.
type attempt struct {
	number int // of the build
	setup  bool
	tables []string // that the build has; in Setup, those asked for so far
	ctx    context.Context
	cancel context.CancelCauseFunc
	tx     eventstore.Tx
	guard  func(func() error) error // calls what is the application's
	bare   bool                     // there is no Setup

	mu struct {
		sync.Mutex
		over  bool
		sql   eventstore.SQL // nil before the first statement
		since time.Time      // of the first statement; zero before
		fault error          // the first thing that was wrong with what the behavior did
	}
}

func newAttempt(ctx context.Context, store eventstore.Beginner, who string, number int) *attempt {
	a := &attempt{number: number, tx: store.Begin(who)}
	a.ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx)) // a Stop lets it finish, as long as it has patience
	return a
}

func (a *attempt) table(name string) error {
	if err := checkTable(name); err != nil {
		return actors.Poison(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case slices.Contains(a.tables, name):
	case a.setup:
		a.tables = append(a.tables, name)
		slices.Sort(a.tables)
	case a.bare:
		return actors.Poison(fmt.Errorf("table %q: the projection has no Setup: give it one that makes the table by the name that ctx.Table gives, and raise Version", name))
	default:
		return actors.Poison(fmt.Errorf("table %q: Setup did not make it: make it there, by the name that ctx.Table gives, and raise Version", name))
	}
	return nil
}

// fail makes the unit of work fail whatever the behavior returns. The first fault counts.
func (a *attempt) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.fault == nil {
		a.mu.fault = err
	}
}

func (a *attempt) fault() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.fault
}

// begin gives the transaction, which ends with the attempt and not with the context of the statement that happened to be the first.
func (a *attempt) begin() (eventstore.SQL, error) {
	if db, over := a.door(); over {
		return nil, actors.ErrOver
	} else if db != nil {
		return db, nil
	}
	db, err := a.tx.SQL(a.ctx)
	if err != nil {
		a.fail(err)
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.sql, a.mu.since = db, time.Now()
	return db, nil
}

func (a *attempt) door() (db eventstore.SQL, over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.sql, a.mu.over
}

// held is how long the attempt has had the writer.
func (a *attempt) held() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.since.IsZero() {
		return 0
	}
	return time.Since(a.mu.since)
}

// end ends the attempt without a trace of what is not committed.
func (a *attempt) end() error {
	a.mu.Lock()
	a.mu.over = true
	a.mu.Unlock()
	err := a.tx.Rollback()
	a.cancel(actors.ErrOver)
	return err
}

// call makes one call of the application's with a context of its own. The error is why the attempt is not to be committed.
func (a *attempt) call(timeout time.Duration, meta Meta, overdue func(), run func(Context) error) error {
	ctx, cancel := a.ctx, context.CancelFunc(func() {})
	if timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, actors.ErrTimeout)
	}
	defer cancel()
	// A behavior that has the writer and does not look at its context keeps everybody else waiting: the writer is taken from it.
	unhook := context.AfterFunc(ctx, func() {
		a.cancel(context.Cause(ctx))
		if errors.Is(context.Cause(ctx), actors.ErrTimeout) {
			overdue()
		}
	})
	err := a.guard(func() error { return run(Context{Context: ctx, a: a, meta: meta}) })
	late := !unhook()
	switch fault := a.fault(); {
	case late && (err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return context.Cause(ctx)
	case err == nil:
		return fault
	case fault != nil && !errors.Is(err, fault):
		return fmt.Errorf("%w; and then: %w", fault, err) // most likely what came of it
	default:
		return err
	}
}

var (
	errGoexit    = errors.New("the behavior ended its goroutine: runtime.Goexit, or FailNow of a test, was called in it")
	errNotCalled = errors.New("the application stops: it was not called")
)

// guarded calls what is the application's in a goroutine of its own, so that runtime.Goexit there ends that one alone.
func (b *build) guarded(call func() error) error {
	err, over := errGoexit, make(chan struct{})
	if !b.rt.group.Go(func(context.Context) {
		defer close(over)
		err = actors.Guard(call)
	}) {
		return errNotCalled
	}
	<-over
	return err
}

// lazySQL begins the transaction of its attempt with the first statement.
type lazySQL struct{ a *attempt }

func (l lazySQL) door() eventstore.SQL {
	db, err := l.a.begin()
	if err != nil {
		return actors.FailedSQL(err)
	}
	return db
}

func (l lazySQL) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return l.door().ExecContext(ctx, query, args...)
}

func (l lazySQL) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return l.door().QueryContext(ctx, query, args...)
}

func (l lazySQL) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return l.door().QueryRowContext(ctx, query, args...)
}
