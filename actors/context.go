package actors

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// UnitOfWork collects what commits together.
//
// The contexts of behaviors (UnitOfWork, [Context], [Command], [Query]) are each a context.Context, and say by their type
// what may be done. One ends with the call it was given to: keep none. What is asked of it afterwards is lost, and told to
// Observer.Misused; Tx gives [ErrOver], and Done is closed.
//
// It is cancelled when the attempt takes longer than the behavior's Timeout, and when Stop runs out of patience;
// context.Cause tells which. An attempt that was cancelled does not commit. The methods may be called from several
// goroutines, but what is emitted at once has no order, and SQL is for one goroutine at a time.
type UnitOfWork struct{ a *attempt }

// Tx is the application's own SQL in the transaction of this unit of work. The transaction begins with the first statement, so
// do work that waits before it; on SQLite one transaction runs at a time. Where it cannot begin, every statement gives the
// reason, such as [eventstore.ErrNoSQL], and the unit of work fails.
func (u UnitOfWork) Tx() eventstore.SQL { return u.a.sql() }

// Emit adds events, in this order. Each is a struct, or a pointer to a protobuf message, of a type that has a wire name, and
// its key must be legal. It must not be changed afterwards. What is wrong with one fails the unit of work at its end,
// whatever the behavior returns.
func (u UnitOfWork) Emit(events ...any) {
	for _, e := range events {
		u.a.emit(e)
	}
}

// Send adds a command for an entity, a pointer to a struct or a protobuf message. It is durable with the rest of the unit of
// work and is decided later, once, in the order of sending per entity; its reply is dropped.
func (u UnitOfWork) Send(to Ref, command any) { _ = u.a.send(to, command) }

// Meta tells what is being handled. In [Runtime.Do] there is only what it inherits from the behavior that calls it.
func (u UnitOfWork) Meta() Meta { return *u.a.meta }

// Deadline implements context.Context.
func (u UnitOfWork) Deadline() (time.Time, bool) { return u.a.Deadline() }

// Done implements context.Context.
func (u UnitOfWork) Done() <-chan struct{} { return u.a.Done() }

// Err implements context.Context.
func (u UnitOfWork) Err() error { return u.a.Err() }

// Value implements context.Context.
func (u UnitOfWork) Value(key any) any { return u.a.Value(key) }

// Context is what an event handler gets.
type Context struct{ UnitOfWork }

// Key is the key of this unit: the one New was given.
func (c Context) Key() string { return c.a.of.id.Key }

// Fence names this very attempt to something outside that can refuse what is stale: per unit, (generation, lane, sequence) is
// never below what it was before. The generation is that of the unit's lease where units are leased one by one, else that of the process's start: whoever
// owns the unit next has a higher one.
func (c Context) Fence() Fence { return c.a.fence() }

// Become makes the cases of Modes[mode] take the place of those in On, once this unit of work has committed; "" goes back.
// It lasts as long as the instance.
func (c Context) Become(mode string) { c.a.become(mode) }

// StartTimer calls OnTimer with this name once the time has passed, counted from the commit of this unit of work; a timer of
// that name is replaced. Timers are volatile: they last as long as the instance, and keep it from being put away.
func (c Context) StartTimer(name string, after time.Duration) { c.a.startTimer(name, after) }

// StopTimer stops a timer, once this unit of work has committed.
func (c Context) StopTimer(name string) { c.a.stopTimer(name) }

// Command is what an entity gets with a command, or in OnTimer.
type Command struct{ UnitOfWork }

// ID is the entity's id.
func (c Command) ID() string { return c.a.of.id.Key }

// Version is the number of events that the state was folded from.
func (c Command) Version() uint64 { return c.a.version }

// Query gives the reading half, for helpers shared with queries.
func (c Command) Query() Query { return Query{a: c.a} }

// Fence names this very attempt, as [Context.Fence] does.
func (c Command) Fence() Fence { return c.a.fence() }

// Become makes the cases of Modes[mode] take the place of those in Commands, once this command has committed; "" goes
// back. It lasts until the entity is put away or an attempt fails.
func (c Command) Become(mode string) { c.a.become(mode) }

// StartTimer calls OnTimer with this name once the time has passed, as [Context.StartTimer] does.
func (c Command) StartTimer(name string, after time.Duration) { c.a.startTimer(name, after) }

// StopTimer stops a timer, once this command has committed.
func (c Command) StopTimer(name string) { c.a.stopTimer(name) }

// Query is what an entity gets with a query: nothing to write with.
type Query struct{ a *attempt }

// ID is the entity's id.
func (q Query) ID() string { return q.a.of.id.Key }

// Version is the number of events that the state was folded from.
func (q Query) Version() uint64 { return q.a.version }

// Meta tells what is being answered.
func (q Query) Meta() Meta { return *q.a.meta }

// Deadline implements context.Context.
func (q Query) Deadline() (time.Time, bool) { return q.a.Deadline() }

// Done implements context.Context.
func (q Query) Done() <-chan struct{} { return q.a.Done() }

// Err implements context.Context.
func (q Query) Err() error { return q.a.Err() }

// Value implements context.Context.
func (q Query) Value(key any) any { return q.a.Value(key) }

// Meta is what travels with an event or a command beside its data.
type Meta struct {
	ID            string // of the event; of a command that came by stream, or the CommandID of an ask; else ""
	Type          string // wire name; "" in OnActivate, and where a query's type has none
	Category      string // "" for what came by ask
	Lane          event.Lane
	Sequence      event.Sequence // in its lane; 0 for what came by ask
	Time          time.Time      // when the event was emitted
	CorrelationID string
	CausationID   string
	Tenant        string
	Trace         event.Trace
	Attempt       int // 1 for the first
}

// Fence names one attempt of one unit.
type Fence struct {
	Unit       event.Unit
	Generation event.Generation
	Lane       event.LaneRef  // zero for what came by ask
	Sequence   event.Sequence // 0 for what came by ask
}

var (
	_ context.Context = UnitOfWork{}
	_ context.Context = Context{}
	_ context.Context = Command{}
	_ context.Context = Query{}
)
