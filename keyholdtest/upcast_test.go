package keyholdtest_test

import (
	"testing"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/keyholdtest"
)

// SoldV1 is the first version of Sold.
type SoldV1 struct {
	Till  string `json:"till"`
	Euros int    `json:"euros"`
}

// Sold is what a till has sold.
type Sold struct {
	Till  string `json:"till"`
	Cents int    `json:"cents"`
}

// Sell has a till sell something.
type Sell struct{ Cents int }

var (
	_ = keyhold.Type[Sell]("till.sell", 1)
	_ = keyhold.Type[SoldV1]("till.sold", 1)
	_ = keyhold.Type[Sold]("till.sold", 2)
	_ = keyhold.Upcast(func(s SoldV1) Sold {
		if s.Euros == 13 {
			panic("superstition")
		}
		return Sold{Till: s.Till, Cents: 100 * s.Euros}
	})
)

var till = keyhold.Entity[int]{
	Kind: "till", Version: 1,
	Commands: keyhold.Commands[int]{keyhold.OnCommand(func(c keyhold.Command, _ int, in *Sell) (*Listed, error) {
		c.Emit(Sold{Till: c.ID(), Cents: in.Cents})
		return nil, nil
	})},
	Fold: keyhold.Fold[int]{keyhold.OnEvent(func(cents int, s Sold) int { return cents + s.Cents })},
}

func TestOldVersionsCanBeGiven(t *testing.T) {
	t.Parallel()
	keyholdtest.Entity(t, till, "t-1").
		Given(SoldV1{Till: "t-1", Euros: 3}, Sold{Till: "t-1", Cents: 1}).
		ThenState(301)

	h := keyhold.Handler[struct{}]{
		Name: "sales", Categories: []string{"till"}, SequentialBy: "till", New: func(string) struct{} { return struct{}{} },
		On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, ctx keyhold.Context, s Sold) error {
			if s.Till != "central" {
				ctx.Send(till.ID("central"), &Sell{Cents: s.Cents})
			}
			return nil
		})},
	}
	keyholdtest.Handler(t, h, keyholdtest.With(till)).
		Given(keyhold.Backfill(SoldV1{Till: "t-1", Euros: 4}), Sold{Till: "t-1", Cents: 5}).
		ThenSent(till.ID("central"), &Sell{Cents: 400}, &Sell{Cents: 5})
}

func TestOldVersionThatCannotBeReadFailsTheTest(t *testing.T) {
	t.Parallel()
	fails(t, func(t *fake) {
		keyholdtest.Entity(t, till, "t-1").Given(SoldV1{Till: "t-1", Euros: 13})
	}, `upcaster of "till.sold" version 1`, "it panicked at upcast_test.go:", "superstition")
}
