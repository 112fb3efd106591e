package keyhold

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// The declarations of behaviors; see the package actors for what each field means.
type (
	// Entity declares a kind of event-sourced entities: one actor per id. See [actors.Entity].
	Entity[S any] = actors.Entity[S]
	// Commands is the list of an entity's commands, made with [OnCommand].
	Commands[S any] = actors.Commands[S]
	// Queries is the list of an entity's queries, made with [OnQuery].
	Queries[S any] = actors.Queries[S]
	// Fold is the list of an entity's events, made with [OnEvent].
	Fold[S any] = actors.Fold[S]
	// Handler declares an event handler: one actor per key. See [actors.Handler].
	Handler[B any] = actors.Handler[B]
	// CommandHandler declares a handler of commands that are meant for no entity: one actor per key. See [actors.CommandHandler].
	CommandHandler[B any] = actors.CommandHandler[B]
	// Behavior is the list of what a handler handles, made with [On].
	Behavior[B any] = actors.Behavior[B]

	// Command is what an entity gets with a command: it may emit.
	Command = actors.Command
	// Query is what an entity gets with a query: it may only read.
	Query = actors.Query
	// Context is what a handler gets with an event.
	Context = actors.Context
	// UnitOfWork collects what commits together, in [Do].
	UnitOfWork = actors.UnitOfWork
	// Meta is what travels with an event or command beside its data.
	Meta = actors.Meta
	// Ref names one entity; made by Entity.ID.
	Ref = actors.Ref

	// Policy says what happens to an event that cannot be applied: [Halt], [Release] or [ParkSequence].
	Policy = actors.Policy
	// RetryPolicy says how often and how fast a failed event is tried again.
	RetryPolicy = actors.RetryPolicy
	// Start says where a handler begins that is new to a category with events: [Oldest], [Now] or [Since].
	Start = actors.Start
	// AskOption changes one [Ask]: [CommandID], [CorrelationID], [Tenant], [Trace].
	AskOption = actors.AskOption
	// AskError is what an [Ask] gives that was not answered: it says whether anything may have been done. See [actors.AskError].
	AskError = actors.AskError
	// Observer is told what happens to units: for logs and metrics.
	Observer = actors.Observer
	// SQL is the application's own SQL inside a unit of work.
	SQL = eventstore.SQL
)

const (
	Halt    = actors.Halt    // stop the key before the event until a person decides
	Release = actors.Release // set the event aside as a dead letter and go on
	// ParkSequence sets the event aside, and behind it every later one of its key and category, until a person decides.
	ParkSequence = actors.ParkSequence
	Oldest       = actors.Oldest // begin with the first event kept
	Now          = actors.Now    // begin with the first event committed after the registration
)

var (
	ErrRejected    = actors.ErrRejected    // a behavior said no
	ErrMailboxFull = actors.ErrMailboxFull // too many asks wait for this entity: back off
	ErrStopping    = actors.ErrStopping    // not started, or stopping
	ErrUnavailable = actors.ErrUnavailable // the entity cannot be had now: ask again in a while
	ErrAskInTx     = actors.ErrAskInTx     // an ask with one's own transaction open
	ErrBadKey      = event.ErrBadKey       // a value cannot be a partition key
	ErrOwned       = eventstore.ErrOwned   // another process has the store open
)

// OnCommand is the case for commands of type *In, answered with *Out. See [actors.OnCommand].
func OnCommand[S, In, Out any](run func(c Command, s S, in *In) (*Out, error)) actors.CommandCase[S] {
	return actors.OnCommand(run)
}

// OnQuery is the case for queries of type *In, answered with *Out. See [actors.OnQuery].
func OnQuery[S, In, Out any](run func(q Query, s S, in *In) (*Out, error)) actors.QueryCase[S] {
	return actors.OnQuery(run)
}

// OnEvent is the case for events of type E in an entity's fold. See [actors.OnEvent].
func OnEvent[S, E any](fold func(s S, e E) S) actors.FoldCase[S] { return actors.OnEvent(fold) }

// On is the case for events of type E in a handler: On((*shipping).placed). See [actors.On].
func On[B, E any](run func(b B, ctx Context, e E) error) actors.Case[B] { return actors.On(run) }

// Reject says no for a reason of the business: nothing is written, nothing is tried again.
func Reject(format string, args ...any) error { return actors.Reject(format, args...) }

// Poison marks an error as one that no further attempt can mend. Poison(nil) is nil.
func Poison(err error) error { return actors.Poison(err) }

// Retry marks an error as worth another attempt, whatever it wraps. Retry(nil) is nil.
func Retry(err error) error { return actors.Retry(err) }

// Retryable reports whether asking again, as it is, may succeed and is safe. See [actors.Retryable].
func Retryable(err error) bool { return actors.Retryable(err) }

// Since begins a handler with the first event at or after t.
func Since(t time.Time) Start { return actors.Since(t) }

// CommandID makes an [Ask] safe to repeat: its reply is kept under the id. See [actors.CommandID].
func CommandID(id string) AskOption { return actors.CommandID(id) }

// CorrelationID sets the correlation of everything that an [Ask] leads to.
func CorrelationID(id string) AskOption { return actors.CorrelationID(id) }

// Tenant sets the tenant of everything that an [Ask] leads to.
func Tenant(tenant string) AskOption { return actors.Tenant(tenant) }

// Trace sets the W3C trace context of everything that an [Ask] leads to.
func Trace(parent, state string) AskOption {
	return actors.Trace(event.Trace{Parent: parent, State: state})
}

// Asker is what [Ask] goes through: an [App], or a [Client].
type Asker = actors.Asker

// Ask has an entity decide a command, or answer a query, and gives its reply: placed, err := keyhold.Ask[*Placed](ctx, app,
// Order.ID("o-17"), &PlaceOrder{...}). Any node of the application can be asked, and any [Client]: the node that has the entity decides. See [actors.Ask] for what an error means.
// Give ctx a deadline that fits the caller. Without one, an ask of an application on several nodes looks for the entity's node for two TTL at most, and waits there for one TTL at most until the entity
// is open: then the error is ErrUnavailable, and [Retryable].
func Ask[Out any](ctx context.Context, app Asker, to Ref, command any, opts ...AskOption) (Out, error) {
	return actors.Ask[Out](ctx, app, to, command, opts...)
}
