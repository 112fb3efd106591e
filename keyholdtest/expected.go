package keyholdtest

import (
	"context"
	"errors"
	"strings"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// expected is what the test said it wants of what nobody wants: units that are halted, events set aside.
type expected struct {
	halted  map[event.Unit]bool
	parking map[event.Unit]bool
	dead    map[letter]bool
}

// letter names a dead letter.
type letter struct {
	unit event.Unit
	lane event.LaneRef
	seq  event.Sequence
}

func letterOf(d *eventstore.Dead) letter { return letter{d.Unit, d.Lane, d.Sequence} }

func (e *expected) halt(u event.Unit, yes bool) {
	if e.halted == nil {
		e.halted = map[event.Unit]bool{}
	}
	e.halted[u] = yes
}

func (e *expected) park(u event.Unit, yes bool) {
	if e.parking == nil {
		e.parking = map[event.Unit]bool{}
	}
	e.parking[u] = yes
}

func (e *expected) deadLetter(d *eventstore.Dead) {
	if e.dead == nil {
		e.dead = map[letter]bool{}
	}
	e.dead[letterOf(d)] = true
}

// surprises fails the test for the errors of this step that it did not ask for.
func (k *Kit) surprises() {
	k.T.Helper()
	for _, f := range k.journal.take(func(event.Unit) bool { return true }) {
		k.errorf("%s, %s: an error that the test did not expect: %v", f.unit, f.what, f.err)
	}
}

// most is how many halts and dead letters are looked at.
const most = 1000

// stuck fails the test for units that are halted, and events set aside, that it did not expect.
func (k *Kit) stuck() {
	k.T.Helper()
	ctx := context.WithoutCancel(k.T.Context())
	halts, err := k.store.ListHalts(ctx, "", event.Unit{}, most)
	if err != nil {
		k.T.Errorf("look for halts: %v", err)
	}
	for _, h := range halts {
		if !k.expected.halted[h.Unit] {
			k.T.Errorf("%s is halted at %s #%d, %s, and the test did not expect it: %s%s", h.Unit, h.Lane, h.Sequence, h.EventType, why(h.Reason, h.Error), hint(h.Error))
		}
	}
	parking, err := k.store.ListParking(ctx, "", event.Unit{}, most)
	if err != nil {
		k.T.Errorf("look for parked events: %v", err)
	}
	for _, p := range parking {
		if f := &p.First; !k.expected.parking[p.Unit] {
			k.T.Errorf("%s has parked %d events, from %s #%d on, %s, and the test did not expect it: %s%s",
				p.Unit, p.Count, f.Lane, f.Sequence, f.Type, why(f.Reason, f.Error), hint(f.Error))
		}
	}
	for _, name := range k.declared.handlers() {
		dead, err := k.store.ListDead(ctx, name, event.Position{}, most)
		if err != nil {
			k.T.Errorf("look for dead letters: %v", err)
		}
		for _, d := range dead {
			if !k.expected.dead[letterOf(&d)] {
				k.T.Errorf("%s set %s #%d aside, %s, and the test did not expect it: %s%s", d.Unit, d.Lane, d.Sequence, d.Type, why(d.Reason, d.Error), hint(d.Error))
			}
		}
	}
}

func why(reason, err string) string {
	if err == "" {
		return reason
	}
	return reason + ": " + err
}

// hint helps with what everybody meets first.
func hint(err string) string {
	if strings.Contains(err, actors.ErrUnknownEntity.Error()) {
		return "\nmake the entity a part of the application: keyholdtest.With(YourEntity)"
	}
	return ""
}

// thenHalted asserts that a unit is halted for a reason.
func (k *Kit) thenHalted(u event.Unit, reason string) {
	k.T.Helper()
	h := k.halt(u)
	if h == nil {
		k.errorf("%s is not halted, want a halt because of %q", u, reason)
		return
	}
	k.expected.halt(u, true)
	if got := why(h.Reason, h.Error); !strings.Contains(got, reason) {
		k.errorf("%s is halted because of %q, want %q", u, got, reason)
	}
}

func (k *Kit) halt(u event.Unit) *eventstore.Halt {
	k.T.Helper()
	k.start()
	h, err := k.app.Halt(k.T.Context(), u)
	if err != nil {
		k.T.Fatalf("halt of %s: %v", u, err)
	}
	return h
}

// thenError asserts that the last thing in this step at which some units failed gave an acceptable error. The failures of these units are no
// surprises then.
func (k *Kit) thenError(who string, match func(event.Unit) bool, accept func(error) bool, want string) {
	k.T.Helper()
	failures := k.journal.take(match)
	if len(failures) == 0 {
		k.errorf("%s: no error, want %s", who, want)
		return
	}
	if last := failures[len(failures)-1]; !accept(last.err) {
		k.errorf("%s, %s: error %q, want %s", last.unit, last.what, last.err, want)
	}
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func rejected(reason string) func(error) bool {
	return func(err error) bool {
		return errors.Is(err, actors.ErrRejected) && strings.Contains(err.Error(), reason)
	}
}
