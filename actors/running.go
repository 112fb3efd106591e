package actors

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/keyhold/keyhold/actors/internal/host"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/internal/leases"
	"github.com/keyhold/keyhold/internal/lifecycle"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// running is a runtime between Start and the end of its Stop.
type running struct {
	rt     *Runtime
	port   partitions.Port
	host   *host.System
	units  *table
	calls  calls
	alarms *alarms
	gate   gate
	keeper *leases.Keeper // nil where units are not leased
	raises raises
	relist relist
	probes probing

	bequeathed sync.Map // event.Unit -> *bequest
	doubts     sync.Map // event.Unit -> *partitions.Doubt, of units that are gone
	again      sync.Map // event.Unit -> true: to be tried again in a while

	origin time.Time // of ticks

	ending chan struct{}   // closed when Stop begins
	ctx    context.Context // of calls of port and store; cancelled when Stop has run out of patience
	cancel context.CancelCauseFunc
	nested context.Context // what behaviors see the values of, where nobody waits for them
}

// Start makes the runtime take work. The store and the port must be started. ctx bounds Start alone. It is refused
// until an earlier Stop is through: a unit whose behavior has not returned must not be entered again.
func (r *Runtime) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running.Load() != nil {
		return fmt.Errorf("start: %w", lifecycle.ErrStarted)
	}
	if r.mu.stopping != nil {
		return fmt.Errorf("start: %w, and its Stop is not through: still inside are %v", lifecycle.ErrStarted, r.mu.stopping.inside())
	}
	run := &running{
		rt: r, port: r.cfg.Port, host: host.New(r.cfg.Concurrency), units: newTable(), alarms: newAlarms(), origin: time.Now(),
		ending: make(chan struct{}),
	}
	run.raises.store, run.raises.patience = r.cfg.Store, r.cfg.Port.Traits().TTL
	if r.cfg.Port.Traits().Leased {
		run.keeper = leases.New(leases.Config{Port: run.port, Wall: r.cfg.Now, Trouble: run.renewalFailed})
	}
	run.ctx, run.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	run.nested = transport.Nested(run.ctx)
	err := errors.Join(run.alarms.Start(ctx), run.probes.group.Start(ctx))
	if err == nil && run.keeper != nil {
		err = run.keeper.Start(ctx)
	}
	if err != nil {
		run.cancel(errStopped)
		ctx := context.WithoutCancel(ctx)
		return fmt.Errorf("start: %w", errors.Join(err, run.alarms.Stop(ctx), run.probes.group.Stop(ctx)))
	}
	r.unsettled.Store(false)
	r.running.Store(run)
	if r.cfg.Elsewhere != nil {
		r.chaser.Store(run)
		r.waits.restart(run.probeSoon)
	}
	return nil
}

// tick reads the clock of the machines.
func (r *running) tick() partitions.Tick { return partitions.Tick(time.Since(r.origin)) + 1 }

// at gives the time of a tick.
func (r *running) at(t partitions.Tick) time.Time { return r.origin.Add(time.Duration(t - 1)) }

// tickOf gives the tick of a time.
func (r *running) tickOf(t time.Time) partitions.Tick { return partitions.Tick(t.Sub(r.origin)) + 1 }

// later calls f after d, in the goroutine of the alarms.
func (r *running) later(d time.Duration, f func()) {
	r.alarms.set(&alarm{ring: f}, time.Now().Add(d))
}

func (r *running) wake(id event.Unit) { r.post(id, func(b *inbox) { b.mu.wake = true }) }

func (r *running) resume(id event.Unit) {
	r.post(id, func(b *inbox) { b.mu.acted, b.mu.wake = true, true })
}

// post changes the inbox of a unit, which comes to life for it; nil for a name that is not registered and once Stop has begun.
func (r *running) post(id event.Unit, change func(*inbox)) *unit {
	for {
		u := r.unit(id)
		if u == nil || u.post(change) {
			return u
		}
		r.units.remove(u) // on its way out; it does not matter who removes it
	}
}

func (r *running) enqueue(id event.Unit, k *ask, limit int) error {
	for {
		u := r.unit(id)
		if u == nil {
			return ErrStopping
		}
		if u.lease.hung.Load() {
			return fmt.Errorf("%w: %w", ErrUnavailable, errHung)
		}
		k.at = u
		first, full, ok := u.inbox.putAsk(k, limit)
		switch {
		case full:
			return ErrMailboxFull
		case first:
			u.ref.Send(signal)
		}
		if ok {
			return nil
		}
		r.units.remove(u)
	}
}

func (r *running) unit(id event.Unit) *unit {
	p := r.rt.programs[id.Name]
	if p == nil {
		return nil
	}
	return r.units.get(id, func() *unit { return newUnit(r, p, id) })
}

// link makes a program ready for a runtime: it needs the names of its types.
func (p *program) link(r *Runtime) error {
	cfg := &r.cfg
	p.names, p.known = map[string]bool{}, map[wireType]bool{}
	var errs []error
	for t, use := range p.uses {
		if use == UseQuery {
			continue // they do not travel by stream
		}
		name, version, err := cfg.Codec.NameOf(t)
		if err != nil {
			if !p.entity() { // a command without a name can be asked, not sent
				errs = append(errs, fmt.Errorf("%s %q: %w", p.desc.Kind, p.desc.Name, err))
			}
			continue
		}
		p.names[name], p.known[wireType{name, version}] = true, true
		for _, old := range cfg.Codec.Older(t) {
			p.names[old.Name], p.known[wireType{old.Name, old.Version}] = true, true
		}
	}
	p.config = partitions.Config{
		Traits:    cfg.Port.Traits(),
		Asks:      p.entity(),
		Handling:  p.handling(r),
		Attempts:  p.desc.Retry.Attempts,
		Backoff:   partitions.Backoff{Base: p.desc.Retry.Min, Max: p.desc.Retry.Max},
		Jitter:    func(d time.Duration) time.Duration { return rand.N(d + 1) },
		IdleAfter: cfg.IdleAfter,

		MaxParked:  p.desc.MaxParked,
		MaxCrashes: cfg.MaxCrashes,
	}
	switch p.desc.OnPoison {
	case Release:
		p.config.Policy = partitions.SetAside
	case ParkSequence:
		p.config.Policy = partitions.ParkUnit
	}
	p.config = p.config.WithDefaults()
	return errors.Join(append(errs, p.config.Validate())...)
}

// handling says what is to be done with an entry by its type. A command is meant for this very entity, so one of an unknown type
// waits; an event is meant for whoever cares, so it is passed over unless the handler is registered for it.
func (p *program) handling(r *Runtime) func(*event.Envelope) partitions.Handling {
	return func(e *event.Envelope) partitions.Handling {
		switch {
		case p.known[wireType{e.Type, e.Version}], e.Type == event.Malformed: // what no program can tell from an event that it handles
			return partitions.Handle
		case p.names[e.Type]:
			if _, err := r.cfg.Codec.TypeOf(e.Type, e.Version); errors.Is(err, codec.ErrNewer) {
				return partitions.AwaitNewer
			}
			return partitions.Handle // of a version that nothing here handles: not to be passed over without a word
		case p.entity(), p.desc.Kind == eventstore.CommandHandler, r.listing.Load().has(p.desc.Name, e.Type):
			return partitions.AwaitNewer
		}
		return partitions.PassOver
	}
}

// lanes gives the lanes of a unit.
func (p *program) lanes(key string) []event.LaneRef {
	var lanes []event.LaneRef
	for _, category := range p.desc.Categories {
		lanes = append(lanes, event.LaneRef{Category: category, Key: key})
		if !p.entity() {
			lanes = append(lanes, event.LaneRef{Category: category, Key: key, Lane: event.Backfill})
		}
	}
	return lanes
}
