package actors

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/keyhold/keyhold/event"
)

// work is what a behavior asked for, in order.
type work struct {
	events []event.Envelope
	values []any // of events
	rare   *rareWork
}

// rareWork is what most behaviors do not ask for.
type rareWork struct {
	commands []event.Envelope // sent
	mode     *string
	timers   []timerChange
}

// sent gives the commands that were sent.
func (w *work) sent() []event.Envelope {
	if w.rare == nil {
		return nil
	}
	return w.rare.commands
}

// rarely gives rare, to be added to.
func (w *work) rarely() *rareWork {
	if w.rare == nil {
		w.rare = new(rareWork)
	}
	return w.rare
}

type timerChange struct {
	name  string
	after time.Duration
	stop  bool
}

// usable reports whether the call is still going on; if not, it says so loudly: what is asked for now is lost.
func (a *attempt) usable(what string) bool {
	a.mu.Lock()
	over := a.mu.over
	a.mu.Unlock()
	if over {
		a.rt.misused(a.unit(), fmt.Errorf("%s: %w", what, ErrOver))
	}
	return !over
}

// fail makes the unit of work fail whatever its behavior returns. The first fault counts.
func (a *attempt) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.fault == nil {
		a.mu.fault = err
	}
}

func (a *attempt) emit(v any) {
	if !a.usable("emit") || a.passesOn() != nil {
		return
	}
	plain := v
	if w, ok := v.(interface{ Unwrapped() any }); ok {
		plain = w.Unwrapped()
	}
	ok, shared := true, false
	if a.state != nil {
		ok, shared = a.state.folds(structType(plain))
	}
	if !ok {
		a.fail(Poison(fmt.Errorf("emit %T: it has no case in Fold: add OnEvent(func(s, e %[1]T)), every event of an entity is folded", plain)))
		return
	}
	e, err := a.rt.cfg.Route(a, a.stream(), v)
	if err == nil && isCommand(&e) {
		err = Poison(fmt.Errorf("emit %T: it is a command of handler %q: dispatch it", plain, strings.TrimSuffix(e.Category, event.CommandsSuffix)))
	}
	if err != nil {
		a.fail(err)
		return
	}
	if a.state != nil && (shared || reflect.TypeOf(plain).Kind() == reflect.Pointer) {
		// The behavior may go on to change what it emitted: what is folded is what is stored.
		if plain, err = a.of.decode(&e); err != nil {
			a.fail(Poison(fmt.Errorf("emit: what is stored could not be read again: %w", err)))
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.over {
		return // while it was being encoded
	}
	a.stampLocked(&e)
	if a.mu.values == nil {
		a.mu.values = a.room[:0]
	}
	a.mu.events = append(a.mu.events, e)
	a.mu.values = append(a.mu.values, plain)
}

func (a *attempt) send(to Ref, command any) error {
	if !a.usable("send") {
		return ErrOver
	}
	if err := a.passesOn(); err != nil {
		return err
	}
	e, err := a.rt.commandEnvelope(to, command)
	if errors.Is(err, event.ErrTooLarge) {
		err = Poison(err)
	}
	if err == nil && a.reads {
		err = fmt.Errorf("send %T to %s: %w", command, to, ErrReadOnly)
	}
	if err != nil {
		a.fail(err)
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.over {
		return ErrOver
	}
	a.stampLocked(&e)
	rare := a.mu.rarely()
	rare.commands = append(rare.commands, e)
	return nil
}

// stampLocked sets what an envelope inherits from its cause. What follows from an entry of a stream has the same id at every
// attempt.
func (a *attempt) stampLocked(e *event.Envelope) {
	if a.meta.Sequence != 0 {
		e.ID = event.DerivedID(a.meta.ID, len(a.mu.events)+len(a.mu.sent()), a.text())
	} else {
		e.ID = a.rt.cfg.NewID()
	}
	if a.mu.correlation == "" {
		a.mu.correlation = cmp.Or(a.meta.CorrelationID, e.ID) // the first of them is the first cause that has an id
	}
	e.CorrelationID, e.CausationID = a.mu.correlation, a.meta.causes()
	e.Tenant, e.Trace = a.meta.Tenant, a.meta.Trace
	e.Time = a.rt.stamp()
}

// causes is what caused what follows; "" for the id of an entry that could not be kept with it, which may have come from a program that has no such rule.
func (m *Meta) causes() string { return fit(cmp.Or(m.ID, m.CausationID)) }

// passesOn makes the unit of work fail, for good, where what follows from it would be of a tenant that none can be. A correlation that is none is left out; for whom
// something is must not be.
func (a *attempt) passesOn() error {
	err := event.CheckID("tenant", a.meta.Tenant)
	if err != nil {
		err = Poison(fmt.Errorf("what follows from an event is of its tenant, and this one cannot be kept: have its producer write another: %w", err))
		a.fail(err)
	}
	return err
}

// fit gives an identifier, or none where it is none.
func fit(id string) string {
	if event.CheckID("", id) != nil {
		return ""
	}
	return id
}

// cause gives what an ask, or a unit of work inside this one, inherits.
func (a *attempt) cause() Meta {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.correlation == "" {
		a.mu.correlation = cmp.Or(a.meta.CorrelationID, a.rt.cfg.NewID())
	}
	return Meta{
		CausationID: a.meta.causes(), CorrelationID: a.mu.correlation, Tenant: a.meta.Tenant, Trace: a.meta.Trace,
	}
}

func (a *attempt) become(mode string) {
	if !a.usable("become") {
		return
	}
	if mode != "" && !a.of.prog.modes[mode] {
		a.fail(fmt.Errorf("become %q: there is no such mode: add it to Modes", mode))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.over {
		a.mu.rarely().mode = &mode
	}
}

func (a *attempt) startTimer(name string, after time.Duration) {
	if !a.usable("start timer") {
		return
	}
	if !a.of.prog.timers {
		a.fail(fmt.Errorf("start timer %q: OnTimer is nil: nothing would be called", name))
		return
	}
	a.changeTimer(timerChange{name: name, after: after})
}

func (a *attempt) stopTimer(name string) {
	if a.usable("stop timer") {
		a.changeTimer(timerChange{name: name, stop: true})
	}
}

func (a *attempt) changeTimer(c timerChange) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.over {
		rare := a.mu.rarely()
		rare.timers = append(rare.timers, c)
	}
}

func structType(v any) reflect.Type {
	t := reflect.TypeOf(v)
	if t != nil && t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
