package actors_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

// asking runs a test with virtual time.
func asking(t *testing.T, test func(t *testing.T, w *joined)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newJoined()) })
}

func deposit(t *testing.T, app actors.Asker, id string, amount int, opts ...actors.AskOption) int {
	t.Helper()
	got, err := actors.Ask[*Total](t.Context(), app, ref(id), &Deposit{Client: "c-" + id, Amount: amount}, opts...)
	if err != nil {
		t.Fatalf("deposit: %v", err)
	}
	return got.Amount
}

func balance(t *testing.T, app actors.Asker, id string) int {
	t.Helper()
	got, err := actors.Ask[*Total](t.Context(), app, ref(id), &Balance{})
	if err != nil {
		t.Errorf("balance: %v", err)
		return -1
	}
	return got.Amount
}

func TestAnEntityIsAskedWhereItIsFromAnywhere(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		a, b := w.node(t, []actors.Definition{accounts()}), w.node(t, []actors.Definition{accounts()})
		client, _ := w.client(t)
		w.first["a"], w.first["b"] = "1", "2"
		same(t, "at its node", 1, deposit(t, a, "a", 1))
		same(t, "from another", 3, deposit(t, b, "a", 2))
		same(t, "from a client", 6, deposit(t, client, "a", 3))
		same(t, "the other way", 4, deposit(t, a, "b", 4))
		// Where it lives is not where it is asked for first.
		w.first["a"], w.first["b"] = "2", "1"
		before := a.way.asked.Load()
		same(t, "where it lives", 6, balance(t, a, "a"))
		same(t, "questions", before, a.way.asked.Load())
		same(t, "from where it is tried first", 10, deposit(t, b, "a", 4))
		same(t, "and from the client", 15, deposit(t, client, "a", 5))
		same(t, "query", 4, balance(t, client, "b"))
		same(t, "generation of a", uint64(1), a.port.generated.Load())
		same(t, "generation of b", uint64(1), b.port.generated.Load())
	})
}

// What lives here is asked without any encoding: a type without a wire name will do. Elsewhere it is an error that says what to do.
func TestOnlyWhatGoesToAnotherNodeNeedsWireNames(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		unnamed := func(c *actors.Config) {
			c.Codec = types(t)
			c.Route = route(c.Codec)
		}
		a, b := w.node(t, []actors.Definition{accounts()}, unnamed), w.node(t, []actors.Definition{accounts(), thrifty()}, unnamed)
		deposit(t, a, "a", 1)
		same(t, "balance", 1, a.balance(t, "a"))
		for name, refused := range map[string]struct {
			to      actors.Ref
			command any
			want    string
		}{
			"the query":       {ref("a"), &Balance{}, "keyhold.Type[Balance]"},
			"the reply":       {actors.Ref{Kind: "thrifty", ID: "a"}, &Deposit{}, "keyhold.Type[Unnamed]"},
			"no wire name":    {actors.Ref{Kind: "other", ID: "a"}, &struct{}{}, "wire name"},
			"refuses to be":   {actors.Ref{Kind: "other", ID: "a"}, &Stubborn{}, "keyhold.Type[Stubborn]"},
			"no name of kind": {actors.Ref{Kind: "", ID: "a"}, &Deposit{}, "no such kind"},
		} {
			_, err := b.Ask(t.Context(), refused.to, refused.command)
			var ask *actors.AskError
			if !errors.As(err, &ask) || ask.Unknown || actors.Retryable(err) || !strings.Contains(err.Error(), refused.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		same(t, "questions", int64(0), b.way.asked.Load())
	})
}

// thrifty entities have a reply without a wire name.
func thrifty() actors.Entity[account] {
	e := accounts()
	e.Kind, e.Queries = "thrifty", nil
	e.Commands = actors.Commands[account]{actors.OnCommand(func(actors.Command, account, *Deposit) (*Unnamed, error) { return &Unnamed{}, nil })}
	return e
}

// Stubborn has no wire name.
type Stubborn struct{}

func TestWhatAnAskCarriesArrives(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		type key struct{}
		saw := make(chan actors.Meta, 1)
		e := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			c.Emit(deposited(in, s))
			saw <- c.Meta()
			return &Total{Amount: s.Total + in.Amount}, nil
		})
		_, b := w.node(t, []actors.Definition{e}), w.node(t, []actors.Definition{e}, func(c *actors.Config) {
			c.Observer.Trace = func(ctx context.Context) event.Trace { return event.Trace{Parent: ctx.Value(key{}).(string)} }
		})
		opts := []actors.AskOption{actors.CommandID("once"), actors.CorrelationID("corr"), actors.Tenant("tenant"), actors.Trace(event.Trace{Parent: "p", State: "s"})}
		same(t, "total", 1, deposit(t, b, "a", 1, opts...))
		same(t, "meta", actors.Meta{ID: "once", CorrelationID: "corr", Tenant: "tenant", Trace: event.Trace{Parent: "p", State: "s"}, Attempt: 1}, <-saw)
		same(t, "again", 1, deposit(t, b, "a", 1, opts...))
		same(t, "decided", 0, len(saw))
		ctx := context.WithValue(t.Context(), key{}, "of the context")
		if _, err := b.Ask(ctx, ref("a"), &Deposit{Client: "c"}); err != nil {
			t.Fatal(err)
		}
		same(t, "trace", event.Trace{Parent: "of the context"}, (<-saw).Trace)
	})
}

// What is asked by a behavior inherits its cause, also where it is asked elsewhere.
func TestWhatABehaviorAsksElsewhereInheritsItsCause(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		var b *peer
		saw := make(chan actors.Meta, 1)
		e := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			if c.ID() == "asks" {
				return actors.Ask[*Total](c, b, ref("asked"), in)
			}
			saw <- c.Meta()
			return &Total{}, nil
		})
		w.first["asks"] = "2"
		w.node(t, []actors.Definition{e})
		b = w.node(t, []actors.Definition{e})
		deposit(t, b, "asks", 1, actors.CommandID("cause"), actors.Tenant("tenant"))
		same(t, "meta", actors.Meta{CausationID: "cause", CorrelationID: "cause", Tenant: "tenant", Attempt: 1}, <-saw)
		if diff := cmp.Diff([]event.Unit{{Name: "account", Key: "asks"}}, b.way.last.Load().Waiting); diff != "" {
			t.Errorf("waiting (-want +got):\n%s", diff)
		}
	})
}

// A kind that this node does not run is asked of those that do.
func TestANodeAsksForKindsThatItDoesNotRun(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		_, b := w.node(t, []actors.Definition{accounts()}), w.node(t, []actors.Definition{auditing("B", nil)})
		same(t, "total", 3, deposit(t, b, "a", 3))
		_, err := b.Ask(t.Context(), actors.Ref{Kind: "ledger", ID: "a"}, &Deposit{})
		if !errors.Is(err, actors.ErrUnknownEntity) || b.way.asked.Load() != 1 {
			t.Errorf("a handler's name: %v", err)
		}
		_, err = b.Ask(t.Context(), actors.Ref{Kind: "nowhere", ID: "a"}, &Deposit{})
		if !errors.Is(err, actors.ErrUnknownEntity) || actors.Retryable(err) {
			t.Errorf("a kind of nobody's: %v", err)
		}
	})
}

// What can be refused here is not sent.
func TestNothingIsSentThatIsRefusedHere(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		w.node(t, []actors.Definition{accounts()})
		b := w.node(t, []actors.Definition{accounts()})
		client, e := w.client(t)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for name, ask := range map[string]struct {
			ctx     context.Context
			to      actors.Ref
			command any
			want    error
		}{
			"bad key":    {t.Context(), ref("a\x00"), &Deposit{}, event.ErrBadKey},
			"empty key":  {t.Context(), ref(""), &Deposit{}, event.ErrBadKey},
			"nil":        {t.Context(), ref("a"), nil, nil},
			"a struct":   {t.Context(), ref("a"), Deposit{}, nil},
			"ended":      {over, ref("a"), &Deposit{}, context.Canceled},
			"other kind": {t.Context(), actors.Ref{Kind: "other", ID: "\x00"}, &Deposit{}, event.ErrBadKey},
		} {
			for by, app := range map[string]interface {
				actors.Asker
				Tell(ctx context.Context, to actors.Ref, command any, opts ...actors.AskOption) error
			}{"node": b, "client": client} {
				_, err := app.Ask(ask.ctx, ask.to, ask.command)
				told := app.Tell(ask.ctx, ask.to, ask.command)
				for _, err := range []error{err, told} {
					var typed *actors.AskError
					if !errors.As(err, &typed) || typed.Unknown || typed.To != ask.to || ask.want != nil && !errors.Is(err, ask.want) {
						t.Errorf("%s, %s: %v", name, by, err)
					}
				}
			}
		}
		err := b.Do(t.Context(), func(u actors.UnitOfWork) error {
			_, _ = u.Tx().ExecContext(u, "x") // memory has no SQL, but it was begun
			_, err := b.Ask(u, ref("a"), &Deposit{})
			_, other := client.Ask(u, ref("a"), &Deposit{})
			if !errors.Is(err, actors.ErrAskInTx) || !errors.Is(other, actors.ErrAskInTx) {
				t.Errorf("in a transaction: %v, %v", err, other)
			}
			return nil
		})
		if err == nil {
			t.Error("memory has SQL")
		}
		same(t, "questions", int64(0), b.way.asked.Load()+e.asked.Load())
	})
}

func TestARemoteNeedsItsParts(t *testing.T) {
	t.Parallel()
	_, err := actors.NewRemote(actors.RemoteConfig{})
	if err == nil || !strings.Contains(err.Error(), "Codec is not set") || !strings.Contains(err.Error(), "Elsewhere is not set") {
		t.Error(err)
	}
}

// An ask that was refused, with nothing done, because its entity goes is asked where it goes.
func TestAnAskFollowsAnEntityThatIsGivenUp(t *testing.T) {
	for name, giveUp := range map[string]func(t *testing.T, a *peer){
		"handed over": func(t *testing.T, a *peer) { a.HandOver(event.Unit{Name: "account", Key: "a"}) },
		"stopped": func(t *testing.T, a *peer) {
			go func() {
				if err := a.Stop(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
		},
	} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(t *testing.T, w *joined) {
				enter, letGo := make(chan struct{}), make(chan struct{})
				slow := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
					if in.Amount == 0 {
						close(enter)
						<-letGo
					}
					c.Emit(deposited(in, s))
					return &Total{Amount: s.Total + in.Amount}, nil
				})
				a := w.node(t, []actors.Definition{slow})
				w.node(t, []actors.Definition{slow})
				first, waits, second := make(chan error, 1), make(chan error, 1), make(chan error, 1)
				go func() {
					_, err := a.Ask(t.Context(), ref("a"), &Deposit{Client: "c"})
					first <- err
				}()
				<-enter
				w.first["a"] = "2"
				go func() {
					_, err := a.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1})
					waits <- err
				}()
				synctest.Wait()
				giveUp(t, a)
				synctest.Wait()
				go func() { // it comes too late for this node, and too early for the other
					_, err := a.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 2})
					second <- err
				}()
				synctest.Wait()
				close(letGo)
				if err := <-first; err != nil {
					t.Errorf("the one in hand: %v", err)
				}
				if err := <-waits; err != nil {
					t.Errorf("one that waits: %v", err)
				}
				if err := <-second; err != nil {
					t.Errorf("the next: %v", err)
				}
				same(t, "questions", int64(2), a.way.asked.Load())
				same(t, "events", 3, len(a.events(t, "a")))
			})
		})
	}
}

// A runtime that was never started, or was stopped, asks nobody.
func TestARuntimeThatDoesNotRunAsksNobody(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		w.node(t, []actors.Definition{accounts()})
		b := w.node(t, []actors.Definition{accounts()})
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := b.Ask(t.Context(), ref("a"), &Deposit{})
		told := b.Tell(t.Context(), ref("a"), &Deposit{})
		if !errors.Is(err, actors.ErrStopping) || !errors.Is(told, actors.ErrStopping) || b.way.asked.Load() != 0 {
			t.Errorf("ask: %v, tell: %v", err, told)
		}
	})
}

// What a behavior says of another entity is its own affair.
func TestABehaviorsOwnErrorIsNoReasonToAskElsewhere(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		own := &actors.AskError{To: ref("other"), Err: &actors.HeldError{Holder: "2", Generation: 7}}
		a := w.node(t, []actors.Definition{only(func(actors.Command, account, *Deposit) (*Total, error) { return nil, own })})
		if _, err := a.Ask(t.Context(), ref("a"), &Deposit{}); err != error(own) {
			t.Errorf("ask: %v", err)
		}
		same(t, "questions", int64(0), a.way.asked.Load())
	})
}

// A query that was cut off has done nothing, and is asked of whoever has the entity then.
func TestAQueryWhoseLeaseIsLostIsAskedElsewhere(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		enter := make(chan struct{})
		var once atomic.Bool
		e := accounts()
		e.Timeout = -1
		e.Queries = actors.Queries[account]{actors.OnQuery(func(q actors.Query, s account, in *Balance) (*Total, error) {
			if once.CompareAndSwap(false, true) {
				close(enter)
				<-q.Done()
			}
			return &Total{Amount: s.Total}, nil
		})}
		a := w.node(t, []actors.Definition{e})
		w.node(t, []actors.Definition{e})
		deposit(t, a, "a", 1)
		w.first["a"] = "2"
		got := make(chan int, 1)
		go func() { got <- balance(t, a, "a") }()
		<-enter
		thaw := a.port.freeze()
		pass(leaseLife + time.Second)
		thaw()
		same(t, "what it has seen", 1, <-got)
		same(t, "questions", int64(1), a.way.asked.Load())
	})
}

// Behind a behavior that ignores the end of its context nobody waits: the entity is left to other nodes.
func TestAnAskBehindABehaviorThatDoesNotReturnIsAskedElsewhere(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		enter, letGo := make(chan struct{}), make(chan struct{})
		e := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			if in.Amount == 0 {
				close(enter)
				<-letGo
			}
			return &Total{Amount: s.Total}, nil
		})
		e.Timeout = time.Second
		a := w.node(t, []actors.Definition{e})
		w.node(t, []actors.Definition{e})
		stuck := make(chan error, 1)
		go func() {
			_, err := a.Ask(t.Context(), ref("a"), &Deposit{})
			stuck <- err
		}()
		<-enter
		w.first["a"] = "2"
		same(t, "the next", 0, balance(t, a, "a"))
		var ask *actors.AskError
		if err := <-stuck; !errors.As(err, &ask) || !ask.Unknown {
			t.Errorf("the one that is stuck: %v", err)
		}
		same(t, "one more", 0, balance(t, a, "a"))
		close(letGo)
	})
}

func TestTheEndOfACallersContextEndsItsAskElsewhere(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		letGo := make(chan struct{})
		e := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			<-letGo
			return &Total{}, nil
		})
		e.Timeout = -1
		w.node(t, []actors.Definition{e})
		b := w.node(t, []actors.Definition{e})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := b.Ask(ctx, ref("a"), &Deposit{})
		var ask *actors.AskError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &ask) || !ask.Unknown || actors.Retryable(err) {
			t.Errorf("one that had begun: %v", err)
		}
		close(letGo)
	})
}

func TestALinkThatBreaksLeavesOpenWhatWasDone(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		a, b := w.node(t, []actors.Definition{accounts()}), w.node(t, []actors.Definition{accounts()})
		deposit(t, a, "a", 1)
		w.network.Lose(1)
		_, err := b.Ask(t.Context(), ref("a"), &Deposit{Client: "c"})
		var ask *actors.AskError
		if !errors.As(err, &ask) || !ask.Unknown || actors.Retryable(err) || !errors.Is(err, actors.ErrUnavailable) {
			t.Errorf("ask: %v", err)
		}
		// By a query nothing is done.
		_, err = b.Ask(t.Context(), ref("a"), &Balance{})
		if !errors.As(err, &ask) || ask.Unknown || !actors.Retryable(err) || !errors.Is(err, actors.ErrUnavailable) {
			t.Errorf("query: %v", err)
		}
		w.network.Heal()
	})
}

// A reply of an older release is read as the newest version, as one that was kept is.
func TestARepliesOlderVersionIsReadAsTheNewest(t *testing.T) {
	t.Parallel()
	type total1 struct{ Cents int }
	registry, err := codec.NewRegistry([]codec.Declaration{
		codec.Of[Deposit]("account.deposit", 1), codec.Of[total1]("account.total", 1), codec.Of[Total]("account.total", 2),
		codec.UpcastOf(func(old total1) (Total, error) { return Total{Amount: old.Cents}, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	for version, data := range map[int]string{1: `{"Cents":7}`, 2: `{"Amount":7}`} {
		m, err := actors.NewRemote(actors.RemoteConfig{Codec: registry, Elsewhere: answering{transport.PeerReply{Type: "account.total", Version: version, Encoding: event.JSON, Data: []byte(data)}, nil}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := actors.Ask[*Total](t.Context(), m, ref("a"), &Deposit{}); err != nil || got.Amount != 7 {
			t.Errorf("version %d: %+v, %v", version, got, err)
		}
	}
}

// answering gives one answer to everything.
type answering struct {
	reply transport.PeerReply
	err   error
}

func (answering) Here(event.Unit) bool { return false }
func (a answering) Ask(context.Context, transport.PeerAsk, transport.PeerOwner) (transport.PeerReply, error) {
	return a.reply, a.err
}
func (answering) Probe(context.Context, string, []transport.PeerProbe) error           { return nil }
func (a answering) Tell(context.Context, transport.PeerAsk, transport.PeerOwner) error { return a.err }

func TestAReplyThatCannotBeReadWasGivenAllTheSame(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]transport.PeerReply{
		"unknown": {Type: "nobody's", Version: 1, Encoding: event.JSON, Data: []byte("{}")},
		"broken":  {Type: "account.total", Version: 1, Encoding: event.JSON, Data: []byte("{")},
	} {
		m, err := actors.NewRemote(actors.RemoteConfig{Codec: types(t), Elsewhere: answering{reply, nil}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Ask(t.Context(), ref("a"), &Deposit{})
		var ask *actors.AskError
		if !errors.As(err, &ask) || !ask.Unknown || actors.Retryable(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := actors.NewRemote(actors.RemoteConfig{Codec: types(t), Elsewhere: answering{}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Ask(t.Context(), ref("a"), &Deposit{}); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
}
