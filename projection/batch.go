package projection

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/eventstore"
)

// widest is how many events are passed over in one transaction: that costs hardly anything.
const widest = 1000

// done is what an attempt did of a run of events.
type done struct {
	count   int // events that it is through with, from the first on
	applied int // of those, given to the behavior
	failed  bool
	newer   bool // the next event needs a newer program
	err     error
}

// batchTime is how long a batch may take from its first event to the last that is begun: what commits late is seen late, and what does not
// commit is done again.
const batchTime = 100 * time.Millisecond

// limits are what a run of events ends by.
type limits struct {
	most int           // events that are applied
	hold time.Duration // of the writer
	last time.Duration // since the first event
}

// apply gives events to the behavior, in order, until a limit is reached, the build is to look up, or one fails.
func (b *build) apply(ctx context.Context, a *attempt, events []eventstore.Placed, to limits) (d done) {
	alone, began := to.most == 1, time.Now()
	for i := range events {
		e := &events[i]
		switch b.prog.handling(b.rt.cfg.Codec, e) {
		case passOver:
			d.count++
			continue
		case awaitNewer:
			d.newer = true
			return d
		}
		if alone && d.count > 0 {
			return d // what was passed over goes first, so that the event has a transaction of its own
		}
		if err := b.give(a, e); errors.Is(err, errNotCalled) && d.count > 0 {
			return d // the application stops: what was done before counts
		} else if err != nil {
			d.failed, d.err = true, err
			return d
		}
		d.count++
		d.applied++
		if d.applied == to.most || a.held() > to.hold || time.Since(began) > to.last || b.leaves(ctx) {
			return d
		}
	}
	return d
}

type handling int

const (
	passOver handling = iota
	handle
	awaitNewer
)

// handling says what is to be done with an event by its type, as it is with those of handlers.
func (p *program) handling(types *codec.Registry, e *eventstore.Placed) handling {
	switch {
	case p.known[wireType{e.Type, e.Version}]:
		return handle
	case !p.names[e.Type]:
		return passOver
	}
	if _, err := types.TypeOf(e.Type, e.Version); errors.Is(err, codec.ErrNewer) {
		return awaitNewer
	}
	return handle // of a version that nothing here handles: not to be passed over without a word
}

// undecodableError: the bytes of an event are not what its type says.
type undecodableError struct{ err error }

func (e *undecodableError) Error() string { return e.err.Error() }
func (e *undecodableError) Unwrap() error { return e.err }

// give gives one event to the behavior.
func (b *build) give(a *attempt, e *eventstore.Placed) error {
	var v any
	err := b.guarded(func() (err error) {
		v, err = b.rt.cfg.Codec.Decode(codec.Encoded{Type: e.Type, Version: e.Version, Encoding: e.Encoding, Data: e.Data})
		return err
	})
	switch {
	case errors.Is(err, errNotCalled):
		return err
	case err != nil:
		return &undecodableError{err}
	}
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	run := b.prog.cases[t]
	if run == nil {
		return actors.Poison(fmt.Errorf("it has no case for %s: add On(func(b, ctx, e %[1]s) error), or an upcaster", t))
	}
	meta := Meta{
		ID: e.ID, Type: e.Type, Category: e.Category, Key: e.Key, Lane: e.Lane, Sequence: e.Sequence, Time: e.Time, Stream: e.Stream,
		Position: e.Position, CorrelationID: e.CorrelationID, CausationID: e.CausationID, Tenant: e.Tenant, Trace: e.Trace,
		Build: b.id.number, Attempt: b.attempts(e.ID) + 1,
	}
	return a.call(b.prog.desc.Timeout, meta, b.overdue(e.ID), func(ctx Context) error {
		if !b.live {
			b.instance, b.live = b.prog.make(), true
		}
		return run(b.instance, ctx, v)
	})
}

// batch applies what was read, as far as it fits into one transaction.
func (b *build) batch(ctx context.Context) next {
	most, began := b.prog.desc.Batch, time.Now()
	if b.singles > 0 {
		most = 1
	}
	a := b.attempt(ctx)
	d := b.apply(ctx, a, b.page, limits{most: most, hold: b.rt.hold, last: b.rt.batch})
	if d.count == 0 && d.newer {
		b.end(a)
		return b.awaitNewer(ctx, &b.page[0])
	}
	return b.finish(ctx, a, d, b.page, began, false)
}

// finish commits what an attempt did of a run of events, or counts what failed.
func (b *build) finish(ctx context.Context, a *attempt, d done, events []eventstore.Placed, began time.Time, last bool) next {
	step := b.stepTo(b.own.Position)
	err := d.err
	if err == nil {
		if d.count > 0 {
			e := &events[d.count-1]
			step.To, step.Event, step.EventTime = e.Position, e.ID, e.Time
		}
		step.Applied, step.Passed, step.Switch = d.applied, d.count-d.applied, last
		err = b.commit(a, step)
	}
	held := a.held()
	b.end(a)
	if err != nil {
		return b.undone(ctx, d, events, last, err)
	}
	b.moved(step)
	b.singles = max(b.singles-d.count, 0)
	b.sized(d)
	if d.count > 0 {
		b.rt.cfg.Observer.Moved(Progress{
			Build: b.name(), Applied: d.applied, Passed: step.Passed, Took: time.Since(began), Held: held, EventTime: step.EventTime,
		})
	}
	return next{}
}

// undone is for a run of events that did not commit. Which of several is to blame is found out one by one, so that it alone counts.
func (b *build) undone(ctx context.Context, d done, events []eventstore.Placed, last bool, err error) next {
	ran := d.count
	if d.failed {
		ran++
	}
	switch {
	case ctx.Err() != nil, nobodys(err):
		return b.trouble(ctx, "commit", err)
	case last && (ran == 0 || errors.Is(err, eventstore.ErrNotShown)):
		return b.unshown(ctx, err)
	case ran == 0, d.applied == 0 && !d.failed:
		return b.trouble(ctx, "commit", err)
	case ran > 1:
		b.forget()
		b.singles = ran
		return next{}
	}
	return b.failed(ctx, &events[0], err)
}

// moved brings what is known to what is committed.
func (b *build) moved(step *eventstore.ProjectionStep) {
	if step.To == step.From {
		return
	}
	b.own.Position, b.own.EventID, b.own.EventTime, b.own.Moved = step.To, step.Event, step.EventTime, step.Time
	b.own.Tried, b.newer = nil, false
	count := step.Applied + step.Passed
	b.page = b.page[min(count, len(b.page)):]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.move(step.To, count, time.Now())
}

// sized adapts the next page to what became of this one: events that take long come in small pages, those that are passed over in large ones.
func (b *build) sized(d done) {
	switch {
	case len(b.page) > 0:
		b.size = max(d.count, 1)
	case d.applied == 0:
		b.size = min(2*b.size, max(widest, b.prog.desc.Batch))
	default:
		b.size = min(2*b.size, b.prog.desc.Batch)
	}
}

// awaitNewer has the build wait until a program runs that knows the type of its next event: a start of one, or of this one again.
func (b *build) awaitNewer(ctx context.Context, e *eventstore.Placed) next {
	step := b.stepTo(b.own.Position)
	step.Tried = &eventstore.ProjectionTried{
		Event: eventOf(e), Attempts: b.attempts(e.ID), Error: fmt.Sprintf("waits for a newer program: this one does not know version %d of %q", e.Version, e.Type),
		Time: b.rt.cfg.Now().UTC(),
	}
	if err := b.record(ctx, step); err != nil {
		return b.trouble(ctx, "write down that it waits", err)
	}
	b.own.Tried, b.newer = step.Tried, true
	b.rt.cfg.Observer.WaitsForType(b.name(), &e.Envelope)
	return next{}
}
