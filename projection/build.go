package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// build is one build of a projection while it runs. Its loop is one goroutine, to which belongs what is not under mu.
type build struct {
	rt   *Runtime
	prog *program
	id   buildID
	who  string // in messages of the store

	woken  chan struct{} // holds a token when there may be something to do
	others int           // lanes of other categories that grew since it was woken for them; guarded by the runtime

	mu struct {
		sync.Mutex
		stale bool // the state is to be read again
		figures
		attempt *attempt // that is going on
	}

	projection eventstore.Projection      // as last read or written
	own        eventstore.ProjectionBuild // of it
	instance   any
	live       bool // instance is one, in good state

	page     []eventstore.Placed // read and not applied yet
	more     bool                // the page was full: there may be more behind it
	size     int                 // of the next page
	singles  int                 // events that are to be done one by one, as a batch of them failed
	suspect  bool                // what it had in hand when the process ended has not run again
	switches int                 // attempts to take the place of the build before that failed of themselves
	newer    bool                // the next event needs a newer program, so there is nothing to try
	pause    time.Duration       // after the next trouble
	patience time.Duration       // of the next last stretch
	idle     bool                // CaughtUp was told

	checked time.Time // when behind was counted, of a build that is being made
	behind  uint64
}

// Pauses after trouble; each is twice the one before.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 10 * time.Second
)

func newBuild(r *Runtime, p *program, id buildID) *build {
	b := &build{
		rt: r, prog: p, id: id, who: fmt.Sprintf("projection %s, build %d", id.name, id.number),
		woken: make(chan struct{}, 1), size: p.desc.Batch, pause: firstPause, patience: r.stretch,
	}
	b.mu.stale = true
	return b
}

func (b *build) name() Build {
	return Build{Name: b.id.name, Number: b.id.number, Making: b.own.State == eventstore.BuildMaking}
}

// wake does not block.
func (b *build) wake() {
	select {
	case b.woken <- struct{}{}:
	default:
	}
}

// refresh has the loop read its state again.
func (b *build) refresh() {
	b.mu.Lock()
	b.mu.stale = true
	b.mu.Unlock()
	b.wake()
}

// reads reports whether one of the lanes is of a category that it is given.
func (b *build) reads(tails []event.Tail) bool {
	categories := b.prog.desc.Categories
	return len(categories) == 0 || slices.ContainsFunc(tails, func(t event.Tail) bool { return slices.Contains(categories, t.Lane.Category) })
}

// next is what a loop does after a step.
type next struct {
	over  bool          // the build runs no more
	rest  bool          // until it is woken
	after time.Duration // with rest: or until that has passed; 0 = only when woken
}

func (b *build) loop(ctx context.Context) {
	for ctx.Err() == nil {
		n := b.step(ctx)
		switch {
		case n.over:
			return
		case n.rest:
			b.wait(ctx, n.after)
		}
	}
}

func (b *build) wait(ctx context.Context, after time.Duration) {
	var passed <-chan time.Time
	if after > 0 {
		timer := time.NewTimer(after)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-ctx.Done():
	case <-b.woken:
	case <-passed:
	}
}

// step does one thing.
func (b *build) step(ctx context.Context) next {
	if b.takeStale() {
		if err := b.load(ctx); errors.Is(err, errGone) {
			return next{over: true}
		} else if err != nil {
			return b.trouble(ctx, "read its state", err)
		}
	}
	switch {
	case b.projection.Pause != nil, b.own.Halt != nil, b.newer:
		return next{rest: true}
	case b.own.Tried != nil:
		if left := b.own.Tried.Again.Sub(b.rt.cfg.Now()); !b.own.Tried.Again.IsZero() && left > 0 {
			return next{rest: true, after: left}
		}
	}
	if !b.own.SetUp {
		return b.suspected(ctx, nil, b.setUp)
	}
	if len(b.page) == 0 {
		if err := b.read(ctx); err != nil {
			return b.trouble(ctx, "read on", err)
		}
		if len(b.page) == 0 {
			if passed, err := b.passOthers(ctx); err != nil {
				return b.trouble(ctx, "move past events of other categories", err)
			} else if passed {
				return next{}
			}
		}
	}
	making := b.own.State == eventstore.BuildMaking
	switch {
	case making && (len(b.page) == 0 || b.fallsBack(ctx)):
		return b.lastStretch(ctx)
	case len(b.page) == 0:
		return b.caughtUp()
	}
	b.idle = false
	if b.prog.handling(b.rt.cfg.Codec, &b.page[0]) == handle {
		return b.suspected(ctx, &b.page[0], b.batch)
	}
	return b.batch(ctx)
}

func (b *build) caughtUp() next {
	b.mu.Lock()
	b.mu.atEnd(b.own.Position)
	b.mu.Unlock()
	if !b.idle {
		b.idle = true
		b.rt.cfg.Observer.CaughtUp(b.name())
	}
	b.rt.signals.idle.Send(b.name())
	return next{rest: true}
}

// leaves reports whether the transaction in hand is to end with the event in hand: somebody has acted on the projection, or Stop was called.
func (b *build) leaves(ctx context.Context) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.stale || ctx.Err() != nil
}

func (b *build) takeStale() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	stale := b.mu.stale
	b.mu.stale = false
	return stale
}

// errGone: the build is not there any more, or is not to run.
var errGone = errors.New("the build runs no more")

// load reads the state, which other processes may have changed, and drops what is not needed any more.
func (b *build) load(ctx context.Context) error {
	b.forget()
	p, err := b.rt.cfg.Store.ReadProjection(ctx, b.id.name)
	if errors.Is(err, eventstore.ErrNotFound) {
		return errGone
	} else if err != nil {
		b.refresh()
		return err
	}
	own := p.Build(b.id.number)
	if own == nil || !p.Runs(own) {
		return errGone
	}
	b.projection, b.own = p, *own
	b.mu.Lock()
	b.mu.begin(own.Position)
	b.mu.Unlock()
	if b.own.State != eventstore.BuildCurrent || b.prog.desc.KeepOld {
		return nil
	}
	for i := range p.Builds {
		if old := &p.Builds[i]; old.State == eventstore.BuildOld {
			if err := b.rt.cfg.Store.DropBuild(ctx, b.id.name, old.Number); err != nil {
				b.rt.cfg.Observer.Trouble(b.name(), "drop the tables of an old build; they are left, and it is tried again at the next start", err)
			}
		}
	}
	return nil
}

// forget drops what may not be what is committed.
func (b *build) forget() {
	b.instance, b.live, b.page = nil, false, nil
}

// read reads the next page.
func (b *build) read(ctx context.Context) error {
	b.rt.signals.read.Send(b.name())
	page, err := b.rt.cfg.Store.ReadPlaced(ctx, nil, b.own.Position, b.projection.Categories, b.size)
	b.page, b.more = page, len(page) == b.size
	return err
}

// passOthers moves past events of other categories, where they are many: else all that looks for what comes after the position looks through
// them, the last stretch while nobody can write.
func (b *build) passOthers(ctx context.Context) (bool, error) {
	to, err := b.rt.cfg.Store.Barren(ctx, b.own.Position, b.projection.Categories)
	if err != nil || to == b.own.Position {
		return false, err
	}
	step := b.stepTo(to)
	step.Event, step.EventTime = b.own.EventID, b.own.EventTime
	if err := b.record(ctx, step); err != nil {
		return false, err
	}
	b.moved(step)
	return true, nil
}

// setUp runs Setup, in a transaction of its own.
func (b *build) setUp(ctx context.Context) next {
	a := b.attempt(ctx)
	a.setup, a.tables = true, nil
	var err error
	if b.prog.setup != nil {
		err = a.call(b.prog.desc.Timeout, Meta{Build: b.id.number, Attempt: b.attempts("") + 1}, b.overdue(""), b.prog.setup)
	}
	if err == nil {
		step := b.stepTo(b.own.Position)
		step.Setup = &eventstore.BuildTables{Names: a.tables}
		err = b.commit(a, step)
	}
	b.end(a)
	if err != nil {
		return b.failed(ctx, nil, fmt.Errorf("setup: %w%s", err, advice(err)))
	}
	b.own.SetUp, b.own.Tables, b.own.Tried = true, a.tables, nil
	return next{}
}

// advice says what is not obvious about an error of Setup: names of indexes and triggers are those of the whole store.
func advice(err error) string {
	if strings.Contains(err.Error(), "already exists") {
		return `; each build makes its own, while those of the build before are there: give tables the names that ctx.Table gives, and indexes and triggers names made from them, such as ctx.Table("sales") + "_by_item"`
	}
	return ""
}

// attempts is how many at this event failed before.
func (b *build) attempts(id string) int {
	if b.own.Tried != nil && b.own.Tried.Event.ID == id {
		return b.own.Tried.Attempts
	}
	return 0
}

func (b *build) overdue(id string) func() {
	name := b.name()
	return func() { b.rt.cfg.Observer.Overdue(name, id, b.prog.desc.Timeout) }
}

func (b *build) stepTo(to eventstore.Position) *eventstore.ProjectionStep {
	return &eventstore.ProjectionStep{Name: b.id.name, Build: b.id.number, From: b.own.Position, To: to, Time: b.rt.cfg.Now().UTC()}
}

// commit commits a step together with what was done in an attempt.
func (b *build) commit(a *attempt, step *eventstore.ProjectionStep) error {
	_, err := a.tx.Commit(a.ctx, eventstore.Changes{Projection: step})
	if err == nil {
		b.pause = firstPause
		b.rt.signals.moved.Send(*step)
	}
	return err
}

// attempt begins a unit of work. It is to be ended.
func (b *build) attempt(ctx context.Context) *attempt {
	a := newAttempt(ctx, b.rt.cfg.Store, b.who, b.id.number)
	a.tables, a.guard, a.bare = b.own.Tables, b.guarded, b.prog.setup == nil
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.attempt = a
	return a
}

// interrupt ends the context of the attempt that is going on, and with it the hope to commit.
func (b *build) interrupt(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.attempt != nil {
		b.mu.attempt.cancel(cause)
	}
}

// end ends an attempt, committed or not.
func (b *build) end(a *attempt) {
	b.mu.Lock()
	b.mu.attempt = nil
	b.mu.Unlock()
	if err := a.end(); err != nil {
		b.rt.cfg.Logger.Warn("roll back", "projection", b.id.name, "build", b.id.number, "error", err)
	}
}

// record commits a step alone.
func (b *build) record(ctx context.Context, step *eventstore.ProjectionStep) error {
	a := b.attempt(ctx)
	defer b.end(a)
	return b.commit(a, step)
}

func eventOf(e *eventstore.Placed) eventstore.ProjectionEvent {
	return eventstore.ProjectionEvent{
		ID: e.ID, Type: e.Type, Position: e.Position, Time: e.Time,
		Place: event.Position{Lane: e.Ref(), Sequence: e.Sequence, EventID: e.ID},
	}
}
