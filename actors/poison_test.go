package actors_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/codec"
	"github.com/keyhold/keyhold/event"
)

// pointed is an error whose Error panics for a nil pointer.
type pointed struct{ text string }

func (e *pointed) Error() string { return e.text }

// everything is an error that says yes to whatever it is asked.
type everything struct{}

func (everything) Error() string { return "everything" }
func (everything) Is(error) bool { return true }

// However a behavior fails, the attempt counts, and the last one halts its key.
func TestEveryWayToFailIsCounted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fail func() error
		when func(error) bool
		want int // attempts
	}{
		"ends its goroutine":        {fail: func() error { runtime.Goexit(); return nil }, want: 3},
		"returns a nil pointer":     {fail: func() error { var e *pointed; return e }, want: 3},
		"returns a nil rejection":   {fail: func() error { var e *actors.RejectError; return e }, want: 3},
		"is every error":            {fail: func() error { return everything{} }, want: 3},
		"panics with nil":           {fail: func() error { panic(nil) }, want: 3},
		"RetryPolicy.If panics":     {fail: func() error { return errors.New("no") }, when: func(error) bool { panic("if") }, want: 3},
		"returns what cannot speak": {fail: func() error { return mute{} }, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				h := ledgers(func(*ledger, actors.Context, Deposited) error { calls.Add(1); return tt.fail() })
				h.Retry = actors.RetryPolicy{Attempts: 3, Min: time.Millisecond, If: tt.when}
				b := setup(t, []actors.Definition{h})
				b.publish(t, Deposited{Client: "c"})
				if halt := b.saw.halted.Wait(t); halt.Attempts != tt.want || halt.Error == "" {
					t.Errorf("halted after %d attempts with %q, want %d", halt.Attempts, halt.Error, tt.want)
				}
				if n := int(calls.Load()); n != tt.want {
					t.Errorf("%d calls, want %d", n, tt.want)
				}
			})
		})
	}
}

// mute is an error that panics when asked what it is.
type mute struct{}

func (mute) Error() string { panic("mute") }

// A unit whose goroutine was ended goes on where it was, once its event is done.
func TestAKeyGoesOnAfterABehaviorThatEndedItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := ledgers(func(_ *ledger, _ actors.Context, e Deposited) error {
			if e.Amount == 2 {
				runtime.Goexit()
			}
			return nil
		})
		h.Retry = actors.RetryPolicy{Attempts: 2, Min: time.Second}
		h.OnPoison = actors.Release
		b := setup(t, []actors.Definition{h}, soonIdle)
		b.publish(t, amounts(1, 4)...)
		if dead := b.saw.dead.Wait(t); dead.Sequence != 2 || dead.Attempts != 2 {
			t.Errorf("#%d was set aside after %d attempts, want #2 after 2", dead.Sequence, dead.Attempts)
		}
		b.saw.applied.WaitFor(t, func(e event.Envelope) bool { return e.Sequence == 4 })
		b.saw.passivated.Wait(t)
	})
}

// trap encodes, and panics when it is decoded.
type trap struct{ Client string }

func (trap) MarshalJSON() ([]byte, error)     { return []byte(`{"Client":"c"}`), nil }
func (*trap) UnmarshalJSON(data []byte) error { panic("trap") }

func TestAnEventWhoseDecodingPanicsIsPoison(t *testing.T) {
	t.Parallel()
	registry, err := codec.NewRegistry([]codec.Declaration{codec.Of[trap]("account.trap", 1)})
	if err != nil {
		t.Fatal(err)
	}
	h := ledgers(nothing)
	h.On = actors.Behavior[*ledger]{actors.On(func(*ledger, actors.Context, trap) error { return nil })}
	b := setup(t, []actors.Definition{h}, func(c *actors.Config) {
		c.Codec = registry
		c.Route = func(_ context.Context, _ event.Stream, v any) (event.Envelope, error) {
			enc, err := registry.Encode(v)
			return event.Envelope{Type: enc.Type, Version: enc.Version, Encoding: enc.Encoding, Data: enc.Data, Category: "account", Key: "c"}, err
		}
	})
	b.publish(t, trap{})
	if halt := b.saw.halted.Wait(t); halt.Reason != "undecodable" || halt.Attempts != 1 || !strings.Contains(halt.Error, "trap") {
		t.Errorf("halted after %d attempts: %s: %s", halt.Attempts, halt.Reason, halt.Error)
	}
}

func TestOnlyTheBeginningOfALongErrorIsKept(t *testing.T) {
	t.Parallel()
	h := ledgers(func(*ledger, actors.Context, Deposited) error {
		return actors.Poison(errors.New("begins " + strings.Repeat("\xffé", 1<<20)))
	})
	b := setup(t, []actors.Definition{h})
	b.publish(t, Deposited{Client: "c"})
	halt := b.saw.halted.Wait(t)
	if n := len(halt.Error); n > 4<<10 || n < 2<<10 || !utf8.ValidString(halt.Error) || !strings.HasPrefix(halt.Error, "begins ") {
		t.Errorf("%d bytes are kept, valid UTF-8: %v: %.20q", n, utf8.ValidString(halt.Error), halt.Error)
	}
}
