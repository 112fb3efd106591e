package actors

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// Elsewhere reaches the entities that other nodes have. All methods may be called concurrently.
type Elsewhere interface {
	// Here reports whether an entity that does not live here is to be tried here first. It never blocks.
	Here(u event.Unit) bool
	// Ask has the node that has the entity decide, and waits for its answer until ctx ends; hint is who has it as far as the caller found out, or zero. q.Data and
	// q.Waiting are read only, and q.Where is told where it is asked. Where the way leads back to this node, it goes through [Runtime.ServeAsk]. The error is a [*transport.PeerError], or wraps one; of
	// another, nothing is known of what was done.
	Ask(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) (transport.PeerReply, error)
	// Tell is Ask without an answer: nil = a node that has the entity has taken it.
	Tell(ctx context.Context, q transport.PeerAsk, hint transport.PeerOwner) error
	// Probe hands probes on to the node at an address, which Ask told q.Where of. Best effort. The other node takes them with [Runtime.ServeProbe].
	Probe(ctx context.Context, address string, probes []transport.PeerProbe) error
}

// RemoteConfig is what a [Remote] is made of.
type RemoteConfig struct {
	Codec     *codec.Registry
	Keys      event.KeyRules // those of the application that has the entities
	Elsewhere Elsewhere
	// Trace gives the trace that a context is part of, which goes along unless the ask has one. May be nil.
	Trace func(context.Context) event.Trace
}

// Remote asks entities that other processes have: an [Asker] for one that runs none. The types of commands, queries and replies need wire
// names. An error is as that of a [Runtime] whose entity it is, as far as it goes over a wire: see [RemoteError]. All methods may be called
// concurrently.
type Remote struct{ cfg RemoteConfig }

// NewRemote checks cfg, reporting all faults at once.
func NewRemote(cfg RemoteConfig) (*Remote, error) {
	var errs []error
	for name, missing := range map[string]bool{"Codec": cfg.Codec == nil, "Elsewhere": cfg.Elsewhere == nil} {
		if missing {
			errs = append(errs, fmt.Errorf("%s is not set", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Remote{cfg}, nil
}

// Ask is the untyped form of the function [Ask].
func (m *Remote) Ask(ctx context.Context, to Ref, command any, opts ...AskOption) (any, error) {
	caller := attemptOf(ctx)
	q, err := m.outside(ctx, caller, to, command, opts)
	if err != nil {
		return nil, askError(to, command, &AskError{Err: err})
	}
	if caller != nil {
		caller.block()
		defer caller.unblock()
	}
	return m.ask(ctx, to, command, q, transport.PeerOwner{})
}

// Tell has an entity decide a command some time soon, and does not wait for its answer, but until a node has taken it. See [Runtime.Tell].
func (m *Remote) Tell(ctx context.Context, to Ref, command any, opts ...AskOption) error {
	caller := attemptOf(ctx)
	q, err := m.outside(ctx, caller, to, command, opts)
	if err != nil {
		return askError(to, command, &AskError{Err: err})
	}
	if caller != nil {
		caller.block()
		defer caller.unblock()
	}
	return m.tell(ctx, to, command, q, transport.PeerOwner{})
}

// outside makes a question of an ask by somebody who is no behavior of the application that is asked; it may be one of another's.
func (m *Remote) outside(ctx context.Context, caller *attempt, to Ref, command any, opts []AskOption) (transport.PeerAsk, error) {
	var o askOptions
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.check(); err != nil {
		return transport.PeerAsk{}, err
	}
	if caller != nil {
		if caller.inSQL() {
			return transport.PeerAsk{}, ErrAskInTx
		}
		if err := o.inherit(caller); err != nil {
			return transport.PeerAsk{}, err
		}
	}
	if err := wellAddressed(m.cfg.Keys, to, command); err != nil {
		return transport.PeerAsk{}, err
	}
	return m.question(ctx, to, command, o)
}

// question makes what goes to another node.
func (m *Remote) question(ctx context.Context, to Ref, command any, o askOptions) (transport.PeerAsk, error) {
	if err := context.Cause(ctx); err != nil {
		return transport.PeerAsk{}, err
	}
	if err := event.CheckName(to.Kind); err != nil {
		return transport.PeerAsk{}, fmt.Errorf("%w: %w", ErrUnknownEntity, err)
	}
	enc, err := encoded(m.cfg.Codec, command)
	if err != nil {
		return transport.PeerAsk{}, fmt.Errorf("it may have to go to another node: %w", err)
	}
	if o.trace == (event.Trace{}) && m.cfg.Trace != nil {
		o.trace = m.cfg.Trace(ctx).Fit()
	}
	return transport.PeerAsk{
		To: to.unit(), Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data,
		CommandID: o.id, CorrelationID: o.correlationID, CausationID: o.causationID, Tenant: o.tenant, Trace: o.trace,
	}, nil
}

// encoded is Encode with the panics of an application's own encoding as errors.
func encoded(types *codec.Registry, v any) (enc codec.Encoded, err error) {
	err = protect(func() (err error) {
		enc, err = types.Encode(v)
		return err
	})
	return enc, err
}

// decoded likewise.
func decoded(types *codec.Registry, enc codec.Encoded) (v any, err error) {
	err = protect(func() (err error) {
		v, err = types.Decode(enc)
		return err
	})
	return v, err
}

func (m *Remote) ask(ctx context.Context, to Ref, command any, q transport.PeerAsk, hint transport.PeerOwner) (any, error) {
	reply, err := m.cfg.Elsewhere.Ask(ctx, q, hint)
	if err != nil {
		return nil, fromPeer(to, command, harmless(q, err))
	}
	if reply.Type == "" {
		return nil, nil
	}
	out, err := decoded(m.cfg.Codec, codec.Encoded{Type: reply.Type, Version: reply.Version, Encoding: reply.Encoding, Data: reply.Data})
	if err != nil {
		return nil, askError(to, command, &AskError{Err: fmt.Errorf("the reply cannot be read: %w", err), Unknown: !q.Reads})
	}
	return out, nil
}

// harmless is err, which leaves nothing open where the question was a query.
func harmless(q transport.PeerAsk, err error) error {
	var e *transport.PeerError
	if !q.Reads || !errors.As(err, &e) || !e.Unknown {
		return err
	}
	known := *e
	known.Unknown = false
	return &known
}

func (m *Remote) tell(ctx context.Context, to Ref, command any, q transport.PeerAsk, hint transport.PeerOwner) error {
	if err := m.cfg.Elsewhere.Tell(ctx, q, hint); err != nil {
		return fromPeer(to, command, err)
	}
	return nil
}

// here reports whether an entity is to be asked here first, if only to be refused.
func (r *Runtime) here(id event.Unit) bool {
	p := r.programs[id.Name]
	switch {
	case p == nil: // other nodes may have such entities
		return false
	case !p.entity():
		return true
	}
	run := r.running.Load()
	return run == nil || run.units.find(id) != nil || r.cfg.Elsewhere.Here(id)
}

// movedOn reports whether an ask was refused here, with nothing done of it, because its entity is elsewhere, or about to be; and who has it, if that is known. err is
// fresh.
func movedOn(err error) (hint transport.PeerOwner, is bool) {
	ask, ok := err.(*AskError)
	if !ok || ask.Unknown || ask.To != (Ref{}) {
		return hint, false
	}
	var held *HeldError
	switch {
	case errors.As(ask.Err, &held):
		return transport.PeerOwner{ID: held.Holder, Generation: held.Generation}, true
	case errors.Is(ask.Err, ErrStopping):
		return hint, !errors.Is(ask.Err, errNotRunning)
	}
	return hint, errors.Is(ask.Err, errHandedOver) || errors.Is(ask.Err, errHung) || errors.Is(ask.Err, ErrLeaseLost)
}

// askElsewhere has another node decide.
func (r *Runtime) askElsewhere(ctx context.Context, to Ref, command any, o askOptions, hint transport.PeerOwner) (any, error) {
	fail := func(err error) (any, error) { return nil, askError(to, command, &AskError{Err: err}) }
	caller := attemptOf(ctx)
	if caller.inSQL() {
		return fail(ErrAskInTx)
	}
	q, err := r.question(ctx, caller, to, command, o)
	if err != nil {
		return fail(err)
	}
	if caller != nil {
		if by := caller.unitIn(r); by != nil {
			noted := &wait{by: by.unit(), behavior: by, on: to.unit(), far: true}
			if _, ok := r.waits.add(noted); !ok { // where it is asked, probes are sent if there is need
				return fail(ErrAskCycle)
			}
			defer r.waits.remove(noted)
			q.Waiting, q.ID, q.Where = r.waits.behind(by.unit()), noted.id, noted
		}
		caller.block()
		defer caller.unblock()
	}
	return r.remote.ask(ctx, to, command, q, hint)
}

// tellElsewhere has another node take it.
func (r *Runtime) tellElsewhere(ctx context.Context, to Ref, command any, o askOptions, hint transport.PeerOwner) error {
	caller := attemptOf(ctx)
	q, err := r.question(ctx, caller, to, command, o)
	if err != nil {
		return askError(to, command, &AskError{Err: err})
	}
	if caller != nil {
		caller.block()
		defer caller.unblock()
	}
	return r.remote.tell(ctx, to, command, q, hint)
}

// question makes what goes to another node, of which this one knows as much as if it were asked itself, or, of a kind that is not registered here, next to nothing.
func (r *Runtime) question(ctx context.Context, caller *attempt, to Ref, command any, o askOptions) (transport.PeerAsk, error) {
	if caller != nil {
		if err := o.inherit(caller); err != nil {
			return transport.PeerAsk{}, err
		}
	}
	if r.programs[to.Kind] == nil {
		if err := wellAddressed(r.cfg.Keys, to, command); err != nil {
			return transport.PeerAsk{}, err
		}
	} else if p, err := r.addressee(to, command); err != nil {
		return transport.PeerAsk{}, err
	} else if err := p.replyCrosses(r.cfg.Codec, command); err != nil {
		return transport.PeerAsk{}, fmt.Errorf("it may have to go to another node: %w", err)
	}
	q, err := r.remote.question(ctx, to, command, o)
	if p := r.programs[to.Kind]; err == nil && p != nil {
		q.Reads = p.uses[structType(command)] == UseQuery
	}
	return q, err
}

// nothing is the reply of a command that has nothing to say: it needs no wire name, and arrives as nil.
var nothing = reflect.TypeFor[struct{}]()

// replyCrosses says why the reply to a command or query could not go to another node.
func (p *program) replyCrosses(types *codec.Registry, command any) error {
	reply := p.replies[structType(command)]
	if reply == nil || reply == nothing {
		return nil
	}
	if _, _, err := types.NameOf(reply); err != nil {
		return fmt.Errorf("the reply to %T: %w", command, err)
	}
	return nil
}
