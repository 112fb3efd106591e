package actors_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/transport"
)

// heldBack holds the calls of a store back that read an entity, until letGo.
func heldBack(call faulty.Call) (plan faulty.Plan, letGo func()) {
	let := make(chan struct{})
	return func(op faulty.Op) faulty.Fault {
		if op.Call != call {
			return faulty.Fault{}
		}
		return faulty.Fault{Wait: let}
	}, func() { close(let) }
}

// Without a deadline an ask waits one TTL for its entity to be open, wherever that hangs, and whoever asks. Nothing is done of it, also not later.
func TestAnAskWithoutADeadlineWaitsOneTTLForAnEntityToBeOpen(t *testing.T) {
	for _, call := range []faulty.Call{faulty.Raise, faulty.ReadSnapshot, faulty.ReadStream} {
		t.Run(string(call), func(t *testing.T) {
			asking(t, func(t *testing.T, w *joined) {
				plan, letGo := heldBack(call)
				one := w.nodeOn(t, plan, []actors.Definition{accounts()})
				begun := time.Now()
				errs := make(chan error, 3)
				for range 2 {
					go func() {
						_, err := one.Ask(t.Context(), ref("a"), &Deposit{Client: "c", Amount: 1})
						if !errors.Is(err, actors.ErrUnavailable) || !actors.Retryable(err) {
							t.Errorf("it ends with %v", err)
						}
						errs <- err
					}()
				}
				go func() {
					_, err := one.ServeAsk(t.Context(), asked(t, "a", &Deposit{Client: "c", Amount: 1}))
					var got *transport.PeerError
					if !errors.As(err, &got) || got.Code != transport.PeerUnavailable || got.Unknown {
						t.Errorf("for another node it ends with %v", err)
					}
					errs <- err
				}()
				for range 3 {
					if err := <-errs; call != faulty.Raise && !strings.Contains(err.Error(), "account/a was not open after 15s") {
						t.Errorf("it says %v", err)
					}
				}
				if took := time.Since(begun); took != leaseTTL {
					t.Errorf("it took %v", took)
				}
				letGo()
				synctest.Wait()
				same(t, "balance", 5, deposit(t, one, "a", 5))
			})
		})
	}
}

// Whoever said how long it may take, and whoever waits for an entity that is open, waits on.
func TestAnAskWithADeadlineOrOfAnOpenEntityWaitsOn(t *testing.T) {
	asking(t, func(t *testing.T, w *joined) {
		plan, letGo := heldBack(faulty.ReadSnapshot)
		busy := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			pass2(time.Duration(in.Amount) * time.Second)
			c.Emit(deposited(in, s))
			return &Total{Amount: s.Total + in.Amount}, nil
		})
		busy.Timeout = -1
		n := w.nodeOn(t, plan, []actors.Definition{busy})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 3)
		ask := func(ctx context.Context) {
			_, err := n.Ask(ctx, ref("a"), &Deposit{Client: "c", Amount: 40})
			done <- err
		}
		go ask(ctx)
		pass2(2 * leaseTTL)
		go ask(t.Context()) // it is not open yet
		pass2(time.Second)
		letGo()
		synctest.Wait()
		go ask(t.Context())
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
