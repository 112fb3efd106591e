package keyhold_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// Two applications with a database each share a Redis without having agreed on anything: what one of them relays is none of the other's business.
func TestTwoApplicationsOnOneRedis(t *testing.T) {
	t.Parallel()
	url := redisserver.Run(t, redisserver.Options{}).URL()
	carts, prices := newNotes(), newNotes()
	first := run(t, onRedis(postgres.Open(postgresserver.Database(t)), url, "carts"), cart, losses, carts.losses())
	second := run(t, onRedis(postgres.Open(postgresserver.Database(t)), url, "prices"), price, prices.prices())
	const many = 40
	for i := range many {
		if err := keyhold.Publish(t.Context(), second, keyhold.For(strconv.Itoa(i), priceSet{"bread"})); err != nil {
			t.Fatal(err)
		}
	}
	for i := range many {
		if err := keyhold.Publish(t.Context(), first, itemLost{strconv.Itoa(i), "bread"}); err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range map[string]*notes{"carts": carts, "prices": prices} {
		for i := range many {
			within(t, 20*time.Second, fmt.Sprint(name, ": event ", i), n.news)
		}
	}
}
