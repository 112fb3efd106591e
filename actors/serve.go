package actors

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
)

// batch is how many asks are served before the unit's stream has a turn.
const batch = 32

// serve lets the behavior answer asks that wait, and timers that rang, until one of them goes wrong.
func (u *unit) serve(e *partitions.Serve) partitions.ServeDone {
	var done partitions.ServeDone
	for i := 0; i < batch && done.Outcome == partitions.OK; i++ {
		if u.inbox.drains() {
			break // what waits is refused
		}
		if u.prog.config.Leased && !u.stillServing() {
			break // the machine is told, and what waits is served when the unit is ours again, or refused
		}
		k, timer := u.inbox.next()
		switch {
		case timer != nil:
			done.Outcome, done.Err = u.tick(timer, e.Generation)
		case k != nil:
			done.Outcome, done.Err = u.reply(k, e.Generation)
		default:
			i = batch
		}
	}
	done.More = u.inbox.more()
	done.Keep = len(u.timers) > 0
	u.told = done.More
	return done
}

// reply has the behavior answer one ask, and gives its answer to whoever waits for it.
func (u *unit) reply(k *ask, g event.Generation) (partitions.Outcome, error) {
	var (
		r   result
		out any
	)
	switch u.prog.uses[structType(k.in)] {
	case UseQuery:
		out, r = u.query(k, g)
	case UseCommand:
		out, r = u.command(k, g)
	default:
		r.err = fmt.Errorf("%w: entity %q has none for %T: add OnCommand or OnQuery", ErrUnknownCommand, u.id.Name, k.in)
		r.outcome = partitions.OK
	}
	got := answer{out: out, err: r.err, tails: r.tails, generation: g}
	if r.err != nil && !r.own {
		got.err = &AskError{Err: r.err, Unknown: r.unknown}
	}
	if len(r.tails) == 0 && !u.stillServing() {
		// What the behavior saw may be old. What it wrote may be committed all the same.
		query := u.prog.uses[structType(k.in)] == UseQuery
		got = answer{err: &AskError{Err: errors.Join(ErrUnavailable, ErrLeaseLost), Unknown: r.unknown || r.err == nil && !query}}
	}
	if !u.inbox.finish() || !k.deliver(got) {
		u.tell(r.tails)
	}
	return r.outcome, r.err
}

func (u *unit) query(k *ask, g event.Generation) (out any, r result) {
	if err := u.ensure(g); err != nil {
		return nil, result{outcome: failedOutcome(err), err: err}
	}
	if !k.enter() {
		return nil, result{}
	}
	a := u.attemptFor(k, g)
	a.reads = true
	w, returned := u.observed(a), false
	defer func() { u.ended(w, a, &r, returned) }()
	r.own, r.err = u.call(a, func() (err error) {
		out, err = u.state.answer(Query{a}, k.in)
		return err
	})
	a.finish()
	if r.err != nil && !r.own {
		r.outcome = failedOutcome(r.err) // it panicked, or did not end in time
	}
	returned = true
	return out, r
}

func (u *unit) command(k *ask, g event.Generation) (out any, r result) {
	if k.opts.id != "" {
		if kept, is, err := u.kept(k); is || err != nil {
			return kept, result{err: err, own: errors.Is(err, ErrRejected)}
		}
	}
	for range maxConflicts {
		if out, r = u.decide(k, g); !r.conflict {
			break
		}
		u.stale = true
	}
	if r.own && isRejected(r.err) {
		return nil, u.rejected(k, g, r)
	}
	return out, r
}

// decide makes one attempt at a command.
func (u *unit) decide(k *ask, g event.Generation) (out any, r result) {
	if err := u.ensure(g); err != nil {
		return nil, result{outcome: failedOutcome(err), err: err}
	}
	if !k.enter() { // nobody waits for the answer, and was told that nothing was done
		return nil, result{}
	}
	a := u.attemptFor(k, g)
	a.snapshot = u.snapshot()
	r = u.execute(a, func() (err error) {
		out, err = u.state.decide(Command{UnitOfWork{a}}, u.mode, k.in)
		return err
	}, func(a *attempt) (eventstore.Changes, error) {
		c, err := u.changes(a)
		if err == nil && k.opts.id != "" {
			c.Fence = u.fence(g)
			c.Reply, err = u.keep(k, out)
		}
		return c, err
	})
	return out, r
}

// rejected is the result of a command that was: nothing happened, but a rejection is kept like a reply.
func (u *unit) rejected(k *ask, g event.Generation, r result) result {
	u.spoiled()
	if k.opts.id == "" {
		return result{err: r.err, own: true}
	}
	kept, err := u.keep(k, nil)
	if err == nil {
		kept.Rejected = event.Text(cmp.Or(reasonOf(r.err), noReason), maxRejection)
		_, err = u.write(eventstore.Changes{Fence: u.fence(g), Reply: kept})
	}
	if err != nil {
		return result{
			outcome: outcomeOf(err), err: fmt.Errorf("keep the rejection: %w", err), unknown: errors.Is(err, eventstore.ErrUnknownCommit),
		}
	}
	return result{err: r.err, own: true}
}

// maxRejection is how many bytes are kept of the reason of a rejection.
const maxRejection = 64 << 10

// noReason is kept of a rejection without a reason: what has none was not rejected.
const noReason = "no reason was given"

func reasonOf(err error) string {
	var r *RejectError
	if errors.As(err, &r) {
		return r.Reason
	}
	return err.Error()
}

// keep makes what is kept of a command's answer.
func (u *unit) keep(k *ask, out any) (*eventstore.Reply, error) {
	types := u.run.rt.cfg.Codec
	name, _, err := types.NameOf(reflect.TypeOf(k.in))
	if err != nil {
		return nil, fmt.Errorf("keep the reply to command %q: %w", k.opts.id, err)
	}
	reply := &eventstore.Reply{Stream: u.stream(), CommandID: k.opts.id, Command: name, Time: u.run.rt.stamp()}
	if out == nil {
		return reply, nil
	}
	var enc codec.Encoded
	err = protect(func() (err error) {
		enc, err = types.Encode(out)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("keep the reply to command %q: %w", k.opts.id, err)
	}
	reply.Type, reply.Version, reply.Encoding, reply.Data = enc.Type, enc.Version, enc.Encoding, enc.Data
	return reply, nil
}

// kept gives the answer that a command with this id got before.
func (u *unit) kept(k *ask) (out any, is bool, err error) {
	reply, err := u.run.rt.cfg.Store.ReadReply(u.run.ctx, u.stream(), k.opts.id)
	if err != nil || reply == nil {
		return nil, false, err
	}
	if name, _ := u.run.rt.cfg.Codec.Name(reflect.TypeOf(k.in)); name != reply.Command {
		return nil, true, fmt.Errorf("%w: %q was a %q", ErrCommandReused, k.opts.id, reply.Command)
	}
	switch {
	case reply.Rejected != "":
		return nil, true, &RejectError{Reason: reply.Rejected}
	case reply.Type == "":
		return nil, true, nil
	}
	version := reply.Version
	if version == 0 {
		_, version, err = u.run.rt.cfg.Codec.NameOf(u.prog.replies[structType(k.in)])
	}
	if err == nil {
		out, err = u.run.rt.cfg.Codec.Decode(codec.Encoded{Type: reply.Type, Version: version, Encoding: reply.Encoding, Data: reply.Data})
	}
	return out, true, err
}

// attemptFor makes the unit of work for an ask.
func (u *unit) attemptFor(k *ask, g event.Generation) *attempt {
	a := u.attempt(g, k.ctx)
	a.caller, a.asked = k.caller, k.in
	if k.opts == (askOptions{}) {
		return a
	}
	a.meta = &Meta{
		ID: k.opts.id, CausationID: k.opts.causationID, CorrelationID: cmp.Or(k.opts.correlationID, k.opts.id),
		Tenant: k.opts.tenant, Trace: k.opts.trace, Attempt: 1,
	}
	return a
}
