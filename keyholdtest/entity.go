package keyholdtest

import (
	"fmt"
	"reflect"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/event"
)

// EntityTest is one entity under test. Make it with [Entity].
//
// Given, When, Kit.Advance and Kit.Restart each begin a step; what Then asserts is about the last one. An error that a test does not ask for, with
// ThenRejected or ThenError, fails it.
//
// After each step its values are checked: events and state come back from what was stored as they were in memory, folds depend on their
// arguments alone, and no command, query or fold has changed a state that it was given.
type EntityTest[S any] struct {
	k   *Kit
	id  string
	def keyhold.Entity[S]
	*replay[S]
}

// Entity puts one entity under test: in an application of its own, or, when t is a [Kit], in that one.
func Entity[S any](t T, def keyhold.Entity[S], id string, opts ...Option) *EntityTest[S] {
	t.Helper()
	k := New(t, opts...)
	if !k.declared.has(def.Kind) {
		k.configurable()
		k.declared.test(observed(def))
	}
	return &EntityTest[S]{k: k, id: id, def: def, replay: newReplay(def, id)}
}

// Given has the entity emit events, in one commit: what has happened before. Each must be one that the entity folds, with a legal key, or an old
// version of one, which is given as what upcasters make of it.
func (e *EntityTest[S]) Given(events ...any) *EntityTest[S] {
	e.k.T.Helper()
	e.k.begin()
	given := make([]any, len(events))
	for i := range events {
		given[i] = e.k.newest(events[i])
	}
	ctx, cancel := e.k.context()
	defer cancel()
	if _, err := e.k.app.Ask(ctx, e.def.ID(e.id), &history{events: given}); err != nil {
		e.k.T.Fatalf("given to %s: %v%s", e.unit(), err, e.k.journal.account())
	}
	e.check(done[S]{what: "Given"})
	return e
}

// When asks the entity to decide a command, or to answer a query; command is a pointer, as in keyhold.Ask.
func (e *EntityTest[S]) When(command any, opts ...keyhold.AskOption) *EntityTest[S] {
	e.k.T.Helper()
	e.k.begin()
	what := fmt.Sprintf("%T", command)
	if reflect.ValueOf(command).Kind() != reflect.Pointer {
		e.k.T.Fatalf("when %s: commands and queries are pointers: give it a *%[1]s", what)
	}
	before, _ := e.look() // what is wrong with it the command will say
	ctx, cancel := e.k.context()
	defer cancel()
	reply, err := e.k.app.Ask(ctx, e.def.ID(e.id), command, opts...)
	if err != nil {
		e.k.journal.fail(e.unit(), what, err)
	} else {
		e.k.answer = &answer{of: e.unit(), what: what, reply: reply}
	}
	e.check(done[S]{what, before, err})
	return e
}

// answer is what a command or query was answered.
type answer struct {
	of    event.Unit
	what  string
	reply any
}

// ThenEvents asserts which events the entity emitted, all of them and in this order; none is nothing.
func (e *EntityTest[S]) ThenEvents(events ...any) *EntityTest[S] {
	e.k.T.Helper()
	if d := diff(plains(events), plains(e.k.emitted(only(e.unit())))); d != "" {
		e.k.errorf("events of %s (-want +got):\n%s", e.unit(), d)
	}
	return e
}

// ThenReply asserts the answer of the last When.
func (e *EntityTest[S]) ThenReply(want any) *EntityTest[S] {
	e.k.T.Helper()
	switch got := e.k.answer; {
	case got == nil || got.of != e.unit():
		e.k.errorf("%s gave no reply, want %+v", e.unit(), want)
	default:
		if d := diff(plain(want), plain(got.reply)); d != "" {
			e.k.errorf("reply of %s to %s (-want +got):\n%s", e.unit(), got.what, d)
		}
	}
	return e
}

// ThenRejected asserts that the business said no, for a reason that has this text in it.
func (e *EntityTest[S]) ThenRejected(reason string) *EntityTest[S] {
	e.k.T.Helper()
	e.k.thenError(e.unit().String(), only(e.unit()), rejected(reason), fmt.Sprintf("a rejection with %q", reason))
	return e
}

// ThenError asserts that the last When, or a timer, gave an error that is target, in the sense of errors.Is.
func (e *EntityTest[S]) ThenError(target error) *EntityTest[S] {
	e.k.T.Helper()
	e.k.thenError(e.unit().String(), only(e.unit()), is(target), fmt.Sprintf("one that is %q", target))
	return e
}

// ThenState asserts the state of the entity.
func (e *EntityTest[S]) ThenState(want S) *EntityTest[S] {
	e.k.T.Helper()
	if d := diffState(want, e.State()); d != "" {
		e.k.errorf("state of %s (-want +got):\n%s", e.unit(), d)
	}
	return e
}

// State gives the state of the entity, as its next command would see it. It must not be changed.
func (e *EntityTest[S]) State() S {
	e.k.T.Helper()
	e.k.start()
	seen, err := e.look()
	if err != nil {
		e.k.T.Fatalf("state of %s: %v%s", e.unit(), err, e.k.journal.account())
	}
	return seen.state
}

// ThenSent asserts which commands the entity sent to one other, all of them and in this order; none is nothing.
func (e *EntityTest[S]) ThenSent(to keyhold.Ref, commands ...any) *EntityTest[S] {
	e.k.T.Helper()
	e.k.thenSent(e.unit().String(), only(e.unit()), to, commands)
	return e
}

// ThenHalted asserts that the entity's stream of commands is halted, for a reason that has this text in it.
func (e *EntityTest[S]) ThenHalted(reason string) *EntityTest[S] {
	e.k.T.Helper()
	e.k.thenHalted(e.unit(), reason)
	return e
}

// FailCommit has the next commits of the entity fail.
func (e *EntityTest[S]) FailCommit(fault CommitFault, times int) *EntityTest[S] {
	e.k.T.Helper()
	e.k.failCommit(e.unit().String(), only(e.unit()), fault, times)
	return e
}

func (e *EntityTest[S]) unit() event.Unit { return event.Unit{Name: e.def.Kind, Key: e.id} }

func (k *Kit) thenSent(who string, match func(event.Unit) bool, to keyhold.Ref, commands []any) {
	k.T.Helper()
	if d := diff(plains(commands), plains(k.sent(match, to))); d != "" {
		k.errorf("commands of %s to %s (-want +got):\n%s", who, to, d)
	}
}
