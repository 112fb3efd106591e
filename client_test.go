package keyhold_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/grpc"
)

var _ = keyhold.Type[addItems]("cart.add.many", 1)

// addItems is a command that no cart knows.
type addItems struct{}

func TestAClientAsksWhateverNodeHasTheEntity(t *testing.T) {
	t.Parallel()
	db := postgresserver.Database(t)
	url := redisserver.Run(t, redisserver.Options{}).URL()
	n := newNotes()
	one := run(t, onRedis(postgres.Open(db), url, "one"), cart, n.handler())
	two := run(t, onRedis(postgres.Open(db), url, "two"), cart, n.handler())
	var at string
	for _, m := range two.Members() {
		if m.Node == "two" {
			at = m.Address
		}
	}
	client := keyhold.NewClient(keyhold.ClientConfig{Name: "shop", Peers: grpc.New(grpc.Config{}), Nodes: []string{at}, Logger: quiet})
	if _, err := keyhold.Ask[*added](t.Context(), client, cart.ID("cart-0"), &addItem{"ada", "tea"}); !errors.Is(err, keyhold.ErrStopping) {
		t.Errorf("a client that is not started says %v", err)
	}
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	members, err := client.Members(ctx)
	if err != nil || len(members) != 2 {
		t.Errorf("it knows %v, %v", members, err)
	}
	for k := range 10 {
		id := cart.ID(fmt.Sprint("cart-", k))
		for _, app := range []keyhold.Asker{client, one, two} {
			if _, err := keyhold.Ask[*added](ctx, app, id, &addItem{"ada", "tea"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := keyhold.Tell(ctx, client, id, &addItem{"ada", "milk"}); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			within(t, 20*time.Second, "an item", n.news)
		}
		got, err := keyhold.Ask[*added](ctx, client, id, &addItem{"ada", "tea"}, keyhold.CommandID("once"))
		again, err2 := keyhold.Ask[*added](ctx, one, id, &addItem{"ada", "tea"}, keyhold.CommandID("once"))
		if err != nil || err2 != nil || got.Count != 5 || again.Count != 5 {
			t.Fatalf("%+v, %v, and again %+v, %v", got, err, again, err2)
		}
		within(t, 20*time.Second, "an item", n.news)
	}
	if _, err := keyhold.Ask[*added](ctx, client, cart.ID("cart-1"), &addItems{}); !errors.Is(err, actors.ErrUnknownCommand) {
		t.Errorf("a command that no cart knows: %v", err)
	}
	if _, err := keyhold.Ask[*added](ctx, client, keyhold.Ref{Kind: "basket", ID: "1"}, &addItem{}); !errors.Is(err, actors.ErrUnknownEntity) {
		t.Errorf("a kind that nobody runs: %v", err)
	}
	stop(t, two) // from which it learned of all
	if _, err := keyhold.Ask[*added](ctx, client, cart.ID("cart-1"), &addItem{"ada", "tea"}); err != nil {
		t.Errorf("after a node left: %v", err)
	}
	if err := client.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func TestWhatIsWrongWithAClientIsSaidAtStart(t *testing.T) {
	t.Parallel()
	client := keyhold.NewClient(keyhold.ClientConfig{Name: "a:b", TTL: -1, Logger: quiet})
	err := client.Start(t.Context())
	for _, part := range []string{"Name", "Peers is nil", "Nodes is empty", "TTL"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	err = keyhold.NewClient(keyhold.ClientConfig{Name: "shop", Nodes: []string{"a:1", "a", ":1", "a:"}, Logger: quiet}).Start(t.Context())
	for _, part := range []string{`Nodes[1] "a"`, `Nodes[2] ":1"`, `Nodes[3] "a:"`} {
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "Nodes[0]") {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	for _, err := range []error{
		keyhold.Tell(t.Context(), client, cart.ID("1"), &addItem{}),
		func() error {
			_, err := keyhold.Ask[*added](t.Context(), client, cart.ID("1"), &addItem{})
			return err
		}(),
		func() error { _, err := client.Members(t.Context()); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "Peers is nil") {
			t.Errorf("it says %v", err)
		}
	}
	if err := client.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
