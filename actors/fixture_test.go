package actors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/internal/signal"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
	"github.com/keyhold/keyhold/transport/local"
)

var keys event.KeyRules

// The domain of the tests: accounts of clients.

type (
	Deposit struct {
		Client string
		Amount int
	}
	Withdraw struct {
		Client string
		Amount int
	}
	Balance   struct{}
	Total     struct{ Amount int }
	Deposited struct {
		Client        string
		Amount, Total int
	}
	Withdrawn struct {
		Client string
		Amount int
	}
	Audited struct {
		Client string
		By     string
		Of     string
	}
	Unnamed struct{ Client string }
)

func types(t testing.TB) *codec.Registry {
	t.Helper()
	r, err := codec.NewRegistry(declarations())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func declarations() []codec.Declaration {
	return []codec.Declaration{
		codec.Of[Deposit]("account.deposit", 1), codec.Of[Withdraw]("account.withdraw", 1), codec.Of[Total]("account.total", 1),
		codec.Of[Deposited]("account.deposited", 1), codec.Of[Withdrawn]("account.withdrawn", 1), codec.Of[Audited]("audit.audited", 1),
	}
}

// route puts the events of accounts under the key of their client, and audits likewise.
func route(r *codec.Registry) func(context.Context, event.Stream, any) (event.Envelope, error) {
	return func(_ context.Context, _ event.Stream, v any) (event.Envelope, error) {
		category := "account"
		var key string
		switch v := v.(type) {
		case Deposited:
			key = v.Client
		case Withdrawn:
			key = v.Client
		case Audited:
			category, key = "audit", v.Client
		}
		if err := keys.Check(key); err != nil {
			return event.Envelope{}, fmt.Errorf("emit %T: %w", v, err)
		}
		enc, err := r.Encode(v)
		if err != nil {
			return event.Envelope{}, err
		}
		return event.Envelope{Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data, Category: category, Key: key}, nil
	}
}

type account struct{ Total, Events int }

// accounts is an entity kind whose cases do the obvious. Tests change a copy.
func accounts() actors.Entity[account] {
	return actors.Entity[account]{
		Kind: "account", Version: 1,
		Commands: actors.Commands[account]{
			actors.OnCommand(func(c actors.Command, s account, in *Deposit) (*Total, error) {
				c.Emit(Deposited{Client: in.Client, Amount: in.Amount, Total: s.Total + in.Amount})
				return &Total{Amount: s.Total + in.Amount}, nil
			}),
			actors.OnCommand(func(c actors.Command, s account, in *Withdraw) (*Total, error) {
				if in.Amount > s.Total {
					return nil, actors.Reject("account %s has only %d", c.ID(), s.Total)
				}
				c.Emit(Withdrawn{Client: in.Client, Amount: in.Amount})
				return &Total{Amount: s.Total - in.Amount}, nil
			}),
		},
		Queries: actors.Queries[account]{
			actors.OnQuery(func(q actors.Query, s account, in *Balance) (*Total, error) { return &Total{Amount: s.Total}, nil }),
		},
		Fold: actors.Fold[account]{
			actors.OnEvent(func(s account, e Deposited) account { s.Total += e.Amount; s.Events++; return s }),
			actors.OnEvent(func(s account, e Withdrawn) account { s.Total -= e.Amount; s.Events++; return s }),
		},
	}
}

// recorder tells tests what happened to units.
type recorder struct {
	activated, passivated, resumed signal.Signal[event.Unit]
	applied                        signal.Signal[event.Envelope]
	rejected, retried              signal.Signal[error]
	halted                         signal.Signal[eventstore.Halt]
	dead                           signal.Signal[eventstore.Dead]
	waits                          signal.Signal[event.Envelope]
	anew, trouble, timer, misused  signal.Signal[error]
	panicked                       signal.Signal[*actors.PanicError]
	overdue                        signal.Signal[event.Unit]

	paused      signal.Signal[event.Unit]
	parked      signal.Signal[eventstore.Parked]
	unparked    signal.Signal[string]
	replayed    signal.Signal[event.Envelope]
	asideFailed signal.Signal[event.Envelope]
	suspected   signal.Signal[suspected]
}

// suspected is what an observer is told of a suspect.
type suspected struct {
	unit       event.Unit
	sequence   event.Sequence
	suspicions int
	alone      bool
}

func (r *recorder) observer(t testing.TB) actors.Observer {
	for _, s := range []interface{ Init(signal.TB) }{
		&r.activated, &r.passivated, &r.resumed, &r.applied, &r.rejected, &r.retried, &r.halted, &r.dead, &r.waits, &r.anew, &r.trouble,
		&r.timer, &r.misused, &r.panicked, &r.overdue, &r.paused, &r.parked, &r.unparked, &r.replayed, &r.asideFailed, &r.suspected,
	} {
		s.Init(t)
	}
	return actors.Observer{
		Activated:    r.activated.Send,
		Passivated:   r.passivated.Send,
		Resumed:      r.resumed.Send,
		Applied:      func(_ event.Unit, e *event.Envelope) { r.applied.Send(*e) },
		Rejected:     func(_ event.Unit, _ *event.Envelope, err error) { r.rejected.Send(err) },
		Retried:      func(_ event.Unit, _ *event.Envelope, _ int, err error) { r.retried.Send(err) },
		Halted:       r.halted.Send,
		DeadLettered: r.dead.Send,
		WaitsForType: func(_ event.Unit, e *event.Envelope) { r.waits.Send(*e) },
		CommitFailed: func(_ event.Unit, err error) { r.anew.Send(err) },
		Trouble:      func(_ event.Unit, what string, err error) { r.trouble.Send(errors.Join(errors.New(what), err)) },
		TimerFailed:  func(_ event.Unit, _ string, err error) { r.timer.Send(err) },
		Misused:      func(_ event.Unit, err error) { r.misused.Send(err) },
		Panicked:     func(_ event.Unit, p *actors.PanicError) { r.panicked.Send(p) },
		Overdue:      func(u event.Unit, _ time.Duration) { r.overdue.Send(u) },
		Paused:       r.paused.Send,
		Parked:       r.parked.Send,
		Unparked:     func(_ event.Unit, category string) { r.unparked.Send(category) },
		Replayed:     func(_ event.Unit, e *event.Envelope) { r.replayed.Send(*e) },
		AsideFailed:  func(_ event.Unit, e *event.Envelope, _ error) { r.asideFailed.Send(*e) },
		Suspected: func(u event.Unit, e *event.Envelope, suspicions int, alone bool) {
			r.suspected.Send(suspected{u, e.Sequence, suspicions, alone})
		},
	}
}

// byHand leaves it to the test to wake and drive units.
func byHand(c *actors.Config) {
	c.Committed = func(context.Context, []event.Tail) error { return nil }
}

// bundle is a started runtime with everything around it.
type bundle struct {
	*actors.Runtime
	store   eventstore.Store
	memory  *memory.Store
	carrier carrier
	saw     *recorder
}

type option func(*actors.Config)

// soonIdle has units put away within the patience of signals.
func soonIdle(c *actors.Config) { c.IdleAfter = 4 * time.Second }

// setup starts a runtime on a memory store and the local transport, and stops it at the end of the test.
func setup(t testing.TB, definitions []actors.Definition, opts ...option) *bundle {
	return setupOn(t, memory.Open(), nil, definitions, opts...)
}

// setupOn is setup on a store that may hold something already, and with faults.
func setupOn(t testing.TB, mem *memory.Store, plan faulty.Plan, definitions []actors.Definition, opts ...option) *bundle {
	t.Helper()
	b := &bundle{store: mem, memory: mem, saw: new(recorder), carrier: local.New()}
	if plan != nil {
		b.store = faulty.Wrap(mem, plan)
	}
	b.start(t, definitions, opts)
	return b
}

// setupUnclean is setup on the store of a process that did not stop it.
func setupUnclean(t testing.TB, mem *memory.Store, definitions []actors.Definition, opts ...option) *bundle {
	t.Helper()
	b := &bundle{store: leftUnclean{mem}, memory: mem, saw: new(recorder), carrier: local.New()}
	b.start(t, definitions, opts)
	return b
}

// leftUnclean is a store that the process before did not stop, whatever it did.
type leftUnclean struct{ eventstore.Store }

func (s leftUnclean) Start(ctx context.Context, o eventstore.StartOptions) (eventstore.Identity, error) {
	id, err := s.Store.Start(ctx, o)
	id.Unclean = true
	return id, err
}

// carrier is a transport that delivers from the store.
type carrier interface {
	transport.Transport
	Bind(eventstore.Store, eventstore.Identity, event.KeyRules)
	Port() partitions.Port
}

func (b *bundle) start(t testing.TB, definitions []actors.Definition, opts []option) {
	t.Helper()
	id, err := b.store.Start(t.Context(), eventstore.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	carrier := b.carrier
	carrier.Bind(b.store, id, keys)
	registry := types(t)
	cfg := actors.Config{
		Definitions: definitions, Store: b.store, Port: carrier.Port(),
		Codec: registry, Route: route(registry), Observer: b.saw.observer(t),
	}
	for _, o := range opts {
		o(&cfg)
	}
	carried := cfg.Committed == nil
	if carried {
		cfg.Committed = carrier.Committed
	}
	b.Runtime, err = actors.NewRuntime(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if carried {
		if err := carrier.Start(t.Context(), transport.Node{Subscriptions: subscriptionsOf(definitions), Wake: b.Wake, Drive: b.Drive}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := carrier.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := b.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := b.store.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}

func subscriptionsOf(definitions []actors.Definition) (all []transport.Subscription) {
	for _, d := range definitions {
		for _, c := range d.Describe().Categories {
			all = append(all, transport.Subscription{Name: d.Describe().Name, Category: c})
		}
	}
	return all
}

func (b *bundle) deposit(t testing.TB, id string, amount int, opts ...actors.AskOption) int {
	t.Helper()
	got, err := actors.Ask[*Total](t.Context(), b, actors.Ref{Kind: "account", ID: id}, &Deposit{Client: "c-" + id, Amount: amount}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got.Amount
}

func (b *bundle) balance(t testing.TB, id string) int {
	t.Helper()
	got, err := actors.Ask[*Total](t.Context(), b, actors.Ref{Kind: "account", ID: id}, &Balance{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Amount
}
