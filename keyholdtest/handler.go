package keyholdtest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// HandlerTest is a handler under test, all its keys. Make it with [Handler].
//
// Given, GivenPoison, Resume, Retry, Replay, Kit.Advance and Kit.Restart each begin a step; what Then asserts is about the last one. A key that is
// halted, or an event that was set aside, fails the test unless it asks for that with ThenHalted, ThenParked or ThenDeadLettered.
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

// ThenParked asserts which events a key has parked, all of them and in order, the first for a reason that has this text in it; none is
// nothing. One that nobody can decode is nil here.
func (h *HandlerTest) ThenParked(key, reason string, events ...any) *HandlerTest {
	h.k.T.Helper()
	rows := h.k.Parked(h.desc.Name, key)
	h.k.expected.park(h.unit(key), len(rows) > 0)
	if len(rows) > 0 && !strings.Contains(why(rows[0].Reason, rows[0].Error), reason) {
		h.k.errorf("%s parks because of %q, want %q", h.unit(key), why(rows[0].Reason, rows[0].Error), reason)
	}
	if d := diff(plains(events), plains(h.k.parkedEvents(rows))); d != "" {
		h.k.errorf("parked by %s (-want +got):\n%s", h.unit(key), d)
	}
	return h
}

// ThenDeadLettered asserts which events were set aside as dead letters, or failed again when they were replayed, of all keys, all of them and in
// order: by a text in the reason of each. None is nothing.
func (h *HandlerTest) ThenDeadLettered(reasons ...string) *HandlerTest {
	h.k.T.Helper()
	var got []string
	for _, c := range h.k.journal.by(handled(h.desc.Name)) {
		for i := range c.Dead {
			h.k.expected.deadLetter(&c.Dead[i])
			got = append(got, why(c.Dead[i].Reason, c.Dead[i].Error))
		}
		if s := c.Settle; s != nil && s.Failed != nil && s.Kind == eventstore.AsideDead {
			got = append(got, why(s.Failed.Reason, s.Failed.Error))
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
	h.deliver(ctx, key)
	return h
}

// Retry has a key apply the events that it parked, as an operator would, and returns when it is through with them, or failed again.
func (h *HandlerTest) Retry(key string) *HandlerTest {
	h.k.T.Helper()
	h.k.begin()
	ctx, cancel := h.k.context()
	defer cancel()
	h.k.expected.park(h.unit(key), false)
	_, err := h.k.app.Admin().Act(ctx, admin.ActRequest{Kind: eventstore.ActRetry, Handler: h.desc.Name, Key: key, Actor: "keyholdtest"})
	if err != nil {
		h.k.T.Fatalf("retry %s: %v", h.unit(key), err)
	}
	h.deliver(ctx, key)
	return h
}

// Replay has the handler apply its dead letters once more, as an operator would, and returns when each of them is through, or failed
// again: those of a key in order, those of different keys in none. What it emitted may still be on its way to others then.
func (h *HandlerTest) Replay() *HandlerTest {
	h.k.T.Helper()
	h.k.begin()
	ctx, cancel := h.k.context()
	defer cancel()
	job, err := h.k.app.Admin().StartJob(ctx, admin.JobRequest{
		Kind: eventstore.JobReplay, Filter: admin.Filter{Handler: h.desc.Name}, Rate: eventstore.MaxRate, Actor: "keyholdtest",
	})
	if err == nil {
		err = h.k.store.awaitJob(ctx, job.ID)
	}
	if err != nil {
		h.k.T.Fatalf("replay of %s: %v%s", h.desc.Name, err, h.k.journal.account())
	}
	return h
}

// deliver has a key go through all its lanes, and through what it set aside and is due.
func (h *HandlerTest) deliver(ctx context.Context, key string) {
	h.k.T.Helper()
	for _, category := range h.desc.Categories {
		for _, lane := range []event.Lane{event.Primary, event.Backfill} {
			h.k.deliver(ctx, event.LaneRef{Category: category, Key: key, Lane: lane})
		}
	}
}

func (h *HandlerTest) unit(key string) event.Unit { return event.Unit{Name: h.desc.Name, Key: key} }
