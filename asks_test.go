package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// Any node can be asked for any entity: the one that has it decides, and its events are in one order.
func TestAnyNodeIsAskedForAnyEntity(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	var apps []*keyhold.App
	for i := range 3 {
		apps = append(apps, run(t, onRedis(postgres.Open(db), url, fmt.Sprint("node-", i)), cart))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const carts, each = 30, 9
	for count := 1; count <= each; count++ {
		for k := range carts {
			app := apps[(k+count)%len(apps)]
			got, err := keyhold.Ask[*added](ctx, app, cart.ID(fmt.Sprint("cart-", k)), &addItem{"ada", "tea"})
			if err != nil {
				t.Fatalf("ask %d of cart-%d at %d: %v", count, k, (k+count)%len(apps), err)
			}
			if got.Count != count {
				t.Fatalf("cart-%d has %d items at the %d-th", k, got.Count, count)
			}
		}
	}
	// A node that leaves gives its entities to the others, who are asked as before; the one that left says that it is not running.
	stop(t, apps[0])
	for k := range carts {
		got, err := keyhold.Ask[*added](ctx, apps[1+k%2], cart.ID(fmt.Sprint("cart-", k)), &addItem{"ada", "tea"})
		if err != nil || got.Count != each+1 {
			t.Fatalf("cart-%d after a node left: %+v, %v", k, got, err)
		}
	}
	if _, err := keyhold.Ask[*added](ctx, apps[0], cart.ID("cart-0"), &addItem{"ada", "tea"}); !errors.Is(err, keyhold.ErrStopping) {
		t.Errorf("a node that left says %v", err)
	}
}

func TestATellReachesAnEntityOfAnotherNode(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	n := newNotes()
	one := run(t, onRedis(postgres.Open(db), url, "one"), cart, n.handler())
	two := run(t, onRedis(postgres.Open(db), url, "two"), cart, n.handler())
	for k := range 8 {
		for _, app := range []*keyhold.App{one, two} {
			if err := keyhold.Tell(t.Context(), app, cart.ID(fmt.Sprint("cart-", k)), &addItem{fmt.Sprint("client-", k), "tea"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 16 {
		within(t, 20*time.Second, "an item", n.news)
	}
}

// A reply that says nothing needs no name.
func TestAReplyWithoutFieldsCrosses(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	bell := keyhold.Entity[int]{
		Kind: "bell", Version: 1,
		Commands: keyhold.Commands[int]{keyhold.OnCommand(func(keyhold.Command, int, *traceOpen) (*struct{}, error) { return new(struct{}), nil })},
		Fold:     keyhold.Fold[int]{keyhold.OnEvent(func(n int, _ traceOpened) int { return n })},
	}
	one := run(t, onRedis(postgres.Open(db), url, "one"), bell)
	two := run(t, onRedis(postgres.Open(db), url, "two"), bell)
	for k := range 8 {
		for _, app := range []*keyhold.App{one, two} {
			if _, err := keyhold.Ask[*struct{}](t.Context(), app, bell.ID(fmt.Sprint(k)), &traceOpen{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
