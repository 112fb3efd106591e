package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	To     string  `json:"to,omitempty"`     // new name, for rename
	From   *From   `json:"from,omitempty"`   // where to begin, for reset
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
	Act      string   `json:"act"` // such as "skip shipping client-17"
	Now      *Unit    `json:"now,omitempty"`
	Words    string   `json:"words"` // what it would do: "passes order:client-17 #5 (order.placed) without applying it"
	Warnings []string `json:"warnings"`
	Expect   *Expect  `json:"expect,omitempty"`
}

// Act does it, or refuses: [*UsageError], [*NotFoundError] (also for a key that was never seen), [*MovedError] when the unit is not in the state expected, or in none in which
// that can be done, [eventstore.ErrInUse] for what cannot be done to a handler that a running program has. After
// [eventstore.ErrUnknownCommit] it may have been done: look.
func (d *Desk) Act(ctx context.Context, r ActRequest) (ActResult, error) {
	p, act, err := d.prepare(ctx, r)
	if err != nil {
		return ActResult{}, err
	}
	owner, err := d.owner(ctx)
	if err != nil {
		return ActResult{}, err
	}
	done, err := d.store.Act(ctx, act)
	if err != nil {
		return ActResult{}, d.refused(ctx, p.Act, act, err)
	}
	d.acted(done)
	return ActResult{
		Audit: auditOf(done), Assumed: r.Expect == nil && p.Expect != nil, Warnings: p.Warnings, TakenUp: d.takenUp(act.Kind, owner),
	}, nil
}

// Preview says what Act would do, and changes nothing. It refuses what Act would, as far as can be told.
func (d *Desk) Preview(ctx context.Context, r ActRequest) (Preview, error) {
	p, act, err := d.prepare(ctx, r)
	if err != nil {
		return Preview{}, err
	}
	if p.Now != nil && r.Expect != nil && needsStop(act.Kind) {
		switch now := p.Now.Expect; {
		case now == nil:
			return Preview{}, &MovedError{Act: p.Act, Why: notStopped, Now: p.Now, err: ErrNotHalted}
		case !r.Expect.is(now):
			return Preview{}, &MovedError{Act: p.Act, Why: "it is stopped at " + now.String() + " since " + now.Since.UTC().Format(time.RFC3339), Now: p.Now}
		}
	}
	return p, nil
}

const notStopped = "it is not halted, and has no parked events"

// is reports whether a unit that is stopped at now is where it was expected.
func (e *Expect) is(now *Expect) bool {
	return e.lane() == now.lane() && e.Sequence == now.Sequence && (e.Since.IsZero() || e.Since.Equal(now.Since))
}

// prepare checks a request, reads what it is about, and makes the act of it.
func (d *Desk) prepare(ctx context.Context, r ActRequest) (Preview, eventstore.Act, error) {
	if r.Actor == "" {
		r.Actor = d.opts.Actor
	}
	var none eventstore.Act
	if err := d.begin(usage(r.faults())); err != nil {
		return Preview{}, none, err
	}
	act := eventstore.Act{Kind: r.Kind, Unit: r.Unit(), To: r.To, Actor: r.Actor, Reason: r.Reason, Time: d.opts.Now().UTC()}
	if r.From != nil {
		act.Start = &eventstore.Start{Now: r.From.Now, From: r.From.Time}
	}
	p := Preview{Act: Verb(string(r.Kind)) + " " + r.Handler + " " + r.Key, Warnings: []string{}}
	if r.Key == "" {
		p.Act = Verb(string(r.Kind)) + " " + r.Handler
		h, err := d.Handler(ctx, r.Handler)
		if err == nil {
			p.Words, p.Warnings = d.forHandler(r, &h)
		}
		return p, act, err
	}
	s, err := d.unitState(ctx, r.Unit())
	if err != nil {
		return Preview{}, none, err
	}
	if err := d.known(ctx, s); err != nil {
		return Preview{}, none, err
	}
	now := unitOf(s)
	if now.Owner, err = d.owner(ctx); err != nil {
		return Preview{}, none, err
	}
	now.State = stateOf(&now)
	now.Words = d.reasons(&now)[0]
	p.Now = &now
	if needsStop(r.Kind) {
		if p.Expect = r.Expect; p.Expect == nil {
			p.Expect = now.Expect
		}
		if p.Expect == nil {
			return Preview{}, none, &MovedError{Act: p.Act, Why: notStopped, Now: &now, Hint: d.instead(r.Kind, &now), err: ErrNotHalted}
		}
		act.Seen, act.Since = p.Expect.position(), p.Expect.Since
	}
	p.Words, p.Warnings = d.forUnit(r.Kind, &now)
	return p, act, nil
}

// instead names the act that sets a unit going, where another was tried that does not.
func (d *Desk) instead(k eventstore.ActKind, u *Unit) string {
	switch {
	case k == eventstore.ActResume && u.Halt != nil:
		return "It is halted; to try its event again: " + d.cmdUnit("retry", u)
	case k == eventstore.ActResume && u.Parking != nil:
		return "It has parked events; to apply them: " + d.cmdUnit("retry", u)
	case needsStop(k) && u.Pause != nil:
		return "It is paused; to have it go on: " + d.cmdUnit("resume", u)
	case (needsStop(k) || k == eventstore.ActResume) && u.HandlerPause != nil:
		return "The whole of " + u.Handler + " is paused; to have it go on: " + d.cmdHandler("resume", u.Handler)
	}
	return ""
}

// Verb is what the command calls a kind of act or job.
func Verb(kind string) string {
	if kind == string(eventstore.ActDeadLetter) {
		return "dlq"
	}
	return kind
}

// needsStop reports whether an act is about the event at which a unit is stopped.
func needsStop(k eventstore.ActKind) bool {
	return k == eventstore.ActRetry || k == eventstore.ActSkip || k == eventstore.ActDeadLetter
}

// faults are what is wrong with a request, whatever the store holds.
func (r ActRequest) faults() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	var ofUnit, ofHandler, needsReason bool
	switch r.Kind {
	case eventstore.ActRetry:
		ofUnit = true
	case eventstore.ActSkip, eventstore.ActDeadLetter:
		ofUnit, needsReason = true, true
	case eventstore.ActPause, eventstore.ActResume:
	case eventstore.ActRename, eventstore.ActRemove, eventstore.ActReset:
		ofHandler, needsReason = true, true
	default:
		add("act %q is none: give retry, skip, dead-letter, pause, resume, rename, remove or reset", r.Kind)
	}
	if r.Handler == "" {
		add("no handler or entity kind is named: give one")
	}
	switch {
	case ofUnit && r.Key == "":
		add("%s is done to one key: give it", r.Kind)
	case ofHandler && r.Key != "":
		add("%s is done to a whole handler: leave the key out", r.Kind)
	}
	if r.Kind == eventstore.ActRename && r.To != "" {
		if err := event.CheckDeclaredName(r.To); err != nil {
			add("%v", err)
		}
		if r.To == r.Handler {
			add("%s has that name already", r.To)
		}
	}
	if needsReason && strings.TrimSpace(r.Reason) == "" {
		add("%s needs a reason: say why", r.Kind)
	}
	if r.Actor == "" {
		add("nobody is named who acts: give a name")
	}
	if (r.Kind == eventstore.ActRename) != (r.To != "") {
		add("a new name goes with rename, and with nothing else")
	}
	if (r.Kind == eventstore.ActReset) != (r.From != nil) {
		add("where to begin goes with reset, and with nothing else")
	}
	if r.From != nil && r.From.Now && !r.From.Time.IsZero() {
		add("a handler begins now or at a time: give one of them")
	}
	return all
}

// forUnit says what an act would do to a unit, and what is lost or out of order by it.
func (d *Desk) forUnit(k eventstore.ActKind, u *Unit) (words string, warnings []string) {
	warnings = []string{}
	at, typ, later, parked := Place{}, "", uint64(0), false
	switch {
	case u.Halt != nil:
		at, typ, later = u.Halt.At, u.Halt.Type, u.Lag-min(u.Lag, 1)
	case u.Parking != nil:
		at, typ, later, parked = u.Parking.First.At, u.Parking.First.Type, uint64(u.Parking.Count-1)+u.Lag, true
	}
	which := typed(at, typ)
	switch k {
	case eventstore.ActRetry:
		if fullOfParked(u) {
			return fmt.Sprintf("has it apply %s first, in order, then go on with %s", ofMany(u.Parking.Count, "event that is set aside", "events that are set aside"), which), warnings
		}
		if parked {
			return fmt.Sprintf("has it apply %s, from %s on, in order", ofMany(u.Parking.Count, "event that is set aside", "events that are set aside"), which), warnings
		}
		if otherHistory(u) {
			return "has it go on behind the event that the broker has before " + at.String(), append(warnings, "what its producer has published anew up to there is not applied")
		}
		return "has it try " + which + " again, with all its attempts", warnings
	case eventstore.ActSkip:
		words = "passes " + which + " without applying it, for good"
		warnings = append(warnings, fmt.Sprintf("%s never applies %s", u.Handler, at))
		if later > 0 {
			warnings = append(warnings, ofMany(later, "later event of this key is applied", "later events of this key are applied")+" without it")
		}
	case eventstore.ActDeadLetter:
		words = "keeps " + which + " as a dead letter and goes on without it"
		if later > 0 {
			warnings = append(warnings, ofMany(later, "later event of this key is applied", "later events of this key are applied")+" before it, if it ever is")
		}
	case eventstore.ActPause:
		words = "has it read no further until it is resumed"
		if u.HandlerPause != nil {
			warnings = append(warnings, "the whole of "+u.Handler+" is paused as well: it needs both to be resumed")
		}
	case eventstore.ActResume:
		words = "has it read on"
		if u.HandlerPause != nil {
			warnings = append(warnings, "the whole of "+u.Handler+" is still paused "+by(u.HandlerPause.Actor, u.HandlerPause.Reason))
		}
	}
	if u.Halt != nil && k == eventstore.ActResume {
		warnings = append(warnings, "it is still halted at "+typed(u.Halt.At, u.Halt.Type)+": retry, skip or dead-letter that event")
	}
	return words, warnings
}

// forHandler does the same for what is done to a whole handler.
func (d *Desk) forHandler(r ActRequest, h *Handler) (words string, warnings []string) {
	warnings = []string{}
	switch r.Kind {
	case eventstore.ActPause:
		return "has all keys of " + h.Name + " read no further until it is resumed", warnings
	case eventstore.ActResume:
		words = "has all keys of " + h.Name + " read on"
		if h.Paused > 0 {
			warnings = append(warnings, counted(h.Paused, "key stays paused by itself", "keys stay paused by themselves"))
		}
	case eventstore.ActRename:
		words = fmt.Sprintf("gives everything kept under %s, its place in all lanes included, to %s", h.Name, r.To)
		warnings = append(warnings, "the program must have the handler under the new name before it starts: else it is new to it, or missing")
	case eventstore.ActRemove:
		words = "forgets " + h.Name + ", its place in all lanes and what it set aside"
		if eventstore.HandlerKind(h.Kind).KeepsPlaces() {
			words = "forgets " + h.Name + " and what it set aside; its place among its commands is kept, so that none is decided twice"
		} else {
			warnings = append(warnings, "a program that still has it begins it anew, where its StartFrom says: it may apply everything again")
		}
		if h.Dead > 0 {
			warnings = append(warnings, counted(h.Dead, "dead letter is", "dead letters are")+" forgotten")
		}
		if h.Parking > 0 {
			warnings = append(warnings, "parked events of "+counted(h.Parking, "key", "keys")+" are forgotten")
		}
		if h.Lag > 0 {
			warnings = append(warnings, ofMany(h.Lag, "event is", "events are")+" never applied by it")
		}
	case eventstore.ActReset:
		words = "has " + h.Name + " begin again " + r.From.String()
		if r.From.Now {
			warnings = append(warnings, "what it has not applied by now it never applies: "+ofMany(h.Lag, "event", "events"))
		} else {
			warnings = append(warnings, "it applies again what it has applied already: what it does outside the store, it does twice")
		}
		if n := h.Halted + h.Parking; n > 0 {
			warnings = append(warnings, "halts and parked events of "+counted(n, "key", "keys")+" are forgotten")
		}
	}
	return words, warnings
}

// String is such as "with the first event kept".
func (f From) String() string {
	switch {
	case f.Now:
		return "with what comes from now on"
	case f.Time.IsZero():
		return "with the first event kept"
	}
	return "with the first event at or after " + f.Time.UTC().Format(time.RFC3339)
}

// takenUp says when an act has an effect.
func (d *Desk) takenUp(k eventstore.ActKind, owner *Owner) string {
	switch {
	case k == eventstore.ActRename || k == eventstore.ActRemove || k == eventstore.ActReset:
		return "when a program starts"
	case d.opts.Live != nil:
		return "at once"
	case owner == nil:
		return "when a program starts"
	}
	return "within half a second, by " + owner.String()
}

// refused makes an error of the store into one that a face can map.
func (d *Desk) refused(ctx context.Context, what string, act eventstore.Act, err error) error {
	moved, isMoved := errors.AsType[*eventstore.StateMovedError](err)
	switch {
	case isMoved:
		if act.Kind == eventstore.ActRetry {
			d.acted(eventstore.ActRecord{Kind: act.Kind, Unit: act.Unit}) // the one who did it may not have got to tell the unit
		}
		if act.Unit.Key == "" {
			h, _ := d.Handler(ctx, act.Unit.Name) // for words alone
			return &MovedError{Act: what, Why: moved.Why, Handler: &h, err: err}
		}
		now := unitOf(moved.Now)
		now.Owner, _ = d.owner(ctx) // for words alone
		now.State = stateOf(&now)
		now.Words = d.reasons(&now)[0]
		return &MovedError{Act: what, Why: moved.Why, Now: &now, Hint: d.instead(act.Kind, &now), err: err}
	case errors.Is(err, eventstore.ErrNotFound):
		if named := d.checkNames(ctx, act.Unit.Name, ""); named != nil {
			return named
		}
		return &NotFoundError{What: "key of " + act.Unit.Name, Name: act.Unit.Key}
	case errors.Is(err, eventstore.ErrInUse):
		owner, _ := d.owner(ctx) // for words alone
		return &inUseError{"handler", act.Unit.Name, owner}
	case errors.Is(err, eventstore.ErrUnknownCommit):
		d.acted(eventstore.ActRecord{Kind: act.Kind, Unit: act.Unit})
		return fmt.Errorf("%s: it may have been done, look whether it was: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
