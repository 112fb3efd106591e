package actors

import (
	"context"
	"fmt"
	"reflect"

	"github.com/keyhold/keyhold/event"
)

// Asker is what [Ask] goes through: a [*Runtime], or an application built on one.
type Asker interface {
	// Ask is the untyped form of the function [Ask].
	Ask(ctx context.Context, to Ref, command any, opts ...AskOption) (any, error)
}

// Ask has an entity decide a command, or answer a query, and gives its reply. The entity comes to life if it has to.
// command is a pointer to a struct or a protobuf message, must not be changed until Ask has returned, nor after an error;
// the reply is the caller's unless the behavior kept it.
//
// An error is the behavior's own ([*RejectError], for instance) as it returned it, or an [*AskError]. ctx bounds the wait: a
// command that has not begun when ctx ends is never begun; one that has, goes on.
func Ask[Out any](ctx context.Context, app Asker, to Ref, command any, opts ...AskOption) (Out, error) {
	var none Out
	reply, err := app.Ask(ctx, to, command, opts...)
	if err != nil || reply == nil {
		return none, err
	}
	out, ok := reply.(Out)
	if !ok {
		return none, fmt.Errorf("ask %s: the reply is a %T, not a %s: correct the type argument of Ask", to, reply, reflect.TypeFor[Out]())
	}
	return out, nil
}

// AskOption changes one ask.
type AskOption func(*askOptions)

type askOptions struct {
	id            string
	correlationID string
	causationID   string
	tenant        string
	trace         event.Trace
}

// CommandID makes a command safe to ask again: its reply, or its rejection, is kept under the id in the same commit, and a command with an id
// that the entity has seen gets that again without being decided. Ids are remembered per entity, as long as the store's Retention.
func CommandID(id string) AskOption { return func(o *askOptions) { o.id = id } }

// CorrelationID sets the correlation of everything the command leads to. By default it is that of the behavior that
// asks, else the command's id.
func CorrelationID(id string) AskOption { return func(o *askOptions) { o.correlationID = id } }

// Tenant sets the tenant of everything the command leads to. By default it is that of the behavior that asks.
func Tenant(tenant string) AskOption { return func(o *askOptions) { o.tenant = tenant } }

// Trace sets the trace context of everything the command leads to. By default it is that of the behavior that asks.
func Trace(t event.Trace) AskOption { return func(o *askOptions) { o.trace = t } }
