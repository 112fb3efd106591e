package keyhold_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keyhold/keyhold"
	"github.com/keyhold/keyhold/actors"
	"github.com/keyhold/keyhold/eventstore/postgres"
	"github.com/keyhold/keyhold/internal/postgresserver"
	"github.com/keyhold/keyhold/internal/redisserver"
)

// A behavior that does not return keeps its node from having stopped, and its key from nobody: another node takes it over when the lease has lapsed.
func TestAKeyWhoseBehaviorHangsInAStopGoesToAnotherNode(t *testing.T) {
	t.Parallel()
	db, url := postgresserver.Database(t), redisserver.Run(t, redisserver.Options{}).URL()
	inside, open := make(chan string, 10), make(chan struct{})
	handler := func(node string, hangs bool) keyhold.Handler[string] {
		return keyhold.Handler[string]{
			Name: "losses", Categories: []string{"cart"}, SequentialBy: "client", StartFrom: keyhold.Oldest,
			New: func(string) string { return node },
			On: keyhold.Behavior[string]{keyhold.On(func(node string, _ keyhold.Context, e itemLost) error {
				inside <- node
				if hangs {
					<-open
				}
				return nil
			})},
		}
	}
	first := keyhold.New(onRedis(postgres.Open(db), url, "first"))
	first.Register(cart, losses, handler("first", true))
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := keyhold.Publish(t.Context(), first, itemLost{"ada", "tea"}); err != nil {
		t.Fatal(err)
	}
	within(t, time.Minute, "the first node has the event", inside)
	run(t, onRedis(postgres.Open(db), url, "second"), cart, losses, handler("second", false))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var stuck *actors.StopError
	if err := first.Stop(ctx); !errors.As(err, &stuck) || len(stuck.Stuck) != 1 {
		t.Errorf("Stop: %v", err)
	}
	if err := first.Start(t.Context()); err == nil {
		t.Error("it starts although a behavior is inside")
	}
	if node := within(t, time.Minute, "another node has the event", inside); node != "second" {
		t.Errorf("%s has it", node)
	}
	close(open)
	if err := first.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if len(inside) > 0 {
		t.Errorf("it was given to %s as well", <-inside)
	}
	if err := first.Start(t.Context()); err != nil {
		t.Errorf("it cannot be started again: %v", err)
	}
	stop(t, first)
}
