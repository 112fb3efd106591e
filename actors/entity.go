package actors

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// Entity declares a kind of event-sourced entities: one actor per id, which decides commands one at a time on a state that
// is folded from its own events and kept in memory between commands.
//
// S is the state, best a struct without pointers, slices or maps. A case gets a copy of it. Where S reaches shared memory
// (it is a pointer, or holds one, a slice or a map) a case could change the live state without an event; then the state is
// folded anew from the store after every command that was rejected or failed. Do not change it in a case all the same.
type Entity[S any] struct {
	Kind    string            // unique among entity kinds and handlers; also the category of its events
	Version int               // of S, from 1: a snapshot of another version is not used, the events are folded instead
	New     func(id string) S // state before the first event; nil = the zero S

	Commands Commands[S]
	Queries  Queries[S]
	Fold     Fold[S]                // every event that a command emits must be here
	Modes    map[string]Commands[S] // after Command.Become(name), these take the place of the cases in Commands for the same types

	SnapshotEvery int           // events between two snapshots; default 100, negative = none
	Mailbox       int           // asks that wait at most, more are refused with ErrMailboxFull; default Config.MailboxSize
	Timeout       time.Duration // of one attempt, after which its context is cancelled; default 30 s, negative = none
	Retry         RetryPolicy   // of commands that come by stream; an ask that fails is not tried again

	OnTimer func(c Command, s S, name string) error

	// OnActivate runs when the entity comes to life, after its state was read.
	OnActivate func(ctx context.Context, id string, s S) error
	// OnPassivate runs when the entity is put away: it is quiet, or the runtime stops. After a failed attempt the state is dropped
	// without it.
	OnPassivate func(ctx context.Context, id string, s S)
}

// Commands is a list of cases, made with [OnCommand].
type Commands[S any] []CommandCase[S]

// Queries is a list of cases, made with [OnQuery].
type Queries[S any] []QueryCase[S]

// Fold is a list of cases, made with [OnEvent].
type Fold[S any] []FoldCase[S]

// CommandCase decides one type of commands. Make it with [OnCommand].
type CommandCase[S any] struct {
	in, out reflect.Type
	err     error
	run     func(c Command, s S, in any) (any, error)
}

// QueryCase answers one type of queries. Make it with [OnQuery].
type QueryCase[S any] struct {
	in, out reflect.Type
	err     error
	run     func(q Query, s S, in any) (any, error)
}

// FoldCase applies one type of events to the state. Make it with [OnEvent].
type FoldCase[S any] struct {
	in   reflect.Type
	err  error
	fold func(s S, e any) S
}

// OnCommand is the case for commands of type *In, answered with *Out. Both are structs or protobuf messages. What it emits is
// applied to the state after the commit; an error, such as [Reject], undoes everything.
func OnCommand[S, In, Out any](run func(c Command, s S, in *In) (*Out, error)) CommandCase[S] {
	cc := CommandCase[S]{in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), err: inOut[In, Out](run == nil)}
	cc.run = func(c Command, s S, in any) (any, error) {
		out, err := run(c, s, in.(*In))
		if err != nil || out == nil {
			return nil, err
		}
		return out, nil
	}
	return cc
}

// OnQuery is the case for queries of type *In, answered with *Out. It reads the state and writes nothing.
func OnQuery[S, In, Out any](run func(q Query, s S, in *In) (*Out, error)) QueryCase[S] {
	qc := QueryCase[S]{in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), err: inOut[In, Out](run == nil)}
	qc.run = func(q Query, s S, in any) (any, error) {
		out, err := run(q, s, in.(*In))
		if err != nil || out == nil {
			return nil, err
		}
		return out, nil
	}
	return qc
}

// OnEvent is the case for events of type E, a struct or a pointer to a protobuf message. It gives the state after the event,
// must depend on nothing but its arguments, and must not fail: what it is given has happened.
func OnEvent[S, E any](fold func(s S, e E) S) FoldCase[S] {
	in, err := eventOf(reflect.TypeFor[E]())
	if fold == nil {
		err = errNoFunc
	}
	return FoldCase[S]{in: in, err: err, fold: func(s S, e any) S { return fold(s, valueOf[E](e)) }}
}

func inOut[In, Out any](noFunc bool) error {
	if noFunc {
		return errNoFunc
	}
	if _, err := structOf(reflect.TypeFor[In]()); err != nil {
		return fmt.Errorf("what is asked: %w", err)
	}
	if _, err := structOf(reflect.TypeFor[Out]()); err != nil {
		return fmt.Errorf("what is answered: %w", err)
	}
	return nil
}

// Ref names one entity.
type Ref struct {
	Kind string
	ID   string
}

func (r Ref) String() string { return r.Kind + "/" + r.ID }

func (r Ref) unit() event.Unit { return event.Unit{Name: r.Kind, Key: r.ID} }

// ID names the entity with this id. It does no I/O; the entity need not exist.
func (e Entity[S]) ID(id string) Ref { return Ref{Kind: e.Kind, ID: id} }

// CommandCategory is the category in which the commands sent to entities of a kind travel.
func CommandCategory(kind string) string { return event.CommandsOf(kind) }

// Describe implements [Definition].
func (e Entity[S]) Describe() Description {
	d := Description{
		Name: e.Kind, Kind: eventstore.EntityKind, Categories: []string{CommandCategory(e.Kind)}, StartFrom: Oldest,
		OnPoison: Halt, Retry: e.Retry.withDefaults(), Timeout: timeoutOrDefault(e.Timeout), StateVersion: e.Version,
	}
	for _, c := range e.Commands {
		if c.fault().err == nil {
			d.Types = append(d.Types, TypeUse{c.in, UseCommand}, TypeUse{c.out, UseReply})
		}
	}
	for _, q := range e.Queries {
		if q.fault().err == nil {
			d.Types = append(d.Types, TypeUse{q.in, UseQuery}, TypeUse{q.out, UseReply})
		}
	}
	for _, f := range e.Fold {
		if f.fault().err == nil {
			d.Types = append(d.Types, TypeUse{f.in, UseEvent})
		}
	}
	return d
}

// Faults implements [Definition].
func (e Entity[S]) Faults() []error {
	f := &faults{of: fmt.Sprintf("entity %q", e.Kind)}
	f.name("Kind", e.Kind)
	if len(e.Commands) == 0 {
		f.addf("Commands is empty: add a case, such as OnCommand(func(c Command, s %s, in *YourCommand) (*YourReply, error))", reflect.TypeFor[S]())
	}
	if len(e.Fold) == 0 {
		f.addf("Fold is empty: add a case for each event it emits, such as OnEvent(func(s %[1]s, e YourEvent) %[1]s)", reflect.TypeFor[S]())
	}
	if e.Version < 0 || e.Version == 0 && e.SnapshotEvery >= 0 {
		f.addf("Version is %d: set it to 1 and raise it whenever %s changes, or set SnapshotEvery to -1", e.Version, reflect.TypeFor[S]())
	}
	if e.snapshotEvery() > 0 {
		f.snapshot(reflect.TypeFor[S]())
	}
	if e.Mailbox < 0 {
		f.addf("Mailbox is %d: set 1 or more, 0 for the default", e.Mailbox)
	}
	f.common(Oldest, 0, e.Retry)
	known := f.cases("Commands", faultsOf(e.Commands))
	for name, mode := range sorted(e.Modes) {
		f.mode(name, known, f.cases(fmt.Sprintf("Modes[%q]", name), faultsOf(mode)), "Commands")
	}
	for _, t := range f.cases("Queries", faultsOf(e.Queries)) {
		for _, c := range known {
			if c == t {
				f.addf("Queries: %s is in Commands too: a type is either a command or a query", t)
			}
		}
	}
	f.cases("Fold", faultsOf(e.Fold))
	return f.list
}

func (c CommandCase[S]) fault() caseFault {
	if c.run == nil && c.err == nil {
		return caseFault{err: errNoFunc}
	}
	return caseFault{c.in, c.err}
}

func (c QueryCase[S]) fault() caseFault {
	if c.run == nil && c.err == nil {
		return caseFault{err: errNoFunc}
	}
	return caseFault{c.in, c.err}
}

func (c FoldCase[S]) fault() caseFault {
	if c.fold == nil && c.err == nil {
		return caseFault{err: errNoFunc}
	}
	return caseFault{c.in, c.err}
}
