package keyholdtest_test

import (
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/keyholdtest"
)

func TestEntityDecidesFromWhatHasHappened(t *testing.T) {
	t.Parallel()
	cart1 := keyholdtest.Entity(t, Cart(), "c-1").ThenState(cart{})
	cart1.Given(Opened{Cart: "c-1", Client: "ada"}, Filled{Cart: "c-1", Client: "ada", Item: "tea"}).
		When(&Fill{Item: "tea"}).
		ThenEvents(Filled{Cart: "c-1", Client: "ada", Item: "tea"}).
		ThenReply(&Listed{Items: map[string]int{"tea": 2}}).
		ThenSent(keyhold.Ref{Kind: "cart", ID: "reminders"}, &Remind{Item: "tea"}).
		ThenSent(keyhold.Ref{Kind: "cart", ID: "c-2"}).
		ThenState(cart{Client: "ada", Items: map[string]int{"tea": 2}})
	cart1.When(&Open{Client: "bob"}).ThenRejected("c-1 is open already").ThenEvents().
		When(&Fill{}).ThenError(errNothing).
		When(&Items{}).ThenReply(&Listed{Items: map[string]int{"tea": 2}}).ThenEvents()
}

func TestEntitysTimersRingAsTimeAdvances(t *testing.T) {
	t.Parallel()
	keyholdtest.Run(t, func(t *testing.T, k *keyholdtest.Kit) {
		c := keyholdtest.Entity(k, Cart(), "c-1").When(&Open{Client: "ada"}).ThenEvents(Opened{Cart: "c-1", Client: "ada"})
		k.Advance(time.Hour - 1)
		c.ThenEvents()
		k.Advance(1)
		c.ThenEvents(Expired{Cart: "c-1", Client: "ada"}).ThenState(cart{})
	})
}

func TestCommandAskedAgainIsDoneOnceHoweverItsCommitFailed(t *testing.T) {
	t.Parallel()
	id := keyhold.CommandID("the client's own")
	keyholdtest.Entity(t, Cart(), "c-1").
		FailCommit(keyholdtest.Before, 1).
		When(&Fill{Item: "tea"}, id).ThenError(keyholdtest.ErrCommit).ThenEvents().
		FailCommit(keyholdtest.After, 1).
		When(&Fill{Item: "tea"}, id).ThenError(eventstore.ErrUnknownCommit).
		When(&Fill{Item: "tea"}, id).ThenReply(&Listed{Items: map[string]int{"tea": 1}}).ThenEvents().
		ThenState(cart{Items: map[string]int{"tea": 1}})
}
