package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/internal/signal"
)

const (
	// groupSize is how many jobs one transaction of the database commits at most.
	groupSize = 128
	// defaultGroupTime is how long the first job that is through waits while its group goes on taking others. A body with SQL
	// that came in before may make it longer.
	defaultGroupTime = 5 * time.Millisecond
	// queueSize is how many jobs wait in the queue; more callers wait before it.
	queueSize = 2 * groupSize
)

// writer owns the connection that writes. One goroutine takes the jobs that wait, applies them in one transaction, commits
// it once and then answers all: a group. Nothing is delayed for it: while one group is synced to the disk, the next one gathers.
//
// Jobs of one group are kept apart in two ways. A job that is only data checks before it writes, so that a refusal leaves
// nothing behind; should a write fail, the group is rolled back and each of its jobs applied again, alone. That
// cannot be done with what the application did in SQL. So each visit has a savepoint of its own, and so has every
// job that comes after one in the group.
type writer struct {
	connection
	path      string
	observe   func(eventstore.Notice)
	groupTime time.Duration

	queue   chan *job
	closing chan struct{} // closed: no new jobs
	gone    chan struct{} // closed: no answers any more
	loop    lifecycle.Loop
	log     logWatch

	signals struct {
		queued    signal.Signal[string] // who
		committed signal.Signal[int]    // jobs of the group
	}
}

func newWriter(path string, connector driver.Connector, observe func(eventstore.Notice)) *writer {
	return &writer{
		connection: connection{connector: connector, patience: defaultPatience},
		path:       path,
		observe:    observe,
		groupTime:  defaultGroupTime,
		queue:      make(chan *job, queueSize),
		closing:    make(chan struct{}),
		gone:       make(chan struct{}),
		log:        logWatch{path: path + "-wal", limit: logLimit, pause: logPause},
	}
}

func (w *writer) notice(n eventstore.Notice) {
	if w.observe != nil {
		w.observe(n)
	}
}

func (w *writer) start(ctx context.Context) error { return w.loop.Start(ctx, w.run) }

// stop takes no new jobs, and waits for those there are. When ctx is done first, whoever holds the connection loses it.
func (w *writer) stop(ctx context.Context) error {
	select {
	case <-w.gone:
	case <-ctx.Done():
	}
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*w.patience+time.Second)
	defer cancel()
	return w.loop.Stop(hard)
}

// leave is the last commit of a process that gives the store up. Where it fails, the next one takes what it finds to be suspect, which costs
// little: so it is told and nothing more. Nobody is to hear of it who never had the store, or has it no more.
func (w *writer) leave(clean bool) {
	if w.generation == 0 {
		return
	}
	if err := w.markClean(clean); err != nil && !errors.Is(err, eventstore.ErrStale) {
		w.notice(eventstore.Notice{What: "store left unclean", Who: w.path, Error: err})
	}
}

// run works until closing, and then through what is queued. ctx ends only for those who hold the connection for too long.
func (w *writer) run(ctx context.Context) {
	defer close(w.gone)
	for {
		select {
		case j := <-w.queue:
			w.group(ctx, j)
		case <-w.closing:
			for j := w.next(); j != nil; j = w.next() {
				w.group(ctx, j)
			}
			return
		}
	}
}

// next gives a job that waits, nil when none does.
func (w *writer) next() *job {
	select {
	case j := <-w.queue:
		return j
	default:
		return nil
	}
}

// group is what one transaction commits.
type group struct {
	jobs  []*job    // applied or refused, not answered yet
	first time.Time // when the first of them was through
	fixed int       // how many of them cannot be applied again
}

func (g *group) add(j *job, err error) {
	if len(g.jobs) == 0 {
		g.first = time.Now()
	}
	j.err = err
	g.jobs = append(g.jobs, j)
}

// full reports whether it is time to commit.
func (g *group) full(after time.Duration) bool {
	return len(g.jobs) >= groupSize || (len(g.jobs) > 0 && time.Since(g.first) > after)
}

// group commits first together with what waits behind it.
func (w *writer) group(ctx context.Context, first *job) {
	if err := w.begin(); err != nil {
		w.turnAway(first, w.unable(err))
		return
	}
	g := new(group)
	for j := first; j != nil; j = w.next() {
		if lost := w.add(ctx, g, j); lost != nil {
			w.apart(g, lost)
			return
		}
		if g.full(w.groupTime) {
			break
		}
	}
	w.settle(g)
}

// turnAway answers first and all that waited with it: they would wait for the same error, one after the other.
func (w *writer) turnAway(first *job, err error) {
	all := []*job{first}
	for range len(w.queue) {
		all = append(all, <-w.queue)
	}
	for _, j := range all {
		if j.take() {
			j.answer(err)
		}
	}
}

// unable explains why a transaction cannot begin. What is wrong with the connection may be gone with it.
func (w *writer) unable(err error) error {
	if errors.Is(err, eventstore.ErrStale) {
		return err
	}
	if code(err) == sqlite3.SQLITE_BUSY {
		return explain(w.path, err)
	}
	_ = w.close()
	return fmt.Errorf("write to store %s: %w: %w", w.path, eventstore.ErrTrouble, err)
}

// add applies a job. An error means that the transaction is lost, or has to be.
func (w *writer) add(ctx context.Context, g *group, j *job) error {
	if !j.take() {
		return nil
	}
	if j.visitor != nil {
		return w.receive(ctx, g, j)
	}
	var err error
	if g.fixed == 0 {
		err = w.attempt(j.apply)
	} else {
		err = w.saved(j.apply)
	}
	g.add(j, err)
	if err == nil || refused(err) || (g.fixed > 0 && !errors.Is(err, errGone)) {
		return nil
	}
	return err
}

// saved applies under a savepoint. The error is of kind errGone when the transaction is lost.
func (w *writer) saved(apply func(*connection) error) error {
	if err := w.save(); err != nil {
		return errors.Join(errGone, eventstore.ErrTrouble, err) // whoever it was, it came before
	}
	err := apply(&w.connection)
	if err == nil {
		err = w.keep()
	}
	if err == nil {
		w.counts.keep()
		return nil
	}
	if undo := w.undo(); undo != nil {
		return errors.Join(errGone, err, undo)
	}
	return err
}

// refused reports whether err is one of those that a job's checks find, before the first write.
func refused(err error) bool {
	if errors.Is(err, eventstore.ErrVersionConflict) || errors.Is(err, eventstore.ErrCheckpointMoved) ||
		errors.Is(err, eventstore.ErrStale) || errors.Is(err, eventstore.ErrNotFound) || errors.Is(err, eventstore.ErrAsideMoved) ||
		errors.Is(err, eventstore.ErrStateMoved) || errors.Is(err, eventstore.ErrInUse) ||
		errors.Is(err, eventstore.ErrListMoved) || errors.Is(err, eventstore.ErrNotRelayed) {
		return true
	}
	_, halt := errors.AsType[*eventstore.HaltMovedError](err)
	_, registry := errors.AsType[*eventstore.RegistryError](err)
	return halt || registry
}

// settle commits a group and answers it.
func (w *writer) settle(g *group) {
	err := w.writeCounts()
	if err != nil {
		w.rollback()
		err = fmt.Errorf("commit to store %s: %w", w.path, err)
	} else if err = w.commit(); err != nil {
		err = w.outcome(err)
	}
	if err != nil {
		for _, j := range g.jobs {
			j.answer(err) // also those refused: what refused them was never committed
		}
		return
	}
	w.signals.committed.Send(len(g.jobs))
	for _, j := range g.jobs {
		j.answer(j.err)
	}
	w.watchLog()
}

// outcome says what an error of COMMIT means. An error while the commit record was written or synced leaves it open
// whether a crash would bring the transaction back.
func (w *writer) outcome(err error) error {
	switch code(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT:
		w.rollback() // the commit record was not written
		return fmt.Errorf("commit to store %s: %w", w.path, err)
	}
	_ = w.close() // the next transaction begins on a new connection
	return fmt.Errorf("commit to store %s: %w: %w", w.path, eventstore.ErrUnknownCommit, err)
}

// apart rolls a group back and commits its jobs one by one. Those with SQL of the application are over.
func (w *writer) apart(g *group, lost error) {
	w.rollback()
	for _, j := range g.jobs {
		switch {
		case j.visitor == nil && len(g.jobs) > 1:
			w.alone(j)
		case j.err != nil:
			j.answer(j.err)
		default:
			j.answer(fmt.Errorf("%w: rolled back together with another unit of work, try again: %v", eventstore.ErrTrouble, lost))
		}
	}
}

// alone commits one job in a transaction of its own.
func (w *writer) alone(j *job) {
	if err := w.begin(); err != nil {
		j.answer(w.unable(err))
		return
	}
	if err := w.attempt(j.apply); err != nil {
		w.rollback()
		j.answer(err)
		return
	}
	j.err = nil
	w.settle(&group{jobs: []*job{j}})
}
