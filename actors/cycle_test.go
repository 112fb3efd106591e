package actors_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
)

func TestATellIsNoCycleSinceNobodyWaits(t *testing.T) {
	t.Parallel()
	var b *bundle
	done, asked := make(chan struct{}), make(chan error, 1)
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if c.ID() == "teller" {
			return &Total{}, b.Tell(c, ref("told"), in)
		}
		<-done
		_, err := b.Ask(c, ref("teller"), &Balance{})
		asked <- err
		return &Total{}, err
	})})
	if _, err := b.Ask(t.Context(), ref("teller"), &Deposit{}); err != nil {
		t.Fatal(err)
	}
	close(done)
	if err := <-asked; err != nil {
		t.Errorf("the one that was told asks the one that told it: %v", err)
	}
}

func TestWhatIsToldInheritsItsCause(t *testing.T) {
	t.Parallel()
	type key struct{}
	var b *bundle
	told := make(chan actors.Meta, 1)
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if c.ID() == "teller" {
			return &Total{}, b.Tell(context.WithValue(c, key{}, "added"), ref("told"), in)
		}
		if got := c.Value(key{}); got != "outside" {
			t.Errorf("value: %v, want that of whoever asked first", got)
		}
		told <- c.Meta()
		return &Total{}, nil
	})})
	ctx := context.WithValue(t.Context(), key{}, "outside")
	_, err := b.Ask(ctx, ref("teller"), &Deposit{}, actors.CommandID("cmd"), actors.Tenant("acme"), actors.Trace(event.Trace{State: "s"}))
	if err != nil {
		t.Fatal(err)
	}
	want := actors.Meta{CorrelationID: "cmd", CausationID: "cmd", Tenant: "acme", Trace: event.Trace{State: "s"}, Attempt: 1}
	if got := <-told; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// An entity that tells itself may do so for ever. What each of its calls added to its context is gone with the call.
func TestAChainOfTellsKeepsNothingOfItsPast(t *testing.T) {
	t.Parallel()
	type key struct{}
	const links = 50
	var b *bundle
	var kept []weak.Pointer[[1 << 10]byte]
	last, end := make(chan struct{}), make(chan struct{})
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if len(kept) == links {
			close(last)
			<-end
			return &Total{}, c.Err() // it is alive while the test looks
		}
		v := new([1 << 10]byte)
		kept = append(kept, weak.Make(v))
		return &Total{}, b.Tell(context.WithValue(c, key{}, v), ref("a"), in)
	})})
	if err := b.Tell(t.Context(), ref("a"), &Deposit{}); err != nil {
		t.Fatal(err)
	}
	<-last
	if n := alive(kept); n > 1 {
		t.Errorf("of %d calls that are over, %d are kept", links, n)
	}
	close(end)
}

func TestWhatWasAskedKeepsNothingOfTheOneThatAsked(t *testing.T) {
	t.Parallel()
	type key struct{}
	var b *bundle
	var kept []weak.Pointer[[1 << 10]byte]
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		if c.ID() == "asked" {
			c.Emit(deposited(in, s))
			return &Total{}, nil
		}
		v := new([1 << 10]byte)
		kept = append(kept, weak.Make(v))
		return actors.Ask[*Total](context.WithValue(c, key{}, v), b, ref("asked"), in)
	})})
	const rounds = 20
	for range rounds {
		if _, err := b.Ask(t.Context(), ref("asks"), &Deposit{Client: "c"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := alive(kept); n > 1 { // the stack of the actor may hold the last
		t.Errorf("of %d calls that are over, %d are kept", rounds, n)
	}
	b.balance(t, "asked")
}

func alive[T any](kept []weak.Pointer[T]) (n int) {
	runtime.GC()
	for _, p := range kept {
		if p.Value() != nil {
			n++
		}
	}
	return n
}

// All begin before any asks: without a refusal they would wait for one another until their timeouts.
func TestEntitiesThatAskInACircleAtTheSameTimeAreNotStuck(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3, 5} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			var b *bundle
			var all sync.WaitGroup
			all.Add(n)
			a := only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
				all.Done()
				all.Wait()
				return actors.Ask[*Total](c, b, ref(in.Client), &Balance{})
			})
			a.Timeout = -1
			b = setup(t, []actors.Definition{a})
			errs := make(chan error, n)
			for i := range n {
				go func() {
					_, err := b.Ask(t.Context(), ref(strconv.Itoa(i)), &Deposit{Client: strconv.Itoa((i + 1) % n)})
					errs <- err
				}()
			}
			refused := 0
			for range n {
				switch err := <-errs; {
				case errors.Is(err, actors.ErrAskCycle):
					refused++
				case err != nil:
					t.Error(err)
				}
			}
			if refused != 1 {
				t.Errorf("%d asks were refused, want the last alone", refused)
			}
		})
	}
}

// Entities that take turns at asking one another are no circle: an answer that was given is not waited for.
func TestEntitiesMayAskOneAnotherInTurn(t *testing.T) {
	t.Parallel()
	var b *bundle
	b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
		return actors.Ask[*Total](c, b, ref(in.Client), &Balance{})
	})})
	for range 200 {
		for from, to := range map[string]string{"a": "b", "b": "a"} {
			if _, err := b.Ask(t.Context(), ref(from), &Deposit{Client: to}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Not even while the one that gave up is still busy.
func TestAnAskThatWasGivenUpIsNoCycle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b *bundle
		begun, gaveUp, asked := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		b = setup(t, []actors.Definition{only(func(c actors.Command, s account, in *Deposit) (*Total, error) {
			if c.ID() == "slow" {
				close(begun)
				<-gaveUp
				_, err := b.Ask(c, ref("hasty"), &Balance{})
				asked <- err
				return &Total{}, err
			}
			ctx, giveUp := context.WithCancel(c)
			go func() { <-begun; giveUp() }()
			_, err := b.Ask(ctx, ref("slow"), in)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("given up: %v", err)
			}
			close(gaveUp)
			synctest.Wait() // the other has asked meanwhile
			return &Total{}, nil
		})})
		if _, err := b.Ask(t.Context(), ref("hasty"), &Deposit{}); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; err != nil {
			t.Error(err)
		}
	})
}
