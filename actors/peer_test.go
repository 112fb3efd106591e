package actors_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/transport"
)

// Ratio cannot be written when it is no number.
type Ratio struct{ Value float64 }

// asked makes a question.
func asked(t *testing.T, id string, command any) transport.PeerAsk {
	t.Helper()
	types, err := codec.NewRegistry(append(declarations(), codec.Of[Balance]("account.balance", 1), codec.Of[Stubborn]("account.stubborn", 1)))
	if err != nil {
		t.Fatal(err)
	}
	enc, err := types.Encode(command)
	if err != nil {
		t.Fatal(err)
	}
	return transport.PeerAsk{To: event.Unit{Name: "account", Key: id}, Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data}
}

func TestANodeSaysWhyItDoesNotAnswerAnother(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		e := accounts()
		e.Commands = append(e.Commands, actors.OnCommand(func(_ actors.Command, _ account, in *Ratio) (*Ratio, error) {
			return &Ratio{Value: math.NaN()}, nil
		}))
		named := func(c *actors.Config) {
			types, err := codec.NewRegistry(append(declarations(), codec.Of[Balance]("account.balance", 1), codec.Of[Stubborn]("account.stubborn", 1), codec.Of[Ratio]("account.ratio", 1)))
			if err != nil {
				t.Fatal(err)
			}
			c.Codec, c.Route = types, route(types)
		}
		a := w.node(t, []actors.Definition{e, thrifty()}, named)
		b := w.node(t, []actors.Definition{e, thrifty()}, named)
		deposit(t, a, "a", 5)
		for name, refused := range map[string]struct {
			by      *peer
			change  func(q *transport.PeerAsk)
			code    transport.PeerCode
			text    string
			unknown bool
		}{
			"unknown kind":        {a, func(q *transport.PeerAsk) { q.To.Name = "nobody" }, transport.PeerUnknownKind, `"nobody" (known here: "account", "thrifty")`, false},
			"bad key":             {a, func(q *transport.PeerAsk) { q.To.Key = "\x00" }, transport.PeerBad, "id:", false},
			"unknown type":        {a, func(q *transport.PeerAsk) { q.Type = "account.new" }, transport.PeerUnknownType, "account.new", false},
			"unknown version":     {a, func(q *transport.PeerAsk) { q.Version = 7 }, transport.PeerUnknownType, "newer", false},
			"bytes":               {a, func(q *transport.PeerAsk) { q.Data = []byte("{") }, transport.PeerBad, "decode", false},
			"encoding":            {a, func(q *transport.PeerAsk) { q.Encoding = event.Proto }, transport.PeerBad, "decode", false},
			"no case":             {a, func(q *transport.PeerAsk) { q.Type = "account.stubborn" }, transport.PeerUnknownCommand, "OnCommand", false},
			"reply without name":  {a, func(q *transport.PeerAsk) { q.To.Name = "thrifty" }, transport.PeerBad, "keyhold.Type[Unnamed]", false},
			"reply not written":   {a, func(q *transport.PeerAsk) { q.Type = "account.ratio" }, transport.PeerBad, "cannot be written", true},
			"rejected":            {a, func(q *transport.PeerAsk) { q.Type, q.Data = "account.withdraw", []byte(`{"Amount":9}`) }, transport.PeerRejected, "account a has only 5", false},
			"circle":              {a, func(q *transport.PeerAsk) { q.Waiting = []event.Unit{q.To} }, transport.PeerCycle, "waiting", false},
			"another ranks first": {b, func(q *transport.PeerAsk) {}, transport.PeerNotOwner, "another node", false},
		} {
			q := asked(t, "a", &Deposit{Client: "c"})
			refused.change(&q)
			_, err := refused.by.ServeAsk(t.Context(), q)
			var got *transport.PeerError
			if !errors.As(err, &got) || got.Code != refused.code || got.Unknown != refused.unknown || !strings.Contains(got.Text, refused.text) {
				t.Errorf("%s: %+v", name, err)
			}
			if got.Owner != (transport.PeerOwner{}) {
				t.Errorf("%s: it names %+v", name, got.Owner)
			}
			if refused.unknown || refused.code == transport.PeerRejected || refused.code == transport.PeerUnknownCommand || refused.code == transport.PeerCycle {
				continue // not known before it is decided, or of no matter to a tell
			}
			if err := refused.by.ServeTell(t.Context(), q); !errors.As(err, &got) || got.Code != refused.code {
				t.Errorf("%s: tell: %v", name, err)
			}
		}
		same(t, "balance", 5, balance(t, a, "a"))
	})
}

func TestANodeSaysWhoHasTheEntity(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		a, b := w.node(t, []actors.Definition{accounts()}), w.node(t, []actors.Definition{accounts()})
		deposit(t, a, "a", 5)
		q := asked(t, "a", &Balance{})
		q.Decide = true
		_, err := b.ServeAsk(t.Context(), q)
		told := b.ServeTell(t.Context(), q)
		for _, err := range []error{err, told} {
			var got *transport.PeerError
			if !errors.As(err, &got) || got.Code != transport.PeerNotOwner || got.Unknown || got.Most <= 0 || got.Most > leaseTTL {
				t.Fatalf("%+v", err)
			}
			same(t, "owner", transport.PeerOwner{ID: "1", Generation: 1}, got.Owner)
		}
		reply, err := a.ServeAsk(t.Context(), q)
		if err != nil || string(reply.Data) != `{"Amount":5}` {
			t.Errorf("%+v, %v", reply, err)
		}
		same(t, "reply", transport.PeerReply{Type: "account.total", Version: 1, Encoding: event.JSON, Data: reply.Data, Generation: 1}, reply)
	})
}

// Decide has a node try for what another one would be asked for first.
func TestANodeTriesForAnEntityWhenItIsToldTo(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		w.node(t, []actors.Definition{accounts()})
		b := w.node(t, []actors.Definition{accounts()})
		q := asked(t, "a", &Deposit{Client: "c", Amount: 1})
		q.Decide = true
		if _, err := b.ServeAsk(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		q.Decide = false // it lives there now
		if _, err := b.ServeAsk(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	})
}

func TestANodeThatGivesAnEntityUpSaysThatNothingWasDone(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		enter, letGo := make(chan struct{}, 1), make(chan struct{})
		e := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			enter <- struct{}{}
			<-letGo
			return &Total{}, nil
		})
		e.Mailbox = 1
		a := w.node(t, []actors.Definition{e})
		stops := func(what string, err error, want transport.PeerCode) {
			t.Helper()
			var got *transport.PeerError
			if !errors.As(err, &got) || got.Code != want || got.Unknown {
				t.Errorf("%s: %v", what, err)
			}
		}
		go func() { deposit(t, a, "a", 1) }()
		<-enter
		waits := make(chan error, 1)
		go func() {
			_, err := a.ServeAsk(t.Context(), asked(t, "a", &Deposit{}))
			waits <- err
		}()
		synctest.Wait()
		q := asked(t, "a", &Deposit{})
		q.Waiting = []event.Unit{{Name: "account", Key: "b"}}
		_, err := a.ServeAsk(t.Context(), q)
		stops("one too many", err, transport.PeerMailboxFull)
		same(t, "waits left", 0, a.Waits())
		a.HandOver(event.Unit{Name: "account", Key: "a"})
		synctest.Wait()
		close(letGo)
		stops("one that waits", <-waits, transport.PeerStopping)
		synctest.Wait()
		if err := a.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = a.ServeAsk(t.Context(), asked(t, "a", &Deposit{}))
		stops("after Stop", err, transport.PeerStopping)
		stops("a tell after Stop", a.ServeTell(t.Context(), asked(t, "a", &Deposit{})), transport.PeerStopping)
	})
}

// The time of the one who asks is that of the ask, whatever ended it.
func TestAnAskThatIsServedEndsWithItsContext(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		letGo := make(chan struct{})
		a := w.node(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			<-letGo
			return &Total{}, nil
		})})
		for _, begun := range []bool{true, false} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("for a reason of its own"))
			defer cancel()
			_, err := a.ServeAsk(ctx, asked(t, "a", &Deposit{}))
			var got *transport.PeerError
			if !errors.As(err, &got) || got.Code != transport.PeerEnded || got.Unknown != begun {
				t.Errorf("begun %t: %v", begun, err)
			}
		}
		close(letGo)
	})
}

func TestATellIsTakenByTheNodeThatHasTheEntity(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		a, b := w.node(t, []actors.Definition{accounts()}), w.node(t, []actors.Definition{accounts()})
		client, _ := w.client(t)
		deposit(t, a, "a", 1)
		w.first["a"] = "2" // which does not have it
		for _, app := range []interface {
			Tell(ctx context.Context, to actors.Ref, command any, opts ...actors.AskOption) error
		}{a, b, client} {
			if err := app.Tell(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1}); err != nil {
				t.Errorf("tell: %v", err)
			}
		}
		synctest.Wait()
		same(t, "balance", 4, balance(t, a, "a"))
		same(t, "generation at B", uint64(0), b.port.generated.Load())
	})
}

// One that is not taken when its time is over never begins.
func TestATellThatIsNotTakenInTimeIsNotDone(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		release := make(chan struct{})
		a := w.node(t, []actors.Definition{accounts()})
		a.port.releasing = release
		deposit(t, a, "a", 1)
		a.HandOver(event.Unit{Name: "account", Key: "a"})
		synctest.Wait() // it does not get rid of it
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := a.Tell(ctx, ref("a"), &Deposit{Client: "c", Amount: 1})
		var ask *actors.AskError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &ask) || ask.Unknown {
			t.Errorf("tell: %v", err)
		}
		close(release)
		synctest.Wait()
		same(t, "balance", 1, balance(t, a, "a"))
	})
}

// Who tells need not wait for what the entity does before: that may be to ask the one who tells.
func TestATellIsTakenByAnEntityThatDoesSomethingElseFirst(t *testing.T) {
	for name, living := range map[string]bool{"lives": true, "comes to life": false} {
		t.Run(name, func(t *testing.T) {
			asking(t, func(t *testing.T, w *joined) {
				var a *peer
				var hangs atomic.Bool
				raise, told, busy := make(chan struct{}), make(chan struct{}), make(chan struct{})
				a = w.nodeOn(t, func(op faulty.Op) faulty.Fault {
					if op.Call == faulty.Raise && hangs.Load() {
						return faulty.Fault{Wait: raise}
					}
					return faulty.Fault{}
				}, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
					if in.Amount == 1 {
						close(busy)
						return actors.Ask[*Total](c, a, actors.Ref{Kind: "teller", ID: "t"}, &Balance{})
					}
					return &Total{}, nil
				}), tellers(func(c actors.Command) error {
					if living {
						<-busy
					}
					close(told)
					return a.Tell(c, ref("busy"), &Deposit{Client: "c"})
				})})
				if _, err := a.Ask(t.Context(), actors.Ref{Kind: "teller", ID: "t"}, &Balance{}); err != nil {
					t.Fatal(err)
				}
				hangs.Store(!living)
				began := time.Now()
				errs := make(chan error, 2)
				ask := func(to actors.Ref, in *Deposit) {
					_, err := a.Ask(t.Context(), to, in)
					errs <- err
				}
				go ask(ref("busy"), &Deposit{Client: "c", Amount: 1})
				synctest.Wait()
				go ask(actors.Ref{Kind: "teller", ID: "t"}, &Deposit{})
				<-told
				synctest.Wait()
				close(raise)
				for range 2 {
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// It may be the open transaction of the one who tells that the entity waits for.
func TestATellInATransactionDoesNotWaitForTheEntityToLive(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		raise := make(chan struct{})
		a := w.nodeOn(t, func(op faulty.Op) faulty.Fault {
			if op.Call == faulty.Raise {
				return faulty.Fault{Wait: raise}
			}
			return faulty.Fault{}
		}, []actors.Definition{accounts()})
		_ = a.Do(t.Context(), func(u actors.UnitOfWork) error {
			_, err := u.Tx().ExecContext(u, "x") // memory has no SQL, but it was begun
			if err := a.Tell(u, ref("a"), &Deposit{Client: "c", Amount: 1}); err != nil {
				t.Errorf("tell: %v", err)
			}
			close(raise)
			return err
		})
		synctest.Wait()
		same(t, "balance", 1, balance(t, a, "a"))
	})
}

// tellers is an entity kind that tells.
func tellers(tell func(c actors.Command) error) actors.Entity[account] {
	e := only(func(c actors.Command, s account, in *Deposit) (*Total, error) { return &Total{}, tell(c) })
	e.Kind = "teller"
	return e
}
