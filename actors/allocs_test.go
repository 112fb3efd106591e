//go:build !race

package actors_test

import (
	"testing"

	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/event"
)

// An ask is the hot path: what it costs is part of the contract. The race detector allocates on its own account.
func TestAnAskCostsFewAllocations(t *testing.T) {
	for name, opts := range map[string][]option{
		"alone":             {silent},
		"among other nodes": {silent, func(c *actors.Config) { c.Elsewhere = hereFirst{} }},
	} {
		t.Run(name, func(t *testing.T) { fewAllocations(t, opts) })
	}
}

// hereFirst has everything tried here.
type hereFirst struct{ answering }

func (hereFirst) Here(event.Unit) bool { return true }

func fewAllocations(t *testing.T, opts []option) {
	b := setup(t, []actors.Definition{accounts()}, opts...)
	b.deposit(t, "a", 1)
	command := &Deposit{Client: "c", Amount: 1}
	got := testing.AllocsPerRun(2000, func() {
		if _, err := actors.Ask[*Total](t.Context(), b, ref("a"), command); err != nil {
			t.Fatal(err)
		}
	})
	if got > 12 {
		t.Errorf("%v allocations, want 12 at most: event, encoding, id, record, reply and store included", got)
	}
	query := testing.AllocsPerRun(2000, func() {
		if _, err := actors.Ask[*Total](t.Context(), b, ref("a"), &Balance{}); err != nil {
			t.Fatal(err)
		}
	})
	if query > 4 {
		t.Errorf("%v allocations for a query, want 4 at most", query)
	}
}
