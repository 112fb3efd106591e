package actors

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/transport"
)

// Runtime runs the units of its definitions. All methods may be called concurrently.
type Runtime struct {
	cfg      Config
	programs map[string]*program
	asks     askPool
	waits    waits
	listing  atomic.Pointer[listing] // never nil
	remote   *Remote                 // nil without Elsewhere
	opens    time.Duration           // that an entity has to be open, see ask.await; 0 = as long as it takes

	mu struct {
		sync.Mutex
		stopping *stopping // nil unless a Stop has begun and is not through
	}
	running   atomic.Pointer[running] // nil unless started
	chaser    atomic.Pointer[running] // the last that was started, also while it stops; nil without Elsewhere
	unsettled atomic.Bool             // see Unsettled
}

// NewRuntime checks cfg and the definitions, reporting all faults at once. It starts nothing.
func NewRuntime(cfg Config) (*Runtime, error) {
	r := &Runtime{cfg: cfg.withDefaults(), programs: map[string]*program{}}
	if cfg.Elsewhere != nil {
		r.remote = &Remote{RemoteConfig{Codec: cfg.Codec, Keys: cfg.Keys, Elsewhere: cfg.Elsewhere, Trace: r.traceOf}}
		r.waits.node = rand.Uint64()
	}
	r.SetListed(cfg.Revision, cfg.Listed)
	errs := []error{r.cfg.fault()}
	if errs[0] == nil && cfg.Port.Traits().Leased {
		r.opens = cfg.Port.Traits().TTL
	}
	for _, d := range cfg.Definitions {
		faults := d.Faults()
		errs = append(errs, faults...)
		name := d.Describe().Name
		switch other := r.programs[name]; {
		case len(faults) > 0 || errs[0] != nil:
		case other != nil:
			errs = append(errs, fmt.Errorf(
				"%s %q: the name is taken by the %s of that name: handlers and entity kinds share one name space, rename one",
				d.Describe().Kind, name, other.desc.Kind))
		default:
			p := d.compile()
			r.programs[name] = p
			errs = append(errs, p.link(r))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// stamp is the time of what is emitted now.
func (r *Runtime) stamp() time.Time { return r.cfg.Now().UTC().Truncate(time.Millisecond) }

// misused reports the use of a context whose call is over.
func (r *Runtime) misused(u event.Unit, err error) {
	r.cfg.Logger.Error("context used after its call: what was asked of it is lost", "unit", u.String(), "error", err)
	observe2(r.cfg.Observer.Misused, u, err)
}

// Wake says that there may be work for a unit. It never blocks; wakes are merged, none is lost. It does nothing for a name
// that is not registered, and before Start and after Stop. See transport.Node.
func (r *Runtime) Wake(u event.Unit) {
	if run := r.running.Load(); run != nil {
		run.wake(u)
	}
}

// Resume has a unit look again at what keeps it from its streams and at what it set aside, after somebody acted on it in the store,
// whatever the act was.
func (r *Runtime) Resume(u event.Unit) {
	if run := r.running.Load(); run != nil {
		run.resume(u)
	}
}

// ResumeAll does the same for every live unit of a handler or entity kind, after somebody acted on all of it. Units that are not live find
// out when they come to life; it wakes none of them.
func (r *Runtime) ResumeAll(name string) {
	run := r.running.Load()
	if run == nil {
		return
	}
	for units := range run.units.shardwise() {
		for _, u := range units {
			if u.id.Name == name {
				run.resume(u.id)
			}
		}
	}
	run.bequeathed.Range(func(id, _ any) bool { // the next of this id would go on from what the one before had recovered
		if id := id.(event.Unit); id.Name == name {
			run.resume(id)
		}
		return true
	})
}

// Drive wakes a unit and returns when it has passed, or halted before, everything in lane up to seq and what it set aside and is due, or
// ctx is done. With seq 0 it returns when the unit has nothing to do. What it commits meanwhile is told under ctx. See transport.Node.
func (r *Runtime) Drive(ctx context.Context, u event.Unit, lane event.LaneRef, seq event.Sequence) error {
	run := r.running.Load()
	if run == nil {
		return fmt.Errorf("drive %s: %w", u, ErrStopping)
	}
	d := &drive{ctx: ctx, lane: lane, seq: seq, done: make(chan error, 1)}
	at := run.post(u, func(b *inbox) {
		b.mu.drives = append(b.mu.drives, d)
		b.mu.wake = true
	})
	if at == nil {
		return fmt.Errorf("drive %s: %w", u, ErrStopping)
	}
	var err error
	select {
	case err = <-d.done:
	case <-ctx.Done():
		at.inbox.takeDrives(func(other *drive) bool { return other == d })
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("drive %s through %s #%d: %w", u, lane, seq, err)
	}
	return nil
}

// Ask is the untyped form of the function [Ask].
func (r *Runtime) Ask(ctx context.Context, to Ref, command any, opts ...AskOption) (any, error) {
	k := r.asks.get()
	k.ctx, k.in, k.caller = ctx, command, attemptOf(ctx)
	for _, o := range opts {
		o(&k.opts)
	}
	if err := k.opts.check(); err != nil {
		r.asks.put(k)
		return nil, askError(to, command, &AskError{Err: err})
	}
	if r.cfg.Elsewhere == nil {
		got := r.askHere(to, k)
		return got.out, askError(to, command, got.err)
	}
	said := k.opts
	if !r.here(to.unit()) {
		r.asks.put(k)
		return r.askElsewhere(ctx, to, command, said, transport.PeerOwner{})
	}
	got := r.askHere(to, k)
	if hint, is := movedOn(got.err); is {
		return r.askElsewhere(ctx, to, command, said, hint)
	}
	return got.out, askError(to, command, got.err)
}

// askHere has the entity decide here, and waits for its answer. The ask must not be used again. The error is fresh: unless it is the
// behavior's own, it is an [*AskError] that does not say yet whom it is about.
func (r *Runtime) askHere(to Ref, k *ask) answer {
	ctx, caller := k.ctx, k.caller
	if err := r.enqueueWait(to, k); err != nil {
		k.forgetWait()
		if k.state.CompareAndSwap(askWaiting, askLeft) { // else a probe was first, and its answer is inside
			r.asks.put(k)
		}
		return answer{err: &AskError{Err: err}}
	}
	if caller != nil {
		caller.block()
		defer caller.unblock()
	}
	got, ok := k.await(r.opens)
	switch {
	case !ok:
		k.forgetWait()
	case !got.inside:
		r.asks.put(k)
		r.tell(ctx, got.tails)
	}
	return got
}

// askError says what an error was about, unless it is the behavior's own.
func askError(to Ref, command any, err error) error {
	if e, ok := err.(*AskError); ok && e.To == (Ref{}) {
		e.To, e.Command = to, fmt.Sprintf("%T", command)
	}
	return err
}

// Tell has an entity decide a command some time soon, and does not wait for it: best effort, lost with the process. An error says
// that it was not even taken, such as [ErrMailboxFull]. Where entities live on several nodes, it waits until ctx ends for one that has the
// entity to take it.
//
// What a behavior tells inherits its correlation, tenant and trace. It sees the values of the context that the behavior was
// called with, not those which the behavior added: it does not keep the behavior that told it, however many tell one another.
func (r *Runtime) Tell(ctx context.Context, to Ref, command any, opts ...AskOption) error {
	k := &ask{ctx: outside(ctx), in: command, tell: true} // its end does not matter
	for _, o := range opts {
		o(&k.opts)
	}
	if err := k.opts.check(); err != nil {
		return askError(to, command, &AskError{Err: err})
	}
	said, caller := k.opts, attemptOf(ctx)
	if caller != nil {
		if err := k.opts.inherit(caller); err != nil {
			return askError(to, command, &AskError{Err: err})
		}
	}
	if r.cfg.Elsewhere == nil {
		if err := r.enqueue(to, k); err != nil {
			return askError(to, command, &AskError{Err: err})
		}
		return nil
	}
	if !r.here(to.unit()) {
		return r.tellElsewhere(ctx, to, command, said, transport.PeerOwner{})
	}
	err := r.tellHere(ctx, to, k, caller)
	if hint, is := movedOn(err); is {
		return r.tellElsewhere(ctx, to, command, said, hint)
	}
	return askError(to, command, err)
}

// enqueueWait is enqueue for an ask whose answer is waited for. It is refused where it could never come.
func (r *Runtime) enqueueWait(to Ref, k *ask) error {
	if k.caller == nil {
		return r.enqueue(to, k)
	}
	if k.caller.inSQL() {
		return ErrAskInTx
	}
	if err := k.opts.inherit(k.caller); err != nil {
		return err
	}
	if by := k.caller.unitIn(r); by != nil {
		probes, ok := r.waits.add(&wait{by: by.unit(), behavior: by, on: to.unit(), ask: k})
		if !ok {
			return ErrAskCycle
		}
		r.suspect(probes)
	}
	return r.enqueue(to, k)
}

// enqueue puts an ask into the mailbox of its entity.
func (r *Runtime) enqueue(to Ref, k *ask) error {
	id := to.unit()
	run := r.running.Load()
	switch {
	case k.ctx.Err() != nil && !k.tell:
		return context.Cause(k.ctx)
	case run == nil:
		return r.notRunning()
	}
	p, err := r.addressee(to, k.in)
	if err != nil {
		return err
	}
	limit := p.mailbox
	if limit == 0 {
		limit = r.cfg.MailboxSize
	}
	return run.enqueue(id, k, limit)
}

// Send has an entity decide a command later, durably. On the context of a behavior of this runtime, or of its [Runtime.Do], it
// is part of that unit of work; else, also on the context of another runtime's, it is committed when Send returns. A query, and an
// entity's OnActivate and OnPassivate, have nothing to commit: they get [ErrReadOnly].
func (r *Runtime) Send(ctx context.Context, to Ref, command any) error {
	if a := attemptOf(ctx); a != nil && a.rt == r {
		return a.send(to, command)
	}
	return r.Do(ctx, func(u UnitOfWork) error {
		return u.a.send(to, command)
	})
}

// commandEnvelope makes a command ready for the lane of its entity.
func (r *Runtime) commandEnvelope(to Ref, command any) (event.Envelope, error) {
	fail := func(err error) (event.Envelope, error) {
		return event.Envelope{}, fmt.Errorf("send %T to %s: %w", command, to, err)
	}
	p, err := r.addressee(to, command)
	if err != nil {
		return fail(err)
	}
	switch p.uses[structType(command)] {
	case UseCommand:
	case UseQuery:
		return fail(fmt.Errorf("%w: it is a query, whose answer nobody would get: ask it", ErrUnknownCommand))
	default:
		return fail(ErrUnknownCommand)
	}
	enc, err := r.cfg.Codec.Encode(command)
	if err == nil {
		err = event.CheckData(enc.Type, enc.Data)
	}
	if err != nil {
		return fail(err)
	}
	return event.Envelope{
		Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data,
		Category: event.CommandsOf(to.Kind), Key: to.ID,
	}, nil
}

// Do runs f in a unit of work of its own, which commits when f returns nil. It is fenced with the process alone, and ends when
// ctx does, or a Stop has run out of patience. On the context of a behavior it inherits its correlation, and gives [ErrAskInTx]
// while that one's own transaction is open.
func (r *Runtime) Do(ctx context.Context, f func(UnitOfWork) error) error {
	caller := attemptOf(ctx)
	if caller != nil && caller.inSQL() {
		return fmt.Errorf("do: %w", ErrAskInTx)
	}
	a := &attempt{rt: r, meta: &noMeta, values: ctx, caller: caller}
	if caller != nil {
		if err := caller.passesOn(); err != nil {
			return fmt.Errorf("do: %w", err)
		}
		cause := caller.cause()
		a.meta = &cause
	} else if trace := r.traceOf(ctx); trace != (event.Trace{}) {
		a.meta = &Meta{Attempt: 1, Trace: trace}
	}
	a.useLocked(ctx) // nobody else has it yet
	defer a.finish()
	if caller == nil || caller.rt != r {
		run := r.running.Load()
		if run == nil || !run.calls.enter(a) {
			return fmt.Errorf("do: %w", ErrStopping)
		}
		defer run.calls.leave(a)
	}
	if _, err := a.run(func() error { return f(UnitOfWork{a}) }); err != nil {
		a.rollback()
		return err
	}
	c := eventstore.Changes{Publish: append(a.done().events, a.done().sent()...)}
	if len(c.Publish) == 0 && !a.begunSQL() {
		return nil
	}
	done, err := a.commit(c)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	r.tell(ctx, done.Tails)
	return nil
}
