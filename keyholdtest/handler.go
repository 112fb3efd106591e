package keyholdtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
)

// HandlerTest is a handler under test, all its keys. Make it with [Handler].
//
// Given, GivenPoison, Resume, Kit.Advance and Kit.Restart each begin a step; what Then asserts is about the last one. A key that is
// halted, or an event that was set aside, fails the test unless it asks for that with ThenHalted or ThenDeadLettered.
type HandlerTest struct {
	k    *Kit
	desc actors.Description
}

// Handler puts a handler under test: in an application of its own, or, when t is a [Kit], in that one. A category to which it subscribes
// need not be declared, if it is the only one that is not: the events that the handler handles are in it.
func Handler[B any](t T, def keyhold.Handler[B], opts ...Option) *HandlerTest {
	t.Helper()
	k := New(t, opts...)
	if !k.declared.has(def.Name) {
		k.configurable()
		k.declared.test(def)
	}
	return &HandlerTest{k: k, desc: def.Describe()}
}

// Given commits events, one after the other. Each is delivered, and what follows from it done, before the next is committed. Where
// their category has no key, wrap them in keyhold.For. An event of an old version is given as what upcasters make of it.
func (h *HandlerTest) Given(events ...any) *HandlerTest {
	h.k.T.Helper()
	h.k.begin()
	for _, e := range events {
		h.k.publish(h.k.newest(e))
	}
	return h
}

// GivenPoison commits an event of the type and key of this one, of bytes that nobody can decode.
func (h *HandlerTest) GivenPoison(like any) *HandlerTest {
	h.k.T.Helper()
	h.k.begin()
	h.k.store.spoil.Store(true)
	h.k.publish(like)
	return h
}

// ThenEmitted asserts which events the handler emitted, of all keys, all of them and in the order of their commits; none is nothing.
func (h *HandlerTest) ThenEmitted(events ...any) *HandlerTest {
	h.k.T.Helper()
	if d := diff(plains(events), plains(h.k.emitted(handled(h.desc.Name)))); d != "" {
		h.k.errorf("events of %s (-want +got):\n%s", h.desc.Name, d)
	}
	return h
}

// ThenSent asserts which commands the handler sent to one entity, all of them and in this order; none is nothing. The kind of the entity
// must be part of the application, see [With].
func (h *HandlerTest) ThenSent(to keyhold.Ref, commands ...any) *HandlerTest {
	h.k.T.Helper()
	h.k.thenSent(h.desc.Name, handled(h.desc.Name), to, commands)
	return h
}

// ThenAttempts asserts how many attempts the handler made at the events of this step: one for each event that went well at once. An
// attempt whose commit failed counts.
func (h *HandlerTest) ThenAttempts(n int) *HandlerTest {
	h.k.T.Helper()
	if got := h.k.journal.attempts(h.desc.Name); got != n {
		h.k.errorf("%s made %d attempts, want %d", h.desc.Name, got, n)
	}
	return h
}

// ThenHalted asserts that a key is halted, for a reason that has this text in it: "retries exhausted", "poison", "rejected",
// "undecodable", or a part of the error.
func (h *HandlerTest) ThenHalted(key, reason string) *HandlerTest {
	h.k.T.Helper()
	h.k.thenHalted(h.unit(key), reason)
	return h
}

// ThenNotHalted asserts that no key is halted.
func (h *HandlerTest) ThenNotHalted() *HandlerTest {
	h.k.T.Helper()
	h.k.start()
	halts, err := h.k.app.Halts(h.k.T.Context(), h.desc.Name, event.Unit{}, most)
	if err != nil {
		h.k.T.Fatalf("halts of %s: %v", h.desc.Name, err)
	}
	for _, halt := range halts {
		h.k.errorf("%s is halted: %s", halt.Unit, why(halt.Reason, halt.Error))
	}
	return h
}

// ThenDeadLettered asserts which events were set aside, of all keys, all of them and in order: by a text in the reason of each. None is
// nothing.
func (h *HandlerTest) ThenDeadLettered(reasons ...string) *HandlerTest {
	h.k.T.Helper()
	var got []string
	for _, c := range h.k.journal.by(handled(h.desc.Name)) {
		for i := range c.Dead {
			h.k.expected.deadLetter(&c.Dead[i])
			got = append(got, why(c.Dead[i].Reason, c.Dead[i].Error))
		}
	}
	if !slices.EqualFunc(got, reasons, strings.Contains) {
		h.k.errorf("%s set %d events aside because of %q, want %q", h.desc.Name, len(got), got, reasons)
	}
	return h
}

// ThenError asserts that a timer of the handler gave an error that is target, in the sense of errors.Is.
func (h *HandlerTest) ThenError(target error) *HandlerTest {
	h.k.T.Helper()
	h.k.thenError(h.desc.Name, handled(h.desc.Name), is(target), fmt.Sprintf("one that is %q", target))
	return h
}

// ThenRows is [Kit.ThenRows].
func (h *HandlerTest) ThenRows(query string, rows ...[]any) *HandlerTest {
	h.k.T.Helper()
	h.k.ThenRows(query, rows...)
	return h
}

// FailCommit has the next commits of the handler fail, of whatever key. With [Before] and [Unknown] the event is delivered again, to a
// new instance; with [After] it was done, and must not be done again.
func (h *HandlerTest) FailCommit(fault CommitFault, times int) *HandlerTest {
	h.k.T.Helper()
	h.k.failCommit(h.desc.Name, handled(h.desc.Name), fault, times)
	return h
}

// Resume lifts the halt of a key, as an operator would, and returns when the key is through with everything that waited, or halted again.
func (h *HandlerTest) Resume(key string) *HandlerTest {
	h.k.T.Helper()
	h.k.begin()
	ctx, cancel := h.k.context()
	defer cancel()
	if _, err := admin.Resume(ctx, h.k.app, h.unit(key)); err != nil {
		h.k.T.Fatalf("%v", err)
	}
	h.k.expected.halt(h.unit(key), false)
	for _, category := range h.desc.Categories {
		for _, lane := range []event.Lane{event.Primary, event.Backfill} {
			h.k.deliver(ctx, event.LaneRef{Category: category, Key: key, Lane: lane})
		}
	}
	return h
}

func (h *HandlerTest) unit(key string) event.Unit { return event.Unit{Name: h.desc.Name, Key: key} }
