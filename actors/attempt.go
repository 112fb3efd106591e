package actors

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// attempt is one unit of work: one call of a behavior, what its context tells, and what it did so far. All contexts of
// context.go are views of one. There is one for each command, so it is kept small.
type attempt struct {
	rt         *Runtime
	of         *unit // nil in Do
	generation event.Generation
	version    uint64               // of the entity
	meta       *Meta                // never nil
	state      state                // of the entity, which must fold what is emitted; nil for others
	began      partitions.Tick      // 0 in Do
	deadline   partitions.Tick      // 0 = none, or that of values in Do
	snapshot   *eventstore.Snapshot // to go with events, if there are any

	reads  bool            // there is nothing to write with
	values context.Context // whose values are seen: of the ask, of Drive, or of Do
	caller *attempt        // the behavior that asked, if any
	entry  *event.Envelope // that is applied, if any
	asked  any             // what is decided or answered, if anything

	appends [1]eventstore.Append // room for the entity's
	room    [1]any               // for the first value emitted

	mu struct {
		sync.Mutex
		work
		correlation string // of what is emitted, once it is settled

		over    bool            // the call has returned: nothing more can be asked for, and work does not change any more
		ended   bool            // what it did is committed or rolled back
		begun   bool            // a statement was made
		waiting int             // asks that the behavior waits for, and other reasons not to count it as running
		fault   error           // the first thing that was wrong with what the behavior did
		cause   error           // why the context ended before the call returned
		at      partitions.Tick // when it did; 0 in Do
		tx      eventstore.Tx
		std     context.Context // made by the first call that needs it
		cancel  context.CancelCauseFunc
	}
}

// unit is that of the behavior; zero in Do.
func (a *attempt) unit() event.Unit {
	if a.of == nil {
		return event.Unit{}
	}
	return a.of.id
}

// text names the attempt in messages.
func (a *attempt) text() string {
	if a.of == nil {
		return "Do"
	}
	return a.of.text
}

// stream is what is emitted belongs to; zero but for entities.
func (a *attempt) stream() event.Stream {
	if a.state == nil {
		return event.Stream{}
	}
	return a.of.stream()
}

// done gives what the behavior asked for, once its call has returned.
func (a *attempt) done() *work { return &a.mu.work }

type attemptKey struct{}

// attemptOf gives the unit of work that ctx belongs to and that is still going on.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.over {
		return nil
	}
	return a
}

// outside gives the context that the outermost behavior around ctx was called with, ctx itself outside of any.
func outside(ctx context.Context) context.Context {
	for {
		a, ok := ctx.Value(attemptKey{}).(*attempt)
		if !ok {
			return ctx
		}
		ctx = a.values
	}
}

// The four methods of context.Context. A context of the standard library is only made when somebody waits for this one, or
// looks for a value: most commands do neither.

func (a *attempt) Deadline() (time.Time, bool) {
	switch {
	case a.of == nil:
		return a.values.Deadline()
	case a.deadline == 0:
		return time.Time{}, false
	}
	return a.of.run.at(a.deadline), true
}

func (a *attempt) Done() <-chan struct{} { return a.standard().Done() }

func (a *attempt) Err() error {
	a.mu.Lock()
	std, cause, ended := a.mu.std, a.mu.cause, a.mu.ended
	a.mu.Unlock()
	switch {
	case std != nil:
		return std.Err()
	case cause != nil || ended:
		return context.Canceled
	}
	return nil
}

func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.standard().Value(key)
}

// standard makes the context of the standard library that this one is. Its end is this one's.
func (a *attempt) standard() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.std == nil {
		a.useLocked(transport.Nested(context.WithoutCancel(a.values)))
	}
	return a.mu.std
}

func (a *attempt) useLocked(parent context.Context) {
	a.mu.std, a.mu.cancel = context.WithCancelCause(parent)
	switch {
	case a.mu.cause != nil:
		a.mu.cancel(a.mu.cause)
	case a.mu.ended:
		a.mu.cancel(ErrOver)
	}
}

// interrupt ends the context of a call that has not returned, and with it the hope to commit. It is false for one that was
// interrupted before, or has returned.
func (a *attempt) interrupt(cause error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.over || a.mu.cause != nil {
		return false
	}
	a.mu.cause = cause
	if a.of != nil {
		a.mu.at = a.of.run.tick()
	}
	if a.mu.cancel != nil {
		a.mu.cancel(cause)
	}
	return true
}

// endedAt gives when the context was ended of a call that has not returned, 0 when it was not.
func (a *attempt) endedAt() partitions.Tick {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.at
}

// mayEnter reports whether the call is to be made: its context may have ended already.
func (a *attempt) mayEnter() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.over = a.mu.cause != nil
	return a.mu.cause
}

// block says that the behavior waits for others, so that they may run in its place; unblock ends that. The behavior may do so
// in several goroutines at once, and inside a Do.
func (a *attempt) block() {
	if a.of == nil {
		if a.caller != nil {
			a.caller.block()
		}
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.over {
		return
	}
	if a.mu.waiting++; a.mu.waiting == 1 {
		a.of.ref.Block()
	}
}

func (a *attempt) unblock() {
	if a.of == nil {
		if a.caller != nil {
			a.caller.unblock()
		}
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.waiting == 0 { // the call has returned meanwhile
		return
	}
	if a.mu.waiting--; a.mu.waiting == 0 {
		a.of.ref.Unblock()
	}
}

// unblockAll is for when the call has returned, whatever it left waiting.
func (a *attempt) unblockAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.waiting > 0 {
		a.mu.waiting = 0
		a.of.ref.Unblock()
	}
}

func (a *attempt) fence() Fence {
	f := Fence{Unit: a.unit(), Generation: a.generation, Sequence: a.meta.Sequence}
	if f.Sequence != 0 {
		f.Lane = event.LaneRef{Category: a.meta.Category, Key: f.Unit.Key, Lane: a.meta.Lane}
	}
	return f
}

// unitIn gives the nearest behavior of a runtime that waits for this attempt, or is it; nil for none.
func (a *attempt) unitIn(r *Runtime) *attempt {
	for a != nil && (a.of == nil || a.rt != r) {
		a = a.caller
	}
	return a
}

// isOver reports whether the call has returned.
func (a *attempt) isOver() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.over
}

// inSQL reports whether a statement was made here, or, in a Do, in what it is inside of: a transaction that is open until this one
// is through.
func (a *attempt) inSQL() bool {
	for ; a != nil; a = a.caller {
		if a.begunSQL() {
			return true
		}
		if a.of != nil {
			return false
		}
	}
	return false
}

// run makes the call. After it nothing more can be asked for through its contexts; what was gives done. The error says why
// that is not to be committed; own, that it is what the behavior returned. Else it panicked, was interrupted, or did
// something wrong.
func (a *attempt) run(call func() error) (own bool, err error) {
	if err := a.mayEnter(); err != nil {
		return false, err
	}
	panicked, err := guard(call)
	if mute := unspeakable(err); mute != nil {
		panicked, err = true, mute
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.over = true
	switch {
	case a.mu.cause != nil && (err == nil || errors.Is(err, context.Canceled)): // also when the call did not notice
		return false, a.mu.cause
	case err == nil:
		return false, a.mu.fault
	}
	return !panicked, err
}

// finish ends the contexts of the attempt; what it did is committed or rolled back.
func (a *attempt) finish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.over, a.mu.ended = true, true
	if a.mu.cancel != nil {
		a.mu.cancel(ErrOver)
	}
}

// commit makes changes durable together with what was done through SQL.
func (a *attempt) commit(c eventstore.Changes) (eventstore.Committed, error) {
	done, err := a.transaction().Commit(a, c)
	if errors.Is(err, eventstore.ErrUnknownCommit) {
		a.mayHaveGrown(&c)
	}
	return done, err
}

// mayHaveGrown has the transport look at the lanes that a commit added to, if it happened: one wake too many is harmless, one
// too few leaves an event lying.
func (a *attempt) mayHaveGrown(c *eventstore.Changes) {
	var tails []event.Tail
	for _, g := range c.AppendGrowth(nil) {
		tails = append(tails, event.Tail{Lane: g.Lane})
	}
	run := a.rt.running.Load()
	if a.of != nil {
		run = a.of.run
		a.of.tell(tails)
	} else {
		a.rt.tell(a.values, tails)
	}
	if run != nil {
		run.tellAgain(tails, time.Second)
	}
}

// begunSQL reports whether the behavior made a statement.
func (a *attempt) begunSQL() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.begun
}

// rollback ends the unit of work without a trace.
func (a *attempt) rollback() {
	a.mu.Lock()
	tx := a.mu.tx
	a.mu.Unlock()
	if tx == nil {
		return
	}
	if err := tx.Rollback(); err != nil {
		a.rt.cfg.Logger.Warn("roll back", "unit", a.text(), "error", err)
	}
}

func (a *attempt) transaction() eventstore.Tx {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.tx == nil {
		a.mu.tx = a.rt.cfg.Store.Begin(a.text())
	}
	return a.mu.tx
}

// protect turns a panic of user code into an error.
func protect(call func() error) error {
	_, err := guard(call)
	return err
}

// unspeakable is why err cannot be used: its Error panics, as that of a nil pointer that was returned as an error does.
func unspeakable(err error) error {
	if err == nil {
		return nil
	}
	return protect(func() error {
		_ = err.Error()
		return nil
	})
}

func guard(call func() error) (panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			panicked, err = true, newPanicError(v)
		}
	}()
	return false, call()
}
