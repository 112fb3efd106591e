package guide_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport/redis"
)

// The sample of nodes.md: two lines of main, and nothing of the handlers.

func grocer(database, broker string) *keyhold.App {
	app := keyhold.New(keyhold.Config{
		Name:      "grocer",
		Store:     postgres.Open(database), // postgres://user@host/grocer, instead of sqlite.Open("grocer.db")
		Transport: redis.Open(broker),      // redis://host:6379, instead of local.New()
	})
	return app
}

func TestTheGrocerGrows(t *testing.T) {
	t.Parallel()
	database, broker := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()
	var heard struct {
		sync.Mutex
		prices []int
	}
	news := make(chan struct{}, 100)
	crier := keyhold.Handler[struct{}]{
		Name: "crier", Categories: []string{"price"}, SequentialBy: "item", StartFrom: keyhold.Oldest, New: func(string) struct{} { return struct{}{} },
		On: keyhold.Behavior[struct{}]{keyhold.On(func(_ struct{}, _ keyhold.Context, e PriceSet) error {
			heard.Lock()
			defer heard.Unlock()
			heard.prices = append(heard.prices, e.Cents)
			news <- struct{}{}
			return nil
		})},
	}
	var apps []*keyhold.App
	for range 2 {
		app := grocer(database, broker)
		app.Register(keyhold.Category{Name: "price", Key: "item", Events: []keyhold.EventType{keyhold.EventOf[PriceSet]()}}, crier)
		if err := app.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := app.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		apps = append(apps, app)
	}
	var want []int
	for i := range 20 {
		want = append(want, i)
		if err := keyhold.Publish(t.Context(), apps[i%2], PriceSet{Item: "tea", Cents: i}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range want {
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("heard only %v", heard.prices)
		}
	}
	heard.Lock()
	defer heard.Unlock()
	if diff := cmp.Diff(want, heard.prices); diff != "" {
		t.Error(diff)
	}
}
