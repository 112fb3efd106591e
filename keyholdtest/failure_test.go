package keyholdtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/keyholdtest"
)

// entity and handler put what most tests need under test.
func entity(t keyholdtest.T) *keyholdtest.EntityTest[cart] {
	return keyholdtest.Entity(t, Cart(), "c-1").Given(Opened{Cart: "c-1", Client: "ada"})
}

func handler(t keyholdtest.T) *keyholdtest.HandlerTest {
	return keyholdtest.Handler(t, Packing(pack), keyholdtest.With(Cart(), Parcels))
}

// refuses is a handler that cannot do anything.
func refuses(t keyholdtest.T, opts ...keyholdtest.Option) *keyholdtest.HandlerTest {
	def := Packing(func(keyhold.Context, Filled) error { return errFull })
	def.Retry.Attempts = 1
	return keyholdtest.Handler(t, def, opts...)
}

// parks is the same, and parks what it cannot do.
func parks(t keyholdtest.T) *keyholdtest.HandlerTest {
	def := Packing(func(keyhold.Context, Filled) error { return errFull })
	def.Retry.Attempts, def.OnPoison = 1, keyhold.ParkSequence
	return keyholdtest.Handler(t, def)
}

// Each assertion, and each thing that no test wants, fails a test with a message that says what it was about.
func TestWhatFailsATestAndWhatItSays(t *testing.T) {
	t.Parallel()
	ada := Cart().ID("cart-of-ada")
	for name, c := range map[string]struct {
		test  func(t *fake)
		words []string
	}{
		"another event": {
			func(t *fake) { entity(t).When(&Fill{Item: "tea"}).ThenEvents(filled("ada", "jam")) },
			[]string{"events of cart/c-1 (-want +got)", `- 		Item:   "jam",`, `+ 		Item:   "tea",`},
		},
		"an event too many": {
			func(t *fake) { entity(t).When(&Fill{Item: "tea"}).ThenEvents() },
			[]string{"events of cart/c-1", "+ 	keyholdtest_test.Filled{"},
		},
		"another reply": {
			func(t *fake) { entity(t).When(&Fill{Item: "tea"}).ThenReply(&Listed{}) },
			[]string{"reply of cart/c-1 to *keyholdtest_test.Fill (-want +got)", `"tea": 1`},
		},
		"no reply": {
			func(t *fake) { entity(t).When(&Open{}).ThenRejected("open already").ThenReply(&Listed{}) },
			[]string{"cart/c-1 gave no reply"},
		},
		"a reply of an earlier step": {
			func(t *fake) { entity(t).When(&Fill{Item: "tea"}).Given().ThenReply(&Listed{}) },
			[]string{"cart/c-1 gave no reply"},
		},
		"another rejection": {
			func(t *fake) { entity(t).When(&Open{}).ThenRejected("no money") },
			[]string{`cart/c-1, *keyholdtest_test.Open: error "rejected: cart c-1 is open already", want a rejection with "no money"`},
		},
		"no rejection": {
			func(t *fake) { entity(t).When(&Fill{Item: "tea"}).ThenRejected("no money") },
			[]string{`cart/c-1: no error, want a rejection with "no money"`},
		},
		"an error that is no rejection": {
			func(t *fake) { entity(t).When(&Fill{}).ThenRejected("nothing to fill in") },
			[]string{`error "nothing to fill in", want a rejection`},
		},
		"another error": {
			func(t *fake) { entity(t).When(&Fill{}).ThenError(errFull) },
			[]string{`error "nothing to fill in", want one that is "the store room is full"`},
		},
		"an error nobody asked for": {
			func(t *fake) { entity(t).When(&Fill{}) },
			[]string{"cart/c-1, *keyholdtest_test.Fill: an error that the test did not expect: nothing to fill in"},
		},
		"an error nobody asked for, in the middle": {
			func(t *fake) { entity(t).When(&Fill{}).When(&Fill{Item: "tea"}) },
			[]string{"an error that the test did not expect: nothing to fill in"},
		},
		"another state": {
			func(t *fake) { entity(t).ThenState(cart{Client: "bob"}) },
			[]string{"state of cart/c-1 (-want +got)", `"bob"`, `"ada"`},
		},
		"another command sent": {
			func(t *fake) { entity(t).When(&Fill{Item: "tea"}).ThenSent(Cart().ID("reminders"), &Remind{"jam"}) },
			[]string{"commands of cart/c-1 to cart/reminders (-want +got)", `{Item: "jam"}`, `{Item: "tea"}`},
		},
		"an entity that is not halted": {
			func(t *fake) { entity(t).ThenHalted("poison") },
			[]string{`cart/c-1 is not halted, want a halt because of "poison"`},
		},
		"a command by value": {
			func(t *fake) { entity(t).When(Fill{}) },
			[]string{"when keyholdtest_test.Fill: commands and queries are pointers"},
		},
		"a key that cannot be one": {
			func(t *fake) { handler(t).Given(filled("a:b", "tea")) },
			[]string{"given keyholdtest_test.Filled", `category "cart"`},
		},
		"an event of no category": {
			func(t *fake) { handler(t).Given(Foreign{}) },
			[]string{"given keyholdtest_test.Foreign", "in no category"},
		},
		"another event of a handler": {
			func(t *fake) { handler(t).Given(filled("ada", "tea")).ThenEmitted(Packed{"ada", "jam"}) },
			[]string{"events of packing (-want +got)", `"jam"`, `"tea"`},
		},
		"an event emitted without Backfill": {
			func(t *fake) {
				handler(t).Given(filled("ada", "tea")).ThenEmitted(keyhold.Backfill(Packed{"ada", "tea"}))
			},
			[]string{"events of packing (-want +got)", "- 	keyhold.Backfilled"},
		},
		"another command of a handler": {
			func(t *fake) { handler(t).Given(filled("ada", "tea")).ThenSent(ada) },
			[]string{"commands of packing to cart/cart-of-ada (-want +got)", `+ 	keyholdtest_test.Remind{Item: "tea"}`},
		},
		"other attempts": {
			func(t *fake) { handler(t).Given(filled("ada", "tea")).ThenAttempts(2) },
			[]string{"packing made 1 attempts, want 2"},
		},
		"a halt for another reason": {
			func(t *fake) { refuses(t).Given(filled("ada", "tea")).ThenHalted("ada", "undecodable") },
			[]string{`packing/ada is halted because of "retries exhausted: the store room is full", want "undecodable"`, "logged meanwhile:\n  level=ERROR msg=\"halted"},
		},
		"no halt": {
			func(t *fake) { handler(t).Given(filled("ada", "tea")).ThenHalted("ada", "full") },
			[]string{`packing/ada is not halted, want a halt because of "full"`},
		},
		"a halt": {
			func(t *fake) { refuses(t).Given(filled("ada", "tea")).ThenHalted("ada", "full").ThenNotHalted() },
			[]string{"packing/ada is halted: retries exhausted: the store room is full"},
		},
		"a halt nobody asked for": {
			func(t *fake) { refuses(t).Given(filled("ada", "tea")) },
			[]string{"packing/ada is halted at cart:ada #1, cart.filled, and the test did not expect it: retries exhausted: the store room is full"},
		},
		"parked events that nobody asked for": {
			func(t *fake) { parks(t).Given(filled("ada", "tea"), filled("ada", "jam")) },
			[]string{"packing/ada has parked 2 events, from cart:ada #1 on, cart.filled, and the test did not expect it: retries exhausted: the store room is full"},
		},
		"parked again after a retry": {
			func(t *fake) {
				parks(t).Given(filled("ada", "tea")).ThenParked("ada", "full", filled("ada", "tea")).Retry("ada")
			},
			[]string{"packing/ada has parked 1 events, from cart:ada #1 on"},
		},
		"another parked event": {
			func(t *fake) { parks(t).Given(filled("ada", "tea")).ThenParked("ada", "full", filled("ada", "jam")) },
			[]string{"parked by packing/ada (-want +got)", `- 		Item:   "jam",`, `+ 		Item:   "tea",`},
		},
		"parked for another reason": {
			func(t *fake) { parks(t).Given(filled("ada", "tea")).ThenParked("ada", "empty", filled("ada", "tea")) },
			[]string{`packing/ada parks because of "retries exhausted: the store room is full", want "empty"`},
		},
		"a retry of nothing": {
			func(t *fake) { parks(t).Given().Retry("ada") },
			[]string{"retry packing/ada: "},
		},
		"a halt after Resume": {
			func(t *fake) { refuses(t).Given(filled("ada", "tea")).ThenHalted("ada", "full").Resume("ada") },
			[]string{"packing/ada is halted at cart:ada #1, cart.filled, and the test did not expect it"},
		},
		"Resume without a halt": {
			func(t *fake) { handler(t).Resume("ada") },
			[]string{"resume packing/ada: unit is not halted"},
		},
		"a command for nobody": {
			func(t *fake) {
				keyholdtest.Handler(t, Packing(pack), keyholdtest.With(Parcels)).Given(filled("ada", "tea"))
			},
			[]string{"packing/ada is halted", "no such kind of entity", "keyholdtest.With(YourEntity)"},
		},
		"a dead letter nobody asked for": {
			func(t *fake) { illegible(t) },
			[]string{"set label:", "google.protobuf.StringValue, and the test did not expect it: poison: nobody can read it"},
		},
		"a dead letter for another reason": {
			func(t *fake) { illegible(t).ThenDeadLettered("undecodable") },
			[]string{`labels set 1 events aside because of ["poison: nobody can read it"], want ["undecodable"]`},
		},
		"no dead letter": {
			func(t *fake) { handler(t).Given(filled("ada", "tea")).ThenDeadLettered("undecodable") },
			[]string{`packing set 0 events aside because of [], want ["undecodable"]`},
		},
		"no error of a timer": {
			func(t *fake) { handler(t).Given(filled("ada", "tea")).ThenError(errFull) },
			[]string{`packing: no error, want one that is "the store room is full"`},
		},
		"a fault that never was": {
			func(t *fake) { handler(t).FailCommit(keyholdtest.After, 2).Given(filled("ada", "tea")) },
			[]string{"commits that were to fail were never made: 1 of packing (after)"},
		},
		"a fault that was not meant for a halt": {
			func(t *fake) {
				refuses(t).FailCommit(keyholdtest.Before, 1).Given(filled("ada", "tea")).ThenHalted("ada", "full")
			},
			[]string{"never made: 1 of packing (before)"},
		},
		"a fault of no kind": {
			func(t *fake) { handler(t).FailCommit(0, 1) },
			[]string{"FailCommit(0, 1): choose Before, After or Unknown"},
		},
		"rows without SQL": {
			func(t *fake) { handler(t).ThenRows(all) },
			[]string{"rows of SELECT", "keyholdtest.On(store)"},
		},
		"other rows": {
			func(t *fake) {
				keyholdtest.Handler(t, Packing(write), ledger(t.T)).Given(filled("ada", "tea")).ThenRows(all, []any{"ada", "jam"})
			},
			[]string{"rows of SELECT client, item", `- 		string("jam"),`, `+ 		string("tea"),`},
		},
		"a query that is none": {
			func(t *fake) { keyholdtest.Handler(t, Packing(write), ledger(t.T)).ThenRows("SELEKT") },
			[]string{"rows of SELEKT", "syntax error"},
		},
		"time that is real": {
			func(t *fake) { keyholdtest.New(t).Advance(time.Second) },
			[]string{"Advance(1s) in real time", "keyholdtest.Run"},
		},
		"a part that comes too late": {
			func(t *fake) {
				k := keyholdtest.New(t)
				keyholdtest.Entity(k, Cart(), "c-1").Given()
				keyholdtest.Handler(k, Packing(pack))
			},
			[]string{"started already"},
		},
		"an option that comes too late": {
			func(t *fake) {
				k := keyholdtest.New(t)
				k.App()
				keyholdtest.New(k, keyholdtest.With(Parcels))
			},
			[]string{"started already"},
		},
		"declarations that contradict one another": {
			func(t *fake) { keyholdtest.New(t, keyholdtest.With(Parcels, Parcels)).App() },
			[]string{`category "parcel": declared twice`},
		},
		"two categories that nobody declares": {
			func(t *fake) {
				def := Packing(pack)
				def.Categories = append(def.Categories, "returns")
				keyholdtest.Handler(t, def).Given()
			},
			[]string{`handler "packing" subscribes to "cart" and "returns"`, "keyholdtest.With(keyhold.Category{...})"},
		},
		"another protobuf message": {
			func(t *fake) {
				def := Packing(func(ctx keyhold.Context, e Filled) error {
					ctx.Emit(wrapperspb.String(e.Item))
					return nil
				})
				labels := keyhold.Category{Name: "label", Key: "value", Events: []keyhold.EventType{keyhold.EventOf[*wrapperspb.StringValue]()}}
				keyholdtest.Handler(t, def, keyholdtest.With(labels)).Given(filled("ada", "tea")).ThenEmitted(wrapperspb.String("jam"))
			},
			[]string{"events of packing (-want +got)", `"value":`, `string("jam")`, `string("tea")`},
		},
		"a context that was kept": {
			func(t *fake) {
				kept := make(chan keyhold.Context, 1)
				h := keyholdtest.Handler(t, Packing(func(ctx keyhold.Context, e Filled) error {
					kept <- ctx
					return nil
				}), keyholdtest.With(Parcels)).Given(filled("ada", "tea"))
				ctx := <-kept
				ctx.Emit(Packed{})
				h.ThenEmitted()
			},
			[]string{"packing/ada, a goroutine that a behavior left behind: an error that the test did not expect: emit: context used after its behavior returned"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails(t, c.test, c.words...)
		})
	}
}

func illegible(t keyholdtest.T) *keyholdtest.HandlerTest {
	return keyholdtest.Handler(t, Labels(func(keyhold.Context, *wrapperspb.StringValue) error {
		return keyhold.Poison(errors.New("nobody can read it"))
	})).Given(keyhold.For("l-1", wrapperspb.String("tea")))
}

func TestErrorOfATimerNobodyAskedForFailsTheTest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fails(t, func(t *fake) {
			def := Cart()
			def.OnTimer = func(keyhold.Command, cart, string) error { return keyhold.Reject("not yet") }
			k := keyholdtest.New(t)
			keyholdtest.Entity(k, def, "c-1").When(&Open{})
			k.Advance(time.Hour)
		}, `cart/c-1, timer "expire": an error that the test did not expect: rejected: not yet`)
	})
}

func TestBehaviorThatNeverReturnsFailsTheTestInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := pretend(t, func(t *fake) {
			t.Cleanup(func() { close(release) })
			h := keyholdtest.Handler(t, Packing(func(ctx keyhold.Context, e Filled) error {
				<-release
				return nil
			}))
			t.cleanups[0], t.cleanups[1] = t.cleanups[1], t.cleanups[0] // the application is stopped last
			h.Given(filled("ada", "tea"))
		})
		for _, w := range []string{context.DeadlineExceeded.Error(), "ignores its timeout", "lines more"} {
			if len(f.said) == 0 || !strings.Contains(f.said[0], w) {
				t.Errorf("said %q, want %q", f.said, w)
			}
		}
	})
}
