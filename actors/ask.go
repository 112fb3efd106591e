package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyhold/keyhold/event"
)

// Asker is what [Ask] goes through: a [*Runtime], an application built on one, or a [*Remote].
type Asker interface {
	// Ask is the untyped form of the function [Ask].
	Ask(ctx context.Context, to Ref, command any, opts ...AskOption) (any, error)
}

// Ask has an entity decide a command, or answer a query, and gives its reply. The entity comes to life if it has to.
// command is a pointer to a struct or a protobuf message, and must not be changed until Ask has returned, nor after an error;
// the reply is the caller's unless the behavior kept it.
//
// An error is the behavior's own ([*RejectError], for instance) as it returned it, or an [*AskError]. ctx bounds the wait: a
// command that has not begun when ctx ends is never begun; one that has, goes on. The behavior sees the values of ctx.
// Where ctx has no deadline and several nodes share the entities, an ask looks for the node that has the entity for two TTL of a lease at most, and
// waits there for one TTL at most until the entity is open, its state read; then it ends with [ErrUnavailable], which is [Retryable]. How long the entity
// takes for what it was asked before, and for this, is up to its Timeout.
//
// A behavior asks under its own context. Then an ask that could never be answered is refused at once: with [ErrAskInTx] while a
// transaction of its own is open, and with [ErrAskCycle] when the entity waits for the behavior that asks, directly or through
// others. Where entities ask one another at the same time, the ask that closes the circle is refused; ask again, or Send. Where they are of several nodes,
// that takes as long as two messages round the circle; a circle that they close at the same moment is found within about a second, and costs one of its asks,
// which had not begun. Who gave up waiting is part of no circle. One that leads through other applications, or nodes of a release that does not
// look for circles, ends with the Timeout of a behavior.
//
// Where entities live on several nodes ([Config].Elsewhere) the one that has the entity decides. Then the types of the command and of its
// reply need wire names, what is asked and answered is a copy, and the behavior sees nothing of ctx but its end, its trace, and the time that is left. Of an
// error that comes from there its text is left, and what can be told by it: see [RemoteError].
//
// With the inline transport, what the command led to is delivered when Ask returns; inside a behavior it is delivered after
// the behavior, in the order of the commits. See the package inline.
func Ask[Out any](ctx context.Context, app Asker, to Ref, command any, opts ...AskOption) (Out, error) {
	var none Out
	reply, err := app.Ask(ctx, to, command, opts...)
	if err != nil || reply == nil {
		return none, err
	}
	out, ok := reply.(Out)
	if !ok {
		return none, fmt.Errorf("ask %s: the reply is a %T, not a %s: correct the type argument of Ask", to, reply, reflect.TypeFor[Out]())
	}
	return out, nil
}

// AskOption changes one ask.
type AskOption func(*askOptions)

type askOptions struct {
	id            string
	correlationID string
	tenant        string
	trace         event.Trace
	causationID   string // of the behavior that asks
}

// check says which of the identifiers that somebody gave cannot be kept, all at once. A trace that cannot is none.
func (o *askOptions) check() error {
	o.trace = o.trace.Fit()
	id, correlation, tenant := event.CheckID("command id", o.id), event.CheckID("correlation id", o.correlationID), event.CheckID("tenant", o.tenant)
	if id == nil && correlation == nil && tenant == nil {
		return nil
	}
	return errors.Join(id, correlation, tenant)
}

// inherit fills in what was not said with what the behavior that asks knows. It is copied: nothing that is asked keeps hold of
// the one that asked. An error says that its tenant is none, and that of what is asked was not said.
func (o *askOptions) inherit(caller *attempt) error {
	if o.tenant == "" {
		if err := caller.passesOn(); err != nil {
			return err
		}
	}
	cause := caller.cause()
	o.causationID = cause.CausationID
	o.correlationID = cmp.Or(o.correlationID, cause.CorrelationID)
	o.tenant = cmp.Or(o.tenant, cause.Tenant)
	o.trace = cmp.Or(o.trace, cause.Trace)
	return nil
}

// CommandID makes a command safe to ask again: its reply, or its rejection, is kept under the id in the same commit, and a
// command with an id that the entity has seen gets that again without being decided. Ids are remembered per entity, as long
// as the store keeps replies. The types of the command and of its reply need wire names.
//
// What cannot be an identifier ([event.CheckID]) is refused before anything is done, with an [*event.IDError]; so it is for [CorrelationID] and [Tenant]. Of what comes from outside,
// such as the header of a request, take a hash if it may be anything.
func CommandID(id string) AskOption { return func(o *askOptions) { o.id = id } }

// CorrelationID sets the correlation of everything the command leads to. By default it is that of the behavior that
// asks, else the command's id, else the id of the first event.
func CorrelationID(id string) AskOption { return func(o *askOptions) { o.correlationID = id } }

// Tenant sets the tenant of everything the command leads to. By default it is that of the behavior that asks.
func Tenant(tenant string) AskOption { return func(o *askOptions) { o.tenant = tenant } }

// Trace sets the trace context of everything the command leads to. By default it is that of the behavior that asks. One that cannot be kept is left out.
func Trace(t event.Trace) AskOption { return func(o *askOptions) { o.trace = t } }

// ask is a command or query on its way to an entity, and back. The one who waits and the one who answers settle in state
// what becomes of it, so that each knows what the other saw.
type ask struct {
	ctx    context.Context
	in     any
	opts   askOptions
	caller *attempt // the behavior that waits, if any; may be of another runtime
	waits  *waits   // where wait is noted
	wait   *wait    // of a behavior of this runtime, or of units elsewhere; nil for others
	tell   bool     // nobody waits for the answer
	// taken gets, of an ask that is told, nil when its unit is known to live here, or why it never begins; nil = nobody waits for that either. It holds one.
	taken chan error

	at *unit // whose mailbox it was put into; nil = none

	state  atomic.Uint32
	answer chan answer // holds one
}

// The states of an ask.
const (
	askWaiting  uint32 = iota // in a mailbox
	askOpening                // it is its turn, and the entity is being read
	askBegun                  // in its behavior
	askAnswered               // the answer is in the channel, or about to be
	askLeft                   // nobody waits any more
)

// answer is what came of an ask.
type answer struct {
	out any
	err error
	// tails of its commit are told by whoever takes the answer: a transport may deliver in that goroutine, and the entity must
	// be free to be asked meanwhile.
	tails      []event.Tail
	generation event.Generation // of the lease under which it was decided
	// inside: the behavior has not returned. The unit still reads the ask, which must not be used again.
	inside bool
}

// askPool keeps asks whose answer was taken. It belongs to one runtime.
type askPool struct{ pool sync.Pool }

func (p *askPool) get() *ask {
	if a, ok := p.pool.Get().(*ask); ok {
		return a
	}
	return &ask{answer: make(chan answer, 1)}
}

// put takes an ask that nobody else has any more.
func (p *askPool) put(a *ask) {
	*a = ask{answer: a.answer}
	p.pool.Put(a)
}

// await gives the answer; false when ctx ended first, and the ask is still on its way. Where ctx has no deadline of its own, an entity that is not open yet has so long to be, unless open is 0.
func (a *ask) await(open time.Duration) (answer, bool) {
	var late <-chan time.Time
	if _, bound := a.ctx.Deadline(); open > 0 && !bound && !a.at.open.Load() {
		timer := time.NewTimer(open)
		defer timer.Stop()
		late = timer.C
	}
	for ended := false; !ended; {
		select {
		case got := <-a.answer:
			return got, true
		case <-late:
			if !a.at.open.Load() && a.leave() {
				err := fmt.Errorf("%w: %s was not open after %v, on its own node: that node, its store or the broker is slow; ask again", ErrUnavailable, a.at.text, open)
				return answer{err: &AskError{Err: err}}, false
			}
			late = nil // it waits for its turn, or has begun
		case <-a.ctx.Done():
			ended = true
		}
	}
	switch {
	case a.leave():
		return answer{err: &AskError{Err: context.Cause(a.ctx)}}, false
	case a.state.CompareAndSwap(askBegun, askLeft):
		return answer{err: &AskError{Err: context.Cause(a.ctx), Unknown: true}}, false
	}
	return <-a.answer, true
}

// leave gives up an ask that has not begun; false when it has.
func (a *ask) leave() bool {
	return a.state.CompareAndSwap(askWaiting, askLeft) || a.state.CompareAndSwap(askOpening, askLeft)
}

// awaitTaken gives nil once an ask that is told is taken, or why it never begins. One that is not taken when ctx ends never begins.
func (a *ask) awaitTaken(ctx context.Context) error {
	select {
	case err := <-a.taken:
		return err
	case <-ctx.Done():
	}
	if a.state.CompareAndSwap(askWaiting, askLeft) {
		return &AskError{Err: context.Cause(ctx)}
	}
	return <-a.taken
}

// take tells whoever told, once.
func (a *ask) take(err error) {
	select {
	case a.taken <- err:
	default:
	}
}

// begin claims a waiting ask for its entity; false when nobody waits any more.
func (a *ask) begin() bool {
	if !a.state.CompareAndSwap(askWaiting, askOpening) {
		return false
	}
	a.take(nil)
	return true
}

// enter is for when the behavior is about to be called; false when nobody waits any more, and it is not to be.
func (a *ask) enter() bool {
	return a.state.CompareAndSwap(askOpening, askBegun) || a.state.Load() == askBegun
}

// hasTurn reports whether its unit is at it, and somebody waits for what comes of that.
func (a *ask) hasTurn() bool {
	state := a.state.Load()
	return state == askOpening || state == askBegun
}

// isSettled reports whether nobody waits for it any more, or the answer is there, or about to be.
func (a *ask) isSettled() bool { return a.state.Load() >= askAnswered }

// deliver gives the answer; false when nobody is there to take it.
func (a *ask) deliver(got answer) bool {
	if a.tell {
		if a.state.CompareAndSwap(askWaiting, askAnswered) {
			a.take(got.err)
		}
		return false
	}
	if !a.state.CompareAndSwap(askWaiting, askAnswered) && !a.state.CompareAndSwap(askOpening, askAnswered) && !a.state.CompareAndSwap(askBegun, askAnswered) {
		return false
	}
	a.forgetWait()
	a.answer <- got
	return true
}

// forgetWait notes that nobody waits for this ask any more.
func (a *ask) forgetWait() {
	if a.wait != nil {
		a.waits.remove(a.wait)
	}
}
