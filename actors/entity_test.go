package actors_test

import (
	"testing"

	"github.com/keyhold/keyhold/actors"
)

func TestAnEntityDecidesOnTheStateItsEventsFoldTo(t *testing.T) {
	t.Parallel()
	b := setup(t, []actors.Definition{accounts()})
	b.deposit(t, "a", 10)
	if got := b.deposit(t, "a", 5); got != 15 {
		t.Errorf("got %d, want 15", got)
	}
	if got := b.balance(t, "a"); got != 15 {
		t.Errorf("balance: got %d, want 15", got)
	}
	if got := b.balance(t, "b"); got != 0 {
		t.Errorf("balance of another: got %d, want 0", got)
	}
}
