package actors

import (
	"context"
	"errors"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// noMeta is what there is to say of most calls.
var noMeta = Meta{Attempt: 1}

// attempt makes the unit of work for one call of the unit's behavior, which sees the values of a context.
func (u *unit) attempt(g event.Generation, values context.Context) *attempt {
	a := &attempt{rt: u.run.rt, of: u, generation: g, version: u.version, meta: &noMeta, began: u.run.tick(), values: values, state: u.state}
	if t := u.prog.desc.Timeout; t > 0 {
		a.deadline = a.began.Add(t)
	}
	return a
}

// result is what came of an attempt.
type result struct {
	outcome partitions.Outcome
	err     error
	own     bool // err is the behavior's own, as it returned it
	unknown bool // it may have been committed
	tails   []event.Tail

	conflict bool // the entity's stream was not at the version expected
}

// execute makes the call and commits what it did: changes turns that into what the store is to do. After a commit, and only then,
// events are folded, timers started and the mode changed.
func (u *unit) execute(a *attempt, call func() error, changes func(*attempt) (eventstore.Changes, error)) (r result) {
	w, returned := u.observed(a), false
	defer func() { u.ended(w, a, &r, returned) }()
	r = u.work(a, call, changes)
	returned = true
	return r
}

func (u *unit) work(a *attempt, call func() error, changes func(*attempt) (eventstore.Changes, error)) result {
	own, err := u.call(a, call)
	defer a.finish()
	var c eventstore.Changes
	if err == nil {
		c, err = changes(a)
	}
	if err != nil {
		a.rollback()
		return result{outcome: failedOutcome(err), err: err, own: own}
	}
	var done eventstore.Committed
	if !isEmpty(&c) || a.begunSQL() {
		if done, err = a.commit(c); err != nil {
			return u.refused(a, err)
		}
	}
	u.committed(&c, &done, a.done().values)
	u.adopt(a.done())
	return result{tails: done.Tails}
}

// call makes the call of an attempt under the eyes of the watch.
func (u *unit) call(a *attempt, call func() error) (own bool, err error) {
	u.begin(a)
	own, err = a.run(call)
	u.end(a)
	u.panicked(err)
	return own, err
}

// refused is the result of an attempt whose commit was.
func (u *unit) refused(a *attempt, err error) result {
	u.listsMoved(err)
	r := result{
		outcome: outcomeOf(err), err: err,
		unknown: errors.Is(err, eventstore.ErrUnknownCommit), conflict: errors.Is(err, eventstore.ErrVersionConflict),
	}
	if r.outcome == partitions.Failed && (!a.begunSQL() || errors.Is(err, eventstore.ErrTrouble)) && !r.conflict {
		r.outcome = partitions.Unknown // the database's own trouble: not to be held against the event
	}
	return r
}

// committed brings the state to what the store has now. A fold that fails leaves it to be read again, which will fail too, and says
// so to everybody who needs it.
func (u *unit) committed(c *eventstore.Changes, done *eventstore.Committed, values []any) {
	if c.Snapshot != nil {
		u.snapshotAt = c.Snapshot.Version
	}
	if len(done.Versions) == 0 {
		return
	}
	u.version = done.Versions[0]
	for _, v := range values {
		if err := u.state.fold(v); err != nil {
			u.panicked(err)
			u.stale = true
			return
		}
	}
}

// changes is what a call without a checkpoint changes.
func (u *unit) changes(a *attempt) (eventstore.Changes, error) {
	c, w := eventstore.Changes{}, a.done()
	switch {
	case len(w.events) == 0:
	case u.prog.entity():
		c.Snapshot = a.snapshot
		a.appends[0] = eventstore.Append{Stream: a.stream(), Expected: a.version, Events: w.events}
		c.Append = a.appends[:]
	default:
		c.Publish = w.events
	}
	c.Publish = append(c.Publish, w.sent()...)
	if !isEmpty(&c) || a.begunSQL() {
		c.Fence = u.fence(a.generation)
	}
	return c, nil
}

func isEmpty(c *eventstore.Changes) bool {
	return len(c.Append) == 0 && len(c.Publish) == 0 && len(c.Advance) == 0 && c.Reply == nil && c.Settle == nil && !c.Untry
}

// failedOutcome tells the machine how an attempt ended that had nothing to commit. What lies beneath the behavior, such as a
// store that was closed or a disk that is full, is no event's fault. An ask that met with a closed or stale store is: it is the
// behavior's own affair.
func failedOutcome(err error) partitions.Outcome {
	var asked *AskError
	switch {
	case errors.Is(err, errNobodys): // an Is that says yes to everything says nothing
	case errors.Is(err, eventstore.ErrTrouble):
		return partitions.Unknown
	case errors.As(err, &asked):
	case errors.Is(err, eventstore.ErrStale):
		return partitions.Stale
	case errors.Is(err, eventstore.ErrClosed), errors.Is(err, errUnread):
		return partitions.Unknown
	}
	return partitions.Failed
}

// errNobodys is in no error: only one that is everything is this one.
var errNobodys = errors.New("error of nobody")

// applyInside notes that it is the entry's doing when the goroutine ends.
func (u *unit) applyInside(e *partitions.Apply) partitions.Input {
	u.inside = true
	done := u.apply(e)
	u.inside = false // not deferred: it stays when the goroutine ends
	return done
}

// apply runs the behavior with an entry of a stream, or one that was set aside.
func (u *unit) apply(e *partitions.Apply) partitions.Input {
	u.entry = e.Entry
	if e.Aside == nil {
		u.showHead(e.Entry)
	}
	v, err := u.decode(e.Entry)
	if err != nil {
		return partitions.ApplyDone{Outcome: partitions.Failed, Class: partitions.Poison, Reason: "undecodable", Err: err}
	}
	if u.prog.entity() {
		return u.applyCommand(e, v)
	}
	if err := u.ensure(e.Generation); err != nil {
		return u.applyFailed(result{outcome: failedOutcome(err), err: err})
	}
	a := u.attemptOn(e)
	r := u.execute(a, func() error { return u.instance.handle(Context{UnitOfWork{a}}, u.mode, v) }, u.changesWith(e))
	if r.err != nil {
		return u.applyFailed(r)
	}
	return u.applied(e, r)
}

// maxConflicts is how often a command is decided anew because somebody else appended to the entity's stream.
const maxConflicts = 3

func (u *unit) applyCommand(e *partitions.Apply, v any) partitions.Input {
	var r result
	for range maxConflicts {
		if err := u.ensure(e.Generation); err != nil {
			return u.applyFailed(result{outcome: failedOutcome(err), err: err})
		}
		a := u.attemptOn(e)
		a.snapshot = u.snapshot()
		r = u.execute(a, func() error {
			_, err := u.state.decide(Command{UnitOfWork{a}}, u.mode, v)
			return err
		}, u.changesWith(e))
		if !r.conflict {
			break
		}
		u.stale = true
	}
	if r.own && isRejected(r.err) {
		return u.applyRejected(e, r.err)
	}
	if r.err != nil {
		return u.applyFailed(r)
	}
	return u.applied(e, r)
}

// applyRejected passes a command that was rejected: its checkpoint moves, or its row set aside goes, nothing else happens.
func (u *unit) applyRejected(e *partitions.Apply, why error) partitions.Input {
	u.spoiled()
	a := u.attemptOn(e)
	defer a.finish()
	var c eventstore.Changes
	u.through(&c, e)
	if _, err := a.commit(c); err != nil {
		return u.applyFailed(u.refused(a, err))
	}
	u.run.rt.cfg.Observer.rejected(u.id, e.Entry, why)
	return partitions.ApplyDone{Keep: len(u.timers) > 0}
}

func (u *unit) applied(e *partitions.Apply, r result) partitions.Input {
	u.tell(r.tails)
	observe2(u.run.rt.cfg.Observer.Applied, u.id, e.Entry)
	return partitions.ApplyDone{Keep: len(u.timers) > 0}
}

// attemptOn makes the unit of work for an entry of a stream.
func (u *unit) attemptOn(e *partitions.Apply) *attempt {
	a, entry := u.attempt(e.Generation, u.context()), e.Entry
	a.entry = entry
	a.meta = &Meta{
		ID: entry.ID, Type: entry.Type, Category: entry.Category, Lane: entry.Lane, Sequence: entry.Sequence, Time: entry.Time,
		CorrelationID: fit(entry.CorrelationID), CausationID: entry.CausationID, Tenant: entry.Tenant, Trace: entry.Trace.Fit(), Attempt: e.Attempt,
	}
	return a
}

// changesWith is changes together with what says that the entry is through.
func (u *unit) changesWith(e *partitions.Apply) func(*attempt) (eventstore.Changes, error) {
	return func(a *attempt) (eventstore.Changes, error) {
		c, err := u.changes(a)
		u.through(&c, e)
		return c, err
	}
}

// through adds that an entry is: its checkpoint moves, or its row set aside goes.
func (u *unit) through(c *eventstore.Changes, e *partitions.Apply) {
	c.Fence, c.Advance, c.Untry = u.fence(e.Generation), advances(e.Moves), e.Untry
	u.listed(c)
	if e.Aside != nil {
		c.Settle = settled(e.Aside)
	}
}

// applyFailed says what a failed attempt at an entry means: another attempt, or none.
func (u *unit) applyFailed(r result) partitions.Input {
	done := partitions.ApplyDone{Outcome: r.outcome, Err: r.err}
	if r.outcome != partitions.Failed {
		return done
	}
	c, marked := classify(r.err)
	giveUp := u.prog.desc.Retry.If
	switch {
	case c == poison:
		done.Class = partitions.Poison
	case c == rejected:
		done.Class, done.Reason = partitions.Poison, "rejected"
	case !marked && giveUp != nil && r.own && !u.worthARetry(r.err):
		done.Class, done.Reason = partitions.Poison, "not worth a retry"
	}
	return done
}

// worthARetry asks RetryPolicy.If. When that panics the attempt counts like any other.
func (u *unit) worthARetry(failed error) (again bool) {
	err := protect(func() error {
		again = u.prog.desc.Retry.If(failed)
		return nil
	})
	u.panicked(err)
	return again || err != nil
}

// maxAgain is how long after the one before tellAgain tells for the last time.
const maxAgain = time.Minute

// tellAgain tells after a while, and a few times more: a commit that nobody waits for any longer happens when the transaction that it
// shares with others does.
func (r *running) tellAgain(tails []event.Tail, after time.Duration) {
	if len(tails) == 0 || after > maxAgain {
		return
	}
	r.later(after, func() {
		r.rt.tell(r.nested, tails)
		r.tellAgain(tails, 2*after)
	})
}

// tell has the transport carry what a commit added to the lanes. What it cannot deliver now it delivers later.
func (r *Runtime) tell(ctx context.Context, tails []event.Tail) {
	if len(tails) == 0 || r.cfg.Committed == nil {
		return
	}
	if err := r.cfg.Committed(ctx, tails); err != nil {
		r.cfg.Logger.Warn("committed events will be delivered later", "error", err)
	}
}
