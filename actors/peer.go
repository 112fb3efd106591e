package actors

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// ServeAsk has an entity decide for another node, or for a client, or says by a [*transport.PeerError] why it has no answer: who has the entity
// instead, if that is known. It only ever asks here. It ends when ctx does, as an ask does. q.Data is not kept.
//
// For an entity that does not live here, and is not to be tried here first, the answer is [transport.PeerNotOwner] unless q.Decide is set. Without
// [Config].Elsewhere everything is tried here.
func (r *Runtime) ServeAsk(ctx context.Context, q transport.PeerAsk) (transport.PeerReply, error) {
	to := Ref{Kind: q.To.Name, ID: q.To.Key}
	in, refused := r.incoming(&q)
	if refused != nil {
		return transport.PeerReply{}, refused
	}
	k := r.asks.get()
	k.ctx, k.in, k.opts = ctx, in, optionsOf(&q)
	probes, ok := r.waits.add(chainOf(q.Waiting, q.To, k, q.ID))
	if !ok {
		r.asks.put(k)
		return transport.PeerReply{}, toPeer(to, in, &AskError{Err: ErrAskCycle})
	}
	r.suspect(probes)
	got := r.askHere(to, k)
	if got.err != nil {
		out := toPeer(to, in, got.err)
		if out.Code == transport.PeerFailed && ctx.Err() != nil {
			out.Code = transport.PeerEnded // whatever its cause
		}
		return transport.PeerReply{}, out
	}
	reply := transport.PeerReply{Generation: got.generation}
	if got.out == nil || reflect.TypeOf(got.out) == reflect.PointerTo(nothing) {
		return reply, nil
	}
	enc, err := encoded(r.cfg.Codec, got.out)
	if err != nil {
		return transport.PeerReply{}, &transport.PeerError{Code: transport.PeerBad, Text: "the reply cannot be written: " + err.Error(), Unknown: true}
	}
	reply.Type, reply.Version, reply.Encoding, reply.Data = enc.Type, enc.Version, enc.Encoding, enc.Data
	return reply, nil
}

// ServeTell is ServeAsk without an answer: nil = an entity that lives here has taken it.
func (r *Runtime) ServeTell(ctx context.Context, q transport.PeerAsk) error {
	to := Ref{Kind: q.To.Name, ID: q.To.Key}
	in, refused := r.incoming(&q)
	if refused != nil {
		return refused
	}
	k := &ask{ctx: outside(ctx), in: in, opts: optionsOf(&q), tell: true}
	if err := r.tellHere(ctx, to, k, nil); err != nil {
		return toPeer(to, in, err)
	}
	return nil
}

func optionsOf(q *transport.PeerAsk) askOptions {
	return askOptions{id: q.CommandID, correlationID: q.CorrelationID, causationID: q.CausationID, tenant: q.Tenant, trace: q.Trace}
}

// incoming reads a question of another node.
func (r *Runtime) incoming(q *transport.PeerAsk) (in any, refused *transport.PeerError) {
	refuse := func(code transport.PeerCode, format string, args ...any) (any, *transport.PeerError) {
		return nil, &transport.PeerError{Code: code, Text: fmt.Sprintf(format, args...)}
	}
	p := r.programs[q.To.Name]
	if p == nil || !p.entity() {
		return refuse(transport.PeerUnknownKind, "%v: %q (known here: %s)", ErrUnknownEntity, q.To.Name, r.entities())
	}
	run := r.running.Load()
	if run == nil {
		return refuse(transport.PeerStopping, "%v", ErrStopping)
	}
	if err := r.cfg.Keys.Check(q.To.Key); err != nil {
		return refuse(transport.PeerBad, "id: %v", err)
	}
	o := optionsOf(q)
	if err := errors.Join(o.check(), event.CheckID("causation id", q.CausationID)); err != nil {
		return refuse(transport.PeerBad, "%v", err)
	}
	q.Trace = o.trace
	if !q.Decide && r.cfg.Elsewhere != nil && run.units.find(q.To) == nil && !r.cfg.Elsewhere.Here(q.To) {
		return refuse(transport.PeerNotOwner, "another node is to be asked for %s first", q.To)
	}
	if _, err := r.cfg.Codec.TypeOf(q.Type, q.Version); err != nil {
		return refuse(transport.PeerUnknownType, "%v", err)
	}
	in, err := decoded(r.cfg.Codec, codec.Encoded{Type: q.Type, Version: q.Version, Encoding: q.Encoding, Data: q.Data})
	if err == nil {
		err = p.replyCrosses(r.cfg.Codec, in)
	}
	if err != nil {
		return refuse(transport.PeerBad, "%v", err)
	}
	return in, nil
}

// tellHere puts an ask that is told into the mailbox of its entity. Where units are leased that is not enough: it waits until the entity is known to
// live here, but not with a transaction open that this may have to wait for. The error is fresh.
func (r *Runtime) tellHere(ctx context.Context, to Ref, k *ask, caller *attempt) error {
	if r.cfg.Port.Traits().Leased && !r.lives(to.unit()) && !caller.inSQL() {
		k.taken = make(chan error, 1)
	}
	if err := r.enqueue(to, k); err != nil {
		return &AskError{Err: err}
	}
	if k.taken == nil || r.lives(to.unit()) { // while it was put there
		return nil
	}
	if caller != nil {
		caller.block()
		defer caller.unblock()
	}
	return k.awaitTaken(ctx)
}

// lives reports whether a unit is held here, and about to do what it is asked.
func (r *Runtime) lives(id event.Unit) bool {
	run := r.running.Load()
	if run == nil {
		return false
	}
	u := run.units.find(id)
	return u != nil && u.lives()
}

// lives is what others see of the unit.
func (u *unit) lives() bool {
	switch phase, _ := u.shown.get(); phase {
	case partitions.PhaseReady, partitions.PhaseFetching, partitions.PhaseAdvancing, partitions.PhaseApplying, partitions.PhaseServing, partitions.PhaseSettling, partitions.PhasePassing:
		return true
	}
	return false
}
