package actors

import (
	"context"
	"fmt"
	"strings"

	"github.com/keyhold/keyhold/event"
)

// Dispatch adds commands for command handlers, in this order. Each is a struct, or a pointer to a protobuf message, of a type that a [CommandHandler] handles, which
// is found by it, and its key must be legal. They are durable with the rest of the unit of work and are handled later, each once, in the order of dispatch per key.
func (u UnitOfWork) Dispatch(commands ...any) {
	for _, c := range commands {
		_ = u.a.dispatch(c)
	}
}

// Dispatch has command handlers handle commands later, durably. On the context of a behavior of this runtime, or of its [Runtime.Do], it is part of that unit of
// work; else it is committed when Dispatch returns. A query has nothing to commit: it gets [ErrReadOnly].
func (r *Runtime) Dispatch(ctx context.Context, commands ...any) error {
	if a := attemptOf(ctx); a != nil && a.rt == r {
		return a.dispatchAll(commands)
	}
	return r.Do(ctx, func(u UnitOfWork) error { return u.a.dispatchAll(commands) })
}

func (a *attempt) dispatchAll(commands []any) error {
	for _, c := range commands {
		if err := a.dispatch(c); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) dispatch(v any) error {
	if !a.usable("dispatch") {
		return ErrOver
	}
	e, err := a.rt.cfg.Route(a, event.Stream{}, v)
	switch {
	case err != nil:
	case !isCommand(&e):
		err = Poison(fmt.Errorf("dispatch %T: it is an event of category %q: emit it", v, e.Category))
	case a.reads:
		err = fmt.Errorf("dispatch %T: %w", v, ErrReadOnly)
	}
	if err != nil {
		a.fail(err)
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.over {
		return ErrOver // while it was being encoded
	}
	a.stampLocked(&e)
	rare := a.mu.rarely()
	rare.commands = append(rare.commands, e)
	return nil
}

// isCommand reports whether an envelope goes to a command handler or an entity.
func isCommand(e *event.Envelope) bool { return strings.HasSuffix(e.Category, event.CommandsSuffix) }
