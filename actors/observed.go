package actors

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/keyhold/keyhold/actors/internal/host"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// Work is one unit of work of a behavior, as [Observer].Begin and End are told of it. It is valid until End has returned.
type Work struct {
	Unit    event.Unit
	Kind    eventstore.HandlerKind
	Use     Use             // UseEvent, UseCommand or UseQuery; 0 for the behavior's own affairs: OnActivate, OnTimer
	Type    string          // wire name of the event or sent command, Go name of what was asked; "" for the behavior's own affairs
	Event   *event.Envelope // that is applied; nil for what was asked
	Attempt int             // 1 for the first
	Trace   event.Trace     // of what led to it; zero where it is in the context, or there is none

	// What End is told besides.
	Took    time.Duration // from the call of the behavior to the outcome of its commit
	Outcome Outcome
	Err     error // nil when it was committed
	Emitted int   // events that it added

	span any
}

// Keep stores what Begin wants to find again in End; Kept gives it.
func (w *Work) Keep(v any) { w.span = v }

// Kept gives what Keep stored.
func (w *Work) Kept() any { return w.span }

// Outcome is how a unit of work ended, in words that do not grow in number: fit to label a metric.
type Outcome string

const (
	OutcomeCommitted Outcome = "committed" // or answered, for a query
	OutcomeRejected  Outcome = "rejected"  // by the behavior, for a reason of the business
	OutcomeFailed    Outcome = "failed"    // by an error, a panic or a timeout
	OutcomeRefused   Outcome = "refused"   // by the store: another owner, or somebody was faster
	OutcomeUnknown   Outcome = "unknown"   // it may have been committed
)

// Standing is what gauges are read from, when somebody wants to know.
type Standing struct {
	// Overview is that of [eventstore.Overviews].
	Overview func(ctx context.Context) (eventstore.Overview, error)
	// Loads is that of [Runtime.Loads]. It does not block.
	Loads func() []Load
	// Projections gives one standing for each read model of this program. It may be nil.
	Projections func(ctx context.Context) ([]ProjectionStanding, error)
	// Node tells how this process stands among the nodes of its application. It may be nil: it is alone.
	Node func(ctx context.Context) (NodeStanding, error)
}

// NodeObserver is told what happens among the nodes of an application, in words that do not grow in number. Each func may be nil, and must not block.
type NodeObserver struct {
	Woken      func(name string)            // a wake for a handler has come from the broker; name "" = for who publishes a part of the lanes
	PartLost   func(why string)             // the lease of a part; why is as in Observer.LeaseLost
	HandedOver func(name string)            // a unit of a handler, to a node that ranks before this one
	Unfit      func(name string)            // this node could not recover a unit, or does not know its next event
	Published  func(category string, n int) // records, for the first time or again
	Healed     func(category string)        // a lane of which the broker had lost something
	Retired    func(category string, n int) // lanes that left the broker, passed by all
	Diverged   func(category string)        // a lane that stopped, until a person decides
	Abandoned  func(category string)        // a record that no broker can hold
	Missing    func(category string)        // another application asked for records that are nowhere any more
	Trouble    func(what string, err error) // store or broker did not do what was asked; tried again

	Routed  func(how string)  // an ask for another node: "remembered", "redirected" or "repeated", as often as that
	GivenUp func(code string) // an ask for which nobody could be found who has the entity; code is a transport.PeerCode

	TakenIn   func(category string, n int) // entries of streams that other programs write
	Repeated  func(category string, n int) // of these, events that were taken in before
	Gone      func(category string, n int) // entries that were gone before they were taken in
	Malformed func(category string)        // an entry that is no event
}

// NodeStanding is how a process stands among the nodes of its application. What it knows itself is given beside an error, too.
type NodeStanding struct {
	Members int             // nodes that take part, as this one knows them
	Unheard int             // of these, that gossip does not reach from here
	Parts   int             // of the lanes, that it relays
	Leases  int             // units that it holds
	Reaches map[string]bool // "store", "broker": whether it answers
	Sealing int             // keys that gossip opens what it hears with; 0 = it is not sealed, or there is none
	Keys    map[string]int  // live keys on the broker, by category; of those that this node counts

	CertificateEnds time.Time // of the node service; zero = there is none

	Unpublished uint64    // records of its parts that the broker is not known to have
	Oldest      time.Time // when the oldest of them was emitted, as far as was looked; zero = there is none
}

// ProjectionStanding is how a read model gets on.
type ProjectionStanding struct {
	Name   string
	Behind uint64    // events that what readers see has not passed
	First  time.Time // when the first of them was emitted; zero when there is none

	Halted, Paused, Trying int // its builds, by what keeps them: an event that cannot be applied, a person, an event that failed and is tried again
}

// observes reports whether anybody wants to know of single units of work.
func (o *Observer) observes() bool { return o.Begin != nil || o.End != nil }

// observed is a unit of work under observation; nil where nobody looks.
func (u *unit) observed(a *attempt) *Work {
	o := &u.run.rt.cfg.Observer
	if !o.observes() {
		return nil
	}
	w := &Work{Unit: u.id, Kind: u.prog.desc.Kind, Attempt: max(a.meta.Attempt, 1), Trace: a.meta.Trace}
	switch {
	case a.entry != nil:
		w.Event, w.Type, w.Use = a.entry, a.entry.Type, UseEvent
		if u.prog.entity() {
			w.Use = UseCommand
		}
	case a.asked != nil:
		t := structType(a.asked)
		w.Type, w.Use = goName(t), u.prog.uses[t]
	}
	if o.Begin != nil {
		ctx, trace := o.Begin(a.values, w)
		if ctx != nil {
			a.values = ctx
		}
		if trace != (event.Trace{}) {
			meta := *a.meta
			meta.Trace = trace
			a.meta = &meta
		}
	}
	return w
}

// ended tells of the end of a unit of work, also of one that did not return: what Begin began would never end.
func (u *unit) ended(w *Work, a *attempt, r *result, returned bool) {
	if w == nil || u.run.rt.cfg.Observer.End == nil {
		return
	}
	if !returned {
		r = u.unreturned(a)
	}
	w.Took, w.Err, w.Outcome = time.Duration(u.run.tick()-a.began), r.err, r.word()
	if r.err == nil {
		w.Emitted = len(a.done().events)
	}
	u.run.rt.cfg.Observer.End(w)
}

// errBeneath is all that is known here of a panic on its way to whoever logs it.
var errBeneath = errors.New("what lies beneath the behavior panicked, such as the store: see the log")

// unreturned is the result of an attempt that was left without one: the behavior ended its goroutine, or there was a panic beneath it.
func (u *unit) unreturned(a *attempt) *result {
	if u.watch.current.Load() == a {
		return &result{outcome: partitions.Failed, err: host.ErrGoexit, own: true}
	}
	return &result{outcome: partitions.Unknown, err: errBeneath, unknown: true}
}

// word gives the outcome of a result for observers.
func (r *result) word() Outcome {
	switch {
	case r.err == nil:
		return OutcomeCommitted
	case r.own && isRejected(r.err):
		return OutcomeRejected
	case r.unknown:
		return OutcomeUnknown
	case errors.Is(r.err, ErrLeaseLost), r.conflict, r.outcome == partitions.Stale, r.outcome == partitions.Moved, errors.Is(r.err, eventstore.ErrTrouble):
		return OutcomeRefused
	}
	return OutcomeFailed
}

func goName(t reflect.Type) string {
	if t == nil {
		return ""
	}
	return fmt.Sprint(t)
}

// traceOf gives the trace that a context of the caller's is part of.
func (r *Runtime) traceOf(ctx context.Context) event.Trace {
	if r.cfg.Observer.Trace == nil {
		return event.Trace{}
	}
	return r.cfg.Observer.Trace(ctx).Fit()
}
