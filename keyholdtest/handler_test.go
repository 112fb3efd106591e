package keyholdtest_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/faulty"
	"github.com/keyhold/keyhold/eventstore/memory"
	"github.com/keyhold/keyhold/keyholdtest"
)

var errFull = errors.New("the store room is full")

// pack emits a parcel and reminds the cart.
func pack(ctx keyhold.Context, e Filled) error {
	ctx.Emit(Packed{Client: e.Client, Item: e.Item})
	ctx.Send(keyhold.Ref{Kind: "cart", ID: e.Cart}, &Remind{Item: e.Item})
	return nil
}

func filled(client, item string) Filled {
	return Filled{Cart: "cart-of-" + client, Client: client, Item: item}
}

func TestHandlerAppliesWhatIsGivenInOrder(t *testing.T) {
	t.Parallel()
	keyholdtest.Handler(t, Packing(pack), keyholdtest.With(Cart(), Parcels)).
		Given(filled("bob", "tea"), filled("ada", "milk"), Opened{Client: "ada"}, filled("bob", "jam")).
		ThenEmitted(Packed{"bob", "tea"}, Packed{"ada", "milk"}, Packed{"bob", "jam"}).
		ThenSent(keyhold.Ref{Kind: "cart", ID: "cart-of-bob"}, &Remind{"tea"}, &Remind{"jam"}).
		ThenSent(keyhold.Ref{Kind: "cart", ID: "cart-of-eve"}).
		ThenAttempts(3).
		ThenNotHalted().
		Given(filled("bob", "salt")).
		ThenEmitted(Packed{"bob", "salt"}).
		ThenAttempts(1)
}

func TestCategoryOfALoneHandlerNeedsNoDeclaration(t *testing.T) {
	t.Parallel()
	keyholdtest.Handler(t, Packing(func(keyhold.Context, Filled) error { return nil })).
		Given(filled("ada", "tea")).ThenAttempts(1)
	keyholdtest.Handler(t, Labels(func(keyhold.Context, *wrapperspb.StringValue) error { return nil })).
		Given(keyhold.For("l-1", wrapperspb.String("fragile")), keyhold.Backfill(keyhold.For("l-1", wrapperspb.String("this side up")))).
		ThenAttempts(2).ThenEmitted()
}

func TestHandlersOfOneCategoryShareIt(t *testing.T) {
	t.Parallel()
	k := keyholdtest.New(t)
	first := keyholdtest.Handler(k, Packing(func(keyhold.Context, Filled) error { return nil }))
	def := Packing(func(keyhold.Context, Filled) error { return nil })
	def.Name = "opening"
	def.On = append(def.On, keyhold.On(func(packer, keyhold.Context, Opened) error { return nil }))
	second := keyholdtest.Handler(k, def)
	first.Given(filled("ada", "tea"), Opened{Client: "ada"}).ThenAttempts(1)
	second.ThenAttempts(2)
}

func TestOneOfTheCategoriesOfAHandlerNeedsNoDeclaration(t *testing.T) {
	t.Parallel()
	for _, packed := range []keyhold.EventType{keyhold.EventOf[Packed](), keyhold.EventOf[*Packed]()} {
		def := Packing(func(keyhold.Context, Filled) error { return nil })
		def.Categories = append(def.Categories, "parcel")
		def.On = append(def.On, keyhold.On(func(packer, keyhold.Context, Packed) error { return nil }))
		parcels := keyhold.Category{Name: "parcel", Events: []keyhold.EventType{packed}}
		keyholdtest.Handler(t, def, keyholdtest.With(parcels)).Given(filled("ada", "tea"), Packed{"ada", "tea"}).ThenAttempts(2)
	}
}

func TestBackfilledEventIsAssertedAsSuch(t *testing.T) {
	t.Parallel()
	labels := keyhold.Category{Name: "label", Events: []keyhold.EventType{keyhold.EventOf[*wrapperspb.StringValue]()}}
	keyholdtest.Handler(t, Packing(func(ctx keyhold.Context, e Filled) error {
		ctx.Emit(keyhold.Backfill(Packed{e.Client, "label"}), Packed{e.Client, e.Item}, keyhold.Backfill(keyhold.For("l-1", wrapperspb.String("fragile"))))
		return nil
	}), keyholdtest.With(Parcels, labels)).
		Given(filled("ada", "tea")).
		ThenEmitted(keyhold.Backfill(Packed{"ada", "label"}), Packed{"ada", "tea"}, keyhold.Backfill(wrapperspb.String("fragile")))
}

func TestFailedEventIsTriedAgainInVirtualTimeThenHaltsItsKey(t *testing.T) {
	t.Parallel()
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		full, began := true, time.Now()
		h := keyholdtest.Handler(k, Packing(func(ctx keyhold.Context, e Filled) error {
			if e.Item == "piano" && full {
				return errFull
			}
			return pack(ctx, e)
		}), keyholdtest.With(Cart(), Parcels))
		h.Given(filled("ada", "piano"), filled("ada", "tea"), filled("bob", "milk")).
			ThenHalted("ada", errFull.Error()).
			ThenEmitted(Packed{"bob", "milk"}).
			ThenAttempts(4)
		if took := time.Since(began); took > 60*time.Millisecond {
			t.Errorf("two pauses of at most 10 ms and 20 ms took %v", took)
		}
		h.Resume("ada").ThenHalted("ada", "retries exhausted").ThenAttempts(3)
		k.Restart()
		h.ThenHalted("ada", errFull.Error()).ThenAttempts(0)
		full = false
		h.Resume("ada").ThenNotHalted().ThenEmitted(Packed{"ada", "piano"}, Packed{"ada", "tea"})
	})
}

func TestPoisonHaltsOrIsSetAside(t *testing.T) {
	t.Parallel()
	keyholdtest.Handler(t, Packing(pack), keyholdtest.With(Cart(), Parcels)).
		GivenPoison(filled("ada", "tea")).
		ThenHalted("ada", "undecodable").ThenAttempts(0).
		Given(filled("ada", "milk")).ThenAttempts(0)
	keyholdtest.Handler(t, Labels(func(_ keyhold.Context, e *wrapperspb.StringValue) error {
		if e.GetValue() == "illegible" {
			return keyhold.Poison(errors.New("nobody can read it"))
		}
		return nil
	})).
		Given(keyhold.For("l-1", wrapperspb.String("illegible"))).ThenDeadLettered("nobody can read it").ThenAttempts(1).
		GivenPoison(keyhold.For("l-1", wrapperspb.String("fragile"))).ThenDeadLettered("undecodable").ThenAttempts(0).
		Given(keyhold.For("l-1", wrapperspb.String("fragile"))).ThenDeadLettered().ThenAttempts(1).ThenNotHalted()
}

func TestAKeyParksAndIsRetried(t *testing.T) {
	t.Parallel()
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		full := map[string]bool{"piano": true, "harp": true}
		def := Packing(func(ctx keyhold.Context, e Filled) error {
			if full[e.Item] {
				return errFull
			}
			ctx.Emit(Packed{Client: ctx.Key(), Item: e.Item})
			return nil
		})
		def.OnPoison = keyhold.ParkSequence
		h := keyholdtest.Handler(k, def, keyholdtest.With(Cart(), Parcels)).
			Given(filled("ada", "piano"), filled("ada", "tea"), filled("bob", "milk"), filled("ada", "harp")).
			ThenEmitted(Packed{"bob", "milk"}).ThenNotHalted().ThenAttempts(3+1).
			ThenParked("ada", "the store room is full", filled("ada", "piano"), filled("ada", "tea"), filled("ada", "harp")).
			ThenParked("bob", "")
		if rows := k.Parked("packing", "ada"); len(rows) != 3 || rows[0].Attempts != 3 || rows[0].Reason != "retries exhausted" || rows[1].Reason != "" {
			t.Errorf("parked: %+v", rows)
		}
		h.Retry("ada").ThenEmitted().ThenAttempts(3).
			ThenParked("ada", errFull.Error(), filled("ada", "piano"), filled("ada", "tea"), filled("ada", "harp"))
		delete(full, "piano")
		h.Retry("ada").ThenEmitted(Packed{"ada", "piano"}, Packed{"ada", "tea"}).ThenParked("ada", errFull.Error(), filled("ada", "harp"))
		k.Restart()
		delete(full, "harp")
		h.Retry("ada").ThenEmitted(Packed{"ada", "harp"}).ThenParked("ada", "").
			Given(filled("ada", "milk")).ThenEmitted(Packed{"ada", "milk"})
		h.GivenPoison(filled("bob", "tea")).ThenParked("bob", "undecodable", nil).ThenAttempts(0)
	})
}

func TestDeadLettersAreReplayed(t *testing.T) {
	t.Parallel()
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		full := true
		def := Packing(func(ctx keyhold.Context, e Filled) error {
			if full {
				return errFull
			}
			return pack(ctx, e)
		})
		def.OnPoison = keyhold.Release
		h := keyholdtest.Handler(k, def, keyholdtest.With(Cart(), Parcels)).
			Given(filled("ada", "piano"), filled("ada", "harp")).ThenDeadLettered(errFull.Error(), errFull.Error()).
			Replay().ThenDeadLettered(errFull.Error(), errFull.Error()).ThenEmitted().ThenAttempts(2)
		full = false
		h.Replay().ThenDeadLettered().ThenEmitted(Packed{"ada", "piano"}, Packed{"ada", "harp"}).ThenAttempts(2)
		h.Replay().ThenEmitted()
	})
}

func TestCommitThatFailsHasTheEventDoneOnceAllTheSame(t *testing.T) {
	t.Parallel()
	for fault, attempts := range map[keyholdtest.CommitFault]int{keyholdtest.Before: 3, keyholdtest.Unknown: 3, keyholdtest.After: 2} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
				keyholdtest.Handler(k, Packing(pack), keyholdtest.With(Cart(), Parcels)).
					FailCommit(fault, 1).
					Given(filled("ada", "tea"), filled("ada", "milk")).
					ThenEmitted(Packed{"ada", "tea"}, Packed{"ada", "milk"}).
					ThenAttempts(attempts)
			})
		})
	}
}

func TestOnlyWhatWasCommittedIsEmitted(t *testing.T) {
	t.Parallel()
	refused := false
	store := faulty.Wrap(memory.Open(), func(op faulty.Op) faulty.Fault {
		if op.Call != faulty.Commit || op.Changes.Fence.Unit.Name != "packing" || refused {
			return faulty.Fault{}
		}
		refused = true
		return faulty.Fault{Before: errFull}
	})
	keyholdtest.Handler(t, Packing(pack), keyholdtest.With(Cart(), Parcels), keyholdtest.On(store)).
		Given(filled("ada", "tea")).ThenEmitted(Packed{"ada", "tea"}).ThenAttempts(2)
}

func TestHandlersTimersRingAsTimeAdvances(t *testing.T) {
	t.Parallel()
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		def := Packing(func(ctx keyhold.Context, e Filled) error {
			ctx.StartTimer(e.Item, time.Minute)
			return nil
		})
		def.OnTimer = func(_ packer, ctx keyhold.Context, item string) error {
			if item == "piano" {
				return keyhold.Poison(errFull)
			}
			ctx.Emit(Packed{Client: ctx.Key(), Item: item})
			return nil
		}
		h := keyholdtest.Handler(k, def, keyholdtest.With(Cart(), Parcels)).Given(filled("ada", "tea"), filled("bob", "piano")).ThenEmitted()
		k.Advance(time.Minute)
		h.ThenEmitted(Packed{"ada", "tea"}).ThenError(errFull)
	})
}

func TestEntityWhoseStreamOfCommandsIsPoisonedIsHalted(t *testing.T) {
	t.Parallel()
	def := Cart()
	def.Commands[2] = keyhold.OnCommand(func(keyhold.Command, cart, *Remind) (*Listed, error) { return nil, keyhold.Poison(errFull) })
	k := keyholdtest.New(t, keyholdtest.With(Parcels))
	c := keyholdtest.Entity(k, def, "cart-of-ada")
	keyholdtest.Handler(k, Packing(pack)).Given(filled("ada", "tea")).ThenAttempts(1)
	c.ThenHalted(errFull.Error()).ThenState(cart{})
}

func TestEntitiesAndHandlersAreTestedTogether(t *testing.T) {
	t.Parallel()
	k := keyholdtest.New(t, keyholdtest.With(Parcels))
	c := keyholdtest.Entity(k, Cart(), "c-1")
	h := keyholdtest.Handler(k, Packing(pack))
	c.Given(Opened{Cart: "c-1", Client: "ada"}).When(&Fill{Item: "tea"}).ThenEvents(Filled{Cart: "c-1", Client: "ada", Item: "tea"})
	h.ThenEmitted(Packed{"ada", "tea"}).ThenSent(Cart().ID("c-1"), &Remind{"tea"})
	if _, err := keyhold.Ask[*Listed](t.Context(), k.App(), Cart().ID("c-1"), &Items{}); err != nil {
		t.Error(err)
	}
}
