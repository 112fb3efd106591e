package admin

import (
	"context"
	"time"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
)

// ActRequest is what a person wants done to a unit, or to a whole handler.
type ActRequest struct {
	// Kind is retry, skip, dead-letter (of a unit that is stopped at an event), pause, resume (of a unit, or of a handler), rename,
	// remove or reset (of a handler).
	Kind    eventstore.ActKind `json:"kind"`
	Handler string             `json:"handler"`
	Key     string             `json:"key,omitempty"` // "" = the whole handler
	// Expect is what the person saw ([Unit.Expect]); nil = act on what the desk reads now.
	Expect *Expect `json:"expect,omitempty"`
	To     string  `json:"to,omitempty"` // new name, for rename
	From   *From   `json:"from,omitempty"`
	Actor  string  `json:"actor,omitempty"`  // "" = [Options.Actor]
	Reason string  `json:"reason,omitempty"` // required for skip, dead-letter, rename, remove and reset
}

// From is where a handler begins again after a reset: with what comes from now on, or with the first event at or after a time; its
// zero value is the first event kept.
type From struct {
	Now  bool      `json:"now,omitempty"`
	Time time.Time `json:"time,omitzero"`
}

// Unit is what the request is about.
func (r ActRequest) Unit() event.Unit { return event.Unit{Name: r.Handler, Key: r.Key} }

// ActResult is what was done.
type ActResult struct {
	Audit
	// Assumed: the request named no state, and the desk acted on the one that it read just before.
	Assumed bool `json:"assumed,omitempty"`
	// Warnings say in words what is lost or out of order by it: "3 later events of this key were applied already".
	Warnings []string `json:"warnings"`
	// TakenUp says when it has an effect: "at once", "within half a second, by process 4711 (orders@host)", "when a program starts".
	TakenUp string `json:"taken_up"`
}

// Preview is what an act would do.
type Preview struct {
	Act      string   `json:"act"` // such as "skip shipping/client-17"
	Now      *Unit    `json:"now,omitempty"`
	Words    string   `json:"words"` // what it would do: "passes order:client-17 #5 (order.placed) without applying it"
	Warnings []string `json:"warnings"`
	Expect   *Expect  `json:"expect,omitempty"`
}

// Act does it, or refuses: [*UsageError], [*NotFoundError], [*MovedError] when the unit is not in the state expected, or in none in which
// that can be done, [eventstore.ErrInUse] for what cannot be done to a handler that a running program has. After
// [eventstore.ErrUnknownCommit] it may have been done: look.
func (d *Desk) Act(ctx context.Context, r ActRequest) (ActResult, error) {
	return ActResult{}, errUnbuilt
}

// Preview says what Act would do, and changes nothing. It refuses what Act would, as far as can be told.
func (d *Desk) Preview(ctx context.Context, r ActRequest) (Preview, error) {
	return Preview{}, errUnbuilt
}
