package actors_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// What identifies a command, and what follows from it, is refused by whoever is asked, before anything is done.
func TestIdentifiersThatCannotBeKeptAreRefusedBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	never := answering{err: errors.New("a remote was asked")}
	m, err := actors.NewRemote(actors.RemoteConfig{Codec: types(t), Elsewhere: never})
	if err != nil {
		t.Fatal(err)
	}
	doors := map[string]func(ctx context.Context, opt actors.AskOption) error{
		"ask": func(ctx context.Context, opt actors.AskOption) error {
			_, err := b.Ask(ctx, ref("a"), &Deposit{Client: "c", Amount: 1}, opt)
			return err
		},
		"tell": func(ctx context.Context, opt actors.AskOption) error {
			return b.Tell(ctx, ref("a"), &Deposit{Client: "c", Amount: 1}, opt)
		},
		"ask elsewhere": func(ctx context.Context, opt actors.AskOption) error {
			_, err := m.Ask(ctx, ref("a"), &Deposit{Client: "c", Amount: 1}, opt)
			return err
		},
		"tell elsewhere": func(ctx context.Context, opt actors.AskOption) error {
			return m.Tell(ctx, ref("a"), &Deposit{Client: "c", Amount: 1}, opt)
		},
	}
	for door, knock := range doors {
		for what, option := range map[string]func(string) actors.AskOption{"command id": actors.CommandID, "correlation id": actors.CorrelationID, "tenant": actors.Tenant} {
			for _, text := range []string{"a\x00b", "a\xffb", "a\r\nb", strings.Repeat("i", event.MaxID+1), strings.Repeat("i", 1<<20)} {
				err := knock(t.Context(), option(text))
				wrong, is := errors.AsType[*event.IDError](err)
				ask, isAsk := errors.AsType[*actors.AskError](err)
				if !is || wrong.What != what || !isAsk || ask.Unknown || ask.To != ref("a") || actors.Retryable(err) || len(err.Error()) > 500 {
					t.Errorf("%s with a %s of %.10q: %.500v", door, what, text, err)
				}
			}
		}
	}
	if got := b.balance(t, "a"); got != 0 {
		t.Errorf("the balance is %d: a command was decided", got)
	}
	if got := b.deposit(t, "a", 1, actors.CommandID(strings.Repeat("i", event.MaxID)), actors.Trace(event.Trace{Parent: "\x00", State: "\xff"})); got != 1 {
		t.Errorf("the balance is %d", got)
	}
}

// A trace is no reason to refuse work, nor one to keep what cannot be kept.
func TestATraceThatCannotBeKeptIsLeftOut(t *testing.T) {
	t.Parallel()
	traces := make(chan event.Trace, 10)
	h := ledgers(func(_ *ledger, ctx actors.Context, _ Deposited) error {
		traces <- ctx.Meta().Trace
		return nil
	})
	bad := event.Trace{Parent: strings.Repeat("0", 1<<20)}
	b := setup(t, []actors.Definition{accounts(), h}, func(c *actors.Config) {
		c.Observer.Trace = func(context.Context) event.Trace { return bad }
	})
	b.deposit(t, "a", 1)
	b.deposit(t, "a", 1, actors.Trace(event.Trace{Parent: "p\x00"}))
	b.deposit(t, "a", 1, actors.Trace(event.Trace{Parent: "p", State: "\xff"}))
	b.publish(t, Deposited{Client: "c-a"})
	for _, want := range []event.Trace{{}, {}, {Parent: "p"}, {}} {
		if got := <-traces; got != want {
			t.Errorf("the trace is %.40q, want %q", got, want)
		}
	}
}

// An entry of a program that has no such rule does not make what follows from it something that cannot be kept.
func TestWhatFollowsFromAnEntryOfAnyIdentifiersIsKept(t *testing.T) {
	t.Parallel()
	metas := make(chan actors.Meta, 10)
	first := true
	h := ledgers(func(_ *ledger, ctx actors.Context, _ Deposited) error {
		metas <- ctx.Meta()
		if first {
			first = false
			ctx.Send(ref("a"), &Deposit{Client: "c", Amount: 1})
		}
		return nil
	})
	b := setup(t, []actors.Definition{accounts(), h}, func(c *actors.Config) { c.Port = correlated{c.Port, "a\x00b"} })
	b.publish(t, Deposited{Client: "c"})
	if m := <-metas; m.CorrelationID != "" {
		t.Errorf("the correlation is %q", m.CorrelationID)
	}
	if m := <-metas; m.Sequence != 2 { // the deposit that was sent for, and not another attempt
		t.Errorf("%+v follows", m)
	}
}

// For whom something is must not be lost: a tenant that is none is passed on to nobody, wherever the entity is, and whoever would pass it on has no further attempt. Where what is asked has a tenant of
// its own nothing is passed on.
func TestATenantThatIsNoneIsNotPassedOn(t *testing.T) {
	t.Parallel()
	never := answering{err: errors.New("a remote was asked")}
	m, err := actors.NewRemote(actors.RemoteConfig{Codec: types(t), Elsewhere: never})
	if err != nil {
		t.Fatal(err)
	}
	for name, pass := range map[string]func(b *bundle, ctx actors.Context, opts ...actors.AskOption) error{
		"ask": func(b *bundle, ctx actors.Context, opts ...actors.AskOption) error {
			_, err := b.Ask(ctx, ref("a"), &Deposit{Client: "c", Amount: 1}, opts...)
			return err
		},
		"tell": func(b *bundle, ctx actors.Context, opts ...actors.AskOption) error {
			return b.Tell(ctx, ref("a"), &Deposit{Client: "c", Amount: 1}, opts...)
		},
		"ask elsewhere": func(_ *bundle, ctx actors.Context, _ ...actors.AskOption) error {
			_, err := m.Ask(ctx, ref("a"), &Deposit{Client: "c", Amount: 1})
			return err
		},
		"tell elsewhere": func(_ *bundle, ctx actors.Context, _ ...actors.AskOption) error {
			return m.Tell(ctx, ref("a"), &Deposit{Client: "c", Amount: 1})
		},
		"do": func(b *bundle, ctx actors.Context, _ ...actors.AskOption) error {
			return b.Do(ctx, func(actors.UnitOfWork) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b *bundle
			got := make(chan error, 10)
			h := ledgers(func(_ *ledger, ctx actors.Context, e Deposited) error {
				if e.Amount == 1 { // what was asked for led to it
					return nil
				}
				if name == "ask" || name == "tell" {
					if err := pass(b, ctx, actors.Tenant("acme")); err != nil {
						t.Errorf("with a tenant of its own: %v", err)
					}
				}
				err := pass(b, ctx)
				got <- err
				return err
			})
			b = setup(t, []actors.Definition{accounts(), h}, func(c *actors.Config) { c.Port = ofTenant{c.Port, "ac\x00me"} })
			b.publish(t, Deposited{Client: "c"})
			if err := <-got; !errors.Is(err, actors.ErrPoison) || !strings.Contains(err.Error(), "have its producer write another") {
				t.Error(err)
			}
			if halt := b.saw.halted.Wait(t); halt.Attempts != 1 {
				t.Errorf("halted after %d attempts: %s", halt.Attempts, halt.Error)
			}
		})
	}
}

// What a rejection or an error says is kept as text, whatever is in it.
func TestTheReasonOfARejectionIsKeptAsText(t *testing.T) {
	t.Parallel()
	reason := "no \x00 \xff" + strings.Repeat("!", 1<<20)
	b := setup(t, []actors.Definition{only(func(actors.Command, account, *Deposit) (*Total, error) {
		return nil, &actors.RejectError{Reason: reason}
	})})
	for range 2 { // the second is what was kept
		if _, err := b.Ask(t.Context(), ref("a"), &Deposit{}, actors.CommandID("c-1")); !errors.Is(err, actors.ErrRejected) {
			t.Error(err)
		}
	}
	kept, err := b.store.ReadReply(t.Context(), event.Stream{Kind: "account", ID: "a"}, "c-1")
	if err != nil || kept == nil {
		t.Fatal(kept, err)
	}
	if s := kept.Rejected; !strings.HasPrefix(s, "no \uFFFD \uFFFD!") || len(s) > 64<<10 {
		t.Errorf("%d bytes are kept: %.40q", len(s), s)
	}
}

func TestAHaltKeepsTheErrorAsText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, fail := range map[string]func() error{
			"poison": func() error { return actors.Poison(errors.New("no \x00 \xff" + strings.Repeat("é", 1<<20))) },
			"panic":  func() error { panic("no \x00 \xff" + strings.Repeat("é", 1<<20)) },
		} {
			h := ledgers(func(*ledger, actors.Context, Deposited) error { return fail() })
			h.Retry = actors.RetryPolicy{Attempts: 1}
			b := setup(t, []actors.Definition{h})
			b.publish(t, Deposited{Client: "c"})
			halt := b.saw.halted.Wait(t)
			known, err := b.store.ListHalts(t.Context(), "", event.Unit{}, 10)
			if err != nil || len(known) != 1 {
				t.Fatalf("%s: halts %v, %v", name, known, err)
			}
			for _, s := range []string{halt.Error, known[0].Error} {
				if !utf8.ValidString(s) || strings.Contains(s, "\x00") || len(s) > 4<<10 || !strings.Contains(s, "no \uFFFD \uFFFDé") {
					t.Errorf("%s: %d bytes are kept: %.60q", name, len(s), s)
				}
			}
		}
	})
}

// A node refuses from others what it refuses from its own callers: they may be programs of another release, or none.
func TestANodeTakesNoIdentifiersFromOthersThatCannotBeKept(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	for what, set := range map[string]func(q *transport.PeerAsk, text string){
		"command id":     func(q *transport.PeerAsk, text string) { q.CommandID = text },
		"correlation id": func(q *transport.PeerAsk, text string) { q.CorrelationID = text },
		"causation id":   func(q *transport.PeerAsk, text string) { q.CausationID = text },
		"tenant":         func(q *transport.PeerAsk, text string) { q.Tenant = text },
	} {
		for _, text := range []string{"a\x00b", strings.Repeat("i", event.MaxID+1)} {
			q := asked(t, "a", &Deposit{Client: "c", Amount: 1})
			set(&q, text)
			_, err := b.ServeAsk(t.Context(), q)
			refused, is := errors.AsType[*transport.PeerError](err)
			if !is || refused.Code != transport.PeerBad || refused.Unknown || !strings.HasPrefix(refused.Text, what) {
				t.Errorf("ask with a %s of %.10q: %v", what, text, err)
			}
			if refused, is = errors.AsType[*transport.PeerError](b.ServeTell(t.Context(), q)); !is || refused.Code != transport.PeerBad {
				t.Errorf("tell with a %s of %.10q: %v", what, text, refused)
			}
		}
	}
	q := asked(t, "a", &Deposit{Client: "c", Amount: 1})
	q.Trace = event.Trace{Parent: "\x00"}
	if _, err := b.ServeAsk(t.Context(), q); err != nil {
		t.Error(err)
	}
	if got := b.balance(t, "a"); got != 1 {
		t.Errorf("the balance is %d", got)
	}
}

// correlated is a port whose entries have another correlation, and a longer id with that in it.
type correlated struct {
	partitions.Port
	id string
}

func (p correlated) Fetch(ctx context.Context, h partitions.Held, above []event.Position, max int) (partitions.Fetched, error) {
	return p.with(p.Port.Fetch(ctx, h, above, max))
}

func (p correlated) Advance(ctx context.Context, h partitions.Held, done []event.Position, max int) (partitions.Fetched, error) {
	return p.with(p.Port.Advance(ctx, h, done, max))
}

func (p correlated) with(got partitions.Fetched, err error) (partitions.Fetched, error) {
	for i := range got.Entries {
		got.Entries[i].CorrelationID = p.id
		got.Entries[i].ID += p.id + strings.Repeat("i", event.MaxID)
	}
	return got, err
}

// ofTenant is a port whose entries are of a tenant.
type ofTenant struct {
	partitions.Port
	tenant string
}

func (p ofTenant) Fetch(ctx context.Context, h partitions.Held, above []event.Position, max int) (partitions.Fetched, error) {
	return p.with(p.Port.Fetch(ctx, h, above, max))
}

func (p ofTenant) Advance(ctx context.Context, h partitions.Held, done []event.Position, max int) (partitions.Fetched, error) {
	return p.with(p.Port.Advance(ctx, h, done, max))
}

func (p ofTenant) with(got partitions.Fetched, err error) (partitions.Fetched, error) {
	for i := range got.Entries {
		got.Entries[i].Tenant = p.tenant
	}
	return got, err
}
